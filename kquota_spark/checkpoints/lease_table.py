"""Numbers of leases, in a Delta table without rows: of two that take the same number, one is refused, on any store."""

from __future__ import annotations

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction

from kquota_spark.config.settings import Settings
from kquota_spark.store.durable import sync_commit
from kquota_spark.store.storage import OvertakenError, committed, delta_errors, storage_options

_SCHEMA = pa.schema([pa.field("name", pa.string())])
_PROPERTIES = {"delta.checkpointInterval": "100", "delta.logRetentionDuration": "interval 1 days"}
"""One commit per start, so the log of a job that a scheduler starts each minute stays at some 1,500 entries."""
_ATTEMPTS = 5


class LeaseTable:
    """The newest number of each lease at one place; the table is made when the first one is taken."""

    def __init__(self, settings: Settings, place: str) -> None:
        self._storage, self._place = storage_options(settings), place
        self._table: DeltaTable | None = None

    def number(self, name: str) -> int:
        """The newest number of a lease; 0 if it was never taken.

        Raises:
            UserError: the store does not answer.
        """
        known, self._table = (
            self._table,
            None,
        )  # opened anew after an error: the log may have been cleaned since
        with delta_errors(f"{self._place}: cannot be read"):
            if known is not None:
                known.update_incremental()
            elif DeltaTable.is_deltatable(self._place, self._storage):
                known = DeltaTable(self._place, storage_options=self._storage)
            found = None if known is None else known.transaction_version(name)
        self._table = known
        return found or 0

    def take(self, name: str, number: int) -> bool:
        """Take the number after this one; false if another driver has been faster.

        Args:
            name: of the lease.
            number: the newest, as `number` has just read it.

        Raises:
            UserError: the store does not answer.
        """
        properties = CommitProperties(app_transactions=[Transaction(name, number + 1)])
        try:
            with delta_errors(f"{self._place}: cannot be written"):
                table = self._opened()
                if (table.transaction_version(name) or 0) != number:
                    return False
                # Of the version that was read: a commit of the same name since then is a conflict.
                table.create_write_transaction(
                    [], mode="append", schema=_SCHEMA, partition_by=[], commit_properties=properties
                )
                table.update_incremental()
                sync_commit(table)
        except OvertakenError:
            return False
        return True

    def _opened(self) -> DeltaTable:
        if self._table is None:
            self._table = committed(self._made, _ATTEMPTS)
        return self._table

    def _made(self) -> DeltaTable:
        return DeltaTable.create(
            self._place, _SCHEMA, mode="ignore", configuration=_PROPERTIES, storage_options=self._storage
        )
