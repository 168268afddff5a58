"""The table `violations`: episodes are folded into it micro-batch by micro-batch."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.audit.violations.episodes import (
    LOG,
    LOG_SILENCE_MS,
    PIECE_COLUMNS,
    ended_sql,
    folded_sql,
    of_one_source_sql,
    queried,
)
from kquota_spark.audit.violations.judged import Judged, Place, Seconds
from kquota_spark.audit.violations.late import Before, LatePeriod, before_late
from kquota_spark.audit.violations.log_spans import LogSpans
from kquota_spark.audit.violations.stored import ON_SAME, episodes_in, violation_rows, write_episodes
from kquota_spark.config.settings import Settings
from kquota_spark.schema.tables import VIOLATIONS
from kquota_spark.store.commits import BatchCommits, MicroBatch, retried
from kquota_spark.store.delta.table import StoredTable

_OPEN_ONLY = f"{ON_SAME} and old.end_time is null"
"""SQL: condition that leaves out files with ended episodes only, by their statistics."""
_writing = threading.Lock()
"""Held while folding: the queries of the log and of JMX fold in one process."""
_CLOCKS: list[tuple[str, pa.DataType]] = [
    ("cluster_id", pa.string()), ("broker_id", pa.int32()), ("source", pa.string()), ("newest_ms", pa.int64()),
]  # fmt: skip


class EpisodeFold:
    """Folds micro-batches of decisions into the open episodes.

    Open episodes stay in memory, in columns, as long as no other writer changes the table. 100,000 of them take 25 MB.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._commits, self._log_spans = BatchCommits(settings, VIOLATIONS), LogSpans(settings)
        self._open: pa.Table | None = None
        self._open_at = -1
        """The version of the table that has these open episodes."""
        self._seen_ms: dict[tuple[str, int, str, str], int] = {}
        """The newest second of earlier folds, epoch ms, by cluster, broker, quota type and source."""

    def fold(self, judged: Judged, batch: MicroBatch, now_ms: int) -> None:
        """Fold one micro-batch, once.

        Args:
            judged: the part of its decisions that episodes need.
            batch: the micro-batch, for the commit.
            now_ms: time of this machine, epoch ms; an error of five minutes does not matter.

        Raises:
            UserError: other writers of the table were always faster.
        """
        with _writing:
            counting = self._of_one_source(judged)
            period = self._late_period(counting, now_ms)
            retried(lambda: self._fold(counting, period, batch))
            for each in judged.seconds:
                self._seen_ms[each[:4]] = max(each.newest_ms, self._seen_ms.get(each[:4], each.newest_ms))

    def _of_one_source(self, judged: Judged) -> Judged:
        pieces = judged.pieces
        of_jmx = pieces.filter(pc.not_equal(pieces["source"], pa.scalar(LOG)))
        if not (of_jmx.num_rows and self._settings.kafka.has_log):
            return judged
        spans = self._log_spans.since(pc.min(of_jmx["start_ms"]).as_py() - LOG_SILENCE_MS)
        counting = queried(of_one_source_sql("pieces", "log_spans"), pieces=pieces, log_spans=spans)
        return judged._replace(pieces=counting)

    def _late_period(self, judged: Judged, now_ms: int) -> LatePeriod | None:
        """The period in which this micro-batch may continue episodes that have ended; None in the usual case."""
        late = [each for each in judged.seconds if self._may_be_late(each, now_ms)]
        if not late:
            return None
        gap_ms = self._settings.stream.episode_gap
        first_ms = min(each.first_ms for each in late) - gap_ms
        return LatePeriod(first_ms, max(each.newest_ms for each in late) + LOG_SILENCE_MS)

    def _may_be_late(self, seconds: Seconds, now_ms: int) -> bool:
        seen_ms = self._seen_ms.get(seconds[:4])
        if seen_ms is None or seconds.first_ms < seen_ms - self._settings.stream.episode_gap:
            return True
        # The other source may have continued alone meanwhile.
        has_both = self._settings.kafka.has_log and bool(self._settings.kafka.jmx_topic)
        return has_both and now_ms - seen_ms > LOG_SILENCE_MS // 2

    def _fold(self, judged: Judged, period: LatePeriod | None, batch: MicroBatch) -> None:
        # The check, the read and the commit use one version of the table: if another driver commits in between, this
        # commit fails.
        table = self._commits.newest()
        if self._commits.is_in(table, batch):
            return
        if self._open is None or self._open_at != table.version():
            self._open = _open_in(table, self._settings.cluster_id)
        before = Before(self._open, self._open.slice(0, 0), judged)
        if period is not None:
            before = before_late(self._settings, table, self._open, judged, period, self._log_spans)
        if before.episodes.num_rows or before.replaced.num_rows or before.judged.pieces.num_rows:
            gap_ms = self._settings.stream.episode_gap
            found = _folded(before.episodes, before.judged.pieces, before.judged.newest_ms, gap_ms)
            self._merge(table, before, found, period is not None, batch)
            is_mine = pc.equal(found["cluster_id"], pa.scalar(self._settings.cluster_id))
            still = found.filter(pc.and_(pc.is_null(found["end_ms"]), is_mine))
            self._open = still.select(self._open.schema.names).cast(self._open.schema)
        self._open_at = table.version()

    def _merge(
        self, table: StoredTable, before: Before, found: pa.Table, may_be_ended: bool, batch: MicroBatch
    ) -> None:
        changed = found.filter(pc.or_(found["is_changed"], pc.is_valid(found["end_ms"])))
        # Open episodes that are now part of another one, and those of JMX that the log replaces.
        known = pa.concat_tables([before.episodes, before.replaced])
        removed = known.filter(pc.invert(pc.is_in(known["episode_id"], found["episode_id"])))
        if changed.num_rows or removed.num_rows:
            following = table.version() + 1
            on = ON_SAME if may_be_ended else _OPEN_ONLY
            write_episodes(table, violation_rows(changed), violation_rows(removed), on, batch)
            self._commits.made(following, batch)


def _open_in(table: StoredTable, cluster_id: str) -> pa.Table:
    """The open episodes of a cluster."""
    return episodes_in(table, pc.field("end_time").is_null() & (pc.field("cluster_id") == cluster_id))


def _folded(before: pa.Table, pieces: pa.Table, newest_ms: Mapping[Place, int], gap_ms: int) -> pa.Table:
    """The episodes that known ones and pieces form; `is_changed` marks those that differ from before.

    Args:
        before: episodes as pieces: the open ones, and those that may continue.
        pieces: pieces of the micro-batch.
        newest_ms: its newest second by place, epoch ms.
        gap_ms: see `folded_sql`.
    """
    names, clocks = ", ".join(PIECE_COLUMNS), pa.schema(_CLOCKS)
    both = f"(select {names}, true as is_known from before union all select {names}, false from pieces)"  # noqa: S608 - names of ours
    more = {"is_changed": "count(*) > 1 or not bool_and(is_known)"}
    return queried(
        f"with both_of_them as {both}, folded as ({folded_sql('both_of_them', gap_ms, more)}) "
        + ended_sql("folded", "clocks", gap_ms),
        before=before,
        pieces=pieces,
        clocks=pa.Table.from_pylist(
            [dict(zip(clocks.names, (*place, time_ms), strict=True)) for place, time_ms in newest_ms.items()],
            schema=clocks,
        ),
    )
