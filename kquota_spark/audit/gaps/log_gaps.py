"""Writes `log_gaps`, which each micro-batch judges by: lines that are missing, and where each log begins.

The driver looks at its start, and whenever a micro-batch has written what may be a gap: a crash between the two is made
good by the next start.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, Protocol

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from kquota_spark.audit.gaps.lost_offsets import looked_through, lost_offsets, note_compared
from kquota_spark.config.settings import Settings
from kquota_spark.config.windows import rate_config
from kquota_spark.errors import UserError
from kquota_spark.model.replay.log_beginning import (
    CUT_BEFORE_MS,
    CUT_MS,
    MOST_LINES,
    WITHIN_MS,
    BrokerLines,
    LogBeginning,
    Restarts,
    cut_gap,
)
from kquota_spark.pipeline.ingest import set_aside
from kquota_spark.replay.parsing import clock_skew_ms
from kquota_spark.schema.gap_tables import (
    BROKER_RESTART,
    BROKER_START,
    CUT_LINE,
    LOG_GAPS,
    MID_STREAM,
    SHIPPER_LOST_LINES,
)
from kquota_spark.schema.tables import REQUESTS
from kquota_spark.store.durable import sync_commit
from kquota_spark.store.following import DeltaCommits, NewCommits
from kquota_spark.store.reading import Tables, open_tables
from kquota_spark.store.rows import arrow_rows, rows_in_ms
from kquota_spark.store.storage import (
    OvertakenError,
    arrow_files,
    committed,
    delta_errors,
    delta_table,
    place_of,
)

_TOLD = """
select distinct broker_id, log_time_ms, record_time_ms from requests
where kind = 'gap' and cluster_id = $1 and not {set_aside}
  and (broker_id, log_time_ms, record_time_ms) not in (
    select (broker_id, epoch_ms(from_time), epoch_ms(to_time)) from log_gaps where cluster_id = $1
  ) order by all
"""
_CUT = """
select broker_id, min(log_time_ms) from requests
where kind = 'unreadable' and log_time_ms is not null and api_key is null and broker_id is not null
  and cluster_id = $1 and not {set_aside} and not exists (
    select 1 from log_gaps
    where cluster_id = $1 and reason = $3 and log_gaps.broker_id = requests.broker_id
      and epoch_ms(from_time) <= log_time_ms - $4 and log_time_ms < epoch_ms(to_time)
  ) group by broker_id, log_time_ms // $2
"""
_UNBEGUN = """
select 1 from requests where cluster_id = $1 and kind = 'request' and not is_out_of_time and broker_id not in (
  select broker_id from log_gaps where cluster_id = $1 and reason in ($2, $3)
) limit 1
"""
_FIRST_LINES = """
with mine as (
  select * from requests where cluster_id = $1 and kind in ('request', 'heartbeat') and not is_out_of_time
), beginning as (
  select broker_id, min(log_time_ms) as complete_from_ms,
         min(record_time_ms) filter (kind = 'request') as first_ms
  from mine where broker_id not in (
    select broker_id from log_gaps where cluster_id = $1 and reason in ($2, $3)
  ) group by all having first_ms is not null
)
select beginning.broker_id, complete_from_ms, record_time_ms, correlation_id, connection
from beginning left join mine on mine.broker_id = beginning.broker_id and kind = 'request'
  and record_time_ms < first_ms + $4 and not coalesce(is_forwarded, false)
