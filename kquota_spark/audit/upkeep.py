"""Keeps the tables of a running job quick, in a thread of its driver beside the queries: short logs, few files.

In a thread and not in the micro-batch: so no second is judged later because of it. It takes at most a fifth of a core.
Whatever it leaves undone is slow and not wrong, so its failures are printed and it tries again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack

import pyarrow as pa
from deltalake import DeltaTable

from kquota_spark.checkpoints.checkpoints import TARGETS
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.process.polling import Polling
from kquota_spark.schema.tables import TABLES, VIOLATIONS
from kquota_spark.store.packing import due, pack, small_files
from kquota_spark.store.storage import delta_errors, delta_table
from kquota_spark.store.table_log import trim_log

_log = logging.getLogger(__name__)

_INTERVAL_MS = 30_000
_TRIM_EVERY_S = 600.0
_REST = 4
"""Pauses so many times as long as it worked."""
_DECLARED = {table.name: table for table in TABLES}


class Upkeep(Polling):
    """Looks after the tables that some queries write, until stopped."""

    def __init__(
        self, settings: Settings, queries: Iterable[str], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__("upkeep of the tables", _INTERVAL_MS, self.look)
        self._settings, self._clock_s = settings, clock_s
        names = [*(name for query in queries for name in TARGETS[query]), VIOLATIONS.name]
        self._trim_at_s = dict.fromkeys(names, clock_s())
        self._tables: dict[str, DeltaTable] = {}
        self._rest_until_s = clock_s()

    def look(self) -> bool:
        """Do what is due now, at most one file and one piece of the log per table; whether anything was done."""
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
            table.update_incremental()
        files = due(small_files(table))
        return bool(files) and pack(self._settings, _DECLARED[name], files)


def begin_upkeep(settings: Settings, queries: Iterable[str], stack: ExitStack) -> None:
    """Look after the tables of these queries from now on until the stack is left."""
    upkeep = Upkeep(settings, queries)
    stack.callback(upkeep.stop)
    upkeep.start()
    upkeep.wake()  # tables of an older release are slow until then
