"""Writes archived request logs into `requests`, with the parser of the job, without Kafka and without Spark.

A file is written in one commit, so it is there completely or not at all. Instead of Kafka's values, its rows have the
topic `file:<hash of its first bytes>:<name>`, the broker as partition, and the line number as offset. The hash
identifies a file also under another name, or compressed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from kquota_spark.checkpoints.checkpoints import LOG
from kquota_spark.checkpoints.driver_lease import only_driver
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.messages.messages import MessageFormat
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.pipeline.ingest import MessageReader, ingest_settings, parsed
from kquota_spark.process.notices import notice
from kquota_spark.replay.log_lines import line_parts, log_lines
from kquota_spark.schema.tables import REQUESTS
from kquota_spark.ship.log_text import DamagedGzipError, LogText
from kquota_spark.store.creation import ARCHIVED, create_tables
from kquota_spark.store.delta.errors import delta_errors
from kquota_spark.store.reading import query
from kquota_spark.store.storage import delta_table, place_of

_HASH_LENGTH = 16
_REPORT_S = 2.0
_FIRST_BYTES = 1 << 20
_KNOWN = "select topic, count(*) from requests where cluster_id = ? and topic like 'file:%' group by topic"


@dataclass(slots=True)
class Backfilled:
    """What one file added to `requests`."""

    path: Path
    lines: int = 0
    unreadable: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    problem: UserError | None = None
    """Why its remaining lines could not be read."""


def backfill(
    settings: Settings, files: Sequence[tuple[int, Path]], done: Callable[[Backfilled], None]
) -> None:
    """Append files, each with its broker id, to `requests`, each once; `done` is called after each file's commit.

    Raises:
        UserError: a file cannot be read, was appended before, or the job is running; files before it stay appended.
    """
    # Delta on a local file system allows one writer at a time.
    with only_driver(settings, settings.checkpoints, LOG) as hold:
        create_tables(settings)
        rows = query(settings, [REQUESTS.name], _KNOWN, [settings.cluster_id]).rows
        known = {topic.split(":")[1]: (topic.split(":", 2)[2], lines) for topic, lines in rows}
        for broker_id, path in files:
            identity = _identity(path)
            if identity in known:
                name, lines = known[identity]
                raise UserError(
                    f"{_shown(path)}: its beginning is that of {_shown(name)}, of which {lines:,} lines are in "
                    "requests already: a file is taken once"
                )
            found = _append(settings, broker_id, path, f"{ARCHIVED}{identity}:{_stored_name(path)}")
            known[identity] = (_stored_name(path), found.lines)
            done(found)
            hold.require()


def _shown(path: Path | str) -> str:
    """A file name in one line, whatever characters it has."""
    return terminal_text(str(path))


def _stored_name(path: Path) -> str:
    """A file name as text for a table, whatever its bytes and the locale are."""
    return os.fsencode(path.name).decode("utf-8", "backslashreplace")


def _identity(path: Path) -> str:
    try:
        text = LogText(path)
    except OSError as error:
        raise UserError(f"{_shown(path)}: cannot be read: {error.strerror or error}") from error
    try:
        return text.fingerprint(_FIRST_BYTES)[:_HASH_LENGTH]
    except DamagedGzipError as error:
        raise UserError(f"{_shown(path)}: the compressed file is damaged: fetch it again") from error
    finally:
        text.close()


def _append(settings: Settings, broker_id: int, path: Path, topic: str) -> Backfilled:
    found = Backfilled(path)
    table = place_of(settings.tables, REQUESTS.name)
    batches = pa.RecordBatchReader.from_batches(
        REQUESTS.arrow_schema(), _batches(settings, broker_id, path, topic, found)
    )
    try:
        with delta_errors(f"{_shown(path)}: cannot be written to {table}"):
            delta_table(settings, REQUESTS.name).append(batches)
    except UserError:
        if found.problem is not None:  # the writer has wrapped it in an error of its own
            raise found.problem from None
        raise
    return found


def _batches(
    settings: Settings, broker_id: int, path: Path, topic: str, found: Backfilled
) -> Iterator[pa.RecordBatch]:
    reader = MessageReader(ingest_settings(settings, MessageFormat()))
    # No line of a file was written later than the file. The job uses the message's own time for this.
    written_ms = path.stat().st_mtime_ns // 1_000_000
    lines = _noting_problem(log_lines(path), found)
    reported_s = time.monotonic()
    for chunk in line_parts(lines):
        count = len(chunk)
        messages = pa.RecordBatch.from_pydict(
            {
                "topic": pa.array([topic] * count, pa.string()),
                "partition": pa.array([broker_id] * count, pa.int32()),
                "offset": pa.array(range(found.lines, found.lines + count), pa.int64()),
                "timestamp_ms": pa.array([written_ms] * count, pa.int64()),
                "written_by_ms": pa.array([written_ms] * count, pa.int64()),
                "value": pa.array(chunk, pa.binary()),
                "broker": pa.array([str(broker_id).encode()] * count, pa.binary()),
            }
        )
        rows = parsed(messages, reader)
        _count(found, rows)
        if time.monotonic() - reported_s > _REPORT_S:
            reported_s = time.monotonic()
            notice(f"{_shown(path.name)}: {found.lines:,} lines")
        yield rows


def _noting_problem(lines: Iterator[bytes], found: Backfilled) -> Iterator[bytes]:
    try:
        yield from lines
    except UserError as error:
        found.problem = error
        raise


def _count(found: Backfilled, rows: pa.RecordBatch) -> None:
    found.lines += rows.num_rows
    found.unreadable += rows.column("kind").to_pylist().count("unreadable")
    times = [time_ms for time_ms in rows.column("record_time_ms").to_pylist() if time_ms is not None]
    if times:
        found.first_ms = min(times) if found.first_ms is None else min(found.first_ms, *times)
        found.last_ms = max(times) if found.last_ms is None else max(found.last_ms, *times)
