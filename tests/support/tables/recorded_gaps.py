"""Empty tables, and `log_gaps` in a form to compare."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from kquota_spark.audit.gaps.gap_watch import GapWatch
from kquota_spark.config.settings import Settings
from kquota_spark.model.replay.log_beginning import BrokerLines
from kquota_spark.store.creation import create_tables
from tests.support.tables.table_rows import T0_MS


def settings_at(root: Path) -> Settings:
    """Empty tables, and checkpoints that are not there yet."""
    made = replace(
        Settings(), cluster_id="demo", tables=str(root / "tables"), checkpoints=str(root / "checkpoints")
    )
    create_tables(made)
    return made


def stored(settings: Settings) -> list[tuple[Any, ...]]:
    """Rows of `log_gaps` as broker, from and to in ms after T0 (None for 1970), and reason."""
    rows = DeltaTable(f"{settings.tables}/log_gaps").to_pyarrow_table().to_pylist()
    found = [
        (row["broker_id"], _after_t0(row["from_time"]), _after_t0(row["to_time"]), row["reason"])
        for row in rows
    ]
    return sorted(found, key=repr)


def _after_t0(time: dt.datetime) -> int | None:
    time_ms = round(time.timestamp() * 1_000)
    return time_ms - T0_MS if time_ms else None


class FollowedRun:
    """A run of the job as `GapWatch` sees it: each micro-batch has the rows that were written since the one before."""

    def __init__(self, settings: Settings, notice: Callable[[str], None] = lambda _: None) -> None:
        self.watch = GapWatch(settings, notice)
        self._table = DeltaTable(f"{settings.tables}/requests")
        self._seen = self._paths()

    def follow(self, told: Sequence[Told], number: int) -> None:
        self._table.update_incremental()
        paths = self._paths()
        self.watch.follow(told, number, sorted(paths - self._seen), self._table.version)
        self._seen = paths

    def _paths(self) -> set[str]:
        return {str(path) for path in pa.table(self._table.get_add_actions()).column("path").to_pylist()}


class Told(NamedTuple):
    """What a task tells of the lines that it has written."""

    spans: Sequence[tuple[str, int, int, int, int]] = ()
    brokers: Sequence[int] = ()
    counts: Mapping[str, int] = {}
    lines: Sequence[BrokerLines] = ()
    beating: Sequence[int] = ()
