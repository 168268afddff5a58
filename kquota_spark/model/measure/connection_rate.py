"""Limits on new connections of an address, a listener and the broker (KIP-612).

Source: Kafka's `SocketServer.ConnectionQuotas`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kquota_spark.model.measure.sampled_rate import FloatRing, RateConfig
from kquota_spark.model.measure.throttle_time import bounded_throttle_time_ms

UNLIMITED_PER_S = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits in connections per second: max.connection.creation.rate of broker and listeners, ip quotas of addresses.

    `inter_broker_listener` is not subject to the broker's limit if there is another listener.
    """

    listeners: Mapping[str, int]
    inter_broker_listener: str
    broker: int = UNLIMITED_PER_S
    ips: Mapping[str, int] = field(default_factory=dict)
    default_ip: int = UNLIMITED_PER_S

    def of_ip(self, ip: str) -> int:
        """The limit of one address."""
        return self.ips.get(ip, self.default_ip)

    def is_under_broker_limit(self, listener: str) -> bool:
        """Whether the broker's limit counts connections of this listener."""
        return listener != self.inter_broker_listener or len(self.listeners) == 1


class ConnectionRates:
    """Connection rates of one broker (`ConnectionQuotas`). Call `accept`, then `serve` once that wait is over.

    Args:
        limits: the limits; they may be replaced at any time, and recorded connections stay.
        config: quota.window.num and .window.size.seconds; a delay is at most one window.
    """

    def __init__(self, limits: ConnectionLimits, config: RateConfig) -> None:
        self.limits = limits
        self._config = config
        self._broker = FloatRing(config)
        self._listeners: dict[str, FloatRing] = {}
        self._ips: dict[str, FloatRing] = {}

    def accept(self, listener: str, time_ms: int) -> int:
        """How long (ms) the acceptor delays a new connection, and all that come after it on the listener."""
        throttle_ms = 0
        if self.limits.is_under_broker_limit(listener):
            throttle_ms = self._record(self._broker, self.limits.broker, time_ms)
        of_listener = self._listeners.setdefault(listener, FloatRing(self._config))
        return max(throttle_ms, self._record(of_listener, self.limits.listeners[listener], time_ms))

    def serve(self, listener: str, ip: str, time_ms: int) -> int:
        """0 if the connection is served; otherwise the time (ms) after which the broker closes it unserved.

        A refused connection is un-recorded from all three rates. An address without a limit is not measured.
        """
        limit = self.limits.of_ip(ip)
        if limit == UNLIMITED_PER_S:
            return 0
        of_ip = self._ips.setdefault(ip, FloatRing(self._config))
        throttle_ms = self._record(of_ip, limit, time_ms)
        if throttle_ms > 0:
            of_ip.add(-1, time_ms)
            self._listeners[listener].add(-1, time_ms)
            if self.limits.is_under_broker_limit(listener):
                self._broker.add(-1, time_ms)
        return max(throttle_ms, 0)

    @property
    def measured_ips(self) -> frozenset[str]:
        """Addresses that have a rate, as in JMX."""
        return frozenset(self._ips)

    def _record(self, ring: FloatRing, limit: int, time_ms: int) -> int:
        window_ms = ring.record(1, time_ms)
        return bounded_throttle_time_ms(ring.total, window_ms, limit, self._config.window_ms)