qualify row_number() over (
  partition by beginning.broker_id order by record_time_ms, correlation_id, connection
) <= $5 order by all
"""


_NOTED_EVERY = 50
"""Micro-batches: so few commits of `requests`, at most, a start has to look through."""
_BEGINNINGS = (MID_STREAM, BROKER_START)
_ATTEMPTS = 5
_MOST_FILES = 50
"""Maximum files of `log_gaps` before they are put together: each new gap adds one, and each look reads them all."""
_newest_ms = attrgetter("newest_ms")


class LogGap(NamedTuple):
    """A row of `log_gaps`; times in epoch ms."""

    broker_id: int
    from_ms: int
    to_ms: int
    reason: str


def record_gaps(settings: Settings, through: int | None = None, restarts: Sequence[LogGap] = ()) -> list[str]:
    """Write the rows that `log_gaps` does not have yet; what there is to say of them, a line for each cause.

    For `through` see `lost_offsets`; `restarts` come from the lines of a micro-batch.

    Raises:
        UserError: a table or a note cannot be read or written; what is missing is found by the next call.
    """
    compared = lost_offsets(settings, through)
    unseen = unseen_requests(settings, looked_through(settings))
    found = _in_rows(settings, unseen)
    # After a crash losses and restarts are found a second time.
    found += [LogGap(*around, loss.reason) for loss in compared.losses for around in loss.brokers]
    found += restarts
    if found:
        found = _written(settings, found)
    note_compared(settings, compared, unseen.version)
    return [*(loss.note for loss in compared.losses), *_notes(settings, found)]


def _written(settings: Settings, gaps: list[LogGap]) -> list[LogGap]:
    """Write the gaps that are not in the table yet; those that were written.

    Each append carries the next number. Of two drivers that append at the same time deltalake refuses the second one,
    which then looks again.
    """
    path, writer = place_of(settings.tables, LOG_GAPS.name), f"{LOG_GAPS.name} {settings.cluster_id}"

    def append() -> list[LogGap]:
        table = delta_table(settings, LOG_GAPS.name)
        new = _not_in(table, settings.cluster_id, gaps)
        if new:
            number = (table.transaction_version(writer) or 0) + 1
            columns = ("broker_id", "from_time", "to_time", "reason")
            rows = [
                {"cluster_id": settings.cluster_id, **dict(zip(columns, gap, strict=True))} for gap in new
            ]
            once = CommitProperties(app_transactions=[Transaction(writer, number)])
            write_deltalake(table, arrow_rows(LOG_GAPS, rows), mode="append", commit_properties=once)
            sync_commit(table)
        return new

    with delta_errors(f"{path}: cannot be written"):
        new = committed(append, _ATTEMPTS)
    if new:
        _compact(settings)
    return new


def _compact(settings: Settings) -> None:
    """Put the files of `log_gaps` together if they are many, unless another driver does.

    Rows are written anew: of two of deltalake's own compactions at the same time it takes both, and each row twice.
    """
    path = place_of(settings.tables, LOG_GAPS.name)
    with suppress(OvertakenError), delta_errors(f"{path}: its files cannot be put together"):
        table = delta_table(settings, LOG_GAPS.name)
        if len(table.file_uris()) > _MOST_FILES:
            rows = table.to_pyarrow_table(filesystem=arrow_files(table))
            write_deltalake(table, rows, mode="overwrite")
            sync_commit(table)


def _not_in(table: DeltaTable, cluster_id: str, gaps: list[LogGap]) -> list[LogGap]:
    """Those that a version of the table does not have; a log has one beginning."""
    known = {
        LogGap(row["broker_id"], row["from_time"], row["to_time"], row["reason"])
        for row in rows_in_ms(table.to_pyarrow_dataset(filesystem=arrow_files(table)).to_table())
        if row["cluster_id"] == cluster_id
    }
    begun = {gap.broker_id for gap in known if gap.reason in _BEGINNINGS}
    return [
        gap
        for gap in gaps
        if gap not in known and (gap.reason not in _BEGINNINGS or gap.broker_id not in begun)
    ]


class Heard(Protocol):
    """What a task tells of the lines that it has written."""

    @property
    def counts(self) -> Mapping[str, int]:
        """`gaps`: words of shippers of lost lines, and `cut`: lines that were cut."""

    @property
    def brokers(self) -> Iterable[int]:
        """Whose lines."""

    @property
    def lines(self) -> Iterable[BrokerLines]:
        """What they tell of restarts."""

    @property
    def spans(self) -> Iterable[tuple[str, int, int, int, int]]:
        """Topic, partition, first and last offset, and how many."""


class GapWatch:
    """Looks for gaps at the driver's start, and when a micro-batch gives a reason."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings, self._say = settings, say
        self._restarts = Restarts()
        self.on_restart: Callable[[], None] = lambda: None
        """Called when a broker has started anew, perhaps with other settings."""
        self._brokers: set[int] = set()
        self._not_noted = 0
        self._next: dict[tuple[str, int], int] = {}
        self._recording = threading.Lock()

    def record(self, through: int | None = None, restarts: Sequence[LogGap] = ()) -> None:
        """Write what is new, and say so."""
        with self._recording:
            for note in record_gaps(self._settings, through, restarts):
                self._say(note)
        if restarts:
            self.on_restart()

    def follow(self, told: Iterable[Heard], number: int) -> None:
        """`record` after lines of a new broker, lost or cut lines, offsets without a line, or a restart."""
        brokers = {broker_id for each in told for broker_id in each.brokers} - self._brokers
        is_told = any(each.counts.get("gaps") or each.counts.get("cut") for each in told)
        is_short = self._is_short([span for each in told for span in each.spans])
        restarts = [
            LogGap(lines.broker_id, *around, BROKER_RESTART)
            for lines in sorted((lines for each in told for lines in each.lines), key=_newest_ms)
            for around in self._restarts.add(lines)
        ]
        self._not_noted += 1
        # The less is left to look through, the sooner the next start is under way.
        if brokers or is_told or is_short or restarts or self._not_noted >= _NOTED_EVERY:
            self._brokers |= brokers
            self._not_noted = 0
            self.record(number, restarts)

    def _is_short(self, spans: Iterable[tuple[str, int, int, int, int]]) -> bool:
        """Whether offsets are missing in a partition, or between this micro-batch and the one before."""
        is_short = False
        by_place = groupby(sorted(spans), key=lambda span: span[:2])
        for (topic, partition), found in by_place:
            for _, _, first, last, count in found:
                is_short |= first != self._next.get((topic, partition), first) or last - first + 1 != count
                self._next[topic, partition] = last + 1
        return is_short


