"""One piece of news, with an id that is the same in every run, so that receivers can drop copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Status = Literal["begins", "over", "once"]
Fact = str | int | float | None
MOST_NAME = 300
"""Maximum characters of a text from clients or people in an event: a client id may have 32,767."""


@dataclass(frozen=True, slots=True)
class Event:
    """A condition that began or ended, or an event that happened once."""

    event_id: str
    kind: str
    """One of `config.settings.News`, or test."""
    status: Status
    at_ms: int
    since_ms: int
    """When the condition began, or when the event happened, epoch ms."""
    facts: dict[str, Fact]
    """Facts by name with unit; names of clients are unchanged, except that long ones are cut."""


class Seen(NamedTuple):
    """An event from the tables, with its condition and its names."""

    condition: str
    """The condition that begins and ends; the same for both events."""
    event: Event
    users: Sequence[str] = ()
    """All users that it is about, for the choice of routes."""
    client_ids: Sequence[str] = ()
    owners: Sequence[str] = ()
    """Names of the owners of all its clients."""


def fact(value: Fact) -> Fact:
    """A value for an event: a long text is cut, and a number that JSON cannot hold becomes None."""
    if isinstance(value, str):
        return value if len(value) <= MOST_NAME else f"{value[: MOST_NAME - 1]}…"
    return None if isinstance(value, float) and not math.isfinite(value) else value


def over(begun: Event, at_ms: int, facts: dict[str, Fact] | None = None) -> Event:
    """The event that ends a condition, at `at_ms`; `facts` replace those of its begin."""
    known = begun.facts if facts is None else facts
    return Event(f"{begun.event_id}/over", begun.kind, "over", at_ms, begun.since_ms, known)


def trial(cluster_id: str, route: str, now_ms: int) -> Event:
    """The event of `kquota notify --test ROUTE`."""
    return Event(f"{cluster_id}/test/{route}/{now_ms}", "test", "once", now_ms, now_ms, {"route": route})
