"""The table `violations`: episodes are folded into it micro-batch by micro-batch, or made anew from all decisions."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from kquota_spark.audit.episodes import (
    BUCKET_BROKER,
    LOG,
    LOG_SILENCE_MS,
    PIECE_COLUMNS,
    ended_sql,
    folded_sql,
    of_one_source_sql,
    pieces_of,
    queried,
    violated_sql,
)
from kquota_spark.audit.log_progress import LogProgress
from kquota_spark.config.settings import Settings
from kquota_spark.model.measure.points import CONTROLLER_ID
from kquota_spark.schema.tables import DECISIONS, VIOLATIONS
from kquota_spark.store.commits import BatchCommits, MicroBatch, retried
from kquota_spark.store.durable import sync_commit
from kquota_spark.store.reading import open_tables
from kquota_spark.store.storage import arrow_files, delta_table

ON_SAME = "old.episode_id = new.episode_id and old.event_date = new.event_date"
_OPEN_ONLY = f"{ON_SAME} and old.end_time is null"
"""Leaves out the files that hold ended episodes only, by their statistics."""
_writing = threading.Lock()
"""The queries of log and JMX fold in one process."""

Place = tuple[str, int, str]
"""Cluster, broker and source, each of which has a time of its own."""
_CLOCKS: list[tuple[str, pa.DataType]] = [
    ("cluster_id", pa.string()), ("broker_id", pa.int32()), ("source", pa.string()), ("newest_ms", pa.int64()),
]  # fmt: skip
_TIMES = {"start_time": "start_ms", "last_second": "last_ms", "end_time": "end_ms"}
_IN_MS, _IN_US = pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="UTC")


class Judged(NamedTuple):
    """What episodes need of a micro-batch of decisions: its violated seconds as pieces, and its newest ones."""

    pieces: pa.Table
    newest_ms: dict[Place, int]


def seconds_by_place(decisions: pa.Table, which: Literal["min", "max"]) -> list[tuple[str, int, str, int]]:
    """Cluster, broker and source with their first or newest second, epoch ms."""
    keys = ["cluster_id", "broker_id", "source"]
    found = decisions.select([*keys, "second"]).group_by(keys).aggregate([("second", which)])
    in_ms = found[f"second_{which}"].cast(_IN_MS).cast(pa.int64()).to_pylist()
    return list(zip(*(found[key].to_pylist() for key in keys), in_ms, strict=True))


def judged_of(pieces: pa.Table, newest: Iterable[tuple[str, int, str, int]]) -> Judged:
    """The pieces and the newest of `seconds_by_place`, of all parts of a micro-batch."""
    newest_ms: dict[Place, int] = {}
    for cluster_id, broker_id, source, time_ms in newest:
        place = (cluster_id, broker_id, source or LOG)
        newest_ms[place] = max(time_ms, newest_ms.get(place, time_ms))
    return Judged(pieces, newest_ms)


def judged_rows(decisions: pa.Table, gap_ms: int) -> Judged:
    """The same of rows of `decisions`."""
    return judged_of(pieces_of(decisions, gap_ms), seconds_by_place(decisions, "max"))


class EpisodeFold:
    """Folds micro-batches of decisions into the episodes that are open.

    Those stay in memory, in columns, for as long as nobody else changes the table: 100,000 of them take 25 MB.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._commits, self._log_progress = BatchCommits(settings, VIOLATIONS), LogProgress(settings)
        self._open: pa.Table | None = None
        self._open_at = -1
        """The version of the table whose open episodes these are."""
        self._seen_ms: dict[tuple[str, int], int] = {}
        """How far the time of each broker had come in the folds before."""

    def fold(self, judged: Judged, batch: MicroBatch) -> None:
        """Fold one micro-batch, once.

        Raises:
            UserError: other writers of the table were always faster.
        """
        with _writing:
            pieces = self._of_one_source(judged.pieces)
            retried(lambda: self._fold(pieces, judged.newest_ms, batch))
            for (cluster_id, broker_id, _), time_ms in judged.newest_ms.items():
                for place in ((cluster_id, broker_id), (cluster_id, CONTROLLER_ID)):
                    self._seen_ms[place] = max(time_ms, self._seen_ms.get(place, time_ms))
            self._commits.sync()

    def _of_one_source(self, pieces: pa.Table) -> pa.Table:
        of_jmx = pieces.filter(pc.not_equal(pieces["source"], pa.scalar(LOG)))
        if not (of_jmx.num_rows and self._settings.kafka.has_log):
            return pieces
        log_progress = self._log_progress.since(pc.min(of_jmx["start_ms"]).as_py() - LOG_SILENCE_MS)
        return queried(of_one_source_sql("pieces", "log_progress"), pieces=pieces, log_progress=log_progress)

    def _fold(self, pieces: pa.Table, newest_ms: Mapping[Place, int], batch: MicroBatch) -> None:
        # One version of the table for the check, the read and the commit: what another driver commits in between
        # makes this commit fail.
        table = self._commits.newest()
        if self._commits.is_in(table, batch):
            return
        if self._open is None or self._open_at != table.version():
            self._open = _open_in(table, self._settings.cluster_id)
        if self._open.num_rows or pieces.num_rows:
            found = _folded(self._open, pieces, newest_ms, self._settings.stream.episode_gap)
            self._merge(table, found, batch)
            is_mine = pc.equal(found["cluster_id"], pa.scalar(self._settings.cluster_id))
            still = found.filter(pc.and_(pc.is_null(found["end_ms"]), is_mine))
            self._open = still.select(self._open.schema.names).cast(self._open.schema)
        self._open_at = table.version()

    def _merge(self, table: DeltaTable, found: pa.Table, batch: MicroBatch) -> None:
        assert self._open is not None
        changed = found.filter(pc.or_(found["is_changed"], pc.is_valid(found["end_ms"])))
        # An open episode that another one has taken in.
        gone = self._open.filter(pc.invert(pc.is_in(self._open["episode_id"], found["episode_id"])))
        if changed.num_rows or gone.num_rows:
            on = ON_SAME if self._may_be_ended(changed) else _OPEN_ONLY
            following = table.version() + 1
            _write(table, violation_rows(changed), violation_rows(gone), on, batch)
            self._commits.made(following, batch)

    def _may_be_ended(self, changed: pa.Table) -> bool:
        """Whether one that was not open may be in the table and have ended, because its second comes late."""
        new = changed.filter(pc.equal(changed["open_parts"], pa.scalar(0)))
        starts = new.group_by(["cluster_id", "broker_id"]).aggregate([("start_ms", "min")])
        columns = (starts[name].to_pylist() for name in ("cluster_id", "broker_id", "start_ms_min"))
        gap_ms = self._settings.stream.episode_gap
        return any(
            (seen_ms := self._seen_ms.get((cluster_id, broker_id))) is None or start_ms < seen_ms - gap_ms
            for cluster_id, broker_id, start_ms in zip(*columns, strict=True)
        )


