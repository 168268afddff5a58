"""One small random world: who is there, what they want, which policies look after them, and what goes wrong.

Hours of traffic take milliseconds because requests are few and large: the broker's samples are one minute long
(quota.window.size.seconds = 60) instead of one second, and a client sends about every two minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from kquota_spark.config.rules import Duration
from kquota_spark.enforce.changes import Mode
from kquota_spark.enforce.guard_settings import Bounds, Exempt, GuardSettings
from kquota_spark.enforce.in_memory import Nodes
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import resolve
from kquota_spark.model.simulation.broker import Broker, Exchange, Simulation
from kquota_spark.model.simulation.clients import Behaviour, Client
from kquota_spark.model.simulation.quota_manager import Limit
from tests.support.chance import Chance

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
ROUND_MS = 10 * MINUTE_MS
LENGTH_MS = 5 * HOUR_MS
WAVE_MS = 40 * MINUTE_MS
MB = 1e6
LOOK_MS = 30 * MINUTE_MS
"""What policies look at."""
_BROKER = Broker(window_ms=MINUTE_MS, service_ms=1)
_INTERVAL_MS = 120_000
_JITTER_MS = 40_000


class Load(Enum):
    """How what clients want goes over time."""

    CONSTANT = "constant"
    SQUARE_WAVE = "square wave"
    JUST_OVER = "just over the limit"


@dataclass(frozen=True)
class Elastic(Client):
    """A client that slows down more than it is told to, and so wants less the more it is throttled."""

    patience: float = 2.0

    def hold_ms(self, throttle_ms: int) -> int:
        """Several times the throttle."""
        return int(self.patience * throttle_ms)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that is drawn at the beginning; what goes wrong on the way is drawn with the same seed."""

    name: str
    load: Load
    clients: tuple[Client, ...]
    quotas: dict[str, float | None]
    """By user; None has no quota of its own."""
    capacity_per_s: float
    settings: GuardSettings
    exempt: Exempt
    managed: frozenset[str]
    """Users whose quotas another tool looks after."""
    broken: frozenset[str]
    """Users whose quotas could not be put back."""
    mode: Mode
    has_hysteresis: bool
    penalty_ms: int
    trouble: float
    """Chance that a call goes wrong, while there is trouble."""
    trouble_until_ms: int
    is_fenced: bool
    """Whether the cluster itself refuses a late enforcer, as ZooKeeper can; the Admin API cannot."""

    @property
    def fair_per_s(self) -> float:
        """What each client may have when all want more than the broker can do."""
        return self.capacity_per_s / len(self.clients)

    def random(self) -> Chance:
        """The chance of this scenario."""
        return Chance(self.name)


def draw(seed: int, number: int) -> Scenario:
    """The scenario of a number under a seed."""
    name = f"{seed}/{number}"
    random = Chance(f"drawn {name}")
    load = random.choice(list(Load))
    users = [f"user{i}" for i in range(random.randint(2, 3))]
    capacity = random.uniform(2, 6) * MB
    fair = capacity / len(users)
    quotas = {
        user: random.choice([None, float(int(random.uniform(0.5, 4) * fair)), 0.9e6, 2e6]) for user in users
    }
    is_constant = load is Load.CONSTANT
    return Scenario(
        name=name,
        load=load,
        clients=tuple(_client(user, quotas[user], fair, load, random) for user in users),
        quotas=quotas,
        capacity_per_s=capacity,
        settings=_settings(random, is_constant),
        exempt=Exempt(users=_some(users, 0.15, random), patterns=("admin.*",)),
        managed=frozenset(_some(users, 0.05, random)),
        broken=frozenset(_some(users, 0.05, random)),
        mode=Mode.ENFORCE if is_constant else random.choices(list(Mode), [2, 3, 20, 75])[0],
        has_hysteresis=True,
        penalty_ms=24 * HOUR_MS if is_constant else random.choice([HOUR_MS, 3 * HOUR_MS, 24 * HOUR_MS]),
        trouble=random.choice([0.0, 0.01, 0.04]),
        trouble_until_ms=LENGTH_MS // 4 if is_constant else LENGTH_MS,
        is_fenced=random.random() < 0.5,
    )


def _some(users: list[str], chance: float, random: Chance) -> tuple[str, ...]:
    return tuple(user for user in users if random.random() < chance)


def _settings(random: Chance, is_constant: bool) -> GuardSettings:
    step = 75.0 if is_constant else random.choice([25.0, 50.0])
    hold_ms = 30 * MINUTE_MS if is_constant else random.choice([20 * MINUTE_MS, HOUR_MS])
    bounds = Bounds(floor=0.2 * MB, ceiling=12 * MB, largest_step_percent=step)
    return GuardSettings(
        bounds={"producer_byte_rate": bounds},
        hold_time=Duration(hold_ms),
        changes_per_hour=random.choice([2, 3, 10]),
        changes_per_plan=random.choice([1, 2, 20]),
        max_age=Duration(2 * MINUTE_MS),
        min_certain_percent=95.0,
        reversals_per_day=random.choice([0, 1, 2]),
    )


