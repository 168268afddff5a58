"""Tables of a week of many clients with every request, and the review of a lower default for all of them.

Each client sends for twelve seconds of each hour, five requests per second. In three hours of a day it sends at its own
rate, in the others at half of it. The rates go from 50 kB/s to 1 MB/s.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
from deltalake import write_deltalake

from kquota_spark.schema.columns import Table
from kquota_spark.schema.quota_tables import QUOTA_RULES
from kquota_spark.schema.tables import DECISIONS, USAGE
from tests.support.chance import Chance
from tests.support.places import ROOT

DAYS = 7
BASE, HEAD = 1_100_000, 800_000
"""The default of all users in bytes per second, before and after: one client in five sends more than that after."""
_START = datetime(2026, 11, 14, tzinfo=UTC)
_SECONDS, _REQUESTS = 12, 5
_USAGE = f"""
with bursts as (
  select c.range as i, h.range as hour, s.range as s,
         if(h.range % 24 between 9 and 11, 1.0, 0.5) * (50000 + 950000 * c.range / {{clients}}) as rate,
         {{start}} + h.range * 3600 + (c.range * 37 + {{shift}}) % 3500 + s.range as at_s
  from range({{clients}}) c, range({{hour}}, {{hour}} + 24) h, range({_SECONDS}) s
), sent as (select *, (rate / {_REQUESTS})::bigint as each_amount, {{names}}[i + 1] as name from bursts)
select 'week' as cluster_id, make_timestamptz(at_s * 1000000) as second, 1 + (i % 3)::int as broker_id,
       'produce' as quota_type, 'User' as principal_type, name as "user", 'app-' || i as client_id, 0 as tile,
       each_amount * {_REQUESTS} as amount, {_REQUESTS} as requests, 0 as duplicates, rate as rate_per_s,
       0 as observed_throttle_ms, 'log' as source,
       list_transform(range({_REQUESTS}), lambda k: {{{{'record_time_ms': at_s * 1000 + k * 190,
         'log_time_ms': at_s * 1000 + k * 190 + 2, 'connection_hash': i, 'correlation_id': (s * {_REQUESTS} + k)::int,
         'amount': each_amount, 'observed_throttle_ms': 0, 'kind': 0, 'network_time_us': 0}}}}) as points
from sent order by second
"""
_DECISIONS = """
select cluster_id, second, broker_id, quota_type, "user" as bucket_user, '' as bucket_client_id, 6 as level,
       'users/<default>' as rule, 1100000.0 as limit_per_s, rate_per_s, amount, requests, 0 as throttle_ms,
       0 as throttled_requests, '3.8+/11x1000ms' as model_variant, 'log' as source from usage
"""


_WITH_MEMORY = """\
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss // 1024, file=sys.stderr)
sys.exit(code)
"""
"""Runs a program, and prints the seconds of processors and the most memory (MB) that it used."""


class Took(NamedTuple):
    """One review of the week."""

    requests: int
    seconds: float
    cpu_seconds: float
    """Seconds of processors, which a busy machine does not change much."""
    code: int
    comment_bytes: int
    headline: str
    largest_mb: int
    """Most memory of the process."""


def write_week(root: Path, chance: Chance, clients: int, days: int = DAYS) -> Path:
    """Write the tables and both files of quotas; returns the settings.

    Args:
        root: an empty folder.
        chance: draws the names, and the minutes of the bursts.
        clients: how many.
        days: how many, from 2026-11-14 on.
    """
    connection = duckdb.connect(config={"memory_limit": "4GB", "temp_directory": str(root / "spill")})
    connection.execute("set TimeZone = 'UTC'")
    names = [f"user-{number}-{chance.randrange(10**6)}" for number in range(clients)]
    shift, first_s = chance.randrange(3_000), int(_START.timestamp())
    for day in range(days):
        sql = _USAGE.format(clients=clients, hour=24 * day, start=first_s, shift=shift, names="$names")
        usage = connection.sql(sql, params={"names": names}).to_arrow_table()
        date = (_START + timedelta(days=day)).date()
        _append(root, USAGE, usage, date)
        connection.register("usage", usage)
        _append(root, DECISIONS, connection.sql(_DECISIONS).to_arrow_table(), date)
        connection.unregister("usage")
    rule = {"cluster_id": "week", "level": 6, "entity": "users/<default>", "producer_byte_rate": float(BASE),
            "valid_from": datetime(1970, 1, 1, tzinfo=UTC), "version": 1, "source": "admin"}  # fmt: skip
    _append(root, QUOTA_RULES, pa.Table.from_pylist([rule]))
    for name, value in (("base", BASE), ("head", HEAD)):
        text = f"- {{user: <default>, type: producer_byte_rate, value: {value}}}\n"
        (root / f"{name}.yaml").write_text(text, encoding="utf-8")
    settings = root / "kquota.yaml"
    settings.write_text(f"cluster_id: week\ntables: {root / 'tables'}\n", encoding="utf-8")
    return settings


def _append(root: Path, table: Table, found: pa.Table, date: object = None) -> None:
    schema = table.arrow_schema()
    columns = [
        pa.array([date] * found.num_rows, pa.date32())
        if field.name == "event_date"
        else found.column(field.name).cast(field.type)
        if field.name in found.column_names
        else pa.nulls(found.num_rows, field.type)
        for field in schema
    ]
    write_deltalake(
        str(root / "tables" / table.name),
        pa.Table.from_arrays(columns, schema=schema),
        mode="append",
        partition_by=list(table.partition_by),
    )


def review_week(root: Path, clients: int, days: int = DAYS) -> Took:
    """Run the command in a process of its own, as a check of a pull request does."""
    program = (sys.executable, "-m", "kquota_spark.cli.main")
    words = ("review", "--base", str(root / "base.yaml"), "--head", str(root / "head.yaml"))
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _WITH_MEMORY, *program, *words, "--config", str(root / "kquota.yaml")],
        capture_output=True, check=False, cwd=root, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    seconds = time.monotonic() - start
    text = done.stdout.decode()
    headline = re.search(r"\*\*(.*)\*\*", text)
    *complaints, used = done.stderr.decode().split("\n")[:-1]
    cpu_seconds, largest_mb = used.split()
    assert headline is not None and not complaints, done.stderr.decode()
    requests = clients * days * 24 * _SECONDS * _REQUESTS
    return Took(
        requests, seconds, float(cpu_seconds), done.returncode, len(done.stdout), headline[1], int(largest_mb)
    )