def _notes(settings: Settings, gaps: Iterable[LogGap]) -> list[str]:
    by_reason: dict[str, list[LogGap]] = defaultdict(list)
    for gap in gaps:
        by_reason[gap.reason].append(gap)
    notes = []
    if lost := by_reason[SHIPPER_LOST_LINES]:
        notes.append(f"shippers lost lines: {len(lost)} new gaps in log_gaps")
    if cut := by_reason[CUT_LINE]:
        brokers = ", ".join(map(str, sorted({gap.broker_id for gap in cut})))
        notes.append(f"lines of broker {brokers} were cut: verdicts around them are uncertain (log_gaps)")
    if restarted := by_reason[BROKER_RESTART]:
        brokers = ", ".join(str(gap.broker_id) for gap in restarted)
        notes.append(f"broker {brokers} was restarted: {_horizon_s(settings):g} s are uncertain")
    if begun := by_reason[MID_STREAM]:
        brokers = ", ".join(str(gap.broker_id) for gap in begun)
        notes.append(
            f"the audit begins in mid-stream of the log of broker {brokers}: {_horizon_s(settings):g} s are uncertain"
        )
    return notes


def _horizon_s(settings: Settings) -> float:
    return rate_config(settings).horizon_ms / 1_000


def _in_rows(settings: Settings, unseen: Unseen) -> list[LogGap]:
    """What the rows say that were not looked through before."""
    if unseen.paths == ():
        return []
    with open_tables(settings, LOG_GAPS.name) as tables:
        if unseen.paths is None:
            tables.open(REQUESTS.name)
        else:
            tables.open_files(REQUESTS.name, unseen.paths)
        told = tables.query(_judged(settings, _TOLD), [settings.cluster_id]).rows
        found = [LogGap(broker_id, from_ms, to_ms, SHIPPER_LOST_LINES) for broker_id, from_ms, to_ms in told]
        found += _cuts(settings, tables)
        if tables.query(_UNBEGUN, [settings.cluster_id, MID_STREAM, BROKER_START]).rows:
            if unseen.paths is not None:
                # What a shipper said before the first request may be in an older file.
                tables.open(REQUESTS.name)
            found += _beginnings(settings, tables)
        return found


def _judged(settings: Settings, sql: str) -> str:
    """With the lines that only the clock of this machine has set aside: `restate` judges them."""
    return sql.format(set_aside=set_aside(clock_skew_ms(settings)))


def _cuts(settings: Settings, tables: Tables) -> list[LogGap]:
    """Gaps of lines of which it is not known whose they are."""
    asked = [settings.cluster_id, CUT_MS, CUT_LINE, CUT_BEFORE_MS]
    rows = tables.query(_judged(settings, _CUT), asked).rows
    return sorted(LogGap(broker_id, *cut_gap(log_time_ms), CUT_LINE) for broker_id, log_time_ms in rows)


def _beginnings(settings: Settings, tables: Tables) -> list[LogGap]:
    """How the logs begin of brokers of which that is not written down."""
    asked = [settings.cluster_id, MID_STREAM, BROKER_START, WITHIN_MS, MOST_LINES]
    beginnings: dict[int, LogBeginning] = defaultdict(LogBeginning)
    for broker_id, from_ms, *line in tables.query(_FIRST_LINES, asked).rows:
        beginnings[broker_id].complete_from(from_ms)
        if line[0] is not None:
            beginnings[broker_id].add(*line)
    found = []
    for broker_id, begins in beginnings.items():
        from_ms = begins.complete_from_ms or 0
        if begins.is_broker_start:
            found.append(LogGap(broker_id, from_ms, from_ms, BROKER_START))
        else:
            found.append(LogGap(broker_id, 0, from_ms, MID_STREAM))
    return found


class Unseen(NamedTuple):
    """What is new at a version; `paths` as the log names them, None where it does not say and all files may be."""

    version: int
    paths: tuple[str, ...] | None


def unseen_requests(settings: Settings, seen: int | None) -> Unseen:
    """The files with rows that came after a version; of none before they may be all.

    Raises:
        UserError: the table cannot be read.
    """
    commits, paths = DeltaCommits(settings, REQUESTS.name), list[str]()
    if seen is None:
        return Unseen(_looked(commits).version, None)
    commits.read(NewCommits((), None, is_fresh=False, version=seen))
    try:
        while not (found := _looked(commits)).is_fresh:
            if found.version == commits.read_through:
                return Unseen(found.version, _still_there(settings, paths))
            paths += found.paths
            commits.read(found)
    except UserError:
        # Commits of so long ago are not in the log any more.
        return Unseen(_looked(DeltaCommits(settings, REQUESTS.name)).version, None)
    return Unseen(found.version, None)


def _looked(commits: DeltaCommits) -> NewCommits:
    found = commits.look()
    if found is None:
        raise UserError(f"no table {REQUESTS.name}: run the audit first")
    return found


def _still_there(settings: Settings, paths: list[str]) -> tuple[str, ...] | None:
    """The same, unless some were put together to others since."""
    if not paths:
        return ()
    actions = delta_table(settings, REQUESTS.name).get_add_actions(flatten=True)
    return tuple(paths) if set(paths) <= set(actions.column("path").to_pylist()) else None
