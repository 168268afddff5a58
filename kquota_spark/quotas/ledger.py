"""What is recorded of the quotas, and what an answer of their source adds to it."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kquota_spark.formats.znodes.nodes import Node, View, has_data, name_nodes
from kquota_spark.model.quotas.entities import AnyEntity, IpEntity
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey
from kquota_spark.model.quotas.rules import BEGINNING_MS, QuotaChange, is_ahead
from kquota_spark.store.rules_tables import NodeProblem

_log = logging.getLogger(__name__)

NAME_LIMIT = 300
_MASS_OF_ALL, _MASS_OF_HALF = 10, 100
"""As many entities do not lose their quotas at once, if they are all that there are, or half of them."""
_UNNOTICED_MS = 120_000
"""Our clock may be that far behind unnoticed: lines that Kafka stamps are believed a minute beyond it and more."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The last known state of an entity."""

    values: Mapping[AnyKey, float] = field(default_factory=dict)
    changed_at_ms: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True)
class Edits:
    """What an answer of the source adds to what is recorded.

    `refused` are nodes older than recorded, by path; `vanished` are entities that lost all their quotas together
    with so many others that it is not believed. What is recorded of both stays.
    """

    changes: list[QuotaChange] = field(default_factory=list)
    problems: list[NodeProblem] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    vanished: list[str] = field(default_factory=list)


