"""Follows the log of a Delta table commit by commit: which files are new since the last call.

A call reads one small JSON file per commit, however large the table is. It skips commits that change existing rows
(`kquota restate`, retention), like the job's own streams (`skipChangeCommits`). It also skips commits that only move
rows to other files (OPTIMIZE).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.store.delta.errors import MissingTableError, delta_errors
from kquota_spark.store.storage import delta_table, log_of
from kquota_spark.store.table_log import KEPT_ENTRIES

if TYPE_CHECKING:
    from kquota_spark.store.delta.table import StoredTable

_MOST_COMMITS = 200
"""Maximum commits read per call; the next call reads the rest."""
_TOO_FAR = KEPT_ENTRIES // 2
"""Maximum commits behind: beyond it the following begins again, because the log may not reach that far."""


@dataclass(frozen=True, slots=True)
class NewCommits:
    """The new commits that one call found."""

    paths: tuple[str, ...]
    """Files with new rows, as the log names them."""
    newest_ms: int | None
    """The newest time in them, epoch ms, from their statistics; None if those do not hold it."""
    is_fresh: bool
    """The following has just begun, or begun again: files that the table already held are not in `paths`."""
    version: int


class DeltaCommits:
    """The log of one table, from its newest version on; `newest_ms` is taken from `time_column`, if one is named."""

    def __init__(self, settings: Settings, name: str, time_column: str = "") -> None:
        self._settings = settings
        self._name = name
        self._time_column = time_column
        self._table: StoredTable | None = None
        self._read_through: int | None = None

    def unread(self) -> NewCommits | None:
        """The commits after those marked as `read`; None if there is no such table.

        Raises:
            UserError: the log cannot be read.
        """
        try:
            with delta_errors(f"the log of table {self._name} cannot be read", ValueError):
                version = self._version()
                before = self._read_through
                if before is None or version < before or version - before > _TOO_FAR:
                    return NewCommits((), None, is_fresh=True, version=version)
                through = min(version, before + _MOST_COMMITS)
                try:
                    log = log_of(self._settings, self._name)
                    added = [
                        file for number in range(before + 1, through + 1) for file in log.appended(number)
                    ]
                except FileNotFoundError:  # the log was trimmed meanwhile
                    return NewCommits((), None, is_fresh=True, version=version)
        except MissingTableError:
            self._table = self._read_through = None
            return None
        except UserError:
            self._table = None
            raise
        times = [time for file in added if (time := file.newest_ms(self._time_column)) is not None]
        paths = tuple(file.path for file in added)
        return NewCommits(paths, max(times, default=None), is_fresh=False, version=through)

    def read(self, found: NewCommits) -> None:
        """Mark commits as read: the next call continues after them."""
        self._read_through = found.version

    @property
    def read_through(self) -> int | None:
        """The newest version that was read; None before the first one."""
        return self._read_through

    def _version(self) -> int:
        if self._table is not None:
            # A recreated table has a lower version than the opened one.
            try:
                with delta_errors(self._name):
                    self._table.refresh()
            except UserError:
                self._table = None
        if self._table is None:
            self._table = delta_table(self._settings, self._name)
        return self._table.version()
