"""One piece of news, with an id that stays the same in every run, so that receivers can leave copies out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Status = Literal["begins", "over", "once"]
Fact = str | int | float | None
MOST_NAME = 300
"""Characters of a text of clients or people that an event keeps: a client id may have 32,767."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something began, is over, or happened once."""

    event_id: str
    kind: str
    """One of `config.settings.News`, or test."""
    status: Status
    at_ms: int
    since_ms: int
    """When the condition began; of an event that happened once, when it did."""
    facts: dict[str, Fact]
    """By name with unit; names of clients as they are, cut."""


class Seen(NamedTuple):
    """An event as it was found in the tables."""

    condition: str
    """What begins and is over; the same for both events."""
    event: Event
    users: Sequence[str] = ()
    """All names that it is about, for the choice of routes."""
    client_ids: Sequence[str] = ()


def fact(value: Fact) -> Fact:
    """A value as an event keeps it: a text cut, and a number that JSON has no form for left out."""
    if isinstance(value, str):
        return value if len(value) <= MOST_NAME else f"{value[: MOST_NAME - 1]}…"
    return None if isinstance(value, float) and not math.isfinite(value) else value


def over(begun: Event, at_ms: int, facts: dict[str, Fact] | None = None) -> Event:
    """The end of a condition."""
    known = begun.facts if facts is None else facts
    return Event(f"{begun.event_id}/over", begun.kind, "over", at_ms, begun.since_ms, known)


def trial(cluster_id: str, route: str, now_ms: int) -> Event:
    """The event of `kquota notify --test ROUTE`."""
    return Event(f"{cluster_id}/test/{route}/{now_ms}", "test", "once", now_ms, now_ms, {"route": route})
