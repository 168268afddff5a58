"""Keeps the tables small, without Spark or a JVM: deletes old dates, compacts small files, removes replaced files.

This is safe beside a running job. It changes only closed dates (see `audit.past.closed`), so it does not conflict with
commits of the job. A file is removed if it is older than the file retention, and than the oldest micro-batch that has
not ended. Readers, and a micro-batch that runs again, may need younger files.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from kquota_spark.audit.past.closed import closed_through_ms, seconds_of
from kquota_spark.checkpoints.checkpoints import oldest_unfinished
from kquota_spark.checkpoints.driver_lease import Hold, only_driver
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.columns import Table
from kquota_spark.schema.tables import AGREEMENT, DECISIONS, TABLES, USAGE
from kquota_spark.store.delta.errors import OvertakenError, delta_errors
from kquota_spark.store.delta.table import StoredTable
from kquota_spark.store.packing import File, bins, pack, small_files
from kquota_spark.store.reading import utc_text
from kquota_spark.store.storage import delta_table_if_there, place_of, storage_options
from kquota_spark.store.table_log import set_log_properties

_HOUR_MS = 3_600_000
_IN_USE = "another process maintains these tables (pid {pid}, lock in {where}): let one schedule run kquota maintain"
_DATED = {table.name: table for table in TABLES if table.partition_by == ("event_date",)}
_MOST_FILES = 20_000
"""Maximum number of files that are compacted together; each takes some hundred bytes of memory."""

RollUp = Callable[[Settings, date], object]
"""Adds what a closed date comes to; a `Step` that it returns is listed."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step that was done to a table, or that a dry run would do; `note` is the result, or why less was done."""

    table: str
    action: str
    date: str
    files: int
    note: str = ""


def maintain(
    settings: Settings, now_ms: int, *, is_dry_run: bool, roll_ups: Sequence[RollUp] = ()
) -> Iterator[Step]:
    """Maintain all tables, table by table.

    Args:
        settings: retention, and where the tables are.
        now_ms: current time, epoch ms; retention counts from it.
        is_dry_run: change nothing.
        roll_ups: called for each closed date that `decisions` holds, oldest first, before anything is deleted.

    Raises:
        UserError: another process maintains these tables, a table cannot be read or written, no second is judged yet,
            or `maintain.retention` names a table without dates.
    """
    unknown = sorted(set(settings.maintain.retention) - set(_DATED))
    if unknown:
        raise UserError(
            f"maintain.retention.{unknown[0]}: no table with dates, expected one of {', '.join(_DATED)}"
        )
    # A second process would compact the same files for nothing.
    kquota = place_of(settings.tables, "_kquota")
    only = nullcontext(Hold()) if is_dry_run else only_driver(settings, kquota, "maintain", _IN_USE)
    with only as hold:
        closed = _closed(settings)
        if closed is None:
            raise UserError(f"nothing to maintain: no second under {settings.tables} has been judged yet")
        if not is_dry_run:
            yield from _roll_up(settings, closed, roll_ups)
        hours, kept_for = _file_hours(settings, now_ms)
        for name, declared in _DATED.items():
            hold.require()
            table = _open(settings, name)
            if table is None or table.version() == 0:
                continue
            with delta_errors(f"table {name}"):
                first_kept = min(closed, _first_kept(settings, name, now_ms))
                yield from _expired(table, name, first_kept, is_dry_run)
                yield from _compacted(settings, table, declared, (first_kept, closed), is_dry_run=is_dry_run)
                table.refresh()
                yield replace(_vacuumed(table, name, hours, is_dry_run), note=kept_for)
        if not is_dry_run:
            _clean_logs(settings)


def _closed(settings: Settings) -> date | None:
    """The date before which all dates are closed; None if there is none."""
    table = _open(settings, DECISIONS.name)
    if table is None:
        return None
    if seconds_of(settings, USAGE.name) is None:
        # JMX alone: its rows come within seconds, in order.
        return max(_files_of(table), default=None)
    closed_ms = closed_through_ms(settings)
    return None if closed_ms is None else datetime.fromtimestamp(closed_ms / 1_000, UTC).date()


def _roll_up(settings: Settings, closed: date, roll_ups: Sequence[RollUp]) -> Iterator[Step]:
    table = _open(settings, DECISIONS.name)
    days = [] if table is None else sorted(day for day in _files_of(table) if day < closed)
    for day in days:
        for roll_up in roll_ups:
            step = roll_up(settings, day)
            if isinstance(step, Step):
                yield step


def _open(settings: Settings, name: str) -> StoredTable | None:
    with delta_errors(f"{place_of(settings.tables, name)}: cannot be opened"):
        return delta_table_if_there(settings, name)


def _first_kept(settings: Settings, name: str, now_ms: int) -> date:
    """The oldest date that is kept: its last second is not older than the retention."""
    kept_ms = settings.maintain.retention.get(name)
    if kept_ms is None:
        return date.min
    return (datetime.fromtimestamp(now_ms / 1_000, UTC) - timedelta(milliseconds=kept_ms)).date()


def _files_of(table: StoredTable) -> Mapping[date, int]:
    """Number of files of each date."""
    actions = table.files()
    if "partition.event_date" not in actions.names:
        return {}
    return Counter(day for day in actions.column("partition.event_date") if day is not None)


