"""Keeps the tables of a running job quick, in a thread of its driver beside the queries: logs stay short.

In a thread and not in the micro-batch: so no second is judged later because of it. Whatever it leaves undone is slow
and not wrong, so its failures are said and tried again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from kquota_spark.checkpoints.checkpoints import TARGETS
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.process.polling import Polling
from kquota_spark.schema.tables import VIOLATIONS
from kquota_spark.store.storage import delta_errors
from kquota_spark.store.table_log import trim_log

_log = logging.getLogger(__name__)

_INTERVAL_MS = 30_000
_TRIM_EVERY_S = 600.0


class Upkeep(Polling):
    """Looks after the tables that some queries write, until stopped."""

    def __init__(
        self, settings: Settings, queries: Iterable[str], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__("upkeep of the tables", _INTERVAL_MS, self.look)
        self._settings, self._clock_s = settings, clock_s
        self._names = [
            *dict.fromkeys([*(name for query in queries for name in TARGETS[query]), VIOLATIONS.name])
        ]
        self._trim_at_s = dict.fromkeys(self._names, clock_s())

    def look(self) -> None:
        """Do what is due now."""
        for name in self._names:
            try:
                with delta_errors(f"table {name} was not tidied up"):
                    self._trim(name)
            except UserError as error:
                _log.warning("%s", error)

    def _trim(self, name: str) -> None:
        if self._clock_s() >= self._trim_at_s[name] and not trim_log(self._settings, name):
            self._trim_at_s[name] = self._clock_s() + _TRIM_EVERY_S


def begin_upkeep(settings: Settings, queries: Iterable[str], stack: ExitStack) -> None:
    """Look after the tables of these queries from now on until the stack is left."""
    upkeep = Upkeep(settings, queries)
    stack.callback(upkeep.stop)
    upkeep.start()
    upkeep.wake()  # tables of an older release are slow until then
