"""Restates a closed period: recomputes it from `requests` with the quotas that are known now.

This corrects late lines, and seconds that were judged before an edit was known. The rows of the period are replaced by
those that a run without any delay would have written. `usage` is written last, so an interrupted restatement can simply
be run again.

After the period, decisions are replaced as long as the new requests stay in a bucket's ring. The state of the running
job is not changed. If the effect lasts to the end of the closed seconds, the result shows it (`unsettled_buckets`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.audit.past.closed import closed_through_ms, not_folded_from_ms, seconds_of
from kquota_spark.audit.spark import spark_session, sql_literal, table
from kquota_spark.audit.violations.rebuild import rebuild_violations
from kquota_spark.checkpoints.known import KnownLoader
from kquota_spark.config.governor import mutation_config, rate_config
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.pipeline.bucket_judge import Configs
from kquota_spark.pipeline.charges import to_charged
from kquota_spark.pipeline.govern import to_governed
from kquota_spark.pipeline.ingest import clock_skew_ms, set_aside
from kquota_spark.pipeline.judge import as_decisions
from kquota_spark.pipeline.measure import to_seconds, to_usage
from kquota_spark.pipeline.rejudge import KEPT, NEW, OLD, Reach, to_rejudged
from kquota_spark.process.check import require_java
from kquota_spark.process.notices import notice
from kquota_spark.schema.columns import Table
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE
from kquota_spark.store.commits import add_rows, replace_rows
from kquota_spark.store.delta.table import sql_text
from kquota_spark.store.parts import Part, PartWriter
from kquota_spark.store.reading import query, utc_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LEFT_OUT = """
select coalesce(sum(lines), 0)::bigint from requests
where cluster_id = ? and kind = 'left_out' and record_time_ms >= ? and record_time_ms < ?
"""
_FIRST_DATE = "select min(event_date) from requests where cluster_id = ?"
_REACHES_MS = (600_000, 86_400_000)
"""Time before and after the period that is replayed, ms; the second only if some buckets have no pause in the first."""
_MOST_BEHIND_MS = 86_400_000
"""Maximum lag of the job's clock, ms: with a larger one, lines are under days that a restatement does not read."""
_PARTS = "path string, size bigint, event_date string, rows bigint, stats string, written_ms bigint"
"""Schema of `Part`, on its way from workers to the driver."""


@dataclass(frozen=True, slots=True)
class Restated:
    """Result of a restatement; times in epoch ms.

    `cold_buckets` were in use without a pause for a day before the period, so their samples may have opened at other
    times. `unsettled_buckets` are still different at the end of the closed seconds: the job continues there with rings
    that lack the late requests.
    """

    from_ms: int
    to_ms: int
    decisions_to_ms: int
    usage_rows: int
    decision_rows: int
    cold_buckets: int
    unsettled_buckets: int


