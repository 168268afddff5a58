"""The labelled runs: calm clients, decoys that hurt nobody, and in half of the runs one client that slows the others.

Times are seconds since the beginning of a run. All is drawn from one seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.slow_broker.requests import COSTLY, Kind
from tests.support.chance import Chance

BEFORE_S = 7.0
"""How long nothing changes. The question is about the time after it."""
END_S = 18.0
NAMES = ("alder", "birch", "cedar", "elder", "hazel", "larch", "maple", "rowan", "sorrel", "willow")
"""Users. Which of them does what is drawn for each run."""

_MORE_CONNECTIONS = {Kind.TINY_PRODUCE: 10, Kind.REPACK: 1, Kind.ALL_CONFIGS: 1}
"""A broker takes one request of a connection at a time: few connections with cheap requests make nobody wait.

All other kinds have `_USUAL_MORE`. With 4 to 8 connections they made nobody wait where processors were free.
"""
_USUAL_MORE = 4
ANTAGONIST = "antagonist"
"""The role of the client that slows the others."""

Pause = Callable[[float], float | None]
"""The time to wait between two requests at a time, s; None while nothing is sent."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What one client does.

    Args:
        user: its user; its client id is `<user>-app`.
        kind: what it sends.
        pause: between two requests of a connection.
        connections: how many it has; each waits for its answers.
        role: for people.
    """

    user: str
    kind: Kind
    pause: Pause
    connections: int = 1
    role: str = "calm"


@dataclass(frozen=True, slots=True)
class Run:
    """The clients of one run."""

    number: int
    activities: tuple[Activity, ...]
    antagonist: Activity | None = field(default=None)


def drawn_run(seed: int, number: int, has_antagonist: bool) -> Run:
    """A run; the kinds of antagonists follow each other, all else is drawn."""
    chance = Chance(f"{seed}/{number}/{has_antagonist}")
    names = list(NAMES)
    chance.shuffle(names)
    clients = [_calm(chance, names.pop()) for _ in range(chance.randint(3, 5))]
    decoys = chance.sample(_DECOYS, chance.randint(1, 2) if has_antagonist else chance.randint(2, 3))
    clients += [decoy(chance, names.pop()) for decoy in decoys]
    if not has_antagonist:
        return Run(number, tuple(clients))
    antagonist = _antagonist(chance, names.pop(), COSTLY[(number + seed) % len(COSTLY)])
    clients.insert(chance.randint(0, len(clients)), antagonist)
    return Run(number, tuple(clients), antagonist)


def _always(pause_s: float) -> Pause:
    return lambda _: pause_s


def _calm(chance: Chance, user: str) -> Activity:
    kind = chance.choice((Kind.PRODUCE, Kind.PRODUCE, Kind.CONSUME, Kind.CONSUME, Kind.ASK))
    if kind is Kind.CONSUME:
        return Activity(user, kind, _always(0.0), chance.randint(1, 2))
    if chance.random() < 0.3:
        length_s, share = chance.uniform(0.8, 2.0), chance.uniform(0.2, 0.4)
        return Activity(user, kind, lambda at_s: 0.01 if at_s % length_s < share * length_s else None)
    return Activity(user, kind, _always(chance.uniform(0.02, 0.15)), chance.randint(1, 3))


def _constant(chance: Chance, user: str) -> Activity:
    """A large client that is as large as before."""
    kind = chance.choice((Kind.LARGE_PRODUCE, Kind.TINY_PRODUCE, Kind.ALL_METADATA))
    return Activity(user, kind, _always(chance.uniform(0.02, 0.04)), role="large and constant")


def _late(chance: Chance, user: str) -> Activity:
    """A small client that begins during the time that is asked about."""
    begin_s = BEFORE_S + chance.uniform(0, 7)
    pause_s = chance.uniform(0.02, 0.1)
    return Activity(user, Kind.PRODUCE, lambda at_s: pause_s if at_s >= begin_s else None, role="late")


def _growing(chance: Chance, user: str) -> Activity:
    """A small client that sends three times as much from some time on."""
    begin_s = BEFORE_S + chance.uniform(0, 7)
    kind = chance.choice((Kind.PRODUCE, Kind.ASK))
    return Activity(user, kind, lambda at_s: 0.03 if at_s >= begin_s else 0.1, role="growing")


def _ending(chance: Chance, user: str) -> Activity:
    """A client that leaves."""
    end_s = BEFORE_S + chance.uniform(0, 7)
    return Activity(user, Kind.LARGE_PRODUCE, lambda at_s: 0.05 if at_s < end_s else None, role="ending")


_DECOYS = (_constant, _late, _growing, _ending)


def _antagonist(chance: Chance, user: str, kind: Kind) -> Activity:
    """A client that sends as fast as it is answered, from some time on: without end, in bursts, or for some seconds."""
    begin_s = BEFORE_S + chance.uniform(0.5, 4.0)
    on_s, off_s = chance.uniform(1.5, 3.0), chance.uniform(1.0, 3.0)
    block_s = chance.uniform(4.0, 6.0)
    shapes: tuple[Callable[[float], bool], ...] = (
        lambda _: True,
        lambda after_s: after_s % (on_s + off_s) < on_s,
        lambda after_s: after_s < block_s,
    )
    is_on = chance.choice(shapes)
    connections = chance.randint(4, 8) * _MORE_CONNECTIONS.get(kind, _USUAL_MORE)

    def pause(at_s: float) -> float | None:
        return 0.0 if at_s >= begin_s and is_on(at_s - begin_s) else None

    return Activity(user, kind, pause, connections, ANTAGONIST)
