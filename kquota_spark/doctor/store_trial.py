"""Trials of the stores of tables and checkpoints as the job uses them, without Spark; `spark_trial` uses Spark.

A trial creates its own folder under each root and removes it afterwards. If the root did not exist, the root stays as
an empty folder.
"""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from pyarrow import fs

from kquota_spark.checkpoints.lease_table import LeaseTable
from kquota_spark.checkpoints.notes import put_whole, read_note
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError, one_line
from kquota_spark.process.check import Check, fail, failed, ok
from kquota_spark.process.clock import now_ms
from kquota_spark.schema.columns import Column, Table, bigint, string
from kquota_spark.store.commits import BatchCommits, MicroBatch
from kquota_spark.store.creation import create_table
from kquota_spark.store.delta.errors import delta_errors
from kquota_spark.store.parts import Part, PartWriter
from kquota_spark.store.storage import delta_table, file_system, place_of

TRIAL = Table(
    "trial",
    "one number",
    (
        Column("event_date", "date", "the day of the trial"),
        bigint("number", "which part"),
        string("host", "host that wrote it"),
    ),
    ("event_date",),
    ("number",),
)
_WRITERS, _ROUNDS, _START_S = 4, 3, 30.0
_SAME_KEY = "old.number = new.number"
_CONDITIONAL = (
    "the store puts a commit over one that is there, so two writers would lose rows: use a store with conditional "
    "writes (If-None-Match)"
)
Write = Callable[[Settings], Iterable[tuple[str, list[Part]]]]
"""Writes parts of the trial, and returns the host of each writer with its parts."""
Read = Callable[[Settings], list[list[int]]]
"""Reads the trial in several processes, and returns the numbers that each one read (`numbers_seen`)."""


def tables_check(settings: Settings) -> Check:
    """Write parts from this process, then commit, merge and read them."""
    return tried_tables(settings, _written_here)


def checkpoints_check(settings: Settings) -> Check:
    """Write, replace and read a note from this process."""
    begun_s = time.monotonic()
    try:
        with trial_folder(settings, settings.checkpoints) as root:
            note = place_of(root, "note.json")
            for text in (b"one", b"two"):
                put_whole(settings, note, text)
            read = read_note(settings, note)
            if read != b"two":
                raise UserError(f"{note}: the note that was written is not the one that is read: {read!r}")
    except (UserError, OSError) as error:
        return store_failure("checkpoints", settings.checkpoints, error)
    took_s = time.monotonic() - begun_s
    return ok("checkpoints", f"{settings.checkpoints}: notes are written, replaced and read ({took_s:.1f} s)")


def written_part(trial: Settings, number: int) -> list[Part]:
    """Write one row as a task does, and return the files."""
    row = {"event_date": _today(), "number": number, "host": socket.gethostname()}
    writer = PartWriter(trial, TRIAL)
    for batch in pa.Table.from_pylist([row], schema=TRIAL.arrow_schema()).to_batches():
        writer.write(batch)
    return list(writer.close())


def numbers_seen(trial: Settings) -> list[int]:
    """The numbers of the rows that this process reads through deltalake, sorted."""
    found: list[Any] = delta_table(trial, TRIAL.name).rows(["number"])["number"].to_pylist()
    return sorted(found)


def _today() -> date:
    return datetime.fromtimestamp(now_ms() / 1_000, UTC).date()


def _written_here(trial: Settings) -> list[tuple[str, list[Part]]]:
    return [(socket.gethostname(), written_part(trial, number)) for number in range(2)]


def tried_tables(settings: Settings, write: Write, read: Read | None = None) -> Check:
    """Have parts written, then commit, merge and read them.

    Args:
        settings: the root of the tables, and how to reach it.
        write: writes the parts.
        read: reads them in other processes as well; None to read them in this process only.
    """
    by = "this process" if read is None else "tasks of Spark"
    begun_s = time.monotonic()
    try:
        with trial_folder(settings, settings.tables) as root:
            hosts, is_exclusive = _tried(settings.changed(tables=root), write, read)
    except (UserError, OSError) as error:
        return store_failure("tables", f"{settings.tables}, by {by}", error)
    if not is_exclusive:
        return fail("tables", f"{settings.tables}: {_CONDITIONAL}", "give tables: another place")
    named = f" on {', '.join(sorted(hosts))}" if read is not None else ""
    took_s = time.monotonic() - begun_s
    done = "parts are written, committed, merged and read; of commits of one version one wins"
    return ok("tables", f"{settings.tables}: by {by}{named} {done} ({took_s:.1f} s)")


def _tried(trial: Settings, write: Write, read: Read | None) -> tuple[set[str], bool]:
    """The hosts that wrote, and whether the store refuses a second commit of one version.

    Raises:
        UserError: a part cannot be written, committed or merged, or other rows are read than were written.
    """
    create_table(trial, TRIAL)
    found = list(write(trial))
    parts, count = [part for _, each in found for part in each], len(found)
    commits = BatchCommits(trial, TRIAL)
    commits.require_there(parts)
    with delta_errors(f"table {TRIAL.name} cannot be written"):
        commits.add(parts, MicroBatch("trial", 0))
        _merged(trial, count)
    wanted = list(range(count + 1))  # the merge has added one row to those of the parts
    for seen in (numbers_seen(trial), *(read(trial) if read is not None else ())):
        if seen != wanted:
            raise UserError(f"rows {wanted} were written, and {seen} are read")
    return {host for host, _ in found}, _is_exclusive(trial)


def _merged(trial: Settings, count: int) -> None:
    row = {"event_date": _today(), "host": "merge"}
    rows = pa.Table.from_pylist(
        [row | {"number": number} for number in (0, count)], schema=TRIAL.arrow_schema()
    )
    delta_table(trial, TRIAL.name).merge(rows, _SAME_KEY, TRIAL.names)


def _is_exclusive(trial: Settings) -> bool:
    """Whether exactly one of several writers that commit the same version at the same time succeeds.

    deltalake checks for an existing version before it asks the store to refuse it. So commits one after the other would
    prove nothing about the store.
    """
    writers = [LeaseTable(trial, place_of(trial.tables, "leases")) for _ in range(_WRITERS)]
    is_made, start = writers[0].take("trial", 0), threading.Barrier(_WRITERS)

    def is_winner(writer: LeaseTable, number: int) -> bool:
        seen = writer.number("trial")
        start.wait(_START_S)
        return seen == number and writer.take("trial", number)

    with ThreadPoolExecutor(_WRITERS) as pool:
        winners = [sum(pool.map(is_winner, writers, [number] * _WRITERS)) for number in range(1, 1 + _ROUNDS)]
    return is_made and winners == [1] * _ROUNDS


def store_failure(what: str, where: str, error: Exception) -> Check:
    """The failed check of an error.

    Args:
        what: name of the check.
        where: the root that was tried, with the name of the process that tried it.
        error: the error of the trial.
    """
    if isinstance(error, UserError):
        return failed(what, UserError(f"{where}: {error}: check storage_options and the rights"))
    return fail(
        what, f"{where}: {one_line(error)}", "check storage_options, and the rights of this login there"
    )


@contextmanager
def trial_folder(settings: Settings, root: str) -> Iterator[str]:
    """A new folder below a root, which is removed afterwards."""
    place = place_of(root, f"_kquota-trial-{uuid.uuid4().hex[:12]}")
    try:
        yield place
    finally:
        files, path = file_system(settings, place)
        with suppress(OSError):
            if files.get_file_info(path).type != fs.FileType.NotFound:
                files.delete_dir(path)