def _client(user: str, quota: float | None, fair: float, load: Load, random: Chance) -> Client:
    """A constant load has to look constant: smaller requests, and no client whose own ways make waves."""
    limit = fair if quota is None else quota
    is_constant = load is Load.CONSTANT
    kind = Elastic if not is_constant and random.random() < 0.4 else Client
    is_obeying = is_constant or kind is Elastic
    if load is Load.JUST_OVER:
        factor = random.uniform(1.02, 1.15)
    else:
        factor = random.choice([0.2, 0.6, 1.3] if is_constant else [0.2, 0.6, 1.5, 3.0])
    interval_ms, jitter_ms = (_INTERVAL_MS // 2, 0) if is_constant else (_INTERVAL_MS, _JITTER_MS)
    return kind(
        "app",
        int(limit * factor * (interval_ms + jitter_ms / 2) / 1_000),
        user=user,
        interval_ms=interval_ms,
        jitter_ms=jitter_ms,
        behaviour=Behaviour.OBEYING if is_obeying else random.choice(list(Behaviour)),
        first_send_ms=random.randint(0, interval_ms),
    )


class Use(NamedTuple):
    """What one user did in a look, as far as it is known; rates in bytes per second."""

    rate_per_s: float
    requests: int
    certain: int
    throttled: int


class Traffic:
    """Clients at one broker of the model, from the beginning on; seen with the delay of an audit."""

    def __init__(self, scenario: Scenario, nodes: Nodes, random: Chance) -> None:
        self._scenario, self._random = scenario, random
        self._limits: dict[str, Limit] = {}
        self._texts: dict[str, str | None] = {}
        self._done: list[Exchange] = []
        self._wave = 0
        self.follow(nodes)
        self._simulation = self._connected(0)

    @property
    def sent(self) -> int:
        """Requests so far."""
        return len(self._done) + len(self._simulation.exchanges)

    def follow(self, nodes: Nodes) -> None:
        """From now on the broker goes by these quotas."""
        texts = {path: node.get(QuotaKey.PRODUCER_BYTE_RATE.value) for path, node in nodes.items()}
        if texts == self._texts:
            return
        self._texts = texts

        def quotas_of(entity: Entity) -> Mapping[QuotaKey, float] | None:
            text = texts.get(str(entity))
            return None if text is None else {QuotaKey.PRODUCER_BYTE_RATE: float(text)}

        for client in self._scenario.clients:
            found = resolve(client.user, client.client_id, QuotaKey.PRODUCER_BYTE_RATE, quotas_of)
            self._limits[client.user] = Limit(client.user, found.limit)

    def run_until(self, time_ms: int) -> None:
        """Let the clients send; in a square wave half of them come and go."""
        while self._scenario.load is Load.SQUARE_WAVE and (self._wave + 1) * WAVE_MS <= time_ms:
            self._wave += 1
            self._simulation.run_until(self._wave * WAVE_MS)
            self._done += self._simulation.exchanges
            manager = self._simulation.manager
            self._simulation = self._connected(self._wave * WAVE_MS)
            self._simulation.manager = manager
        self._simulation.run_until(time_ms)

    def requests(self, user: str, from_ms: int, to_ms: int) -> list[Exchange]:
        """What the broker charged in a period of time, its end included."""
        return [
            exchange
            for exchanges in (self._simulation.exchanges, self._done)
            for exchange in reversed(exchanges)
            if exchange.client.user == user
            and exchange.charged_ms is not None
            and from_ms < exchange.charged_ms <= to_ms
        ]

    def rate_per_s(self, user: str, from_ms: int, to_ms: int) -> float:
        """What a user really used."""
        return 1_000 * sum(e.charged_bytes for e in self.requests(user, from_ms, to_ms)) / (to_ms - from_ms)

    def seen(self, user: str, through_ms: int, late: float) -> Use:
        """What an audit knows that has decided through a moment, and to which some of the lines came too late."""
        requests = self.requests(user, through_ms - LOOK_MS, through_ms)
        known = [e for e in requests if not late or self._random.random() >= late]
        throttled = sum(e.throttle_ms > 0 for e in requests)
        rate = 1_000 * sum(e.charged_bytes for e in known) / LOOK_MS
        limit = self._limits[user].per_s
        if limit is not None and 2 * throttled >= len(requests) > 0:
            rate = limit  # who is throttled most of the time uses it, give or take one of few large requests
        return Use(rate, len(requests), len(known), throttled)

    def _connected(self, from_ms: int) -> Simulation:
        is_quiet = self._scenario.load is Load.SQUARE_WAVE and self._wave % 2 == 1
        clients = [
            replace(client, first_send_ms=from_ms + client.first_send_ms)
            for index, client in enumerate(self._scenario.clients)
            if not is_quiet or index % 2 == 1
        ]
        seed = self._random.getrandbits(32)
        return Simulation(clients, self._limit, seed=seed, broker=_BROKER)

    def _limit(self, quota_type: QuotaType, user: str, _: str, /) -> Limit:
        return self._limits[user] if quota_type is QuotaType.PRODUCE else Limit(user, None)
