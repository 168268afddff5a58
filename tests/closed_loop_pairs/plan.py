"""Which pairs are run: behaviour, connections, direction, demand and the two limits, all from one seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import product

from tests.support.chance import Chance

PAIRS = 24
SECONDS = 20
_CONNECTIONS = (1, 10)


class Behaviour(Enum):
    """What a client does with a throttle."""

    OBEYING = "obeying"
    """One request in flight; it waits the throttle out."""
    PIPELINING = "pipelining"
    """Up to five requests in flight; it sends no further one during a throttle."""
    IGNORING = "ignoring"
    """Up to five requests in flight; it sends on whatever the throttle is."""
    RECONNECTING = "reconnecting"
    """One request in flight; after a throttle it continues on a new connection at once."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One client under two limits, bytes per second.

    `does_think` is true if it waits `interval_s` after each response and its throttle. Otherwise it sends every
    `interval_s`, and what a throttle takes longer than that is lost.
    """

    number: int
    behaviour: Behaviour
    connections: int
    does_think: bool
    value_bytes: int
    interval_s: float
    limit_a: int
    limit_b: int

    @property
    def demand(self) -> float:
        """What it sends without a throttle, bytes per second."""
        return self.connections * self.value_bytes / self.interval_s

    @property
    def is_raise(self) -> bool:
        """Whether the second limit is higher."""
        return self.limit_b > self.limit_a

    def client_id(self, side: str) -> str:
        """The client id of one run; `side` is a or b."""
        return f"pair-{self.number:02}-{side}"


def drawn_pairs(chance: Chance, count: int = PAIRS) -> list[Pair]:
    """The pairs, each combination of behaviour, connections and direction at least once if there is room."""
    every = list(product(Behaviour, _CONNECTIONS, (True, False)))
    chosen = every * (count // len(every)) + chance.sample(every, count % len(every))
    return [drawn_pair(chance, number, *each) for number, each in enumerate(chosen, 1)]


def drawn_pair(chance: Chance, number: int, behaviour: Behaviour, connections: int, is_raise: bool) -> Pair:
    """One client of this kind; the rest is drawn."""
    interval_s = chance.uniform(0.05, 0.2) * (1 if connections == 1 else 5)
    value_bytes = chance.randrange(4_000, 20_000)
    demand = connections * value_bytes / interval_s
    # Between 1.3 and 4 times as much as the lower limit; the higher one may be above the demand or below it.
    low = demand / chance.uniform(1.3, 4)
    high = low * chance.uniform(1.25, 3)
    limits = (low, high) if is_raise else (high, low)
    does_think = behaviour is Behaviour.OBEYING and chance.random() < 0.5
    return Pair(number, behaviour, connections, does_think, value_bytes, interval_s, *map(round, limits))
