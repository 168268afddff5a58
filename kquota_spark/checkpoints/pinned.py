"""The versions of the tables that a micro-batch judges by: the same for all its tasks, and for a retry.

The driver picks them when the micro-batch begins and sends them with its tasks. A note beside the checkpoint keeps
them for a retry after a crash. Rows committed before the crash and after it then use the same quotas.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kquota_spark.checkpoints.checkpoints import LOG, Checkpoint
from kquota_spark.checkpoints.noted_pins import NotedPins, Versions, noted_pins, write_pins
from kquota_spark.checkpoints.shadow_file import ShadowFile
from kquota_spark.config.settings import Settings
from kquota_spark.pipeline.shadow.rules import ShadowPin
from kquota_spark.process.notices import notice_with_time
from kquota_spark.schema.broker_tables import BROKER_CONFIGS
from kquota_spark.schema.gap_tables import LOG_GAPS
from kquota_spark.schema.quota_tables import PARTITION_LEADERS, QUOTA_RULES
from kquota_spark.store.commits import MicroBatch
from kquota_spark.store.delta.errors import MissingTableError, delta_errors
from kquota_spark.store.delta.table import StoredTable
from kquota_spark.store.storage import delta_table, place_of

if TYPE_CHECKING:
    from pyspark import SparkContext

_PROPERTY = "kquota.pinned"
_TABLES = (QUOTA_RULES.name, PARTITION_LEADERS.name, BROKER_CONFIGS.name, LOG_GAPS.name)


class Pinned(NamedTuple):
    """The data that the tasks of a micro-batch judge by."""

    versions: Versions
    open_from_ms: int
    """Start of the open seconds, epoch ms: rules that ended earlier are not needed."""
    shadow: ShadowPin | None = None
    """The shadow quotas; None for none."""


class Pins:
    """Picks, on the driver, the versions for the micro-batches of one query."""

    def __init__(
        self, settings: Settings, query: str, notice: Callable[[str], None] = notice_with_time
    ) -> None:
        self._settings = settings
        self._query = query
        self._shadow = ShadowFile(settings, notice) if query == LOG and settings.quotas.shadow else None
        self._checkpoint = Checkpoint.of(settings, query)
        self._opened: dict[str, StoredTable] = {}
        self._is_first = True

    def pin(self, context: SparkContext, batch: MicroBatch) -> None:
        """Send the versions with the tasks that this thread starts next."""
        open_from_ms, noted = self._checkpoint.watermark_ms(batch.number), None
        if self._is_first:  # only the first one may have been begun by an earlier run
            self._is_first, noted = False, noted_pins(self._settings, self._query)
            if self._shadow is not None and noted is not None:
                self._shadow.pin = noted.shadow
        if noted is None or noted.batch != batch:
            shadow = None if self._shadow is None else self._shadow.look(open_from_ms)
            noted = NotedPins(batch, dict(self._newest(_TABLES)), shadow)
            write_pins(self._settings, self._query, noted)
        pinned = Pinned(noted.versions, open_from_ms, noted.shadow if self._shadow else None)
        context.setLocalProperty(_PROPERTY, json.dumps(pinned))

    def _newest(self, names: Iterable[str]) -> Iterable[tuple[str, int]]:
        for name in names:
            where = place_of(self._settings.tables, name)
            with suppress(MissingTableError), delta_errors(f"{where}: cannot be read"):
                if name in self._opened:
                    self._opened[name].refresh()
                else:
                    self._opened[name] = delta_table(self._settings, name)
                yield name, self._opened[name].version()


def pinned() -> Pinned | None:
    """The data that the micro-batch of this worker judges by; None outside a micro-batch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(_PROPERTY)
    return None if text is None else msgspec.json.decode(text, type=Pinned)
