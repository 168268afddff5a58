"""Loads the data that workers judge by from the tables, and keeps it between tasks until files change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.checkpoints.pinned import Pinned, pinned
from kquota_spark.checkpoints.shadow_file import kept_values
from kquota_spark.config.governor import make_governor, rate_config, static_defaults
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.govern.callback_governor import CallbackGovernor
from kquota_spark.model.govern.govern import Governor, RuleGovernor
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_callback import LeaderBook
from kquota_spark.model.quotas.quota_types import IP_QUOTA_KEY, QuotaKey
from kquota_spark.model.quotas.rules import BEGINNING_MS, RuleBook, RulePeriod
from kquota_spark.pipeline.known import BrokerWindows, IpLimit, Known, Limits, ReportedWindows, gaps_by_broker
from kquota_spark.pipeline.shadow.rules import EVERYONE, Shadow, ShadowPin, differing
from kquota_spark.quotas.stored import leader_changes
from kquota_spark.schema.broker_tables import BROKER_CONFIGS
from kquota_spark.schema.gap_tables import BROKER_START, LOG_GAPS, MID_STREAM
from kquota_spark.schema.quota_tables import PARTITION_LEADERS, QUOTA_RULES
from kquota_spark.store.delta.errors import MissingTableError, delta_errors
from kquota_spark.store.delta.table import StoredTable
from kquota_spark.store.quota_rows import (
    is_of_sources,
    known_through_ms,
    only_rules,
    rule_period_of,
    source_filter,
)
from kquota_spark.store.rows import rows_in_ms
from kquota_spark.store.storage import delta_table, place_of

_KEYS = (*(key.value for key in QuotaKey), IP_QUOTA_KEY)
_COMPARED = ("entity", "valid_from", "valid_to", "certain_from", "version", *_KEYS)
_KEPT_MS, _HOUR_MS = 600_000, 3_600_000
_GAPS_KEPT_MS = 86_400_000
"""How long gaps are kept before the first open second, ms: much longer than any ring holds samples."""
COLUMNS = ("level", "known_through", *_COMPARED)
"""The columns of `quota_rules` that are read."""


class KnownRules:
    """Quotas of users, client ids and addresses over time, and the time up to which they are known.

    Attributes:
        book: quotas of users and client ids.
        ips: limits of addresses, by the canonical names of their entities.
        known_through_ms: all edits up to this time are known, epoch ms; None if no source recorded one.
    """

    def __init__(self) -> None:
        self.book, self.ips = RuleBook(), dict[str, list[IpLimit]]()
        self.known_through_ms: int | None = None
        self._read: pa.Table | None = None

    def take_rules(self, rows: pa.Table, open_from_ms: int = 0) -> bool:
        """Replace the rules by those of `rows`, without the rows of sources; return whether they changed.

        Rules that ended long before `open_from_ms` are left out: the edits of years would fill the memory.
        """
        valid_to = pc.field("valid_to")
        earliest = pa.scalar((open_from_ms - _KEPT_MS) * 1_000, pa.timestamp("us", tz="UTC"))
        is_wanted = only_rules() & (valid_to.is_null() | (valid_to > earliest))
        rules = rows.filter(is_wanted).select(list(_COMPARED))
        before, self._read = self._read, rules
        if before is None:
            self._replace(None, rules)
            return True
        changed = _changed_entities(before, rules)
        if changed:
            self._replace(changed, rules.filter(pc.field("entity").isin(changed)))
        return bool(changed)

    def _replace(self, entities: Iterable[str] | None, rules: pa.Table) -> None:
        periods: dict[Entity, list[RulePeriod]] = {}
        ips = {} if entities is None else dict(self.ips)
        for name in entities or ():
            if name.startswith("ips/"):
                ips.pop(name, None)
            else:
                periods[Entity.parse(name)] = []
        for row in rows_in_ms(rules):
            if not row["entity"].startswith("ips/"):
                period = rule_period_of(row)
                periods.setdefault(period.entity, []).append(period)  # type: ignore[arg-type]
            elif row[IP_QUOTA_KEY] is not None:
                held = IpLimit(row["valid_from"], row["valid_to"], row[IP_QUOTA_KEY], row["version"])
                ips.setdefault(row["entity"], []).append(held)
        self.ips = ips
        self.book = (RuleBook() if entities is None else self.book).replaced(periods)


def _changed_entities(before: pa.Table, after: pa.Table) -> list[str]:
    """Entities with a row that is in only one of the tables."""
    old, new = _texts(before), _texts(after)
    removed = before["entity"].filter(pc.invert(pc.is_in(old, value_set=new)))
    come = after["entity"].filter(pc.invert(pc.is_in(new, value_set=old)))
    found: list[Any] = pa.chunked_array([*removed.chunks, *come.chunks], pa.string()).unique().to_pylist()
    return found


def _texts(rules: pa.Table) -> Any:
    """Each row as a single text, for comparison."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in rules.columns
    ]
    texts: Any = [column.cast(pa.string()) for column in columns]
    return pc.binary_join_element_wise(*texts, "\0", null_handling="replace", null_replacement="")


