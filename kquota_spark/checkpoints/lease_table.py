"""Numbers of leases, in a Delta table without rows: if two drivers take the same number, any store refuses one."""

from __future__ import annotations

import pyarrow as pa

from kquota_spark.config.settings import Settings
from kquota_spark.store.delta.errors import OvertakenError, committed, delta_errors
from kquota_spark.store.delta.table import StoredTable, is_table
from kquota_spark.store.storage import storage_options

_SCHEMA = pa.schema([pa.field("name", pa.string())])
_PROPERTIES = {"delta.checkpointInterval": "10", "delta.logRetentionDuration": "interval 1 days"}
"""Properties that keep the log short: about 1,500 entries for a job that a scheduler starts every minute.

Each start makes one commit. deltalake reads all entries since the last checkpoint to find a number, hence the short
interval.
"""
_ATTEMPTS = 5


class LeaseTable:
    """The newest number of each lease in one folder; the table is created when the first lease is taken."""

    def __init__(self, settings: Settings, place: str) -> None:
        self._storage, self._place = storage_options(settings), place
        self._table: StoredTable | None = None
        self._read: tuple[int, dict[str, int]] = (-1, {})
        """A version of the table, and the numbers that were read from it."""

    def number(self, name: str) -> int:
        """The newest number of a lease; 0 if it was never taken.

        Raises:
            UserError: the store does not answer.
        """
        # Opened again after an error: the log may have been cleaned since.
        known, self._table = self._table, None
        with delta_errors(f"{self._place}: cannot be read"):
            if known is not None:
                known.refresh()
            elif is_table(self._place, self._storage):
                known = StoredTable.opened(self._place, self._storage)
            found = 0 if known is None else self._number_in(known, name)
        self._table = known
        return found

    def _number_in(self, table: StoredTable, name: str) -> int:
        # deltalake requests each entry of the log since its last checkpoint: once per version is enough.
        version = table.version()
        if self._read[0] != version:
            self._read = (version, {})
        numbers = self._read[1]
        if name not in numbers:
            numbers[name] = table.number_of(name) or 0
        return numbers[name]

    def take(self, name: str, number: int) -> bool:
        """Take the number after this one; return false if another driver was faster.

        Args:
            name: name of the lease.
            number: the newest number, as the method `number` has just read it.

        Raises:
            UserError: the store does not answer.
        """
        try:
            with delta_errors(f"{self._place}: cannot be written"):
                table = self._opened()
                if self._number_in(table, name) != number:
                    return False
                # Based on the version that was read: a commit of the same name since then is a conflict.
                table.take_number(_SCHEMA, (name, number + 1))
        except OvertakenError:
            return False
        return True

    def _opened(self) -> StoredTable:
        if self._table is None:
            self._table = committed(self._made, _ATTEMPTS)
        return self._table

    def _made(self) -> StoredTable:
        return StoredTable.created(self._place, _SCHEMA, _PROPERTIES, self._storage)
