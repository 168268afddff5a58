"""An event of a timeline, and the merging of all records of one change of a quota into one event.

A change that enforcement makes is planned, approved and applied. The watcher then sees it, and at the client's next
request another limit is in force. All of that is one event with several times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kquota_spark.reports.scope.echoes import ECHO_MS, QuotaSet, is_echo


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. Times are epoch ms.

    Attributes:
        time_ms: its time; for an episode or a gap the start, for a change when it was made.
        kind: config, limit, enforcement, override, violation or gap.
        what: description, with names as clients and operators gave them.
        before: the value before, in the unit of the quota type; None if there was none.
        after: the value after, likewise.
        by: the author; None if the source has none.
        until_ms: end of an episode or gap; None while it is open, and for events without a length.
        entity: owner of the changed quota, e.g. `users/alice`, or for a limit the rule in force; empty for others.
        entity_before: for a limit, the rule that was in force before; empty for none.
        status: the newest event of a step of enforcement, e.g. `applied` or `refused`; empty for other kinds.
        planned_at_ms: when the change was planned; None if that is not known, as for the three below.
        approved_at_ms: when a person approved it.
        seen_at_ms: when the watcher saw it in the cluster.
        in_force_at_ms: the first second of a request under the new limit.
    """

    time_ms: int
    kind: str
    what: str
    before: float | None = None
    after: float | None = None
    by: str | None = None
    until_ms: int | None = None
    entity: str = ""
    entity_before: str = ""
    status: str = ""
    planned_at_ms: int | None = None
    approved_at_ms: int | None = None
    seen_at_ms: int | None = None
    in_force_at_ms: int | None = None

    @property
    def has_values(self) -> bool:
        """Whether `before` and `after` have a meaning."""
        return self.kind in ("config", "limit", "enforcement", "override")

    @property
    def is_set(self) -> bool:
        """Whether the value of a quota changed in the cluster."""
        return self.kind == "config" or self.status in ("applied", "restored")

    def quota_set(self, key: str) -> QuotaSet:
        """The quota with its new value.

        Args:
            key: Kafka's key of the quota.
        """
        return QuotaSet(self.time_ms, self.entity, key, self.after)


def merged(steps: Iterable[Event], edits: Iterable[Event], limits: Iterable[Event], key: str) -> list[Event]:
    """One event per change of a quota, by time.

    Args:
        steps: of enforcement, one per change.
        edits: that the watcher saw.
        limits: other limits in force, as requests met them.
        key: Kafka's key of the quota.
    """
    changes = list(steps)
    for edit in edits:
        place = _echoed(edit, changes, key)
        if place is None:
            changes.append(edit)
        else:
            changes[place] = replace(changes[place], seen_at_ms=edit.time_ms)
    changes.sort(key=lambda event: event.time_ms)
    left = []
    for limit in limits:
        place = _cause(limit, changes)
        if place is None:
            left.append(limit)
        else:
            what = f"{changes[place].what}{_moved(limit)}"
            changes[place] = replace(changes[place], in_force_at_ms=limit.time_ms, what=what)
    return sorted([*changes, *left], key=lambda event: event.time_ms)


def _echoed(edit: Event, changes: Sequence[Event], key: str) -> int | None:
    """The nearest step of enforcement of which an edit is the echo, as an index; None for an edit of its own."""
    if not edit.has_values:
        return None
    seen = edit.quota_set(key)
    steps = [
        place
        for place, step in enumerate(changes)
        if step.status and step.is_set and step.seen_at_ms is None and is_echo(seen, step.quota_set(key))
    ]
    return min(steps, key=lambda place: abs(changes[place].time_ms - edit.time_ms), default=None)


def _cause(limit: Event, changes: Sequence[Event]) -> int | None:
    """The change that put a limit in force, as an index; None if no such change is known.

    A client meets the new limit at its first request after the change, which may be much later. A poll sees a change
    some time after it was made.
    """
    for place in reversed(range(len(changes))):
        change = changes[place]
        is_before = change.time_ms < limit.time_ms + (ECHO_MS if change.kind == "config" else 1_000)
        if not (is_before and change.is_set and change.has_values):
            continue
        if change.entity not in (limit.entity, limit.entity_before):
            continue
        if _sets(change, limit):
            return place if change.in_force_at_ms is None else None
        if change.time_ms <= limit.time_ms:
            return None  # an older change cannot have set what a newer one has changed again
    return None


def _sets(change: Event, limit: Event) -> bool:
    """Whether a change of one entity leads from the one limit to the other."""
    if change.after is None:
        return change.entity == limit.entity_before != limit.entity
    return change.entity == limit.entity and change.after == limit.after


def _moved(limit: Event) -> str:
    """That the client came into another bucket, or under another rule, with the new limit."""
    _, comma, rest = limit.what.partition(", ")
    return f"{comma}{rest}"
