"""Episodes that late seconds continue or replace.

Seconds of one source come in order. Those of the two sources do not: while the log is late, JMX reports instead, and
then the log comes. The episodes of JMX are then recomputed from those of its seconds that still count.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.audit.violations.episodes import (
    BUCKET_BROKER,
    BUCKET_COLUMNS,
    LOG,
    LOG_SILENCE_MS,
    of_one_source_sql,
    queried,
    violated_sql,
)
from kquota_spark.audit.violations.judged import Judged, Seconds
from kquota_spark.audit.violations.log_spans import LogSpans
from kquota_spark.audit.violations.stored import episodes_in
from kquota_spark.config.settings import Settings
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.delta.table import StoredTable
from kquota_spark.store.reading import open_tables


class LatePeriod(NamedTuple):
    """A period: times in epoch ms, both inclusive."""

    from_ms: int
    to_ms: int


class Before(NamedTuple):
    """The input of a fold: known episodes, and the micro-batch, with pieces added if some must be folded again."""

    episodes: pa.Table
    """The open episodes, and those that may continue."""
    replaced: pa.Table
    """Episodes that are removed, unless the fold produces them again."""
    judged: Judged


_SECONDS_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("bucket_broker", pa.int32()), ("quota_type", pa.string()), ("first_ms", pa.int64()), ("newest_ms", pa.int64()),
]  # fmt: skip
_SECONDS = pa.schema(_SECONDS_COLUMNS)


def _same_bucket(one: str, other: str) -> str:
    return " and ".join(f"{one}.{name} is not distinct from {other}.{name}" for name in BUCKET_COLUMNS)


_REPLACED = f"""
select around.* exclude (bucket_broker) from (select *, {BUCKET_BROKER} as bucket_broker from around) as around
semi join seconds on around.bucket_broker = seconds.bucket_broker and around.quota_type = seconds.quota_type
  and around.last_ms >= seconds.first_ms - {{gap_ms}} and around.start_ms <= seconds.newest_ms + {LOG_SILENCE_MS}
where source <> '{LOG}'"""  # noqa: S608 - names of ours
_OF_JMX = f"""(
  select * from decisions where cluster_id = $1 and source <> '{LOG}' and epoch_ms(second) between $2 and $3
)"""  # noqa: S608 - as above
_OF_REPLACED = f"""
select seconds.* from seconds semi join replaced
on {_same_bucket("seconds", "replaced")} and seconds.start_ms between replaced.start_ms and replaced.last_ms"""  # noqa: S608 - as above
_ENDED = f"""
select around.* from around semi join pieces on {_same_bucket("around", "pieces")}
  and pieces.start_ms <= around.last_ms + {{gap_ms}} and pieces.last_ms >= around.start_ms - {{gap_ms}}
anti join replaced on around.episode_id = replaced.episode_id
where around.end_ms is not null"""  # noqa: S608 - as above


def before_late(
    settings: Settings,
    table: StoredTable,
    open_: pa.Table,
    judged: Judged,
    period: LatePeriod,
    log_spans: LogSpans,
) -> Before:
    """The input of the fold of a micro-batch, if some of its seconds may be late.

    Args:
        settings: where the tables are, the cluster, and the gap that ends an episode.
        table: `violations`.
        open_: its open episodes.
        judged: the micro-batch; from two sources, only the one that counts.
        period: the period in which episodes may continue or be replaced.
        log_spans: spans of the log in the table `decisions`.
    """
    gap_ms = settings.stream.episode_gap
    around = episodes_in(table, _in_period(settings.cluster_id, period))
    replaced = queried(_REPLACED.format(gap_ms=gap_ms), around=around, seconds=_of_log(judged))
    pieces = judged.pieces
    if replaced.num_rows:
        left = _left_of(settings, replaced, log_spans)
        pieces = pa.concat_tables([pieces, left.select(pieces.schema.names).cast(pieces.schema)])
    ended = queried(_ENDED.format(gap_ms=gap_ms), around=around, pieces=pieces, replaced=replaced)
    going_on = open_.filter(pc.invert(pc.is_in(open_["episode_id"], replaced["episode_id"])))
    had_ended = pa.concat_tables([ended, replaced.filter(pc.is_valid(replaced["end_ms"]))])
    return Before(
        pa.concat_tables([going_on, ended.cast(open_.schema)]),
        replaced.cast(open_.schema),
        Judged(pieces, [*judged.seconds, *_ends_of(had_ended, gap_ms)]),
    )


def _in_period(cluster_id: str, period: LatePeriod) -> pc.Expression:
    in_us = pa.timestamp("us", tz="UTC")
    from_time, to_time = (pa.scalar(time_ms * 1_000, in_us) for time_ms in period)
    is_later = pc.field("end_time").is_null() | (pc.field("end_time") >= from_time)
    found: pc.Expression = (
        is_later & (pc.field("start_time") <= to_time) & (pc.field("cluster_id") == cluster_id)
    )
    return found


def _of_log(judged: Judged) -> pa.Table:
    rows = [
        dict(
            zip(_SECONDS.names, (each.broker_id, each.quota_type, each.first_ms, each.newest_ms), strict=True)
        )
        for each in judged.seconds
        if each.source == LOG
    ]
    return pa.Table.from_pylist(rows, schema=_SECONDS)


def _left_of(settings: Settings, replaced: pa.Table, log_spans: LogSpans) -> pa.Table:
    """The seconds of JMX in the replaced episodes that still count."""
    first_ms, last_ms = pc.min(replaced["start_ms"]).as_py(), pc.max(replaced["last_ms"]).as_py()
    with open_tables(settings, DECISIONS.name, newer_than_ms=first_ms) as tables:
        seconds = tables.arrow(violated_sql(_OF_JMX), [settings.cluster_id, first_ms, last_ms])
    own = queried(_OF_REPLACED, seconds=seconds, replaced=replaced)
    spans = log_spans.since(first_ms - LOG_SILENCE_MS)
    return queried(of_one_source_sql("own", "spans"), own=own, spans=spans)


def _ends_of(episodes: pa.Table, gap_ms: int) -> list[Seconds]:
    """The earliest time that each place must have reached, because each of these episodes had ended."""
    names = ("cluster_id", "broker_id", "quota_type", "source", "last_ms")
    rows = zip(*(episodes[name].to_pylist() for name in names), strict=True)
    return [
        Seconds(cluster_id, broker_id, quota_type, source, last_ms + gap_ms + 1, last_ms + gap_ms + 1)
        for cluster_id, broker_id, quota_type, source, last_ms in rows
    ]
