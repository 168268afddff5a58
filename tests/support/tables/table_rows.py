"""Small real Delta tables from literal rows, for the tests of commands that read tables.

A row names what its test is about; the rest has the values of one quiet second of alice's bucket.
"""

from __future__ import annotations

import argparse
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from kquota_spark.errors import UserError
from kquota_spark.schema.tables import TABLES

T0_MS = 1_795_239_600_000
"""2026-11-21 05:40:00 UTC."""
DAY = date(2026, 11, 21)

_DECLARED = {table.name: table for table in TABLES}
_PLACE = {"cluster_id": "demo", "event_date": DAY, "broker_id": 1, "quota_type": "produce"}


def second(offset_s: int) -> datetime:
    """T0 and so many seconds."""
    return datetime.fromtimestamp(T0_MS / 1_000 + offset_s, UTC)


def write_table(root: Path, name: str, *rows: dict[str, Any]) -> None:
    """Append rows to a table, creating it; columns that a row does not name are null."""
    table = _DECLARED[name]
    path = str(root / name)
    if not DeltaTable.is_deltatable(path):
        DeltaTable.create(path, schema=table.arrow_schema(), partition_by=list(table.partition_by))
    if rows:
        data = [{column: row.get(column) for column in table.names} for row in rows]
        unknown = {column for row in rows for column in row} - set(table.names)
        assert not unknown, unknown
        write_deltalake(path, pa.Table.from_pylist(data, schema=table.arrow_schema()), mode="append")


def request(offset: int, time_ms: int = T0_MS, **changed: Any) -> dict[str, Any]:
    """A produce request of 1,000 bytes at an offset of the log topic."""
    return {
        **_PLACE,
        "kind": "request",
        "topic": "log",
        "partition": 0,
        "kafka_offset": offset,
        "kafka_timestamp_ms": time_ms + 5,
        "log_time_ms": time_ms + 1,
        "record_time_ms": time_ms,
        "is_out_of_time": False,
        "principal_type": "User",
        "user": "alice",
        "client_id": "etl",
        "api_key": 0,
        "api_version": 9,
        "point_kind": 0,
        "charged_bytes": 1_000,
        "observed_throttle_ms": 0,
        "connection": "c1",
        "correlation_id": offset,
        **changed,
    }


def heartbeat(offset: int, time_ms: int = T0_MS) -> dict[str, Any]:
    """A shipper's heartbeat."""
    return request(offset, time_ms, kind="heartbeat", quota_type=None, user=None, api_key=None)


def unreadable(offset: int, reason: str) -> dict[str, Any]:
    """A line that could not be read."""
    return request(offset, kind="unreadable", quota_type=None, user=None, api_key=None, reason=reason)


def usage(offset_s: int = 0, **changed: Any) -> dict[str, Any]:
    """A second of alice's client etl: one request of 1,000 bytes."""
    return {
        **_PLACE,
        "principal_type": "User",
        "user": "alice",
        "client_id": "etl",
        "event_date": second(offset_s).date(),
        "second": second(offset_s),
        "tile": 0,
        "amount": 1_000,
        "requests": 1,
        "duplicates": 0,
        "rate_per_s": 1_000.0,
        "observed_throttle_ms": 0,
        "source": "log",
        **changed,
    }


def decision(offset_s: int = 0, **changed: Any) -> dict[str, Any]:
    """A second of alice's bucket: one request, well under the limit."""
    return {
        **_PLACE,
        "bucket_user": "alice",
        "bucket_client_id": "",
        "event_date": second(offset_s).date(),
        "second": second(offset_s),
        "level": 3,
        "rule": "users/alice",
        "rule_version": 7,
        "limit_per_s": 1_000_000.0,
        "rate_per_s": 250_000.0,
        "quota_used_percent": 25.0,
        "amount": 1_000,
        "requests": 1,
        "throttle_ms": 0,
        "observed_throttle_ms": 0,
        "throttled_requests": 0,
        "observed_throttled_requests": 0,
        "total_throttle_ms": 0,
        "requests_judged": 1,
        "requests_agreeing": 1,
        "false_positive": 0,
        "false_negative": 0,
        "uncertain": 0,
        "inferred": 0,
        "excluded": 0,
        "late": 0,
        "is_certain": True,
        "is_rules_behind": False,
        "source": "log",
        "users": ["alice"],
        "client_ids": ["etl"],
        **changed,
    }


def violation(offset_s: int = 0, lasted_s: int | None = 5, **changed: Any) -> dict[str, Any]:
    """An episode of alice's bucket; open without a length."""
    return {
        **_PLACE,
        "episode_id": f"e{offset_s}",
        "bucket_user": "alice",
        "bucket_client_id": "",
        "start_time": second(offset_s),
        "end_time": None if lasted_s is None else second(offset_s + lasted_s),
        "last_second": second(offset_s + (lasted_s or 1) - 1),
        "level": 3,
        "rule": "users/alice",
        "limit_per_s": 1_000_000.0,
        "peak_rate_per_s": 1_234_567.0,
        "peak_quota_used_percent": 123.4567,
        "violated_seconds": 5,
        "throttled_ms": 12_345,
        "throttled_requests": 42,
        "source": "log",
        "users": ["alice"],
        "client_ids": ["etl"],
        **changed,
    }


def source(known_through_s: int) -> dict[str, Any]:
    """The row of quota_rules that says through when the source is known."""
    return {
        "cluster_id": "demo",
        "level": 0,
        "known_through": second(known_through_s),
        "version": 7,
        "source": "zookeeper",
    }


def run(*arguments: str) -> int:
    """Run a command of the reading groups as `kquota` does; an error is its text on standard output."""
    from kquota_spark.cli.check import doctor
    from kquota_spark.cli.read import decisions, declared_tables, usage, violations

    parser = argparse.ArgumentParser(prog="kquota")
    commands = parser.add_subparsers(required=True)
    for module in (violations, decisions, usage, declared_tables, doctor):
        module.add_commands(commands)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except UserError as error:
        print(f"kquota: {error}")
        return 1


def rule(entity: str, level: int | None, since_s: int = -30 * 86_400, **values: Any) -> dict[str, Any]:
    return {"cluster_id": "demo", "entity": entity, "level": level, "valid_from": second(since_s), "version": 7,
            "source": "zookeeper", **values}  # fmt: skip
