"""Episodes: the seconds of a bucket above its limit, joined if the gap between them is not longer than configured.

The result depends only on the seconds, not on which of them came together. An episode that is still open is one more
piece beside the next seconds. So tasks fold their own seconds into pieces, and the driver folds the pieces.

Tasks, driver and rebuild use the same SQL. DuckDB runs it over Arrow columns without copies. The same rule in Python
took 27 us per second of a bucket, and SQL in a task takes 3 us. 100,000 buckets that are violated at once are 500,000
such seconds in a micro-batch.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.model.measure.points import CONTROLLER_ID
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.schema.harm import IS_VIOLATED, LONGEST_THROTTLE_MS, episode_end_ms, mute_end_ms

if TYPE_CHECKING:
    import duckdb

MAX_NAMES = 20
LOG = "log"
LOG_SILENCE_MS = 600_000
"""Time without decisions from the log after which JMX reports violations instead, ms."""
BUCKET_COLUMNS = ("cluster_id", "broker_id", "quota_type", "bucket_user", "bucket_client_id", "bucket_tags")
_KEY = ", ".join(BUCKET_COLUMNS)


def _names(column: str) -> tuple[str, str]:
    every = f"list_sort(list_distinct(flatten(list({column}))))"
    return f"coalesce({column}, []::varchar[])", f"{every}[1:{MAX_NAMES}]"


def _sum(column: str, of_second: str) -> tuple[str, str]:
    return f"({of_second})::bigint", f"sum({column})::bigint"


_COLUMNS: Mapping[str, tuple[str, str]] = {
    "start_ms": ("epoch_ms(second)", "min(start_ms)"),
    "last_ms": ("epoch_ms(second)", "max(last_ms)"),
    "level": ("level", "arg_min_null(level, start_ms)"),
    "rule": ("rule", "arg_min_null(rule, start_ms)"),
    "limit_per_s": ("limit_per_s", "min(limit_per_s)"),
    "peak_rate_per_s": ("rate_per_s", "max(peak_rate_per_s)"),
    "peak_quota_used_percent": ("quota_used_percent", "max(peak_quota_used_percent)"),
    "violated_seconds": _sum("violated_seconds", "1"),
    "throttled_ms": _sum("throttled_ms", "total_throttle_ms"),
    "throttled_requests": _sum("throttled_requests", "throttled_requests"),
    "source": ("source", "arg_max(source, last_ms)"),
    "users": _names("users"),
    "client_ids": _names("client_ids"),
    "longest_throttle_ms": ("throttle_ms", "max(longest_throttle_ms)"),
    "observed_throttled_ms": _sum("observed_throttled_ms", "observed_total_throttle_ms"),
    "observed_throttled_requests": _sum("observed_throttled_requests", "observed_throttled_requests"),
    "observed_longest_throttle_ms": ("observed_throttle_ms", "max(observed_longest_throttle_ms)"),
    "muted_until_ms": (
        mute_end_ms("epoch_ms(second)", LONGEST_THROTTLE_MS, f"source = '{LOG}'"),
        "max(muted_until_ms)",
    ),
}
"""For each column of a piece: its SQL for one violated second of `decisions`, and for several pieces.

Times are epoch ms. A sum is null if it is null in all pieces. Rule and level come from the start, the source from the
end.
"""
PIECE_COLUMNS = (*BUCKET_COLUMNS, *_COLUMNS)
BUCKET_BROKER = (
    f"case quota_type when '{QuotaType.CONTROLLER_MUTATION}' then {CONTROLLER_ID} else broker_id end"
)
"""SQL: the broker of a bucket. A cluster has one bucket of mutations, and the JMX of every broker may show it."""


def violated_sql(decisions: str) -> str:
    """SQL: the violated seconds in a table or view, as pieces."""
    columns = ", ".join(f"{of_second} as {name}" for name, (of_second, _) in _COLUMNS.items())
    return f"select {_KEY}, {columns} from {decisions} where {IS_VIOLATED}"  # noqa: S608 - names of ours


def log_spans_sql(decisions: str) -> str:
    """SQL: the spans in which the log has decisions without a pause of more than `LOG_SILENCE_MS`.

    Columns are `bucket_broker`, `quota_type`, and the first and the last second of the span, `from_ms` and `to_ms`,
    epoch ms.

    Args:
        decisions: a table, view or subquery in brackets.
    """
    of_place = "over (partition by bucket_broker, quota_type order by time_ms)"
    return f"""
select bucket_broker, quota_type, min(time_ms) as from_ms, max(time_ms) as to_ms from (
  select *, count(*) filter (pause_ms > {LOG_SILENCE_MS}) {of_place} as part from (
    select *, time_ms - lag(time_ms) {of_place} as pause_ms from (
      select distinct {BUCKET_BROKER} as bucket_broker, quota_type, epoch_ms(second) as time_ms
      from {decisions} where source = '{LOG}')))
group by bucket_broker, quota_type, part"""  # noqa: S608 - names of ours


def of_one_source_sql(pieces: str, log_spans: str) -> str:
    """SQL: the pieces that count, if both the log and JMX report some.

    Both report the same violation, at their own seconds. The log misses nothing, so it counts. A second of JMX counts
    if the log has none in the `LOG_SILENCE_MS` before it. Pieces of JMX are single seconds.

    Args:
        pieces: name of a table or view.
        log_spans: one with the columns of `log_spans_sql`.
    """
    return f"""
