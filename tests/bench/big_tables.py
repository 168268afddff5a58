"""Tables of a cluster that has been audited for days, written without Spark: what the reading commands are timed on.

Closed days are a few large files, as `kquota maintain` leaves them, and are rolled up into `agreement`; the newest day
is as many small files as a trigger of some seconds makes. Numbers come from row numbers, so that every run writes the
same tables.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import write_deltalake

from kquota_spark.audit.past.maintain import roll_up_agreement
from kquota_spark.config.settings import Settings
from kquota_spark.reports.agreement.agreement import of_day
from kquota_spark.schema.columns import Table
from kquota_spark.schema.quota_tables import QUOTA_CHANGES, QUOTA_RULES
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE, VIOLATIONS

FIRST_DAY = date(2026, 11, 16)
DAYS = 5
BUCKETS = 1_000
FILES_OF_THE_NEWEST_DAY = 400
_LEAST_OF_A_FILE = 50
"""Rows: small tables have fewer files."""
_FILES_OF_A_CLOSED_DAY = 4
_LIMIT = 1_000_000

_IDENTITY = f"""
  'big' as cluster_id, (i % 3)::int + 1 as broker_id, if(i % 2 = 0, 'produce', 'fetch') as quota_type,
  'User' as principal_type, 'user-' || (i % {BUCKETS}) as "user", 'client-' || (i % 7) as client_id,
  'user-' || (i % {BUCKETS}) as bucket_user, '' as bucket_client_id, null::varchar as bucket_tags
"""
_NUMBERS = f"""
  (hash(i) % 1300000)::double as rate_per_s, {_LIMIT}.0 as limit_per_s, rate_per_s > limit_per_s as is_over,
  if(is_over, ((rate_per_s - limit_per_s) / limit_per_s * 10000)::bigint, 0) as throttle
"""
_DECISION = f"""
  3 as level, 'users/user-' || (i % {BUCKETS}) as rule, 7 as rule_version, 100 * rate_per_s / limit_per_s
  as quota_used_percent, rate_per_s::bigint as amount, 10 as requests, throttle as throttle_ms,
  throttle as observed_throttle_ms, is_over::int * 3 as throttled_requests,
  is_over::int * 3 as observed_throttled_requests, throttle * 3 as total_throttle_ms, 10 as requests_judged,
  10 as requests_agreeing, 0 as false_positive, 0 as false_negative, is_over::int * 3 as judged_throttled,
  0 as judged_near_limit, 0 as uncertain, 0 as uncertain_wrong, 0 as inferred, 0 as excluded, 0 as late,
  [0::int] as throttle_errors_ms, true as is_certain, false as is_rules_behind, '3.8+/11x1000ms' as model_variant,
  'log' as source, ["user"] as users, [client_id] as client_ids
"""
_USE = """
  0 as tile, rate_per_s::bigint as amount, 10 as requests, 0 as duplicates, throttle * 3 as observed_throttle_ms,
  'log' as source
"""
_REQUEST = """
  'request' as kind, 'log' as topic, 0 as partition, i as kafka_offset, epoch_ms(second) + 9 as kafka_timestamp_ms,
  epoch_ms(second) + 2 as log_time_ms, epoch_ms(second) as record_time_ms, false as is_out_of_time,
  if(i % 2 = 0, 0, 1)::int as api_key, 9 as api_version, 0 as point_kind, 65536 as charged_bytes,
  throttle::int as observed_throttle_ms, 'c' || (i % 3000) as connection, (i % 100000)::int as correlation_id,
  'apache-kafka-java' as software_name, '3.9.1' as software_version, ['orders'] as topics,
  false as is_forwarded, false as is_from_follower
"""
_VIOLATION = """
  'e' || i as episode_id, second as start_time, second + interval 9 second as end_time,
  second + interval 8 second as last_second, 3 as level, 'users/' || "user" as rule, 1300000.0 as peak_rate_per_s,
  130.0 as peak_quota_used_percent, 9 as violated_seconds, 9000 as throttled_ms, 27 as throttled_requests,
  'log' as source, ["user"] as users, [client_id] as client_ids