def _open_in(table: DeltaTable, cluster_id: str) -> pa.Table:
    """The open episodes of a cluster as pieces, with their ids."""
    rows = table.to_pyarrow_dataset(filesystem=arrow_files(table)).to_table(
        filter=pc.field("end_time").is_null() & (pc.field("cluster_id") == cluster_id)
    )
    for name, in_ms in _TIMES.items():
        rows = rows.append_column(in_ms, rows[name].cast(_IN_MS, safe=False).cast(pa.int64()))
    of_log: Any = pc.coalesce(rows["source"], pa.scalar(LOG))
    rows = rows.set_column(rows.schema.get_field_index("source"), "source", of_log)
    return rows.select([*PIECE_COLUMNS, "episode_id"])


def _folded(before: pa.Table, pieces: pa.Table, newest_ms: Mapping[Place, int], gap_ms: int) -> pa.Table:
    """The episodes of open ones and pieces; `open_parts` are the open ones in each, `is_changed` says if there is more.

    Args:
        before: pieces with their `episode_id`.
        pieces: of the micro-batch.
        newest_ms: of the micro-batch.
        gap_ms: see `folded_sql`.
    """
    names, clocks = ", ".join(PIECE_COLUMNS), pa.schema(_CLOCKS)
    both = f"(select {names}, true as is_open from before union all select {names}, false from pieces)"  # noqa: S608 - names of ours
    more = {
        "open_parts": "count(*) filter (is_open)",
        "is_changed": "count(*) > 1 or not bool_and(is_open)",
    }
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


