"""`python -m tests.why_requests --decisions N`: the time of causes in `violations --why`, `throttled` and the report.

The tables are those of `big_tables`, with 20 buckets on a broker of their own that send 50,400 requests each in the
newest hour, above their limit. Five clients share every second bucket.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from kquota_spark.cli.main import main as kquota
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.schema.columns import Table
from kquota_spark.schema.quota_tables import QUOTA_CHANGES, QUOTA_RULES
from kquota_spark.schema.tables import DECISIONS, USAGE, VIOLATIONS
from kquota_spark.store.rows import entity_columns
from tests.bench.big_tables import DAYS, FIRST_DAY, write_big_tables

_BUCKETS, _BROKER, _LIMIT = 20, 9, 1_000_000.0
BUSY_S = 3_600
_BYTES = 100_000
_DAY = FIRST_DAY + timedelta(days=DAYS - 1)
_BEGIN_S = round(datetime(_DAY.year, _DAY.month, _DAY.day, 22, tzinfo=UTC).timestamp())


def _points(client: int, each: int, seconds: int) -> Any:
    """The points of one client, `each` in every second on a connection of its own."""
    count = seconds * each
    place = np.tile(np.arange(each), seconds)
    times = 1_000 * (_BEGIN_S + np.repeat(np.arange(seconds), each)) + 1_000 // each * place + 7 * client
    zeros = np.zeros(count, np.int64)
    fields = {
        "record_time_ms": times, "log_time_ms": times + 1, "connection_hash": zeros + client,
        "correlation_id": np.arange(count), "amount": zeros + _BYTES, "observed_throttle_ms": zeros + 700,
        "kind": zeros, "network_time_us": zeros,
    }  # fmt: skip
    declared = USAGE.arrow_schema().field("points").type.value_type
    arrays = [pa.array(fields[one.name]).cast(one.type) for one in declared]
    structs = pa.StructArray.from_arrays(arrays, fields=list(declared))
    return pa.ListArray.from_arrays(pa.array(np.arange(0, count + 1, each), pa.int32()), structs)


def _append(root: Path, table: Table, rows: int, values: dict[str, Any]) -> None:
    columns = []
    for field in table.arrow_schema():
        value = values.get(field.name)
        column = value if isinstance(value, pa.Array) else pa.repeat(pa.scalar(value, type=field.type), rows)
        columns.append(column.cast(field.type))
    data = pa.Table.from_arrays(columns, schema=table.arrow_schema())
    write_deltalake(str(root / table.name), data, mode="append", partition_by=list(table.partition_by))


def _times(seconds: int) -> Any:
    return pa.array(1_000_000 * (_BEGIN_S + np.arange(seconds))).cast(pa.timestamp("us", tz="UTC"))


def write_busy_buckets(root: Path, seconds: int = BUSY_S) -> None:
    """Add twenty buckets that are above their limit for so long in the newest day, with 14 requests per second."""
    begin, end = (datetime.fromtimestamp(_BEGIN_S + after_s, UTC) for after_s in (0, seconds))
    rules = []
    for number in range(_BUCKETS):
        user, is_shared = f"busy-{number}", number % 2
        own = {"cluster_id": "big", "event_date": _DAY, "broker_id": _BROKER, "quota_type": "produce",
               "source": "log"}  # fmt: skip
        clients, each = (5, 14 // 5) if is_shared else (1, 14)
        for client in range(clients):
            _append(root, USAGE, seconds, own | {
                "principal_type": "User", "user": user, "client_id": f"app-{client}", "second": _times(seconds),
                "tile": 0, "amount": each * _BYTES, "requests": each, "duplicates": 0,
                "observed_throttle_ms": 700 * each, "points": _points(client, each, seconds),
            })  # fmt: skip
        bucket = {"bucket_user": user, "bucket_client_id": "", "level": 3, "rule": f"users/{user}",
                  "limit_per_s": _LIMIT, "users": [user],
                  "client_ids": [f"app-{client}" for client in range(clients)]}  # fmt: skip
        delay_ms = 10_000 + 100 * number
        _append(root, DECISIONS, seconds, own | bucket | {
            "second": _times(seconds), "rate_per_s": 1.4 * _LIMIT, "quota_used_percent": 140.0, "amount": 14 * _BYTES,
            "requests": 14, "throttle_ms": 700, "observed_throttle_ms": 700, "throttled_requests": 14,
            "observed_throttled_requests": 14, "total_throttle_ms": delay_ms, "observed_total_throttle_ms": delay_ms,
            "requests_judged": 14, "requests_agreeing": 14, "is_certain": True, "is_rules_behind": False,
            "late": 0, "model_variant": "3.8+/11x1000ms",
        })  # fmt: skip
        _append(root, VIOLATIONS, 1, own | bucket | {
            "episode_id": f"busy-{number}", "start_time": begin, "end_time": end, "last_second": end,
            "peak_rate_per_s": 1.4 * _LIMIT, "peak_quota_used_percent": 140.0, "violated_seconds": seconds,
            "throttled_ms": delay_ms * seconds, "observed_throttled_ms": delay_ms * seconds,
            "throttled_requests": 14 * seconds, "observed_throttled_requests": 14 * seconds,
        })  # fmt: skip
        rules.append(user)
    _write_rules(root, rules)


def _write_rules(root: Path, users: list[str]) -> None:
    from_time, known = datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC)
    shared = [{"cluster_id": "big", **entity_columns(Entity(user=user)), "version": 7, "source": "zookeeper"}
              for user in users]  # fmt: skip
    rule = {"producer_byte_rate": _LIMIT, "valid_from": from_time}
    change = {"key": "producer_byte_rate", "value": _LIMIT, "changed_at": from_time, "observed_at": known}
    for table, own in ((QUOTA_RULES, rule), (QUOTA_CHANGES, change)):
        data = [{name: (row | own).get(name) for name in table.names} for row in shared]
        write_deltalake(
            str(root / table.name), pa.Table.from_pylist(data, schema=table.arrow_schema()), mode="append",
            partition_by=list(table.partition_by),
        )  # fmt: skip


def _commands(root: Path) -> Iterator[list[str]]:
    config = ["--config", str(root / "kquota.yaml")]
    yield ["violations", "--broker", str(_BROKER), *config]
    yield ["violations", "--broker", str(_BROKER), "--why", *config]
    yield ["throttled", *config]
    yield ["report", "--period", f"{_DAY}..{_DAY}", "--to", str(root / "report.html"), *config]


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.why_requests", description=__doc__)
    options.add_argument("--decisions", type=int, default=2_000_000, metavar="N", help="default: 2,000,000")
    options.add_argument(
        "--root", type=Path, help="use the tables in this folder, and write them if it has none"
    )
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="kquota-why-") as directory:
        root = chosen.root or Path(directory)
        if not (root / DECISIONS.name).exists():
            root.mkdir(parents=True, exist_ok=True)
            write_big_tables(root, chosen.decisions)
            write_busy_buckets(root)
        (root / "kquota.yaml").write_text(f"cluster_id: big\ntables: {root}\n", encoding="utf-8")
        for words in _commands(root):
            started, worked = time.monotonic(), time.process_time()
            with contextlib.redirect_stdout(io.StringIO()):
                assert kquota(words) == 0
            name = " ".join(words[: words.index("--config")])
            took_s, worked_s = time.monotonic() - started, time.process_time() - worked
            print(f"{name}: {took_s:.1f} s ({worked_s:.1f} s of CPU)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
