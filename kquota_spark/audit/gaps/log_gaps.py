"""Writes `log_gaps`, by which each micro-batch judges: lines that are missing, and where each log begins.

`gap_watch` decides when. A note beside the checkpoint holds what older files show of a broker before its first request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from kquota_spark.audit.gaps.gap_rows import LogGap, files_since, write_gaps
from kquota_spark.audit.gaps.lost_offsets import checked_through, heard_from, lost_offsets, note_compared
from kquota_spark.config.governor import rate_config
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.replay.log_beginning import (
    CUT_BEFORE_MS,
    CUT_MS,
    MOST_LINES,
    WITHIN_MS,
    LogBeginning,
    cut_gap,
)
from kquota_spark.pipeline.ingest import clock_skew_ms, set_aside
from kquota_spark.schema.gap_tables import (
    BROKER_RESTART,
    BROKER_START,
    CUT_LINE,
    LOG_GAPS,
    MID_STREAM,
    SHIPPER_LOST_LINES,
)
from kquota_spark.schema.tables import REQUESTS
from kquota_spark.store.delta.errors import delta_errors
from kquota_spark.store.following import DeltaCommits, NewCommits
from kquota_spark.store.reading import Tables
from kquota_spark.store.storage import delta_table, file_system, place_of

_REPORTED = """
select distinct broker_id, log_time_ms, record_time_ms from requests
where kind = 'gap' and cluster_id = $1 and not {set_aside}
  and (broker_id, log_time_ms, record_time_ms) not in (
    select (broker_id, epoch_ms(from_time), epoch_ms(to_time)) from log_gaps where cluster_id = $1
  ) order by all
"""
_EARLIEST = """
select min(case kind when 'gap' then record_time_ms else log_time_ms end) from requests
where kind in ('gap', 'unreadable') and cluster_id = $1
"""
"""Earliest end of a gap or time of an unreadable line, epoch ms.

A row of `log_gaps` that ends earlier is none of these gaps and covers none of these lines.
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
_FIRST_LINES = """
with mine as (
  select * from requests where cluster_id = $1 and kind in ('request', 'heartbeat') and not is_out_of_time
), beginning as (
  select broker_id, min(log_time_ms) as complete_from_ms,
         min(record_time_ms) filter (kind = 'request') as first_ms
  from mine where broker_id not in (
    select broker_id from log_gaps where cluster_id = $1 and reason in ($2, $3)
  ) group by all
)
select beginning.broker_id, complete_from_ms, first_ms is not null, record_time_ms, correlation_id, connection
from beginning left join mine on mine.broker_id = beginning.broker_id and kind = 'request'
  and record_time_ms < first_ms + $4 and not coalesce(is_forwarded, false)
qualify row_number() over (
  partition by beginning.broker_id order by record_time_ms, correlation_id, connection
) <= $5 order by all
"""


class NewFiles(NamedTuple):
    """What a check after a micro-batch reads: files of `requests`, as the log of the table names them.

    Attributes:
        number: number of the micro-batch.
        rows: files with rows to check.
        offsets: files with lines, see `lost_offsets`.
        version: version of the table with these files.
        restarts: restarts that the lines show.
    """

    number: int
    rows: Sequence[str]
    offsets: Sequence[str] | None
    version: int
    restarts: Sequence[LogGap]


def record_gaps(settings: Settings, new_files: NewFiles | None = None) -> list[str]:
    """Write the rows that `log_gaps` does not have yet; returns a line for the operator for each cause.

    If no micro-batch is given, this checks everything that the note does not cover.

    Raises:
        UserError: a table or a note cannot be read or written; the next call finds what is missing.
    """
    if new_files is None:
        compared = lost_offsets(settings)
        unseen = unseen_requests(settings, checked_through(settings))
    else:
        compared = lost_offsets(settings, new_files.number, new_files.offsets)
        unseen = Unseen(new_files.version, tuple(new_files.rows))
    found, heard_from_ms = _in_rows(settings, unseen)
    # After a crash, losses and restarts are found a second time.
    found += [LogGap(*around, loss.reason) for loss in compared.losses for around in loss.brokers]
    found += () if new_files is None else new_files.restarts
    if found:
        found = write_gaps(settings, found)
    note_compared(settings, compared, unseen.version, heard_from_ms)
    return [*(loss.note for loss in compared.losses), *_notes(settings, found)]


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