"""


def write_big_tables(root: Path, decisions: int) -> Settings:
    """Write tables with so many decisions, as many rows of usage, a tenth as many requests of the newest day.

    Args:
        root: an empty folder.
        decisions: rows over `DAYS` days.

    Returns:
        Settings that name the tables.
    """
    connection = duckdb.connect(config={"memory_limit": "4GB", "temp_directory": str(root / "spill")})
    connection.execute("set TimeZone = 'UTC'")
    for day in range(DAYS):
        is_newest = day == DAYS - 1
        rows = decisions // DAYS
        newest = min(FILES_OF_THE_NEWEST_DAY, rows // _LEAST_OF_A_FILE)
        files = newest if is_newest else _FILES_OF_A_CLOSED_DAY
        for name, columns in ((DECISIONS, _DECISION), (USAGE, _USE)):
            _write(connection, root, name, columns, (day, rows, files))
        if is_newest:
            _write(connection, root, REQUESTS, _REQUEST, (day, decisions // 10, files))
        _write(connection, root, VIOLATIONS, _VIOLATION, (day, decisions // 1_000, 1))
    _write_rules(root)
    settings = Settings(tables=str(root), cluster_id="big")
    for day in range(DAYS - 1):
        roll_up_agreement(settings, FIRST_DAY + timedelta(days=day), rows_of=of_day)
    return settings


def _write(
    connection: duckdb.DuckDBPyConnection, root: Path, table: Table, columns: str, size: tuple[int, int, int]
) -> None:
    """One day of a table, in order of time, in so many commits of one file each."""
    day, rows, files = size
    start = f"timestamptz '{FIRST_DAY + timedelta(days=day)} 00:00:00+00'"
    each = -(-rows // files)
    for first in range(0, rows, each):
        found = connection.sql(
            f"""
            with numbered as (
              select range + {day * rows} as i, range as n from range({first}, {min(first + each, rows)})
            ), measured as (
              select *, {_IDENTITY}, {_NUMBERS}, {start} + to_seconds(n * 86399 // {rows}) as second,
                     ({start})::date as event_date
              from numbered
            )
            select *, {columns} from measured
            """
        ).to_arrow_table()
        _append(root, table, found)


def _append(root: Path, table: Table, found: pa.Table) -> None:
    schema = table.arrow_schema()
    columns = [
        found.column(field.name).cast(field.type)
        if field.name in found.column_names
        else pa.nulls(found.num_rows, field.type)
        for field in schema
    ]
    write_deltalake(
        str(root / table.name),
        pa.Table.from_arrays(columns, schema=schema),
        mode="append",
        partition_by=list(table.partition_by),
    )


def _write_rules(root: Path) -> None:
    from_time, known = datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC)
    rules = [
        {"cluster_id": "big", "level": 3, "entity": f"users/user-{i}", "user": f"user-{i}",
         "producer_byte_rate": float(_LIMIT), "consumer_byte_rate": float(_LIMIT), "valid_from": from_time,
         "version": 7, "source": "zookeeper"}
        for i in range(BUCKETS)
    ]  # fmt: skip
    source = {"cluster_id": "big", "level": 0, "known_through": known, "version": 7, "source": "zookeeper"}
    changes = [
        {"cluster_id": "big", "level": 3, "entity": row["entity"], "user": row["user"], "key": key,
         "value": float(_LIMIT), "changed_at": from_time, "version": 7, "source": "zookeeper", "observed_at": known}
        for row in rules for key in ("producer_byte_rate", "consumer_byte_rate")
    ]  # fmt: skip
    for table, rows in ((QUOTA_RULES, [source, *rules]), (QUOTA_CHANGES, changes)):
        data = [{name: row.get(name) for name in table.names} for row in rows]
        write_deltalake(
            str(root / table.name),
            pa.Table.from_pylist(data, schema=table.arrow_schema()),
            partition_by=list(table.partition_by),
        )
