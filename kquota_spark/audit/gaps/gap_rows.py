"""Rows of `log_gaps`: each is appended once, many small files become one, and old files are not read.

Each reason has files of its own, so statistics of files are enough to find both kinds of rows. Beginnings of logs count
at any age. Gaps count as long as verdicts may depend on them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.config.settings import Settings
from kquota_spark.schema.gap_tables import BROKER_START, LOG_GAPS, MID_STREAM
from kquota_spark.store.delta.errors import OvertakenError, committed, delta_errors
from kquota_spark.store.delta.table import StoredTable
from kquota_spark.store.files import paths_within
from kquota_spark.store.parts import dataset_of
from kquota_spark.store.rows import arrow_rows, rows_in_ms
from kquota_spark.store.storage import delta_table, place_of

_BEGINNINGS = (MID_STREAM, BROKER_START)
_ATTEMPTS = 5
_MOST_FILES = 50
"""Maximum number of small files of one reason in `log_gaps` before they become one; each new gap adds a file."""
_FULL_ROWS = 1_000
"""Number of rows from which a file is not small. It is rewritten only if a small one has gaps as old as its own."""


class LogGap(NamedTuple):
    """A row of `log_gaps`; times in epoch ms."""

    broker_id: int
    from_ms: int
    to_ms: int
    reason: str


def write_gaps(settings: Settings, gaps: list[LogGap]) -> list[LogGap]:
    """Write the gaps that `log_gaps` does not have yet.

    Args:
        settings: where the table is, and the cluster.
        gaps: the gaps that were found; some may be in the table already.

    Returns:
        The gaps that were written.

    Raises:
        UserError: the table cannot be read or written.
    """
    by_reason: dict[str, list[LogGap]] = defaultdict(list)
    for gap in gaps:
        by_reason[gap.reason].append(gap)
    return [gap for reason, found in by_reason.items() for gap in _appended(settings, reason, found)]


def _appended(settings: Settings, reason: str, gaps: list[LogGap]) -> list[LogGap]:
    """Append the gaps of one reason that are not in the table yet; returns these gaps.

    Each append carries the next number. If two drivers append at the same time, deltalake refuses the second one, which
    then reads the table again.
    """
    path, writer = place_of(settings.tables, LOG_GAPS.name), f"{LOG_GAPS.name} {settings.cluster_id}"

    def append() -> list[LogGap]:
        table = delta_table(settings, LOG_GAPS.name)
        new = _not_in(settings, table, gaps)
        if new:
            number = (table.number_of(writer) or 0) + 1
            columns = ("broker_id", "from_time", "to_time", "reason")
            rows = [
                {"cluster_id": settings.cluster_id, **dict(zip(columns, gap, strict=True))} for gap in new
            ]
            table.append(arrow_rows(LOG_GAPS, rows), (writer, number))
        return new

    with delta_errors(f"{path}: cannot be written"):
        new = committed(append, _ATTEMPTS)
    if new:
        _compact(settings, reason)
    return new


def _compact(settings: Settings, reason: str) -> None:
    """Make one file of the small files of one reason if they are many, unless another driver does.

    The rows are rewritten. With deltalake's own compaction, two at the same time would both succeed, and each row would
    be there twice. Full files of older gaps are not opened.
    """
    path = place_of(settings.tables, LOG_GAPS.name)
    with suppress(OvertakenError), delta_errors(f"{path}: its files cannot be put together"):
        table = delta_table(settings, LOG_GAPS.name)
        actions = table.files()
        if "min.to_time" not in actions.names:
            return
        of_reason = {*paths_within(table, "reason", *_only(reason))}
        columns = (actions.column(name) for name in ("path", "num_records", "min.to_time"))
        earliest = [
            time or _time(0)  # a file of an older release has no statistics of its times
            for name, rows, time in zip(*columns, strict=True)
            if name in of_reason and (rows or 0) < _FULL_ROWS
        ]
        if len(earliest) > _MOST_FILES:
            from_ms = round(min(earliest).timestamp() * 1_000)
            since = paths_within(table, "to_time", *_since(from_ms))
            rows = _rows_in(settings, of_reason.intersection(since))
            is_replaced = (pc.field("reason") == reason) & (pc.field("to_time") >= _time(from_ms))
            wanted = f"reason = '{reason}' and to_time >= '{_time(from_ms).isoformat()}'"
            table.replace(rows.filter(is_replaced), wanted)


def _not_in(settings: Settings, table: StoredTable, gaps: list[LogGap]) -> list[LogGap]:
    """The gaps that a version of the table does not have; a log has only one beginning."""
    known = {
        LogGap(row["broker_id"], row["from_time"], row["to_time"], row["reason"])
        for row in rows_in_ms(_rows_in(settings, files_since(table, min(gap.to_ms for gap in gaps))))
        if row["cluster_id"] == settings.cluster_id
    }
    begun = {gap.broker_id for gap in known if gap.reason in _BEGINNINGS}
    return [
        gap
        for gap in gaps
        if gap not in known and (gap.reason not in _BEGINNINGS or gap.broker_id not in begun)
    ]


def files_since(table: StoredTable, from_ms: int | None) -> set[str]:
    """Files that may have the beginning of a log, or a gap that ends at `from_ms` (epoch ms) or later.

    With None, only the files of beginnings. These are a few rows per broker, however old the table is.
    """
    found = {path for reason in _BEGINNINGS for path in paths_within(table, "reason", *_only(reason))}
    return found if from_ms is None else found.union(paths_within(table, "to_time", *_since(from_ms)))


def _only(text: str) -> tuple[str, str]:
    """The range that contains only this text, its end exclusive."""
    return text, f"{text}\0"


def _since(from_ms: int) -> tuple[datetime, datetime]:
    return _time(from_ms), datetime.max.replace(tzinfo=UTC)


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1_000, UTC)


def _rows_in(settings: Settings, paths: Iterable[str]) -> pa.Table:
    found = sorted(paths)
    if not found:
        return LOG_GAPS.arrow_schema().empty_table()
    return dataset_of(settings, LOG_GAPS, found).to_table()