Row = dict[str, Any]


@dataclass
class _Watched:
    """The rows of this cluster in one table, without those of sources; times in epoch ms."""

    settings: Settings
    name: str
    table: StoredTable | None = None
    asked: int | None = None
    """The pinned version that was read last; None for the newest."""
    paths: frozenset[str] = frozenset()
    rows: list[Row] = field(default_factory=list)
    edition: int = 0
    """Increases when `rows` change."""

    def refresh(self, at: Pinned | None) -> None:
        """Read the pinned version, or the newest for None; if the table does not exist, `table` is None.

        Raises:
            UserError: it cannot be read.
        """
        version = None if at is None else at.versions.get(self.name)
        if self.table is not None and version is not None and version == self.asked:
            return
        try:
            with delta_errors(f"{place_of(self.settings.tables, self.name)}: cannot be read"):
                self.table, self.asked = self._at(version), version
        except MissingTableError:
            self.table = None
        except UserError:
            self.table = None
            raise

    def _at(self, version: int | None) -> StoredTable:
        if version is not None:
            # The files of an old version may be removed, if a micro-batch runs again after a long stop of the job.
            with suppress(UserError), delta_errors(self.name):
                table = self.table or delta_table(self.settings, self.name, version)
                table.move_to(version)
                self._take(table)
                return table
        table = delta_table(self.settings, self.name)
        self._take(table)
        return table

    def _take(self, table: StoredTable) -> None:
        paths = frozenset(table.paths())
        others = frozenset(path for path in paths if not is_of_sources(path))
        if others != self.paths or not self.edition:
            if self._differs(table) or not self.edition:
                self.edition += 1
            self.paths = others

    def _differs(self, table: StoredTable) -> bool:
        """Read all rows; return whether they changed."""
        before, self.rows = self.rows, rows_in_ms(self._read(table, []))
        return self.rows != before

    def _read(
        self, table: StoredTable, filters: list[tuple[str, str, Any]], columns: list[str] | None = None
    ) -> pa.Table:
        mine = [("cluster_id", "=", self.settings.cluster_id), *filters]
        return table.rows(columns, mine)


@dataclass
class _WatchedOpen(_Watched):
    """A watched table without the rows that no open second needs: those of years would fill the memory."""

    open_from_ms: int = 0

    def refresh(self, at: Pinned | None) -> None:
        before_ms, self.open_from_ms = self.open_from_ms, at.open_from_ms if at else 0
        if self.open_from_ms < before_ms:  # rows that were left out are needed again
            self.asked, self.paths = None, frozenset()
        super().refresh(at)


@dataclass
class WatchedGaps(_WatchedOpen):
    """The gaps after which a ring may still miss samples, and the rows about how each log began."""

    def _differs(self, table: StoredTable) -> bool:
        earliest = datetime.fromtimestamp(max(self.open_from_ms - _GAPS_KEPT_MS, 0) / 1_000, UTC)
        is_wanted = (pc.field("to_time") >= earliest) | pc.field("reason").isin((MID_STREAM, BROKER_START))
        is_mine = pc.field("cluster_id") == self.settings.cluster_id
        before, self.rows = self.rows, rows_in_ms(table.dataset().to_table(filter=is_mine & is_wanted))
        return self.rows != before


@dataclass
class _WatchedRules(_WatchedOpen):
    """The rows of `quota_rules` as columns: 100,000 rules are too many to read row by row at every edit."""

    known: KnownRules = field(default_factory=KnownRules)

    def _take(self, table: StoredTable) -> None:
        super()._take(table)
        of_source = self._read(table, source_filter(), list(COLUMNS))
        self.known.known_through_ms = known_through_ms(rows_in_ms(of_source))

    def _differs(self, table: StoredTable) -> bool:
        return self.known.take_rules(self._read(table, [], list(COLUMNS)), self.open_from_ms)


WatchedT = TypeVar("WatchedT", bound=_Watched)


class _Loader:
    """Base of `KnownLoader` and `LimitsLoader`: tables that outlive a task, because a worker serves many tasks."""

    _opened: ClassVar[tuple[Settings, dict[str, _Watched]] | None] = None
    _made: ClassVar[dict[str, tuple[object, Any]]] = {}

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def _rules(self) -> _WatchedRules:
        rules = self._watched(_WatchedRules, QUOTA_RULES.name)
        if rules.table is None:
            raise UserError(
                f"{self._settings.tables}: no table {rules.name}: run kquota watch or the audit first"
            )
        return rules

    def _watched(self, kind: type[WatchedT], name: str) -> WatchedT:
        """A table, updated to the version to judge by."""
        if _Loader._opened is None or _Loader._opened[0] != self._settings:
            _Loader._opened = self._settings, {}
            _Loader._made.clear()
        watched: Any = _Loader._opened[1].setdefault(name, kind(self._settings, name))
        watched.refresh(pinned())
        return cast(WatchedT, watched)

    def _kept(
        self, what: str, made_from: Iterable[_Watched], make: Callable[[], Any], others: object = None
    ) -> Any:
        """The result of `make`, kept until a table changes.

        Args:
            what: name of the result.
            made_from: the tables.
            make: makes the result.
            others: another value that the result depends on.
        """
        editions = (*(watched.edition for watched in made_from), others)
        kept = _Loader._made.get(what)
        if kept is None or kept[0] != editions:
            kept = _Loader._made[what] = editions, make()
        return kept[1]


