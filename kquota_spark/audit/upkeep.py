"""Keeps the tables of a running job fast, with short logs and few files, in a thread of the driver.

The thread runs beside the micro-batches, so it delays no verdict. It takes at most a fifth of a core. Work that it
leaves undone makes a table slow, not wrong, so it prints its failures and tries again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack

import pyarrow as pa

from kquota_spark.checkpoints.checkpoints import targets_of
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.process.polling import Polling
from kquota_spark.schema.tables import TABLES, VIOLATIONS
from kquota_spark.store.delta.errors import delta_errors
from kquota_spark.store.delta.table import StoredTable
from kquota_spark.store.packing import due, pack, small_files
from kquota_spark.store.storage import delta_table
from kquota_spark.store.table_log import trim_log

_log = logging.getLogger(__name__)

_INTERVAL_MS = 30_000
_TRIM_EVERY_S = 600.0
_REST = 4
"""Length of the pause after work, as a multiple of the time that the work took."""
_DECLARED = {table.name: table for table in TABLES}


class Upkeep(Polling):
    """Trims the logs and packs the files of the tables that some queries write, until it is stopped."""

    def __init__(
        self, settings: Settings, queries: Iterable[str], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__("upkeep of the tables", _INTERVAL_MS, self.work)
        self._settings, self._clock_s = settings, clock_s
        names = [*(name for query in queries for name in targets_of(settings, query)), VIOLATIONS.name]
        self._trim_at_s = dict.fromkeys(names, clock_s())
        self._tables: dict[str, StoredTable] = {}
        self._rest_until_s = clock_s()

    def work(self) -> bool:
        """Do the work that is due, at most one file and one piece of the log per table; whether any was done."""
        begun_s, is_done = self._clock_s(), False
        if begun_s < self._rest_until_s:
            return False
        for name in self._trim_at_s:
            if self.is_stopping:
                break
            try:
                with delta_errors(f"table {name} was not tidied up", pa.ArrowException):
                    is_done |= self._trimmed(name) | self._packed(name)
            except UserError as error:
                _log.warning("%s", error)
                self._tables.pop(name, None)
        self._rest_until_s = self._clock_s() + _REST * (self._clock_s() - begun_s)
        return is_done

    def _trimmed(self, name: str) -> bool:
        if self._clock_s() < self._trim_at_s[name]:
            return False
        is_done = trim_log(self._settings, name) > 0
        if not is_done:
            self._trim_at_s[name] = self._clock_s() + _TRIM_EVERY_S
        return is_done

    def _packed(self, name: str) -> bool:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = delta_table(self._settings, name)
        else:
            table.refresh()
        files = due(small_files(table))
        return bool(files) and pack(self._settings, _DECLARED[name], files)


def begin_upkeep(settings: Settings, queries: Iterable[str], stack: ExitStack) -> None:
    """Start the upkeep of the tables of these queries; it runs until the stack is closed."""
    upkeep = Upkeep(settings, queries)
    stack.callback(upkeep.stop)
    upkeep.start()
    upkeep.wake()  # tables of an older release are slow until then