class Ledger:
    """The state of all entities as recorded, and its difference to what the source says now.

    Args:
        changes: all that is recorded.
        problems: version and text of the last problem of each node.
        accepts_removal: believe the source whatever vanishes and however old its nodes are.
    """

    def __init__(
        self,
        changes: Iterable[QuotaChange],
        problems: Mapping[str, tuple[int, str]],
        *,
        accepts_removal: bool = False,
    ) -> None:
        self._accepts_removal = accepts_removal
        self._recorded: dict[AnyEntity, Recorded] = {}
        self._problems = dict(problems)
        # Versions that brought no edit of a quota (a password, the same value again) are in no table.
        self._seen: dict[AnyEntity, int] = {}
        for change in sorted(changes, key=lambda change: (change.changed_at_ms, change.version)):
            self._apply(change)

    def compare(self, view: View, observed_at_ms: int, after_ms: int = BEGINNING_MS) -> Edits:
        """Edits in the view that are not recorded yet; from now on they are.

        Args:
            view: the nodes as they are.
            observed_at_ms: when the view was read, by our clock. A node whose own time is ahead of it has no time. It
                may have been edited until then, if that is soon.
            after_ms: the view before was complete up to here, so edits without a time are later.
        """
        edits = Edits()
        names = name_nodes(view.nodes)
        for path, entity in names.entities.items():
            self._compare_node(path, entity, view.nodes[path], (after_ms, observed_at_ms), edits)
        for path, problem in names.problems.items():
            node = view.nodes[path]
            self._add_problem(NodeProblem(path, None, problem, node.changed_at_ms, node.version), edits)
        for path, problem in view.unreadable.items():
            self._add_unreadable(path, problem, observed_at_ms, edits)
        present = set(names.entities.values())
        for entity, recorded in self._recorded.items():
            if recorded.values and entity not in present and not view.is_hidden(str(entity)):
                self._compare_removed(entity, recorded, view.removed_at(str(entity)), observed_at_ms, edits)
        return self._taken(edits)

    def compare_described(
        self, found: Mapping[AnyEntity, Mapping[AnyKey, float]], after_ms: int, before_ms: int
    ) -> Edits:
        """Edits in all that a poll found; from now on they are recorded.

        Args:
            found: the quotas in force.
            after_ms: the poll before was complete up to here, so the edits are later.
            before_ms: when this poll was answered, so they are earlier.
        """
        edits = Edits()
        unknown = Recorded()
        differing = [
            entity
            for entity in {*found, *self._recorded}
            if found.get(entity, {}) != self._recorded.get(entity, unknown).values
        ]
        for entity in sorted(differing, key=str):
            recorded, values = self._recorded.get(entity, unknown), found.get(entity, {})
            version = max(before_ms, recorded.version + 1)
            changed_at_ms = max(after_ms, recorded.changed_at_ms)
            for key in sorted({*recorded.values, *values}, key=lambda key: key.value):
                value, previous = values.get(key), recorded.values.get(key)
                if not _is_same(value, previous):
                    change = QuotaChange(entity, key, value, previous, changed_at_ms, version, before_ms)
                    edits.changes.append(change)
        return self._taken(edits)

    def _taken(self, edits: Edits) -> Edits:
        """The edits that are believed; from now on they are recorded."""
        removed: dict[AnyEntity, set[AnyKey]] = {}
        for change in edits.changes:
            if change.value is None:
                removed.setdefault(change.entity, set()).add(change.key)
        lost = {entity for entity, keys in removed.items() if keys >= self._recorded[entity].values.keys()}
        held = sum(1 for recorded in self._recorded.values() if recorded.values)
        is_all = len(lost) >= _MASS_OF_ALL and len(lost) == held
        is_half = len(lost) >= _MASS_OF_HALF and 2 * len(lost) >= held
        if (is_all or is_half) and not self._accepts_removal:
            believed = [change for change in edits.changes if change.entity not in lost]
            edits = replace(edits, changes=believed, vanished=sorted(map(str, lost)))
        for change in edits.changes:
            self._apply(change)
        self._problems.update({found.node: (found.version, found.problem) for found in edits.problems})
        return edits

    def _is_older(self, entity: AnyEntity, version: int) -> bool:
        recorded = self._recorded.get(entity, Recorded()).version
        return version < max(recorded, self._seen.get(entity, 0)) and not self._accepts_removal

    def _compare_node(
        self, path: str, entity: AnyEntity, node: Node, looks_ms: tuple[int, int], edits: Edits
    ) -> None:
        recorded = self._recorded.get(entity, Recorded())
        # An old node that says the same is no reason to distrust the others: so ends a restore of old data.
        if self._is_older(entity, node.version) and dict(node.payload.values) != dict(recorded.values):
            edits.refused.append(path)
            return
        self._seen[entity] = node.version
        if node.payload.problem is not None:
            problem = node.payload.problem
            self._add_problem(NodeProblem(path, entity, problem, node.changed_at_ms, node.version), edits)
        after_ms, observed_at_ms = looks_ms
        time_ms: int = node.changed_at_ms
        before_ms: int | None = None
        if is_ahead(node.changed_at_ms, observed_at_ms):
            # The clock of a ZooKeeper host is wrong, and no edit is later than our look at it. Or ours is behind: by
            # minutes at most, because the job ends if it is more.
            is_soon = node.changed_at_ms <= observed_at_ms + _UNNOTICED_MS
            time_ms, before_ms = after_ms, node.changed_at_ms if is_soon else observed_at_ms
        for key in IpQuotaKey if isinstance(entity, IpEntity) else QuotaKey:
            value, previous = node.payload.values.get(key), recorded.values.get(key)
            if key in node.payload.left_alone or _is_same(value, previous):
                continue
            # A deletion is recorded at our clock, which may be ahead of the server's: never before that. After
            # it, if this version does not say so itself.
            later_ms = recorded.changed_at_ms + (node.version < recorded.version)
            changed_at_ms = max(time_ms, later_ms)
            edits.changes.append(
                QuotaChange(entity, key, value, previous, changed_at_ms, node.version, before_ms)
            )

    def _compare_removed(
        self, entity: AnyEntity, recorded: Recorded, version: int, observed_at_ms: int, edits: Edits
    ) -> None:
        if self._is_older(entity, version):
            # The parent has not changed since: this server has never had the node.
            edits.refused.append(str(entity))
            return
        # A deleted node has no mtime: the time of our observation has to do.
        changed_at_ms = max(observed_at_ms, recorded.changed_at_ms)
        edits.changes.extend(
            QuotaChange(entity, key, None, value, changed_at_ms, version)
            for key, value in recorded.values.items()
        )

    def _add_unreadable(self, path: str, problem: str, observed_at_ms: int, edits: Edits) -> None:
        entity = name_nodes([path] if has_data(path) else []).entities.get(path)
        version = self._recorded.get(entity, Recorded()).version if entity else 0
        self._add_problem(NodeProblem(path, entity, problem, observed_at_ms, version), edits)

    def _add_problem(self, found: NodeProblem, edits: Edits) -> None:
        found = replace(found, node=found.node[:NAME_LIMIT])
        if self._problems.get(found.node) != (found.version, found.problem):
            _log.warning("quota node %r: %s", found.node, found.problem)
            edits.problems.append(found)

    def _apply(self, change: QuotaChange) -> None:
        before = self._recorded.get(change.entity, Recorded())
        values = {key: value for key, value in before.values.items() if key is not change.key}
        if change.value is not None:
            values[change.key] = change.value
        self._recorded[change.entity] = Recorded(values, change.changed_at_ms, change.version)


