"""The tables that the job would have written of a capture, made without Spark by the same parser and model."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from kquota_spark.config.settings import Broker, Settings
from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.formats.request_log.clock import LogClock
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.points import UNSIZED_KINDS
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, stretches
from kquota_spark.model.replay.decision import Decision
from kquota_spark.pipeline.ingest import IngestSettings, MessageReader, parsed
from kquota_spark.replay.files import BucketKey, Replay, broker_id_of, replay_files
from kquota_spark.store.rules_tables import RulesTables
from tests.support.logs.captures import Capture
from tests.support.places import DATA
from tests.support.tables.table_rows import write_table

Lines = Callable[[list[bytes]], list[bytes]]
Quotas = Callable[[list[QuotaChange]], list[QuotaChange]]
_AGREEMENT = {
    "requests_judged": "requests_judged",
    "requests_agreeing": "agreeing",
    "false_positive": "false_positive",
    "false_negative": "false_negative",
    "judged_throttled": "throttled_by_broker",
    "uncertain": "uncertain",
    "uncertain_wrong": "uncertain_wrong",
    "inferred": "inferred",
    "excluded": "excluded",
    "throttle_errors_ms": "throttle_errors_ms",
    "window_off": "window_off",
    "window_off_false_positive": "window_off_false_positive",
    "window_off_false_negative": "window_off_false_negative",
}
_DECISION = (
    "level", "rule", "rule_version", "limit_per_s", "rate_per_s", "quota_used_percent", "amount", "requests",
    "throttle_ms", "observed_throttle_ms", "throttled_requests", "observed_throttled_requests",
    "total_throttle_ms", "late", "users", "client_ids", "is_certain", "observed_total_throttle_ms",
    "unsized_requests",
)  # fmt: skip


def write_capture(
    root: Path,
    capture: Capture,
    configured: RateConfig | None = None,
    *,
    lines: Lines = list,
    quotas: Quotas = list,
    reached_kafka_after_ms: int = 5,
) -> Settings:
    """Write requests, usage, decisions and the quotas' tables of a capture; the settings that read them.

    Args:
        root: of the tables.
        capture: of tests/data.
        configured: what the audit believes the brokers' ring to be; the right one if not given.
        lines: what becomes of the lines before they are shipped.
        quotas: what becomes of the quotas before the audit reads them.
        reached_kafka_after_ms: time from a line's own, unchanged time to its Kafka timestamp.
    """
    config = configured or capture.config
    changes = quotas(read_quota_file(DATA / capture.name / "quotas.yaml"))
    tables = RulesTables(str(root), "test", source="file", apply_lag_ms=capture.apply_lag_ms)
    tables.write_file(changes, 0)
    governor = RuleGovernor(RuleBook(stretches(changes, apply_lag_ms=capture.apply_lag_ms)))
    files = []
    for path in sorted((DATA / capture.name).glob("broker-*.gz")):
        broker_id = broker_id_of(path, None)
        original = gzip.decompress(path.read_bytes()).splitlines()
        shipped = root / f"broker-{broker_id}.log"
        shipped.write_bytes(b"".join(line + b"\n" for line in lines(original)))
        write_requests(root, broker_id, lines(original), reached_kafka_after_ms)
        files.append((broker_id, shipped))
    found = replay_files(files, governor, config)
    write_table(root, "usage", *_usage(found))
    write_table(root, "decisions", *({**row, "model_variant": config.name} for row in _decisions(found)))
    broker = Broker(
        version="3.7" if config.variant.value == "<=3.7" else "3.9",
        quota_window_num=config.num_samples,
        quota_window_size_seconds=config.window_ms // 1_000,
    )
    return Settings(cluster_id="test", tables=str(root), broker=broker)


def write_requests(root: Path, broker_id: int, lines: list[bytes], after_ms: int) -> None:
    """The rows that INGEST makes of a broker's lines, each in Kafka so long after its own time."""
    write_table(root, "requests", *_request_rows(broker_id, tuple(lines), after_ms))


@lru_cache(maxsize=6)
def _request_rows(broker_id: int, lines: tuple[bytes, ...], after_ms: int) -> Sequence[dict[str, Any]]:
    """Those rows; several tests take the lines of a capture as they are."""
    clock = LogClock("UTC")
    shipped_ms = pa.array([clock.epoch_ms(line[1:24]) + after_ms for line in lines], pa.int64())
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["log"] * len(lines),
            "partition": pa.array([broker_id] * len(lines), pa.int32()),
            "offset": pa.array(range(len(lines)), pa.int64()),
            "timestamp_ms": shipped_ms,
            "written_by_ms": shipped_ms,
            "value": pa.array(lines),
            "broker": [str(broker_id).encode()] * len(lines),
        }
    )
    settings = IngestSettings("test", "UTC", 60_000, 30_000, 4_096)
    return tuple(parsed(batch, MessageReader(settings)).to_pylist())


def _time(time_ms: int) -> dict[str, Any]:
    second = datetime.fromtimestamp(time_ms / 1_000, UTC)
    return {"second": second, "event_date": second.date()}


def _usage(found: Replay) -> Iterable[dict[str, Any]]:
    for key, of_bucket in found.stretches.items():
        for stretch in of_bucket:
            yield {
                "cluster_id": "test", "broker_id": key.broker_id, "quota_type": key.quota_type.value,
                "principal_type": "User", "user": stretch.user, "client_id": stretch.client_id,
                **_time(stretch.second_ms), "tile": 0,
                "amount": sum(point.amount for point in stretch.points), "requests": len(stretch.points),
                "rate_per_s": float(sum(point.amount for point in stretch.points)),
                "duplicates": 0, "points": [point._asdict() for point in stretch.points], "source": "log",
                "observed_throttle_ms": sum(point.observed_throttle_ms for point in stretch.points),
                "unsized_requests": sum(point.kind in UNSIZED_KINDS for point in stretch.points),
            }  # fmt: skip


def _decisions(found: Replay) -> Iterable[dict[str, Any]]:
    for key, of_bucket in found.decisions.items():
        for decision in of_bucket:
            yield {
                **_key(key),
                **_time(decision.second_ms),
                **_values(decision),
                "is_rules_behind": False,
                "source": "log",
            }


def _key(key: BucketKey) -> dict[str, Any]:
    return {
        "cluster_id": "test", "broker_id": key.broker_id, "quota_type": key.quota_type.value,
        "bucket_user": key.bucket.user, "bucket_client_id": key.bucket.client_id,
    }  # fmt: skip


def _values(decision: Decision) -> dict[str, Any]:
    values = {name: getattr(decision, name) for name in _DECISION}
    return values | {name: getattr(decision.agreement, source) for name, source in _AGREEMENT.items()}