def run_restate(settings: Settings, from_ms: int, to_ms: int) -> Restated:
    """Start Spark, restate a period, and stop Spark.

    Raises:
        UserError: the period is empty or not closed yet, a table cannot be read or written, or there is no Java.
    """
    closed_ms = require_closed(settings, from_ms, to_ms)
    require_java()
    session = spark_session(settings, f"kquota-restate {settings.cluster_id}")
    try:
        return restate(session, settings, from_ms // 1_000 * 1_000, -(-to_ms // 1_000) * 1_000, closed_ms)
    finally:
        session.stop()


def require_closed(settings: Settings, from_ms: int, to_ms: int) -> int:
    """The end of the closed seconds, epoch ms, if a period can be restated.

    Raises:
        UserError: the period is empty, reaches beyond that end, or `requests` does not hold all of it.
    """
    if to_ms <= from_ms:
        raise UserError(f"nothing to restate: {utc_text(to_ms)} is not after {utc_text(from_ms)}")
    closed_ms = closed_through_ms(settings)
    if closed_ms is None:
        raise UserError("nothing to restate: the audit has not judged a second yet")
    if -(-to_ms // 1_000) * 1_000 > closed_ms:
        raise UserError(
            f"seconds from {utc_text(closed_ms)} on are open, the audit may still write them: restate up to there"
        )
    first_date = _first_date(settings)
    if first_date is None or _utc(from_ms)[:10] < first_date:
        raise UserError(
            f"table requests begins with {first_date or 'nothing'}, and rows before it would be replaced by none: "
            "restate from there on (maintain.retention.requests is how long it is kept)"
        )
    asked = [settings.cluster_id, from_ms // 1_000 * 1_000, -(-to_ms // 1_000) * 1_000]
    ((left_out,),) = query(settings, [REQUESTS.name], _LEFT_OUT, asked).rows
    if left_out:
        raise UserError(
            f"{left_out:,} requests between {utc_text(from_ms)} and {utc_text(to_ms)} have no row in table requests, "
            "because of tables.requests: only a period with all its requests can be restated"
        )
    return closed_ms


def _first_date(settings: Settings) -> str | None:
    """The oldest date of `requests` of this cluster, as text."""
    ((first,),) = query(settings, [REQUESTS.name], _FIRST_DATE, [settings.cluster_id]).rows
    return None if first is None else str(first)


def restate(session: SparkSession, settings: Settings, from_ms: int, to_ms: int, closed_ms: int) -> Restated:
    """Restate whole seconds; see `Restated` and `run_restate`.

    Args:
        session: the Spark session, with Delta.
        settings: where the tables are, the cluster, windows and lateness.
        from_ms: first second of the period, epoch ms; a multiple of 1,000.
        to_ms: end of the period, epoch ms, exclusive; a multiple of 1,000.
        closed_ms: end of the closed seconds, epoch ms; nothing after it is changed.
    """
    # The rows of a period are read once and kept in memory; they are much smaller than the tables.
    stream = settings.stream
    mine = f"cluster_id = {sql_literal(settings.cluster_id)}"
    requests = table(session, settings, REQUESTS.name).where(f"{mine} AND {requests_within(from_ms, to_ms)}")
    # The job's own clock may have been wrong when it read them.
    requests = requests.withColumn("is_out_of_time", F.expr(set_aside(clock_skew_ms(settings))))
    seconds = to_seconds(
        to_charged(requests, KnownLoader(settings), stream.state_shards),
        f"{stream.allowed_lateness} milliseconds",
    )
    usage = to_usage(seconds, settings.cluster_id).persist()
    notice(f"restating {utc_text(from_ms)} to {utc_text(to_ms)}: judging")
    rejudged, reach = _rejudged(session, settings, usage, from_ms, to_ms, closed_ms)
    try:
        tail_end_ms = _tail_end_ms(settings, rejudged, reach)
        notice(f"writing decisions through {utc_text(tail_end_ms)}, violations and usage")
        touched = rejudged.where(f"second_ms < {tail_end_ms}")
        decision_rows = _replace(session, settings, DECISIONS, as_decisions(touched), from_ms, tail_end_ms)
        buckets = touched.groupBy("bucket_user", "bucket_client_id", "bucket_tags", "broker_id", "quota_type")
        found = buckets.agg(F.first("is_warm"), F.first("differs_until_ms")).collect()
        cold, unsettled = sum(not row[-2] for row in found), sum(row[-1] is None for row in found)
    finally:
        rejudged.unpersist()
    rebuild_violations(settings, from_ms, tail_end_ms, not_folded_from_ms(settings))
    usage_rows = _replace(session, settings, USAGE, usage, from_ms, to_ms)
    usage.unpersist()
    return Restated(from_ms, to_ms, tail_end_ms, usage_rows, decision_rows, cold, unsettled)


def _rejudged(
    session: SparkSession, settings: Settings, usage: DataFrame, from_ms: int, to_ms: int, closed_ms: int
) -> tuple[DataFrame, Reach]:
    """All seconds of all buckets from the start of the period to the end of the reach; kept in memory."""
    configs = Configs(rate_config(settings), mutation_config(settings))
    seconds = seconds_of(settings, USAGE.name)
    beginning_ms = from_ms if seconds is None else seconds[0]
    for reach_ms in _REACHES_MS:
        warm_ms, tail_ms = from_ms - reach_ms, min(to_ms + reach_ms, closed_ms)
        reach = Reach(from_ms, to_ms, warm_ms, tail_ms, is_from_beginning=warm_ms <= beginning_ms)
        kept = _seconds(session, settings, USAGE.name, reach.warm_from_ms, reach.tail_to_ms)
        is_inside = f"unix_millis(second) >= {from_ms} AND unix_millis(second) < {to_ms}"
        parts = {KEPT: kept.where(f"NOT ({is_inside})"), OLD: kept.where(is_inside), NEW: usage}
        sent = (
            to_governed(rows, KnownLoader(settings)).withColumn("part", F.lit(part))
            for part, rows in parts.items()
        )
        found = to_rejudged(reduce(lambda one, other: one.unionByName(other), sent), configs, reach).persist()
        is_settled = reach.tail_to_ms == closed_ms or found.where("differs_until_ms IS NULL").isEmpty()
        if is_settled and found.where("NOT is_warm").isEmpty():
            break
        if reach_ms != _REACHES_MS[-1]:
            found.unpersist()
    return found, reach


def _tail_end_ms(settings: Settings, rejudged: DataFrame, reach: Reach) -> int:
    """End of the decisions that are replaced, epoch ms: at least the time that a ring remembers after the period."""
    row = rejudged.agg(F.max(F.coalesce("differs_until_ms", F.lit(reach.tail_to_ms)))).head()
    differs_until_ms = reach.to_ms if row is None or row[0] is None else int(row[0])
    at_least_ms = reach.to_ms + rate_config(settings).horizon_ms
    return max(reach.to_ms, min(max(differs_until_ms, at_least_ms), reach.tail_to_ms))


def requests_within(from_ms: int, to_ms: int) -> str:
    """SQL: condition for rows of `requests` of a period, by the times of their lines."""
    # A line is filed under the day of its reading if that is earlier. A clock may be behind across midnight.
    dates = _dates(from_ms - _MOST_BEHIND_MS, to_ms)
    return f"{dates} AND record_time_ms >= {from_ms} AND record_time_ms < {to_ms}"


def _mine(session: SparkSession, settings: Settings, name: str, from_ms: int, to_ms: int) -> DataFrame:
    """Rows of this cluster on the dates of a period."""
    return table(session, settings, name).where(
        f"cluster_id = {sql_literal(settings.cluster_id)} AND {_dates(from_ms, to_ms)}"
    )


def _seconds(session: SparkSession, settings: Settings, name: str, from_ms: int, to_ms: int) -> DataFrame:
    return _mine(session, settings, name, from_ms, to_ms).where(_second_of_log_within(from_ms, to_ms))


def _dates(from_ms: int, to_ms: int) -> str:
    # Spark and deltalake accept a text as a date. deltalake also accepts DATE '...', but not TIMESTAMP '...'.
    first, last = _utc(from_ms)[:10], _utc(to_ms - 1)[:10]
    return f"event_date >= '{first}' AND event_date <= '{last}'"


def _second_of_log_within(from_ms: int, to_ms: int) -> str:
    """SQL: condition for seconds of the log in a period; rows from JMX are not recomputed from requests."""
    return f"second >= '{_utc(from_ms)}Z' AND second < '{_utc(to_ms)}Z' AND {FROM_LOG}"


def _utc(time_ms: int) -> str:
    return utc_text(time_ms).removesuffix(" UTC")


def _replace(
    session: SparkSession, settings: Settings, declared: Table, rows: DataFrame, from_ms: int, to_ms: int
) -> int:
    """Replace the rows of a period in one commit; returns how many there are now."""
    parts = _written(settings, declared, rows)
    if _seconds(session, settings, declared.name, from_ms, to_ms).isEmpty():
        # Followers of the table skip commits that replace rows. A commit that only adds rows needs a mark of its own.
        add_rows(settings, declared, parts)
    else:
        within = f"{_dates(from_ms, to_ms)} AND {_second_of_log_within(from_ms, to_ms)}"
        replace_rows(settings, declared, parts, f"cluster_id = {sql_text(settings.cluster_id)} AND {within}")
    return sum(part.rows for part in parts)


def _written(settings: Settings, declared: Table, rows: DataFrame) -> list[Part]:
    """Write the rows as files of the table, one per date; they are not part of the table yet."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = PartWriter(settings, declared)
        for batch in batches:
            if batch.num_rows:
                writer.write(batch)
        # A task without rows has no files, so it has no columns for a batch.
        if parts := [part._asdict() for part in writer.close()]:
            yield pa.RecordBatch.from_pylist(parts)

    of_dates = rows.select(*declared.names).repartition("event_date")
    return [Part(*row) for row in of_dates.mapInArrow(write, _PARTS).collect()]