select {", ".join(f"pieces.{name}" for name in PIECE_COLUMNS)}
from (select *, {BUCKET_BROKER} as bucket_broker from {pieces}) as pieces
asof left join {log_spans} as spans on pieces.bucket_broker = spans.bucket_broker
  and pieces.quota_type = spans.quota_type and pieces.start_ms >= spans.from_ms
where source = '{LOG}' or to_ms is null or start_ms - to_ms > {LOG_SILENCE_MS}"""  # noqa: S608 - as above


def folded_sql(pieces: str, gap_ms: int, more: Mapping[str, str] | None = None) -> str:
    """SQL: the episodes that pieces form; a longer time than `gap_ms` without violation ends one.

    Most buckets have no break: each of their pieces begins at most `gap_ms` after the end of the first one. Only the
    pieces of other buckets are sorted.

    Args:
        pieces: name of a table or view; if two sources report the same, of one of them.
        gap_ms: the longest time between pieces that are joined, ms.
        more: further columns: SQL of an aggregate by name.
    """
    sums = {name: of_pieces for name, (_, of_pieces) in _COLUMNS.items()} | dict(more or {})
    columns = ", ".join(f"{of_pieces} as {name}" for name, of_pieces in sums.items())
    same = " and ".join(f"pieces.{name} is not distinct from broken.{name}" for name in BUCKET_COLUMNS)
    in_order = f"over (partition by {_KEY} order by start_ms rows between unbounded preceding and"
    return f"""
with whole as materialized (
  select {_KEY}, {columns}, max(start_ms) - arg_min(last_ms, start_ms) > {gap_ms} as is_broken
  from {pieces} group by {_KEY}
), broken as (
  select {_KEY} from whole where is_broken
), paused as (
  select pieces.*, start_ms - max(last_ms) {in_order} 1 preceding) as pause_ms
  from {pieces} as pieces semi join broken on {same}
), numbered as (
  select *, count(*) filter (pause_ms > {gap_ms}) {in_order} current row) as part from paused
)
select {_KEY}, {", ".join(sums)} from whole where not is_broken
union all
select {_KEY}, {columns} from numbered group by {_KEY}, part"""  # noqa: S608 - as above


def ended_sql(episodes: str, clocks: str, gap_ms: int) -> str:
    """SQL: the episodes with their ids and ends, epoch ms; the end is null if an episode may continue.

    See `schema.harm.episode_end_ms` for the end.

    Args:
        episodes: name of a table or view.
        clocks: one with `cluster_id`, `broker_id`, `source` and `newest_ms`, the newest second (epoch ms) of each
            broker and source. The log comes later than JMX.
        gap_ms: see `folded_sql`.
    """
    # The controller's bucket is rarely used, so its clock is that of the cluster.
    return f"""
select episodes.*, {EPISODE_ID} as episode_id,
       case when newest_ms - last_ms > {gap_ms} then {episode_end_ms("last_ms", "muted_until_ms")} end as end_ms
from {episodes} as episodes left join (
  select cluster_id, broker_id, source, max(newest_ms) as newest_ms from (
    select * from {clocks} union all select * replace ({CONTROLLER_ID} as broker_id) from {clocks}
  ) group by all
) as clock using (cluster_id, broker_id, source)"""  # noqa: S608 - as above


_SEPARATED = ", ".join((*BUCKET_COLUMNS, "start_ms"))
EPISODE_ID = f"substr(sha256(concat_ws(chr(0), {_SEPARATED})), 1, 32)"
"""SQL: the id of an episode, a hash of bucket and start; it is the same in every run.

A NUL separates the parts. No name can contain one, so two buckets never give the same text.
"""


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """The database of this process: a worker serves many tasks, and opening a database takes 15 ms.

    It reads only Arrow columns. It has one thread, because a task has one core; so rows keep their order.
    """
    import duckdb

    # At the end of the process, DuckDB prints what is still referenced. Threads of Spark's driver outlive this module.
    atexit.register(_database.cache_clear)
    return duckdb.connect(
        config={"threads": 1, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )


def queried(sql: str, **tables: pa.Table) -> pa.Table:
    """The result of SQL over Arrow tables, each by its name."""
    with _database().cursor() as cursor:
        for name, table in tables.items():
            cursor.register(name, table)
        found: pa.Table = cursor.sql(sql).to_arrow_table()
    return found


def pieces_of(decisions: pa.Table, gap_ms: int) -> pa.Table:
    """The violated seconds of a task, folded into pieces.

    Those of JMX stay single seconds, because only the driver can decide which of them count, see `of_one_source_sql`.
    They are few, because a bucket has one sample in several seconds.
    """
    violated = queried(violated_sql("decisions"), decisions=decisions)
    # Mostly there are none. This check takes 1 ms, folding takes at least 15 ms.
    of_log = violated.filter(pc.equal(violated["source"], pa.scalar(LOG)))
    if not of_log.num_rows:
        return violated
    folded = queried(folded_sql("of_log", gap_ms), of_log=of_log)
    of_jmx = violated.filter(pc.not_equal(violated["source"], pa.scalar(LOG)))
    return pa.concat_tables([folded.select(violated.schema.names).cast(violated.schema), of_jmx])
