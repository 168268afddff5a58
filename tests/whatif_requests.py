"""`python -m tests.whatif_requests --requests N`: how long `kquota whatif` takes for so many requests.

Three brokers over an hour, five requests a second in each bucket, on two connections. Measured twice: with another
limit for one bucket, and for every bucket.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from kquota_spark.cli.main import main as kquota
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.schema.tables import USAGE
from tests.support.reports.gathered_report import rule
from tests.support.tables.table_rows import DAY, T0_MS, write_table

_BROKERS, _SECONDS, _EACH, _BYTES = (1, 2, 3), 3_600, 5, 10_000
_ROWS_AT_ONCE = 500_000


def _points(seconds: np.ndarray, buckets: np.ndarray) -> Any:
    count = len(seconds) * _EACH
    place = np.tile(np.arange(_EACH), len(seconds))
    times = np.repeat(T0_MS + 1_000 * seconds, _EACH) + 200 * place + np.repeat(buckets % 50, _EACH)
    zeros = np.zeros(count, np.int64)
    fields = {
        "record_time_ms": times, "log_time_ms": times + 1,
        "connection_hash": 1_000_003 * np.repeat(buckets, _EACH) + place % 2, "correlation_id": np.arange(count),
        "amount": zeros + _BYTES, "observed_throttle_ms": zeros, "kind": zeros, "network_time_us": zeros,
    }  # fmt: skip
    declared = USAGE.arrow_schema().field("points").type.value_type
    arrays = [pa.array(fields[each.name]).cast(each.type) for each in declared]
    structs = pa.StructArray.from_arrays(arrays, fields=list(declared))
    return pa.ListArray.from_arrays(pa.array(np.arange(0, count + 1, _EACH), pa.int32()), structs)


def _write(root: Path, requests: int) -> int:
    """Write the tables; return the number of buckets."""
    buckets = max(1, requests // (_EACH * _SECONDS * len(_BROKERS)))
    schema = USAGE.arrow_schema()
    for broker_id in _BROKERS:
        seconds, numbers = (
            each.ravel() for each in np.meshgrid(np.arange(_SECONDS), np.arange(buckets), indexing="ij")
        )
        for start in range(0, len(seconds), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            rows = len(seconds[part])
            of_row: dict[str, Any] = {
                "cluster_id": pa.repeat("demo", rows), "event_date": pa.repeat(DAY, rows),
                "broker_id": pa.repeat(broker_id, rows), "quota_type": pa.repeat("produce", rows),
                "principal_type": pa.repeat("User", rows), "client_id": pa.repeat("app", rows),
                "user": pa.array([f"user-{number}" for number in numbers[part]]),
                "second": pa.array(1_000_000 * (seconds[part] + T0_MS // 1_000)).cast(pa.timestamp("us", tz="UTC")),
                "amount": pa.repeat(_EACH * _BYTES, rows), "requests": pa.repeat(_EACH, rows),
                "source": pa.repeat("log", rows), "points": _points(seconds[part], numbers[part]),
            }  # fmt: skip
            columns = [
                of_row[field.name].cast(field.type) if field.name in of_row else pa.nulls(rows, field.type)
                for field in schema
            ]
            table = pa.Table.from_arrays(columns, schema=schema)
            write_deltalake(str(root / "usage"), table, mode="append", partition_by=list(USAGE.partition_by))
    write_table(root, "decisions")
    # Five requests of 10 kB a second are 50 kB/s: nobody is throttled, and everybody under 40 kB/s.
    write_table(
        root,
        "quota_rules",
        *(rule(Entity(f"user-{number}"), producer_byte_rate=60_000.0) for number in range(buckets)),
    )
    return buckets


def _timed(root: Path, *added: str) -> str:
    """The time, the time on processors and the most memory of a process, as text."""
    words = [word for each in added for word in ("--add", each)]
    started, worked = time.monotonic(), _cpu_s()
    with contextlib.redirect_stdout(io.StringIO()):
        assert kquota(["whatif", "--config", str(root / "kquota.yaml"), *words]) == 0
    took_s, worked_s = time.monotonic() - started, _cpu_s() - worked
    largest_mb = max(getrusage(who).ru_maxrss for who in (RUSAGE_SELF, RUSAGE_CHILDREN)) // 1_024
    return f"{took_s:.1f} s ({worked_s:.1f} s of CPU, at most {largest_mb:,} MB per process)"


def _cpu_s() -> float:
    """Seconds on processors, with those of processes that have ended."""
    return sum(each.ru_utime + each.ru_stime for each in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.whatif_requests", description=__doc__)
    options.add_argument("--requests", type=int, default=1_000_000, metavar="N", help="default: 1,000,000")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="kquota-whatif-") as directory:
        root = Path(directory)
        buckets = _write(root, chosen.requests)
        (root / "kquota.yaml").write_text(f"cluster_id: demo\ntables: {root}\n", encoding="utf-8")
        requests = buckets * _EACH * _SECONDS * len(_BROKERS)
        one = _timed(root, "user=user-0,producer_byte_rate=40000")
        print(f"{requests:,} requests, another limit for 1 of {buckets:,} buckets: {one}")
        every = _timed(root, *(f"user=user-{number},producer_byte_rate=40000" for number in range(buckets)))
        print(f"{requests:,} requests, another limit for every bucket: {every}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
