"""Simulation of one broker and its clients, event by event and without a clock: the effect of quotas on traffic.

Discrete events happen in the order of their times and, within a millisecond, of their creation. The seed is the only
source of chance. Time-outs of clients and of idle connections are not simulated, and bytes on the wire take no time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from kquota_spark.model.measure.apis import Api
from kquota_spark.model.measure.combining import does_cap_fetch
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.model.simulation.clients import Behaviour, Client
from kquota_spark.model.simulation.quota_manager import Limits, QuotaManager, Request
from kquota_spark.model.simulation.throttled_channel import Delivery, ThrottledChannel


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker and the network to it; `latency_ms` is one way, `connect_ms` is for a client's further connection."""

    version: str = "3.9"
    num_samples: int = 11
    window_ms: int = 1_000
    latency_ms: int = 0
    service_ms: int = 1
    connect_ms: int = 1

    def __post_init__(self) -> None:
        if self.service_ms < 1:
            raise ValueError("service_ms is at least 1: without it a client that never waits stops time")


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and its result; times are in ms, None for events that have not happened.

    `sent_bytes` is the size of a produce, or the bytes that a fetch would have got. `charged_bytes` are the bytes that
    stay in the bucket (0 for a throttled fetch). `received_ms` is when the client got its response.
    """

    client: Client
    connection: int
    sent_ms: int
    sent_bytes: int
    charged_ms: int | None = None
    charged_bytes: int = 0
    throttle_ms: int = 0
    muted_until_ms: int | None = None
    received_ms: int | None = None


@dataclass(slots=True, eq=False)
class _Connection:
    """The broker's end of a connection, with the requests that wait: it handles one at a time."""

    number: int
    channel: ThrottledChannel
    waiting: deque[Exchange] = field(default_factory=deque)
    is_busy: bool = False


@dataclass(slots=True, eq=False)
class _Sender:
    """The client's end of a connection."""

    client: Client
    connection: _Connection
    not_before_ms: int
    in_flight: int = 0


class Simulation:
    """A run that can be stopped, queried, changed and continued.

    Each client begins on its own connection, under these limits; the seed is for the clients' jitter.
    """

    def __init__(
        self, clients: Sequence[Client], limits: Limits, *, seed: int, broker: Broker = Broker()
    ) -> None:
        config = RateConfig(broker.num_samples, broker.window_ms, RingVariant.of_version(broker.version))
        self.manager = QuotaManager(limits, config)
        self.exchanges: list[Exchange] = []
        """All requests that were sent, in the order of sending."""
        self.now_ms = 0
        self._broker = broker
        self._delivery = Delivery.of_version(broker.version)
        self._does_cap_fetch = does_cap_fetch(broker.version)
        self._random = Random(seed)  # noqa: S311 - reproducible jitter, not a secret
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._events_made = self._connections_made = 0
        for client in clients:
            sender = _Sender(client, self._connect(), client.first_send_ms)
            self._at(client.first_send_ms, partial(self._send, sender))

    def change_limits(self, time_ms: int, limits: Limits) -> None:
        """Replace the quotas at a future time (ms).

        Raises:
            ValueError: `time_ms` is in the past.
        """
        if time_ms < self.now_ms:
            raise ValueError(f"it is {self.now_ms} ms: limits cannot change at {time_ms} ms")
        self._at(time_ms, partial(self._set_limits, limits))

    def run_until(self, time_ms: int) -> None:
        """Run all events before `time_ms`."""
        while self._events and self._events[0][0] < time_ms:
            self.now_ms, _, happen = heapq.heappop(self._events)
            happen()
        self.now_ms = max(self.now_ms, time_ms)

    def _set_limits(self, limits: Limits) -> None:
        self.manager.limits = limits

    def _at(self, time_ms: int, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_ms, self._events_made, happen))
        self._events_made += 1

    def _connect(self) -> _Connection:
        self._connections_made += 1
        return _Connection(self._connections_made, ThrottledChannel(self._delivery))

    def _send(self, sender: _Sender) -> None:
        """Send one request if the client may, and try again when the next one is due."""
        client = sender.client
        if sender.in_flight >= client.max_in_flight or self.now_ms < sender.not_before_ms:
            return
        connection = sender.connection
        exchange = Exchange(client, connection.number, self.now_ms, client.size_bytes)
        self.exchanges.append(exchange)
        sender.in_flight += not client.has_no_responses
        sender.not_before_ms = self.now_ms + client.interval_ms
        if client.jitter_ms:
            sender.not_before_ms += self._random.randint(0, client.jitter_ms)
        self._at(self.now_ms + self._broker.latency_ms, partial(self._arrive, sender, connection, exchange))
        self._at(sender.not_before_ms, partial(self._send, sender))

    def _arrive(self, sender: _Sender, connection: _Connection, exchange: Exchange) -> None:
        connection.waiting.append(exchange)
        self._handle_next(sender, connection)

    def _handle_next(self, sender: _Sender, connection: _Connection) -> None:
        if connection.is_busy or not connection.waiting or self.now_ms < connection.channel.muted_until_ms:
            return
        connection.is_busy = True
        exchange = connection.waiting.popleft()
        self._at(self.now_ms + self._broker.service_ms, partial(self._complete, sender, connection, exchange))

    def _complete(self, sender: _Sender, connection: _Connection, exchange: Exchange) -> None:
        """Charge the request, answer it, and throttle the connection."""
        client, time_ms = exchange.client, self.now_ms
        request = Request(client.api, client.user, client.client_id, connection.number, client.version,
                          client.size_bytes, client.acks)  # fmt: skip
        exchange.charged_ms = time_ms
        if client.api is Api.PRODUCE:
            applied = self.manager.check(request, time_ms, client.thread_time_ns)
            exchange.charged_bytes = exchange.sent_bytes
        else:
            if self._does_cap_fetch:
                exchange.sent_bytes = self.manager.fetch_max_bytes(request)
            applied = self.manager.on_response(
                request, time_ms, response_bytes=exchange.sent_bytes, thread_time_ns=client.thread_time_ns
            )
            exchange.charged_bytes = 0 if applied.throttle_ms > 0 else exchange.sent_bytes
        exchange.throttle_ms = applied.throttle_ms
        response_ms = connection.channel.respond(time_ms, applied.throttle_ms)
        connection.is_busy = False
        exchange.muted_until_ms = connection.channel.muted_until_ms
        self._at(exchange.muted_until_ms, partial(self._unmute, sender, connection))
        if not client.has_no_responses:
            self._at(response_ms + self._broker.latency_ms, partial(self._receive, sender, exchange))

    def _unmute(self, sender: _Sender, connection: _Connection) -> None:
        self.manager.expired(self.now_ms)
        self._handle_next(sender, connection)

    def _receive(self, sender: _Sender, exchange: Exchange) -> None:
        client = sender.client
        exchange.received_ms = self.now_ms
        sender.in_flight -= 1
        resume_ms = self.now_ms
        if self._delivery is Delivery.MUTED:  # older brokers have no request version at which clients wait
            resume_ms += client.hold_ms(exchange.throttle_ms)
        if exchange.throttle_ms > 0 and client.behaviour is Behaviour.RECONNECTING:
            sender.connection = self._connect()
            resume_ms = self.now_ms + self._broker.connect_ms
        sender.not_before_ms = max(sender.not_before_ms, resume_ms)
        self._at(sender.not_before_ms, partial(self._send, sender))
