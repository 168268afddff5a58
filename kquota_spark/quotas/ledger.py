"""The recorded quotas, and the edits that an answer of their source adds."""

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
"""Minimum numbers of entities that lose their quotas at once for the loss not to be believed.

The first number applies if they are all entities with quotas, the second if they are at least half of them.
"""
_UNNOTICED_MS = 120_000
"""Maximum unnoticed delay of our clock, ms: lines with Kafka's time are accepted a minute and more ahead of it."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The last known state of an entity."""

    values: Mapping[AnyKey, float] = field(default_factory=dict)
    changed_at_ms: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True)
class Edits:
    """The edits that an answer of the source adds.

    `refused` are the paths of nodes that are older than recorded. `vanished` are entities that lost all their quotas at
    once with so many others that the loss is not believed. The recorded quotas of both stay.
    """

    changes: list[QuotaChange] = field(default_factory=list)
    problems: list[NodeProblem] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    vanished: list[str] = field(default_factory=list)


class Ledger:
    """The recorded state of all entities, and its difference from the present state of the source.

    Args:
        changes: all recorded changes.
        problems: version and text of the last problem of each node.
        accepts_removal: whether to believe the source however many quotas vanish and however old its nodes are.
        complete_through_ms: epoch ms up to which all edits are recorded; None if that is not known.
    """

    def __init__(
        self,
        changes: Iterable[QuotaChange],
        problems: Mapping[str, tuple[int, str]],
        *,
        accepts_removal: bool = False,
        complete_through_ms: int | None = None,
    ) -> None:
        self.complete_through_ms = complete_through_ms or BEGINNING_MS
        """Epoch ms up to which all edits are recorded."""
        self._accepts_removal = accepts_removal
        self._recorded: dict[AnyEntity, Recorded] = {}
        self._problems = dict(problems)
        # Versions without an edit of a quota (a password, the same value again) are in no table.
        self._seen: dict[AnyEntity, int] = {}
        for change in sorted(changes, key=lambda change: (change.changed_at_ms, change.version)):
            self._apply(change)

    def compare(self, view: View, observed_at_ms: int, after_ms: int = BEGINNING_MS) -> Edits:
        """The edits in the view that were not recorded yet; this records them.

        Args:
            view: the present nodes.
            observed_at_ms: epoch ms when the view was read, by our clock. If the time of a node is ahead of this, the
                time is not used. If it is ahead only a little, the edit may have been made at any time up to it.
            after_ms: epoch ms up to which the last view was complete, so edits without a time are later.
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
        """The edits in the result of a poll that were not recorded yet; this records them.

        Args:
            found: the quotas in force.
            after_ms: epoch ms up to which the last poll was complete, so the edits are later.
            before_ms: epoch ms when this poll was answered, so the edits are earlier.
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
        """The edits that are believed; this records them."""
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
        self, path: str, entity: AnyEntity, node: Node, checks_ms: tuple[int, int], edits: Edits
    ) -> None:
        recorded = self._recorded.get(entity, Recorded())
        # An old node with the recorded values is accepted: so the alarm ends when restored old data is right again.
        if self._is_older(entity, node.version) and dict(node.payload.values) != dict(recorded.values):
            edits.refused.append(path)
            return
        self._seen[entity] = node.version
        if node.payload.problem is not None:
            problem = node.payload.problem
            self._add_problem(NodeProblem(path, entity, problem, node.changed_at_ms, node.version), edits)
        after_ms, observed_at_ms = checks_ms
        time_ms: int = node.changed_at_ms
        before_ms: int | None = None
        if is_ahead(node.changed_at_ms, observed_at_ms):
            # Either the clock of a ZooKeeper host is wrong: then no edit is later than our read. Or our clock is
            # behind, by minutes at most, because the job ends if it is more.
            is_soon = node.changed_at_ms <= observed_at_ms + _UNNOTICED_MS
            time_ms, before_ms = after_ms, node.changed_at_ms if is_soon else observed_at_ms
        for key in IpQuotaKey if isinstance(entity, IpEntity) else QuotaKey:
            value, previous = node.payload.values.get(key), recorded.values.get(key)
            if key in node.payload.left_alone or _is_same(value, previous):
                continue
            # A deletion is recorded by our clock, which may be ahead of the server's: no later edit gets a time
            # before it. If the version does not give the order either (a new node), the edit is 1 ms later.
            later_ms = recorded.changed_at_ms + (node.version < recorded.version)
            changed_at_ms = max(time_ms, later_ms)
            edits.changes.append(
                QuotaChange(entity, key, value, previous, changed_at_ms, node.version, before_ms)
            )

    def _compare_removed(
        self, entity: AnyEntity, recorded: Recorded, version: int, observed_at_ms: int, edits: Edits
    ) -> None:
        if self._is_older(entity, version):
            # The parent node has not changed since, so this server has never had the node.
            edits.refused.append(str(entity))
            return
        # A deleted node has no mtime: the time of our observation is used.
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
    changes: Sequence[QuotaChange], observed_ms: Sequence[int], now_ms: int, check_ms: int
) -> list[QuotaChange]:
    """The same edits in the same order; an edit with a time in the future gets the period between two checks instead.

    A clock that was ahead recorded these times. After its correction new edits would be older, and would never count.

    Args:
        changes: all recorded changes of a source that is followed.
        observed_ms: epoch ms when each of them was seen, by our clock.
        now_ms: our clock, epoch ms; a time that is further ahead of it than clocks differ is not valid.
        check_ms: epoch ms of the last check before the clock was ahead; `BEGINNING_MS` if it is not known.
    """
    found = list(changes)
    in_order = sorted(range(len(found)), key=lambda index: (found[index].changed_at_ms, found[index].version))
    newest_ms: dict[AnyEntity, int] = {}
    for index in in_order:
        change = found[index]
        if is_ahead(change.latest_ms, now_ms) and not _is_open(change, observed_ms[index], now_ms):
            at_ms = check_ms if is_ahead(change.changed_at_ms, now_ms) else change.changed_at_ms
            at_ms = max(at_ms, newest_ms.get(change.entity, BEGINNING_MS))
            change = replace(change, changed_at_ms=at_ms, changed_before_ms=max(at_ms, now_ms))
            found[index] = change
        newest_ms[change.entity] = change.changed_at_ms
    return found


