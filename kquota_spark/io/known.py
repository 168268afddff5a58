"""Loads what workers judge by from the tables: read anew when files have changed, and else kept from task to task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kquota_spark.config.governor import make_governor, static_defaults
from kquota_spark.config.settings import Settings
from kquota_spark.config.windows import rate_config
from kquota_spark.errors import UserError, one_line
from kquota_spark.io.pinned import pinned_versions
from kquota_spark.io.quota_sources import stretch_of
from kquota_spark.io.stored_rules import leader_changes
from kquota_spark.io.table_rows import rows_in_ms
from kquota_spark.model.callback_governor import CallbackGovernor
from kquota_spark.model.govern import Governor, RuleGovernor
from kquota_spark.model.leaders import LeaderBook
from kquota_spark.model.points import CONTROLLER_ID
from kquota_spark.model.quota_types import IP_QUOTA_KEY
from kquota_spark.model.rules import RuleBook
from kquota_spark.pipeline.known import BrokerWindows, Gap, IpLimit, Known, Limits, ToldWindows
from kquota_spark.schema.broker_tables import BROKER_CONFIGS
from kquota_spark.schema.gap_tables import BROKER_START, LOG_GAPS, MID_STREAM
from kquota_spark.schema.quota_tables import PARTITION_LEADERS, QUOTA_RULES
from kquota_spark.store.storage import arrow_files, delta_table

_KNOWN_THROUGH = "level=0/"
"""The partition of `quota_rules` that the watcher writes every second; the others change with an edit."""
Row = dict[str, Any]


@dataclass
class _Watched:
    """The rows of this cluster in one table, those of `known_through` apart; times in epoch ms."""

    settings: Settings
    name: str
    table: DeltaTable | None = None
    asked: int | None = None
    """The version that was asked for last."""
    paths: frozenset[str] = frozenset()
    rows: list[Row] = field(default_factory=list)
    edition: int = 0
    """Grows when `rows` change."""
    known_through_ms: int | None = None
    """Of `quota_rules`: all edits up to this time are known."""

    def look(self, version: int | None) -> bool:
        """Take over what is new; whether there is such a table.

        Args:
            version: as of when; None for now.

        Raises:
            UserError: it cannot be read.
        """
        if self.table is not None and version is not None and version == self.asked:
            return True
        try:
            self.table, self.asked = self._at(version), version
        except TableNotFoundError:
            self.table = None
            return False
        except (DeltaError, OSError) as error:
            self.table = None
            where = f"{self.settings.tables.rstrip('/')}/{self.name}"
            raise UserError(f"{where}: cannot be read: {one_line(error)}") from error
        return True

    def _at(self, version: int | None) -> DeltaTable:
        if version is not None:
            # The files of an old version may be gone: of a micro-batch that runs again after the job stood for long.
            with suppress(DeltaError, OSError):
                table = self.table or delta_table(self.settings, self.name, version)
                table.load_as_version(version)
                self._take(table)
                return table
        table = delta_table(self.settings, self.name)
        self._take(table)
        return table

    def _take(self, table: DeltaTable) -> None:
        paths = frozenset(table.get_add_actions(flatten=True).column("path").to_pylist())
        others = frozenset(path for path in paths if not path.startswith(_KNOWN_THROUGH))
        if others != self.paths or not self.edition:
            rows = [row for row in self._read(table, []) if row.get("level") != 0]
            if rows != self.rows or not self.edition:
                self.rows, self.edition = rows, self.edition + 1
            self.paths = others
        if self.name == QUOTA_RULES.name:
            known_ms = (row["known_through"] for row in self._read(table, [("level", "=", 0)]))
            self.known_through_ms = max(
                (time_ms for time_ms in known_ms if time_ms is not None), default=None
            )

    def _read(self, table: DeltaTable, filters: list[tuple[str, str, Any]]) -> list[Row]:
        mine = [("cluster_id", "=", self.settings.cluster_id), *filters]
        return rows_in_ms(table.to_pyarrow_table(filters=mine, filesystem=arrow_files(table)))


class _Loader:
    """What `KnownLoader` and `LimitsLoader` share: tables that outlive a task, because a worker serves many."""

    _opened: ClassVar[tuple[Settings, dict[str, _Watched]] | None] = None
    _made: ClassVar[dict[str, tuple[object, Any]]] = {}

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def _watched(self, name: str) -> _Watched:
        if _Loader._opened is None or _Loader._opened[0] != self._settings:
            _Loader._opened = self._settings, {}
            _Loader._made.clear()
        watched = _Loader._opened[1].setdefault(name, _Watched(self._settings, name))
        versions = pinned_versions()
        if not watched.look(None if versions is None else versions.get(name)) and name == QUOTA_RULES.name:
            raise UserError(f"{self._settings.tables}: no table {name}: run kquota watch or the audit first")
        return watched

    def _kept(self, what: str, made_from: Iterable[_Watched], make: Callable[[], Any]) -> Any:
        """What was made of these tables; made again when one of them has changed."""
        editions = tuple(watched.edition for watched in made_from)
        kept = _Loader._made.get(what)
        if kept is None or kept[0] != editions:
            kept = _Loader._made[what] = editions, make()
        return kept[1]


class KnownLoader(_Loader):
    """Loads what a worker of the query of the log judges by."""

    def __call__(self) -> Known:
        """The present state of the tables.

        Raises:
            UserError: a table cannot be read, or there is no such callback.
        """
        rules = self._watched(QUOTA_RULES.name)
        of_governor = [rules]
        if self._settings.quotas.callback:
            of_governor.append(self._watched(PARTITION_LEADERS.name))
        configs, gaps = self._watched(BROKER_CONFIGS.name), self._watched(LOG_GAPS.name)
        return Known(
            self._kept("governor", of_governor, lambda: self._governor(*of_governor)),
            rules.known_through_ms,
            self._kept("windows", [configs], lambda: self._windows(configs.rows)),
            self._kept("gaps", [gaps], lambda: gaps_by_broker(gaps.rows)),
            bool(self._settings.quotas.callback),
            frozenset(row["broker_id"] for row in gaps.rows if row["reason"] in (MID_STREAM, BROKER_START)),
        )

    def _governor(self, rules: _Watched, leaders: _Watched | None = None) -> Governor:
        before = _Loader._made.get("governor")
        if before is not None and isinstance(before[1], CallbackGovernor):
            before[1].close()
        book = RuleBook(stretch_of(row) for row in rules.rows if row["level"])
        return make_governor(
            self._settings, book, LeaderBook(leader_changes(leaders.rows if leaders else ()))
        )

    def _windows(self, rows: Iterable[Row]) -> BrokerWindows:
        told: dict[int, list[ToldWindows]] = {}
        for row in rows:
            if row["broker_id"] is not None:
                windows = (row["sample_ring"], row["quota_window_num"], row["quota_window_size_seconds"])
                stretch = ToldWindows(row["valid_from"] or 0, row["valid_to"], *windows)
                told.setdefault(row["broker_id"], []).append(stretch)
        return BrokerWindows(rate_config(self._settings), told, frozenset(self._settings.broker.given))


class LimitsLoader(_Loader):
    """Loads by what a worker looks up the limits of buckets whose tags are known."""

    def __call__(self) -> Limits:
        """The present state of the tables.

        Raises:
            UserError: `quota_rules` cannot be read.
        """
        rules = self._watched(QUOTA_RULES.name)
        governor, ips = self._kept("limits", [rules], lambda: self._made_of(rules.rows))
        return Limits(governor, ips, rules.known_through_ms)

    def _made_of(self, rows: Iterable[Row]) -> tuple[RuleGovernor, dict[str, list[IpLimit]]]:
        # With a callback the limits are its own, and nobody can ask it for a bucket. It has no say in those of ips.
        has_callback = bool(self._settings.quotas.callback)
        book = RuleBook(stretch_of(row) for row in rows if row["level"] and not has_callback)
        ips: dict[str, list[IpLimit]] = {}
        for row in rows:
            if row["level"] is None and row[IP_QUOTA_KEY] is not None:
                held = (row["valid_from"], row["valid_to"])
                ips.setdefault(row["entity"], []).append(IpLimit(*held, row[IP_QUOTA_KEY], row["version"]))
        return RuleGovernor(book, static_defaults(self._settings)), ips


def gaps_by_broker(rows: Iterable[Row]) -> dict[int, list[Gap]]:
    """Rows of `log_gaps` that make verdicts uncertain; the controller may be any of the brokers."""
    found: dict[int, list[Gap]] = {}
    for row in rows:
        if row["reason"] != BROKER_START:
            for broker_id in (row["broker_id"], CONTROLLER_ID):
                found.setdefault(broker_id, []).append((row["from_time"], row["to_time"]))
    return found