def violation_rows(episodes: pa.Table) -> pa.Table:
    """Rows of the table of episodes with ids and ends."""
    columns: list[Any] = []
    names = set(episodes.schema.names)
    for field in VIOLATIONS.arrow_schema():
        if field.name == "event_date":
            columns.append(episodes["start_ms"].cast(_IN_MS).cast(pa.date32()))
        elif _TIMES.get(field.name) in names:
            columns.append(episodes[_TIMES[field.name]].cast(_IN_MS).cast(_IN_US))
        elif field.name in names:
            columns.append(episodes[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(episodes.num_rows, field.type))
    return pa.Table.from_arrays(columns, schema=VIOLATIONS.arrow_schema())


def _write(
    table: DeltaTable, rows: pa.Table, gone: pa.Table, on: str, batch: MicroBatch | None = None
) -> None:
    """Write episodes and remove others, in one commit.

    Args:
        table: `violations`.
        rows: to be there afterwards.
        gone: not to be there; their ids and dates count.
        on: which rows of the table are looked at: `ON_SAME`, or fewer.
        batch: the micro-batch that the commit carries.
    """
    source = pa.concat_tables(
        [
            each.append_column("is_gone", pa.repeat(is_gone, each.num_rows))
            for each, is_gone in ((rows, False), (gone, True))
        ]
    )
    columns = {name: f"new.{name}" for name in VIOLATIONS.names}
    (
        table.merge(
            source,
            on,
            source_alias="new",
            target_alias="old",
            commit_properties=None if batch is None else batch.properties,
        )
        .when_matched_delete("new.is_gone")
        .when_matched_update(columns, "not new.is_gone")
        .when_not_matched_insert(columns, "not new.is_gone")
        .execute()
    )


_DAY_MS = 86_400_000
_OLD = """
select episode_id, event_date, epoch_ms(start_time) as start_ms, epoch_ms(last_second) as last_ms from violations
where cluster_id = $1 and epoch_ms(start_time) <= $3 and epoch_ms(last_second) >= $2
"""
_NEWEST = """
select cluster_id, broker_id, coalesce(source, 'log') as source, epoch_ms(max(second)) as newest_ms from decisions
where cluster_id = $1 and {folded} group by all
"""
_MADE = """
with clocks as ({newest}), around as (
  select * from decisions where cluster_id = $1 and {folded}
    and epoch_ms(second) >= $2 - {silence_ms} and epoch_ms(second) <= $3
), log_progress as (
  select {bucket_broker} as bucket_broker, quota_type, epoch_ms(max(second)) as log_ms
  from around where coalesce(source, 'log') = 'log' group by all
), violated as ({violated}), of_one_source as ({of_one_source}), within as (
  select * from of_one_source where start_ms >= $2
), folded as ({made})
select * from ({ended}) where start_ms <= $5 and last_ms >= $4
"""
_ENDS = "select epoch_ms(min(second)), epoch_ms(max(second)) from decisions where cluster_id = $1"


def rebuild_violations(
    settings: Settings, from_ms: int, to_ms: int, not_folded_from_ms: Mapping[Place, int] | None = None
) -> None:
    """Replace the episodes that a stretch touches, in one commit.

    An episode belongs to it from `episode_gap` before the stretch on, because it might be joined to another one
    there; and it is made of all its seconds, in the stretch or not.

    Args:
        settings: the configuration.
        from_ms: start of the stretch, epoch ms.
        to_ms: its end, exclusive.
        not_folded_from_ms: seconds that JUDGE has written and not folded yet stay its own: by cluster, broker and
            source where they begin.
    """
    retried(lambda: _rebuild(settings, from_ms, to_ms, not_folded_from_ms or {}))


def rebuild_all_violations(settings: Settings) -> None:
    """Make the episodes of all decisions anew; those of dates that `decisions` does not hold any more stay."""
    with open_tables(settings, DECISIONS.name) as tables:
        first_ms, last_ms = tables.query(_ENDS, [settings.cluster_id]).rows[0]
    if first_ms is not None:
        for start_ms in range(first_ms, last_ms + 1, _DAY_MS):
            rebuild_violations(settings, start_ms, min(start_ms + _DAY_MS, last_ms + 1_000))


def _rebuild(settings: Settings, from_ms: int, to_ms: int, not_folded_from_ms: Mapping[Place, int]) -> None:
    gap_ms = settings.stream.episode_gap
    first_ms, last_ms = from_ms - gap_ms, to_ms + gap_ms
    table = delta_table(settings, VIOLATIONS.name)
    with open_tables(settings, DECISIONS.name, VIOLATIONS.name) as tables:
        old = tables.query(_OLD, [settings.cluster_id, first_ms, last_ms]).dicts()
        starts_ms = min([first_ms, *(row["start_ms"] for row in old)])
        ends_ms = max([last_ms, *(row["last_ms"] for row in old)])
        asked = [settings.cluster_id, starts_ms, ends_ms, first_ms, last_ms]
        made = violation_rows(tables.arrow(_made_sql(gap_ms, _is_folded(not_folded_from_ms)), asked))
    kept = set(made["episode_id"].to_pylist())
    gone = [
        {name: row[name] for name in ("episode_id", "event_date")}
        for row in old
        if row["episode_id"] not in kept
    ]
    if made.num_rows or gone:
        _write(table, made, pa.Table.from_pylist(gone, schema=VIOLATIONS.arrow_schema()), ON_SAME)
        sync_commit(table)


def _made_sql(gap_ms: int, is_folded: str) -> str:
    """SQL: the episodes of a stretch, from all decisions.

    Its parameters are the cluster, the stretch of the seconds, and the one that an episode has to touch.
    """
    return _MADE.format(
        newest=_NEWEST.format(folded=is_folded),
        folded=is_folded,
        silence_ms=LOG_SILENCE_MS,
        bucket_broker=BUCKET_BROKER,
        violated=violated_sql("around"),
        of_one_source=of_one_source_sql("violated", "log_progress"),
        made=folded_sql("within", gap_ms),
        ended=ended_sql("folded", "clocks", gap_ms),
    )


def _is_folded(not_folded_from_ms: Mapping[Place, int]) -> str:
    """As a condition of SQL."""
    parts = [
        f"not (broker_id = {int(broker_id)} and (coalesce(source, 'log') = 'log') = {source == LOG} "
        f"and epoch_ms(second) >= {int(time_ms)})"
        for (_, broker_id, source), time_ms in not_folded_from_ms.items()
    ]
    return " and ".join(parts) or "true"
