"""Reads quotas and leaders over time back from the tables, with deltalake: no Spark, no JVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kquota_spark.config.governor import make_governor
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.io.quota_sources import stretch_of
from kquota_spark.io.storage import arrow_files, storage_options
from kquota_spark.model.callback_governor import CallbackGovernor
from kquota_spark.model.govern import Governor
from kquota_spark.model.leaders import LeaderBook, LeaderChange
from kquota_spark.model.quota_callback import TopicPartition
from kquota_spark.model.rules import RuleBook, RuleStretch
from kquota_spark.pipeline.callback_governing import Known
from kquota_spark.schema.quota_tables import PARTITION_LEADERS, QUOTA_RULES


@dataclass(frozen=True, slots=True)
class StoredRules:
    """The quotas of one cluster over time, and through when all edits are known; None if never said."""

    stretches: tuple[RuleStretch, ...]
    known_through_ms: int | None


def stored_rules(settings: Settings) -> StoredRules:
    """The present state of `quota_rules`.

    Raises:
        UserError: the table is not there or cannot be read.
    """
    rows = _rows(settings, QUOTA_RULES.name)
    if rows is None:
        raise UserError(
            f"{settings.tables}: no table {QUOTA_RULES.name}: run kquota watch or the audit first"
        )
    known_ms = [
        row["known_through"] for row in rows if row["level"] == 0 and row["known_through"] is not None
    ]
    return StoredRules(tuple(stretch_of(row) for row in rows if row["level"]), max(known_ms, default=None))


def stored_leaders(settings: Settings) -> list[LeaderChange]:
    """All rows of `partition_leaders`, oldest first; none if nobody has polled yet."""
    return sorted(
        (
            LeaderChange(
                TopicPartition(row["topic"], row["partition"]),
                row["leader"],
                row["observed_at"],
                bool(row["is_deleted"]),
            )
            for row in _rows(settings, PARTITION_LEADERS.name) or ()
        ),
        key=lambda change: (change.changed_at_ms, change.partition),
    )


class KnownLoader:
    """Loads what a worker of JUDGE governs by; a governor is kept as long as nothing has changed."""

    _kept: tuple[object, Governor] | None = None

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self) -> Known:
        """The present state of the tables.

        Raises:
            UserError: a table cannot be read, or there is no such callback.
        """
        rules, leaders = stored_rules(self._settings), stored_leaders(self._settings)
        state = (rules.stretches, leaders, self._settings.quotas)
        # Of the class: one Python worker serves many tasks, each with an instance fresh out of a pickle.
        kept = KnownLoader._kept
        if kept is None or kept[0] != state:
            if kept is not None and isinstance(kept[1], CallbackGovernor):
                kept[1].close()
            governor = make_governor(self._settings, RuleBook(rules.stretches), LeaderBook(leaders))
            kept = KnownLoader._kept = (state, governor)
        return Known(kept[1], rules.known_through_ms)


def _rows(settings: Settings, name: str) -> list[dict[str, Any]] | None:
    """Rows of this cluster, times in epoch ms; None without the table."""
    path = f"{settings.tables.rstrip('/')}/{name}"
    try:
        table = DeltaTable(path, storage_options=storage_options(settings))
        found = table.to_pyarrow_table(
            filters=[("cluster_id", "=", settings.cluster_id)], filesystem=arrow_files(table)
        )
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise UserError(f"{path}: cannot be read: {str(error).partition(chr(10))[0]}") from error
    for index, column in enumerate(found.schema):
        if pa.types.is_timestamp(column.type):
            as_ms = found.column(index).cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
            found = found.set_column(index, column.name, as_ms)
    return found.to_pylist()