def _is_open(change: QuotaChange, seen_ms: int, now_ms: int) -> bool:
    """Whether it may have been made until ZooKeeper's time, which is ahead only a little: see `Ledger.compare`."""
    before_ms = change.changed_before_ms
    return before_ms is not None and is_ahead(before_ms, seen_ms) and before_ms <= now_ms + _UNNOTICED_MS


def timed_alike_ahead(
    changes: Sequence[QuotaChange], observed_ms: Sequence[int], now_ms: int
) -> QuotaChange | None:
    """An edit with a time in the future, although our clock and ZooKeeper's agreed on it before: now ours is behind.

    Args:
        changes: all recorded changes.
        observed_ms: epoch ms when each of them was seen, by our clock.
        now_ms: our clock, epoch ms.

    Returns:
        None if there is no such edit: every time ahead of our clock came from one clock only.
    """
    own_ms: dict[AnyEntity, int] = {}
    seen = sorted(
        zip(changes, observed_ms, strict=True),
        key=lambda each: (each[0].changed_at_ms, each[0].version, each[0].value is None),
    )
    for change, seen_ms in seen:
        # The time of a deletion is from our clock. An edit at the same time, or 1 ms later, may have been moved after
        # it.
        is_moved = change.changed_at_ms <= own_ms.get(change.entity, BEGINNING_MS) + 1
        is_timed = change.value is not None and change.changed_before_ms is None
        if not is_timed or is_moved or is_ahead(change.changed_at_ms, seen_ms):
            own_ms[change.entity] = change.changed_at_ms
        elif is_ahead(change.changed_at_ms, now_ms):
            return change
    return None


def _is_same(value: float | None, previous: float | None) -> bool:
    """Whether two values are equal; NaN, which a percentage can be, equals itself."""
    if value is None or previous is None:
        return value is previous
    return value == previous or (math.isnan(value) and math.isnan(previous))
