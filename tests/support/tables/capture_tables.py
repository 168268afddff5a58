"""The tables that the job would have written of a capture, made without Spark by the same parser and model."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from kquota_spark.config.settings import Broker, Settings
from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, rule_periods
from kquota_spark.replay.files import broker_id_of, replay_files
from kquota_spark.replay.rows import decision_rows, request_rows, usage_rows
from kquota_spark.schema.columns import Table
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE
from kquota_spark.store.rows import arrow_rows
from kquota_spark.store.rules_tables import RulesTables
from tests.support.logs.captures import Capture
from tests.support.places import DATA
from tests.support.tables.table_rows import write_table

Lines = Callable[[list[bytes]], list[bytes]]
Quotas = Callable[[list[QuotaChange]], list[QuotaChange]]


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
    governor = RuleGovernor(RuleBook(rule_periods(changes, apply_lag_ms=capture.apply_lag_ms)))
    files = []
    for path in sorted((DATA / capture.name).glob("broker-*.gz")):
        broker_id = broker_id_of(path, None)
        original = gzip.decompress(path.read_bytes()).splitlines()
        shipped = root / f"broker-{broker_id}.log"
        shipped.write_bytes(b"".join(line + b"\n" for line in lines(original)))
        write_requests(root, broker_id, lines(original), reached_kafka_after_ms)
        files.append((broker_id, shipped))
    found = replay_files(files, governor, config)
    _append(root, USAGE, arrow_rows(USAGE, usage_rows("test", found)))
    _append(root, DECISIONS, arrow_rows(DECISIONS, decision_rows("test", found, config.name)))
    broker = Broker(
        version="3.7" if config.variant.value == "<=3.7" else "3.9",
        quota_window_num=config.num_samples,
        quota_window_size_seconds=config.window_ms // 1_000,
    )
    return Settings(cluster_id="test", tables=str(root), broker=broker)


def write_requests(root: Path, broker_id: int, lines: list[bytes], after_ms: int) -> None:
    """The rows that INGEST makes of a broker's lines, each in Kafka so long after its own time."""
    _append(root, REQUESTS, _request_rows(broker_id, tuple(lines), after_ms))


@lru_cache(maxsize=6)
def _request_rows(broker_id: int, lines: tuple[bytes, ...], after_ms: int) -> pa.Table:
    """Those rows; several tests take the lines of a capture as they are."""
    return pa.Table.from_batches([request_rows("test", broker_id, lines, "UTC", after_ms)])


def _append(root: Path, declared: Table, rows: pa.Table) -> None:
    write_table(root, declared.name)
    write_deltalake(str(root / declared.name), rows, mode="append")
