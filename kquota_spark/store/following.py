"""Follows the log of a Delta table commit by commit: which files are new since the last look.

A look costs one small JSON file a commit, however large the table is. Commits that change rows that were there
(`kquota restate`, retention) are passed over, as the job's own streams do (`skipChangeCommits`), and so are those that
only move rows to other files (OPTIMIZE).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.store.storage import MissingTableError, delta_errors, delta_table, log_actions
from kquota_spark.store.table_log import KEPT_ENTRIES

if TYPE_CHECKING:
    from deltalake import DeltaTable

_MOST_COMMITS = 200
"""Of one look; the rest waits for the next one."""
_TOO_FAR = KEPT_ENTRIES // 2
"""Commits behind; further back than that nothing is read again, the log may not reach there."""


@dataclass(frozen=True, slots=True)
class NewCommits:
    """What a look found."""

    paths: tuple[str, ...]
    """Files with new rows, as the log names them."""
    newest_ms: int | None
    """The newest time in them by their statistics; None if those do not tell."""
    is_fresh: bool
    """The following has just begun, or begun again: what the table held before is not in `paths`."""
    version: int


class DeltaCommits:
    """The log of one table, from its newest version on; the statistics may tell the maximum of a column of time."""

    def __init__(self, settings: Settings, name: str, time_column: str = "") -> None:
        self._settings = settings
        self._name = name
        self._time_column = time_column
        self._table: DeltaTable | None = None
        self._read_through: int | None = None

    def look(self) -> NewCommits | None:
        """What was committed after what was `read`; None where there is no such table.

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
                    added = [add for number in range(before + 1, through + 1) for add in self._added(number)]
                except FileNotFoundError:  # the log was cleaned meanwhile
                    return NewCommits((), None, is_fresh=True, version=version)
        except MissingTableError:
            self._table = self._read_through = None
            return None
        except UserError:
            self._table = None
            raise
        times = [time for add in added if (time := _newest_ms_of(add, self._time_column)) is not None]
        paths = tuple(str(add["path"]) for add in added)
        return NewCommits(paths, max(times, default=None), is_fresh=False, version=through)

    def read(self, found: NewCommits) -> None:
        """What a look found has been taken over: the next one goes on behind it."""
        self._read_through = found.version

    @property
    def read_through(self) -> int | None:
        """The newest version that was read; None before the first look."""
        return self._read_through

    def _version(self) -> int:
        if self._table is not None:
            # One that was made anew is older than what is known of it.
            try:
                with delta_errors(self._name):
                    self._table.update_incremental()
            except UserError:
                self._table = None
        if self._table is None:
            self._table = delta_table(self._settings, self._name)
        return self._table.version()

    def _added(self, version: int) -> list[dict[str, Any]]:
        actions = log_actions(self._settings, self._name, version)
        if any(action["remove"].get("dataChange", True) for action in actions if "remove" in action):
            return []
        return [action["add"] for action in actions if "add" in action and action["add"]["dataChange"]]


def _newest_ms_of(add: dict[str, Any], column: str) -> int | None:
    """The largest time of a file, epoch ms, from the statistics of its `add` action; None if they do not tell."""
    newest = json.loads(add.get("stats") or "{}").get("maxValues", {}).get(column)
    if isinstance(newest, str):
        return round(datetime.fromisoformat(newest).timestamp() * 1_000)
    return newest if isinstance(newest, int) else None
