"""Which versions of the tables a micro-batch judges by: all its tasks by the same, and a retry by the same again.

The driver picks them when the micro-batch begins and sends them along with its tasks. A note beside the checkpoint
keeps them for a retry after a crash: rows that were committed before it and rows that are still to come then follow
from the same quotas.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from deltalake import DeltaTable

from kquota_spark.checkpoints.checkpoints import Checkpoint
from kquota_spark.checkpoints.notes import read_note, write_note
from kquota_spark.config.settings import Settings
from kquota_spark.schema.broker_tables import BROKER_CONFIGS
from kquota_spark.schema.gap_tables import LOG_GAPS
from kquota_spark.schema.quota_tables import PARTITION_LEADERS, QUOTA_RULES
from kquota_spark.store.commits import MicroBatch
from kquota_spark.store.storage import MissingTableError, delta_errors, delta_table, place_of

if TYPE_CHECKING:
    from pyspark import SparkContext

_PROPERTY = "kquota.pinned"
_TABLES = (QUOTA_RULES.name, PARTITION_LEADERS.name, BROKER_CONFIGS.name, LOG_GAPS.name)

Versions = dict[str, int]
"""By table; a table that is not there is left out."""


class Pinned(NamedTuple):
    """What the tasks of a micro-batch judge by."""

    versions: Versions
    open_from_ms: int
    """Every second before is closed: rules that ended before are not needed."""


class _Noted(NamedTuple):
    batch: MicroBatch
    versions: Versions


class Pins:
    """On the driver: picks the versions for the micro-batches of one query."""

    def __init__(self, settings: Settings, query: str) -> None:
        self._settings = settings
        self._path = place_of(settings.checkpoints, f"{query}.pinned.json")
        self._checkpoint = Checkpoint.of(settings, query)
        self._opened: dict[str, DeltaTable] = {}
        self._is_first = True

    def pin(self, context: SparkContext, batch: MicroBatch) -> None:
        """Send the versions with the tasks that this thread starts next."""
        if self._is_first:  # only then may it be one that has been begun before
            self._is_first, noted = False, self._noted()
        else:
            noted = None
        if noted is None or noted.batch != batch:
            noted = _Noted(batch, dict(self._newest(_TABLES)))
            write_note(self._settings, self._path, msgspec.json.encode(noted))
        pinned = Pinned(noted.versions, self._checkpoint.watermark_ms(batch.number))
        context.setLocalProperty(_PROPERTY, json.dumps(pinned))

    def _newest(self, names: Iterable[str]) -> Iterable[tuple[str, int]]:
        for name in names:
            where = place_of(self._settings.tables, name)
            with suppress(MissingTableError), delta_errors(f"{where}: cannot be read"):
                if name in self._opened:
                    self._opened[name].update_incremental()
                else:
                    self._opened[name] = delta_table(self._settings, name)
                yield name, self._opened[name].version()

    def _noted(self) -> _Noted | None:
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(read_note(self._settings, self._path) or b"", type=_Noted)
        return None


def pinned() -> Pinned | None:
    """On a worker: what its micro-batch judges by; None outside of one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(_PROPERTY)
    return None if text is None else Pinned(*json.loads(text))
