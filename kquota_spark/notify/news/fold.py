"""The news since the last read, and the routes that get it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kquota_spark.config.routes import Route
from kquota_spark.name_patterns import is_match
from kquota_spark.notify.news.events import Event, Seen, over


@dataclass(slots=True)
class Active:
    """A condition that holds, and the routes that got its event: they also get its end."""

    event: Event
    routes: list[str]


@dataclass(slots=True)
class Known:
    """All that was found up to now."""

    is_begun: bool = False
    """Whether there was a first read: conditions that ended before it are history and not reported."""
    active: dict[str, Active] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    """Conditions that ended recently, with the time (epoch ms): the next reads find them again."""
    ended_from_ms: int = 0
    """Ends before this time are not read any more, epoch ms."""
    log_sequence: int = 0
    """Rows of `enforcement_log` up to this one were read."""


@dataclass(slots=True)
class Found:
    """The result of one read of the tables."""

    kinds: set[str] = field(default_factory=set)
    """Kinds of conditions that could be read: conditions of other kinds do not end."""
    holding: list[Seen] = field(default_factory=list)
    ended: list[Seen] = field(default_factory=list)
    """Conditions that ended since `Known.ended_from_ms`."""
    once: list[Seen] = field(default_factory=list)
    ended_from_ms: int = 0
    log_sequence: int = 0


Addressed = tuple[Event, Sequence[str]]
"""An event and the names of its routes."""


def fold(known: Known, found: Found, routes: Mapping[str, Route], now_ms: int) -> list[Addressed]:
    """Add the result of a read to the known conditions, and return the news.

    Args:
        known: known conditions that hold or have ended; changed in place.
        found: the result of this read.
        routes: the routes by name.
        now_ms: epoch ms.
    """
    is_first, known.is_begun = not known.is_begun, True
    news: list[Addressed] = []
    for seen in found.holding:
        if seen.condition not in known.active and seen.condition not in known.ended:
            names = routes_of(seen, routes)
            known.active[seen.condition] = Active(seen.event, names)
            news.append((seen.event, names))
    for seen in found.ended:
        active = known.active.pop(seen.condition, None)
        if active is not None:
            news.append((seen.event, active.routes))
        elif seen.condition not in known.ended and not is_first:
            # It began and ended between two reads.
            news.append((seen.event, routes_of(seen, routes)))
        known.ended[seen.condition] = seen.event.at_ms
    news += _vanished(known, found, now_ms)
    if not is_first:
        news += [(seen.event, routes_of(seen, routes)) for seen in found.once]
    known.ended_from_ms = max(known.ended_from_ms, found.ended_from_ms)
    known.log_sequence = found.log_sequence  # it is smaller if the log was recreated
    known.ended = {one: at_ms for one, at_ms in known.ended.items() if at_ms >= known.ended_from_ms}
    return news


def _vanished(known: Known, found: Found, now_ms: int) -> Iterator[Addressed]:
    """The ends of conditions that are not in the tables any more, such as an episode that was restated."""
    holding = {seen.condition for seen in found.holding}
    for condition, active in list(known.active.items()):
        if active.event.kind in found.kinds and condition not in holding:
            del known.active[condition]
            yield over(active.event, now_ms), active.routes


def routes_of(seen: Seen, routes: Mapping[str, Route]) -> list[str]:
    """The names of the routes that get an event."""
    return [name for name, route in routes.items() if _is_for(seen, route)]


def _is_for(seen: Seen, route: Route) -> bool:
    if route.events and seen.event.kind not in route.events:
        return False
    if not (route.users or route.client_ids or route.owners):
        return True
    if not set(route.owners).isdisjoint(seen.owners):
        return True
    return _has_one(route.users, seen.users) or _has_one(route.client_ids, seen.client_ids)


def _has_one(patterns: Collection[str], names: Collection[str]) -> bool:
    return any(is_match(pattern, name) for pattern in patterns for name in names)