def _expired(table: StoredTable, name: str, first_kept: date, is_dry_run: bool) -> Iterator[Step]:
    files = _files_of(table)
    old = sorted(day for day in files if day < first_kept)
    if old and not is_dry_run:
        table.delete(f"event_date < '{first_kept.isoformat()}'")
    yield from (Step(name, "delete date", day.isoformat(), files[day]) for day in old)


def _compacted(
    settings: Settings, table: StoredTable, declared: Table, dates: tuple[date, date], *, is_dry_run: bool
) -> Iterator[Step]:
    """Compact the small files of each date from the first of `dates` to the second, exclusive."""
    (first_kept, closed), by_day = dates, defaultdict[date, list[File]](list)
    for file in small_files(table):
        by_day[date.fromisoformat(file.event_date)].append(file)
    for day, files in sorted(by_day.items()):
        if len(files) < 2 or not first_kept <= day < closed:
            continue
        if is_dry_run:
            yield Step(declared.name, "compact", day.isoformat(), len(files))
            continue
        groups, done = [*bins(files, _MOST_FILES)], list[Sequence[File]]()
        with suppress(OvertakenError), delta_errors(f"table {declared.name}"):
            done += [group for group in groups if pack(settings, declared, group)]
        note = f"into {len(done)}" if len(done) == len(groups) else "another writer was faster: next time"
        yield Step(declared.name, "compact", day.isoformat(), sum(map(len, done)), note)


def _file_hours(settings: Settings, now_ms: int) -> tuple[int, str]:
    """Age from which files are removed, hours, and which checkpoint keeps them longer than the settings do.

    Files of a micro-batch that has not ended are never removed. The second value is empty if no checkpoint does.
    """
    kept_ms, unfinished, note = int(settings.maintain.file_retention), oldest_unfinished(settings), ""
    if unfinished is not None:
        # The clocks of this host, of the driver and of the store may differ.
        needed_ms = now_ms - unfinished.planned_ms + _HOUR_MS
        if needed_ms > kept_ms:
            where, since = place_of(settings.checkpoints, unfinished.query), utc_text(unfinished.planned_ms)
            kept_ms = needed_ms
            note = f"those since {since} stay: {where} has a micro-batch that has not ended"
    return -(-kept_ms // _HOUR_MS), note


def _vacuumed(table: StoredTable, name: str, hours: int, is_dry_run: bool) -> Step:
    # Full: this also removes files that a killed job wrote and never committed.
    removed = table.remove_old_files(hours, is_dry_run=is_dry_run, is_full=True)
    return Step(name, "remove files", "", len(removed))


def _clean_logs(settings: Settings) -> None:
    """Remove log entries that are older than the retention of each table; commits do not do this."""
    for declared in TABLES:
        table = _open(settings, declared.name)
        if table is None:
            continue
        with delta_errors(f"the log of table {declared.name}"):
            table.write_checkpoint()
            table.flush()  # the next call removes the entries that it replaces
            table.remove_old_entries()


def roll_up_agreement(
    settings: Settings, day: date, *, rows_of: Callable[[Settings, date], list[dict[str, Any]]]
) -> int:
    """Replace the agreement rows of one closed UTC day; returns the number of rows written.

    The same decisions give the same rows. If no file of the day's decisions is newer than the rows, nothing is done. So
    this may be called repeatedly for every day, and a restatement counts at the next call. The caller makes sure that
    the day is closed: later decisions do not count until then.

    Args:
        settings: where the tables are.
        day: the closed day.
        rows_of: counts the decisions of a day: `reports.agreement.agreement.of_day`.

    Raises:
        UserError: the decisions cannot be read, or the table cannot be written.
    """
    written_ms = _newest_file_ms(settings, AGREEMENT.name, day)
    if written_ms is not None and written_ms > (_newest_file_ms(settings, DECISIONS.name, day) or 0):
        return 0
    rows = rows_of(settings, day)
    if not rows:
        return 0  # its decisions may be deleted already: their agreement rows are kept
    path = place_of(settings.tables, AGREEMENT.name)
    schema = AGREEMENT.arrow_schema()
    with delta_errors(f"table {AGREEMENT.name} cannot be written at {path}"):
        table = StoredTable.created(
            path,
            schema,
            AGREEMENT.log_properties,
            storage_options(settings),
            partition_by=AGREEMENT.partition_by,
            name=AGREEMENT.name,
            grain=AGREEMENT.grain,
        )
        set_log_properties(table, AGREEMENT)
        of_day = f"event_date = '{day.isoformat()}'"
        # An earlier release had fewer columns.
        table.replace(pa.Table.from_pylist(rows, schema=schema), of_day, adds_columns=True)
    return len(rows)


def _newest_file_ms(settings: Settings, name: str, day: date) -> int | None:
    """When the newest file of a day was written, epoch ms; None without the table, or without a file of that day."""
    table = delta_table_if_there(settings, name)
    if table is None:
        return None
    actions = table.files()
    if "partition.event_date" not in actions.names:
        return None
    days, times = (actions.column(column) for column in ("partition.event_date", "modification_time"))
    return max((time for of_day, time in zip(days, times, strict=True) if of_day == day), default=None)
