"""Tables of some weeks with known demand: free, waiting, hidden, growing, and new.

alice sends a request per window of ten seconds in the first six minutes of each hour: 36 windows from 100 kB/s to
135 kB/s in steps of 1 kB/s. bob wants 400 kB/s for five minutes of each hour under a limit of 200 kB/s. Five requests
of 400 kB per window are served, a second apart, and the last one is throttled for five seconds. carol is like alice,
but only in the last three days. dave is like alice, from 150 kB/s on, and grows by 1 % per day. erin sends a request
per window: in two minutes of each hour it takes the whole 100 kB/s of its limit and is throttled until the next one, in
four minutes it has 50 kB/s.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import write_deltalake

from kquota_spark.schema.columns import Table
from kquota_spark.schema.tables import DECISIONS, USAGE

FIRST = datetime(2026, 11, 1, tzinfo=UTC)
NEW_DAYS = 3
_SENT = """
with hours as (select range as hour from range({hours})), windows as (
  select hour, range as place, {start} + hour * 3600 + range * 10 as at_s from hours, range(36)
), sent as (
  select at_s + 1 as at_s, 10 * (100000 + 1000 * place) as amount, 0 as throttle_ms, name as "user", rule, limit_per_s,
         1 as connection
  from windows, (values ('alice', 'users/<default>', 200000.0, 0), ('carol', 'users/carol', 1000000.0, {new_hour}))
    as names (name, rule, limit_per_s, begin_hour)
  where hour >= begin_hour
  union all
  select at_s + part, 400000, if(part = 5, 5000, 0), 'bob', 'users/<default>', 200000.0, 2
  from windows, (select unnest(range(1, 6)) as part) where place < 30
  union all
  select at_s + 1, (10 * (150000 + 1000 * place) * pow(1.01, hour / 24.0))::bigint, 0, 'dave', 'users/dave', 400000.0, 3
  from windows
  union all
  select at_s + 1, if(place < 12, 1000000, 500000), if(place < 12, 9000, 0), 'erin', 'users/erin', 100000.0, 4
  from windows
)
select 'weeks' as cluster_id, make_timestamptz(at_s * 1000000)::date as event_date,
       make_timestamptz(at_s * 1000000) as second, 1 as broker_id, 'produce' as quota_type,
       'User' as principal_type, "user", 'app' as client_id, 0 as tile, amount, 1 as requests, 0 as duplicates,
       amount::double as rate_per_s, throttle_ms as observed_throttle_ms, 'log' as source,
       [{{'record_time_ms': at_s * 1000, 'log_time_ms': at_s * 1000 + 2, 'connection_hash': connection,
          'correlation_id': at_s::int, 'amount': amount, 'observed_throttle_ms': throttle_ms, 'kind': 0,
          'network_time_us': 0}}] as points,
       "user" as bucket_user, '' as bucket_client_id, rule, limit_per_s, throttle_ms as throttle_ms,
       throttle_ms as observed_total_throttle_ms, (throttle_ms > 0)::int as observed_throttled_requests,
       (throttle_ms > 0)::int as throttled_requests, throttle_ms as total_throttle_ms, ["user"] as users,
       [client_id] as client_ids
from sent order by second
"""


def write_weeks(root: Path, days: int) -> Path:
    """Write `decisions` and `usage` of so many days; returns the settings.

    Args:
        root: an empty folder.
        days: from 2026-11-01 on.
    """
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    sql = _SENT.format(hours=24 * days, start=int(FIRST.timestamp()), new_hour=24 * (days - NEW_DAYS))
    found = connection.sql(sql).to_arrow_table()
    for table in (USAGE, DECISIONS):
        _write(root, table, found)
    settings = root / "kquota.yaml"
    settings.write_text(f"cluster_id: weeks\ntables: {root / 'tables'}\n", encoding="utf-8")
    return settings


def _write(root: Path, table: Table, found: pa.Table) -> None:
    """Write the columns of a table that are found; the others are null."""
    schema = table.arrow_schema()
    columns = [
        found.column(field.name).cast(field.type)
        if field.name in found.column_names
        else pa.nulls(found.num_rows, field.type)
        for field in schema
    ]
    whole = pa.Table.from_arrays(columns, schema=schema)
    write_deltalake(str(root / "tables" / table.name), whole, partition_by=list(table.partition_by))