def mended(
    changes: Sequence[QuotaChange], observed_ms: Sequence[int], now_ms: int, look_ms: int
) -> list[QuotaChange]:
    """The same edits in the same order. Those with a time that has not come yet came between two looks instead.

    A clock that was ahead has recorded them. Edits after it came back would be older, and would never count.

    Args:
        changes: all that is recorded of a source that is followed.
        observed_ms: when each of them was seen, by our clock.
        now_ms: our clock: what is ahead of it by more than clocks differ is no time of an edit.
        look_ms: the last look before the clock was ahead; `BEGINNING_MS` if nobody knows.
    """
    found = list(changes)
    in_order = sorted(range(len(found)), key=lambda index: (found[index].changed_at_ms, found[index].version))
    newest_ms: dict[AnyEntity, int] = {}
    for index in in_order:
        change = found[index]
        if is_ahead(change.latest_ms, now_ms) and not _is_open(change, observed_ms[index], now_ms):
            at_ms = look_ms if is_ahead(change.changed_at_ms, now_ms) else change.changed_at_ms
            at_ms = max(at_ms, newest_ms.get(change.entity, BEGINNING_MS))
            change = replace(change, changed_at_ms=at_ms, changed_before_ms=max(at_ms, now_ms))
            found[index] = change
        newest_ms[change.entity] = change.changed_at_ms
    return found


def _is_open(change: QuotaChange, seen_ms: int, now_ms: int) -> bool:
    """Whether it may have come until ZooKeeper's time, which is soon: see `Ledger.compare`."""
    before_ms = change.changed_before_ms
    return before_ms is not None and is_ahead(before_ms, seen_ms) and before_ms <= now_ms + _UNNOTICED_MS


def timed_alike_ahead(
    changes: Sequence[QuotaChange], observed_ms: Sequence[int], now_ms: int
) -> QuotaChange | None:
    """An edit of a time that has not come yet, though our clock once said with ZooKeeper's that it had: ours is behind.

    Args:
        changes: all that is recorded.
        observed_ms: when each of them was seen, by our clock.
        now_ms: our clock.

    Returns:
        None if there is no such edit: whatever is ahead of our clock had its time from one clock alone.
    """
    own_ms: dict[AnyEntity, int] = {}
    seen = sorted(
        zip(changes, observed_ms, strict=True),
        key=lambda each: (each[0].changed_at_ms, each[0].version, each[0].value is None),
    )
    for change, seen_ms in seen:
        # The time of a deletion is ours. An edit at the same time, or 1 ms later, may have been moved behind it.
        is_moved = change.changed_at_ms <= own_ms.get(change.entity, BEGINNING_MS) + 1
        is_timed = change.value is not None and change.changed_before_ms is None
        if not is_timed or is_moved or is_ahead(change.changed_at_ms, seen_ms):
            own_ms[change.entity] = change.changed_at_ms
        elif is_ahead(change.changed_at_ms, now_ms):
            return change
    return None


def _is_same(value: float | None, previous: float | None) -> bool:
    """Equal, where NaN (which a percentage can be) equals itself."""
    if value is None or previous is None:
        return value is previous
    return value == previous or (math.isnan(value) and math.isnan(previous))