def _in_rows(settings: Settings, unseen: Unseen) -> tuple[list[LogGap], dict[int, int]]:
    """Gaps in the rows that were not checked before, and the value of `heard_from` after these rows."""
    heard_from_ms = heard_from(settings)
    if unseen.paths == ():
        return [], heard_from_ms
    with Tables(settings) as tables:
        if unseen.paths is None:
            tables.open(REQUESTS.name)
        else:
            tables.open_files(REQUESTS.name, unseen.paths)
        earliest_ms = tables.query(_EARLIEST, [settings.cluster_id]).rows[0][0]
        with delta_errors(f"{place_of(settings.tables, LOG_GAPS.name)}: cannot be read"):
            known = files_since(delta_table(settings, LOG_GAPS.name), earliest_ms)
        tables.open_files(LOG_GAPS.name, known)
        reported = tables.query(_judged(settings, _REPORTED), [settings.cluster_id]).rows
        found = [
            LogGap(broker_id, from_ms, to_ms, SHIPPER_LOST_LINES) for broker_id, from_ms, to_ms in reported
        ]
        found += _cuts(settings, tables)
        begun, heard_from_ms = _beginnings(settings, tables, heard_from_ms)
        return [*found, *begun], heard_from_ms


def _judged(settings: Settings, sql: str) -> str:
    """SQL that includes the lines which only the clock of this machine has set aside: `restate` judges them."""
    return sql.format(set_aside=set_aside(clock_skew_ms(settings)))


def _cuts(settings: Settings, tables: Tables) -> list[LogGap]:
    """Gaps around cut lines: it is not known which client sent the request."""
    asked = [settings.cluster_id, CUT_MS, CUT_LINE, CUT_BEFORE_MS]
    rows = tables.query(_judged(settings, _CUT), asked).rows
    return sorted(LogGap(broker_id, *cut_gap(log_time_ms), CUT_LINE) for broker_id, log_time_ms in rows)


def _beginnings(
    settings: Settings, tables: Tables, heard_from_ms: Mapping[int, int]
) -> tuple[list[LogGap], dict[int, int]]:
    """Beginnings of logs that are not in `log_gaps` yet, and `heard_from` of the brokers without a request.

    A heartbeat before the first request may be in an older file, so `heard_from_ms` keeps its time.
    """
    asked = [settings.cluster_id, MID_STREAM, BROKER_START, WITHIN_MS, MOST_LINES]
    beginnings: dict[int, LogBeginning] = defaultdict(LogBeginning)
    requested = set()
    for broker_id, from_ms, is_requested, *line in tables.query(_FIRST_LINES, asked).rows:
        beginnings[broker_id].complete_from(from_ms)
        if line[0] is not None:
            beginnings[broker_id].add(*line)
        if is_requested:
            requested.add(broker_id)
    found, still = [], dict(heard_from_ms)
    for broker_id, begins in beginnings.items():
        from_ms = begins.complete_from_ms or 0
        if broker_id in heard_from_ms:
            from_ms = min(from_ms, heard_from_ms[broker_id])
        if broker_id not in requested:
            still[broker_id] = from_ms
            continue
        still.pop(broker_id, None)
        if begins.is_broker_start:
            found.append(LogGap(broker_id, from_ms, from_ms, BROKER_START))
        else:
            found.append(LogGap(broker_id, 0, from_ms, MID_STREAM))
    return found, still


class Unseen(NamedTuple):
    """New files at a version; `paths` are as the log names them, None if it does not name them and all may be new."""

    version: int
    paths: tuple[str, ...] | None


def unseen_requests(settings: Settings, seen: int | None) -> Unseen:
    """The files with rows that came after a version; without a version, all files may be new.

    Raises:
        UserError: the table cannot be read.
    """
    commits, paths = DeltaCommits(settings, REQUESTS.name), list[str]()
    if seen is None:
        return Unseen(_newest(commits).version, None)
    commits.read(NewCommits((), None, is_fresh=False, version=seen))
    try:
        while not (found := _newest(commits)).is_fresh:
            if found.version == commits.read_through:
                return Unseen(found.version, _still_there(settings, paths))
            paths += found.paths
            commits.read(found)
    except UserError:
        # The log no longer has commits of that age.
        return Unseen(_newest(DeltaCommits(settings, REQUESTS.name)).version, None)
    return Unseen(found.version, None)


def _newest(commits: DeltaCommits) -> NewCommits:
    found = commits.unread()
    if found is None:
        raise UserError(f"no table {REQUESTS.name}: run the audit first")
    return found


def _still_there(settings: Settings, paths: list[str]) -> tuple[str, ...] | None:
    """The same paths; None if a file has been removed. The job packs files, and keeps the packed ones for a day."""
    packed: list[str] = []
    if paths:
        packed = [*{*paths}.difference(delta_table(settings, REQUESTS.name).paths())]
    files, root = file_system(settings, place_of(settings.tables, REQUESTS.name))
    infos = files.get_file_info([f"{root}/{unquote(path)}" for path in packed])
    return tuple(paths) if all(info.is_file for info in infos) else None