class KnownLoader(_Loader):
    """Loads the data that a worker of the query of the log judges by."""

    def __call__(self) -> Known:
        """The data from the pinned versions of the tables, else the newest.

        Raises:
            UserError: a table cannot be read, or there is no such callback.
        """
        rules, leaders = self._rules(), list[_Watched]()
        if self._settings.quotas.callback:
            leaders.append(self._watched(_Watched, PARTITION_LEADERS.name))
        configs = self._watched(_Watched, BROKER_CONFIGS.name)
        gaps = self._watched(WatchedGaps, LOG_GAPS.name)
        return Known(
            self._kept("governor", [rules, *leaders], lambda: self._governor(rules, *leaders)),
            rules.known.known_through_ms,
            self._kept("windows", [configs], lambda: self._windows(configs.rows)),
            self._kept("gaps", [gaps], lambda: gaps_by_broker(gaps.rows)),
            bool(self._settings.quotas.callback),
            self._kept("begun", [gaps], lambda: begun_brokers(gaps.rows)),
            self._shadow(rules, leaders),
        )

    def _shadow(self, rules: _WatchedRules, leaders: list[_Watched]) -> Shadow | None:
        """The shadow quotas of the micro-batch, made from their copy once per version and edit."""
        at = pinned()
        if at is None or at.shadow is None:
            return None
        pin, hour = at.shadow, at.open_from_ms // _HOUR_MS
        made: Shadow = self._kept(
            "shadow",
            [rules, *leaders],
            lambda: self._made_shadow(pin, rules, at.open_from_ms, leaders),
            (pin, hour),
        )
        return made

    def _made_shadow(
        self, pin: ShadowPin, rules: _WatchedRules, open_from_ms: int, leaders: list[_Watched]
    ) -> Shadow:
        before = _Loader._made.get("shadow")
        if before is not None and isinstance(before[1].governor, CallbackGovernor):
            before[1].governor.close()
        values = kept_values(self._settings, pin.version)
        book = RuleBook(RulePeriod(entity, each, BEGINNING_MS, None, None) for entity, each in values.items())
        rows = leaders[0].rows if leaders else ()
        governor = make_governor(self._settings, book, LeaderBook(leader_changes(rows)))
        is_by_callback = bool(self._settings.quotas.callback)
        found = EVERYONE if is_by_callback else differing(rules.known.book, values, open_from_ms)
        return Shadow(pin, governor, found)

    def _governor(self, rules: _WatchedRules, leaders: _Watched | None = None) -> Governor:
        before = _Loader._made.get("governor")
        if before is not None and isinstance(before[1], CallbackGovernor):
            before[1].close()
        changes = LeaderBook(leader_changes(leaders.rows if leaders else ()))
        return make_governor(self._settings, rules.known.book, changes)

    def _windows(self, rows: Iterable[Row]) -> BrokerWindows:
        reported: dict[int, list[ReportedWindows]] = {}
        for row in rows:
            if row["broker_id"] is not None:
                windows = (row["sample_ring"], row["quota_window_num"], row["quota_window_size_seconds"])
                period = ReportedWindows(row["valid_from"] or 0, row["valid_to"], *windows)
                reported.setdefault(row["broker_id"], []).append(period)
        return BrokerWindows(rate_config(self._settings), reported, frozenset(self._settings.broker.given))


class LimitsLoader(_Loader):
    """Loads the limits for a worker that judges buckets with known tags."""

    def __call__(self) -> Limits:
        """The limits from the pinned versions of the tables, else the newest.

        Raises:
            UserError: `quota_rules` cannot be read.
        """
        rules = self._rules()
        governor = self._kept("limits", [rules], lambda: self._governor(rules.known.book))
        return Limits(governor, rules.known.ips, rules.known.known_through_ms)

    def _governor(self, book: RuleBook) -> RuleGovernor:
        # A callback has its own limits, which cannot be queried for a bucket. It does not decide those of ips.
        has_callback = bool(self._settings.quotas.callback)
        return RuleGovernor(RuleBook() if has_callback else book, static_defaults(self._settings))


def begun_brokers(rows: Iterable[Row]) -> frozenset[int]:
    """Brokers with a row in `log_gaps` about how their logs begin."""
    return frozenset(row["broker_id"] for row in rows if row["reason"] in (MID_STREAM, BROKER_START))
