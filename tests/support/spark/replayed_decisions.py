"""Decisions of the offline replay as rows of the table, to compare the job's with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.rules import RuleBook, rule_periods
from kquota_spark.replay.files import replay_files
from kquota_spark.schema.decision_columns import FROM_AGREEMENT, FROM_DECISION


def replayed(logs: Sequence[tuple[int, Path]], quotas: Path) -> list[dict[str, Any]]:
    """Log files with their broker, judged under a quota file."""
    book = RuleBook(rule_periods(read_quota_file(quotas)))
    found = replay_files(logs, RuleGovernor(book), RateConfig())
    rows = []
    for key, decisions in found.decisions.items():
        for decision in decisions:
            row: dict[str, Any] = {
                "broker_id": key.broker_id,
                "quota_type": key.quota_type.value,
                "bucket_user": key.bucket.user,
                "bucket_client_id": key.bucket.client_id,
                "second": decision.second_ms,
                "is_certain": decision.is_certain,
            }
            row.update({name: getattr(decision, name) for name in FROM_DECISION})
            row.update({to: getattr(decision.agreement, name) for to, name in FROM_AGREEMENT.items()})
            rows.append(row)
    return in_order(rows)


def in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By broker, quota type, bucket and second."""
    place = ("broker_id", "quota_type", "bucket_user", "bucket_client_id", "second")
    return sorted(rows, key=lambda row: tuple(row[name] for name in place))


def differences(expected: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]]) -> list[str]:
    """The first few rows that differ in any column of the expected ones; short enough to be read."""
    of_table = [{name: row[name] for name in expected[0]} for row in in_order(found)]
    if len(of_table) != len(expected):
        return [f"{len(of_table)} rows, expected {len(expected)}"]
    pairs = ((one, other) for one, other in zip(expected, of_table, strict=True) if one != other)
    return [f"expected {one}, found {other}" for one, other in pairs][:3]
