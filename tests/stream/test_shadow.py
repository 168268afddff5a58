"""The shadow of the streaming job on a real log: the rows of the offline replay, over a crash and another file too."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kquota_spark.audit.queries import close_all_windows
from kquota_spark.checkpoints.noted_pins import shadow_in_force
from kquota_spark.config.settings import Settings
from kquota_spark.formats.exchange import declared
from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.model.quotas.rules import RuleBook, rule_periods
from kquota_spark.pipeline.kept_requests import Kept
from kquota_spark.store.creation import create_tables
from tests.support.pipeline.shadowed import Values, known, run_batches, usage_of
from tests.support.places import DATA
from tests.support.spark.queries import (
    forget_last_commit,
    rows_of,
    run_topic,
    write_rules,
    write_topic,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPTURE = DATA / "zk39-levels"
QUOTAS = CAPTURE / "quotas.yaml"
SHIPPED_MS = 1_795_240_000_000
KEY = ("broker_id", "quota_type", "bucket_user", "bucket_client_id", "second")
COMPARED = (
    *KEY, "level", "rule", "limit_per_s", "rate_per_s", "requests", "throttle_ms", "throttled_requests",
    "total_throttle_ms", "unknown_requests", "is_near", "enforced_limit_per_s", "enforced_throttled_requests",
    "enforced_total_throttle_ms",
)  # fmt: skip


def _half() -> Values:
    """Half of each quota of the capture."""
    book = RuleBook(rule_periods(read_quota_file(QUOTAS)))
    return {
        entity: {key: float(int(value / 2)) for key, value in rule.values.items()}
        for entity in book
        for rule in book.of(entity)
        if rule.values
    }


def _messages() -> list[tuple[int, bytes]]:
    lines = [
        (int(path.name.split("-")[1].split(".")[0]), line)
        for path in CAPTURE.glob("*.log.gz")
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    return sorted(lines, key=lambda line: line[1][1:24])


def _settings(settings: Settings, tmp_path: Path, kept: Kept = "all") -> Settings:
    file = tmp_path / "proposal.yaml"
    file.write_text(declared.write(dict[Any, Any](_half())), "utf-8")
    quotas = replace(settings.quotas, shadow=str(file), shadow_name="half")
    settings = replace(settings, quotas=quotas, kept_requests=kept)
    create_tables(settings)
    write_rules(settings, *read_quota_file(QUOTAS))
    return settings


def _shadow(settings: Settings) -> list[tuple[Any, ...]]:
    rows = rows_of(settings, "shadow_decisions")
    return sorted((tuple(row[name] for name in COMPARED) for row in rows), key=repr)


def _expected() -> list[tuple[Any, ...]]:
    enforced = RuleBook(rule_periods(read_quota_file(QUOTAS)))
    job = run_batches(usage_of(CAPTURE, QUOTAS), known(enforced, _half()), 60)
    rows = [{**row, "second": round(row["second"].timestamp() * 1_000)} for row in job.shadow]
    return sorted((tuple(row[name] for name in COMPARED) for row in rows), key=repr)


@pytest.mark.parametrize("kept", ["unreadable", "all"])
def test_the_rows_equal_the_offline_replay_and_a_crash_adds_none(
    spark: SparkSession, settings: Settings, tmp_path: Path, kept: Kept
) -> None:
    settings, messages = _settings(settings, tmp_path, kept), _messages()
    size = -(-len(messages) // 5)
    for start in range(0, len(messages), size):
        write_topic(settings, messages[start : start + size], SHIPPED_MS, start)
    run_topic(spark, settings)
    close_all_windows(settings)
    run_topic(spark, settings)
    expected = _expected()
    assert len(expected) > 300
    assert _shadow(settings) == expected
    pin = shadow_in_force(settings)
    assert pin is not None
    assert {(row["shadow"], row["shadow_version"]) for row in rows_of(settings, "shadow_decisions")} == {
        ("half", pin.version)
    }
    # A crash after the last commit, and meanwhile another file: the micro-batch keeps the version that it began with.
    Path(settings.quotas.shadow).write_text("[]", "utf-8")
    version = DeltaTable(f"{settings.tables}/shadow_decisions").version()
    forget_last_commit(settings)
    run_topic(spark, settings)
    assert _shadow(settings) == expected
    assert DeltaTable(f"{settings.tables}/shadow_decisions").version() == version
    assert shadow_in_force(settings) == pin


def test_without_a_shadow_there_is_no_table(spark: SparkSession, settings: Settings) -> None:
    write_rules(settings, *read_quota_file(QUOTAS))
    write_topic(settings, _messages()[:2_000], SHIPPED_MS)
    run_topic(spark, settings)
    assert not (Path(settings.tables) / "shadow_decisions").exists()
