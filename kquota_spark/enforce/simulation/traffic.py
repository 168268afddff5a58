"""The broker of a scenario and what its clients send: the model's own, seen with the delay of an audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import NamedTuple

from kquota_spark.enforce.in_memory import Nodes
from kquota_spark.enforce.simulation.scenario import MINUTE_MS, WAVE_MS, Load, Scenario
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import resolve
from kquota_spark.model.simulation.broker import Broker, Exchange, Simulation
from kquota_spark.model.simulation.quota_manager import Limit

LOOK_MS = 30 * MINUTE_MS
"""What policies look at."""
_BROKER = Broker(window_ms=MINUTE_MS, service_ms=1)


class Use(NamedTuple):
    """What one user did in a look, as far as it is known; rates in bytes per second."""

    rate_per_s: float
    requests: int
    certain: int
    throttled: int


class Traffic:
    """Clients at one broker, from the beginning on."""

    def __init__(self, scenario: Scenario, nodes: Nodes, random: Random) -> None:
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
        """What the broker charged in a stretch of time, its end included."""
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
