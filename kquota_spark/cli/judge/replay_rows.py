"""The verdicts of a replay as rows: one a bucket, one a request, one a verdict that differs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kquota_spark.cli.resolve.resolve import finite
from kquota_spark.findings.agreement_causes import cause_of
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import BANDWIDTH
from kquota_spark.model.replay.agreement import Agreement
from kquota_spark.model.replay.decision import Decision
from kquota_spark.model.replay.replay import Verdict
from kquota_spark.replay.files import BucketKey, Replay


def bucket_rows(found: Replay) -> list[dict[str, Any]]:
    """One row a bucket: those that the broker throttled longest first, then those with the largest amount."""
    rows = [_bucket_row(key, verdicts, found.decisions[key]) for key, verdicts in found.verdicts.items()]
    return sorted(rows, key=lambda row: (-row["observed_throttle_ms"], -row["amount"]))


def _bucket_row(key: BucketKey, verdicts: Sequence[Verdict], decisions: Sequence[Decision]) -> dict[str, Any]:
    tally = Agreement()
    tally.add_all(verdicts)
    throttles_ms = [verdict.throttle_ms for verdict in verdicts]
    observed_ms = [verdict.point.observed_throttle_ms for verdict in verdicts]
    last = decisions[-1]
    return {
        **bucket_columns(key),
        "level": last.level,
        "rule": last.rule,
        "limit_per_s": finite(verdicts[-1].governing.limit_per_s),
        "requests": len(verdicts),
        "amount": sum(verdict.point.amount for verdict in verdicts),
        "throttled_requests": sum(throttle_ms > 0 for throttle_ms in throttles_ms),
        "observed_throttled_requests": sum(throttle_ms > 0 for throttle_ms in observed_ms),
        "throttle_ms": sum(throttles_ms),
        "observed_throttle_ms": sum(observed_ms),
        "wrong": tally.false_positive + tally.false_negative + tally.uncertain_wrong,
        "uncertain": tally.uncertain,
    }


def request_rows(found: Replay) -> Iterator[dict[str, Any]]:
    """One row a request, in order of time."""
    entries = [(key, verdict) for key, verdicts in found.verdicts.items() for verdict in verdicts]
    entries.sort(key=lambda entry: entry[1].point.record_time_ms)
    for key, verdict in entries:
        yield _verdict_columns(key, verdict) | {
            "amount": verdict.point.amount,
            "window_ms": verdict.window_ms,
            "outcome": verdict.outcome.value,
            "cause": None if verdict.cause is None else verdict.cause.value,
        }


def wrong_rows(found: Replay, config: RateConfig) -> Iterator[dict[str, Any]]:
    """The verdicts that differ from the broker's, each with its likely cause."""
    for key, verdicts in found.verdicts.items():
        for index, verdict in enumerate(verdicts):
            if verdict.is_wrong:
                sure = {"is_certain": verdict.cause is None, "cause": _cause(key, verdicts, index, config)}
                yield _verdict_columns(key, verdict) | sure


def _cause(key: BucketKey, verdicts: Sequence[Verdict], index: int, config: RateConfig) -> str:
    """Noise on the times says nothing about thread time and partitions that are not in the log."""
    if key.quota_type in BANDWIDTH:
        return cause_of(verdicts, index, config)
    found = verdicts[index].cause
    return "not explained: check window settings and quotas" if found is None else found.value


def wrong_line(row: dict[str, Any]) -> tuple[str, str]:
    """A verdict that differs, for people: when, and what."""
    sure = "certain" if row["is_certain"] else "uncertain"
    return row["record_time"], (
        f"broker {row['broker_id']} {row['quota_type']} "
        f"{terminal_text(bucket_name(row))}: {row['quota_used_percent']} % of quota, ours {row['throttle_ms']} ms, "
        f"broker {row['observed_throttle_ms']} ms ({sure}): {row['cause']}"
    )


def bucket_name(row: Mapping[str, Any]) -> str:
    """`alice / etl`, `alice`, `etl`, or a callback's `group=pay`; not escaped."""
    tags: Iterable[tuple[str, str]] = row["bucket_tags"].items()
    parts = [row[name] for name in ("bucket_user", "bucket_client_id") if row[name]]
    return ", ".join(f"{name}={value}" for name, value in tags) or " / ".join(parts) or '""'


def bucket_columns(key: BucketKey) -> dict[str, Any]:
    """Where it happened."""
    return {
        "broker_id": key.broker_id,
        "quota_type": key.quota_type.value,
        "bucket_user": key.bucket.user,
        "bucket_client_id": key.bucket.client_id,
        "bucket_tags": dict(key.bucket.custom_tags),
    }


def _verdict_columns(key: BucketKey, verdict: Verdict) -> dict[str, Any]:
    limit = finite(verdict.governing.limit_per_s)
    moment = dt.datetime.fromtimestamp(verdict.point.record_time_ms / 1_000, dt.UTC)
    return {
        "record_time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        **bucket_columns(key),
        "limit_per_s": limit,
        "rate_per_s": round(verdict.rate_per_s, 1 if key.quota_type in BANDWIDTH else 3),
        "quota_used_percent": round(100.0 * verdict.rate_per_s / limit, 3) if limit else None,
        "throttle_ms": verdict.throttle_ms,
        "observed_throttle_ms": verdict.point.observed_throttle_ms,
    }
