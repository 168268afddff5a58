"""`QuotaGate`: enforces the quotas of the decision topic in a proxy or gateway, with the broker's own arithmetic.

It holds the quotas of the topic and resolves them as brokers do, so a client has the same limits with and without the
gateway. Each gate measures its own traffic, as each broker does: a limit applies per gate. `docs/gateways.md` explains
it for users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kquota_spark.gateway.messages import (
    MOST_AHEAD_MS,
    Decided,
    Heartbeat,
    MessageError,
    Removed,
    decode,
)
from kquota_spark.model.measure.combining import Applied
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import resolve
from kquota_spark.model.simulation.quota_manager import Limit, Parked, QuotaManager, Request

Fallback = Mapping[Entity, Mapping[QuotaKey, float]]


class GateState(Enum):
    """The source of the gate's quotas. When the topic becomes silent, no limit is removed immediately."""

    LIVE = "live"
    """The quotas of the topic, up to `silence_ms` after the last heartbeat."""
    STALE = "stale"
    """The last known quotas; temporary changes by enforcement end by the gate's own clock."""
    FALLBACK = "fallback"
    """Quotas that its operator configured, or none: after `give_up_ms`, and before the first heartbeat."""


@dataclass(slots=True)
class GateCounts:
    """The number of messages by outcome; messages of other clusters are not counted."""

    taken: int = 0
    outdated: int = 0
    """Messages issued before the one that is held, which stays."""
    refused: int = 0
    """Messages that are not valid, or issued too far in the future: the known quotas stay."""
    last_refusal: str = ""
    """Reason and key of the last one; it has text from the topic, so escape it before you show it."""


@dataclass(slots=True)
class QuotaGate:
    """The quotas of a broker, enforced in another program. Not for several threads at once: see `gateway.follower`.

    Args:
        cluster_id: name of the cluster in the settings; only its quotas apply.
        silence_ms: maximum time without a heartbeat before the quotas are stale; at least the skew of the clocks.
        give_up_ms: maximum time without a heartbeat before the last known quotas are given up.
        fallback: the quotas that apply then.
        config: quota.window.num, .size.seconds and the ring of the brokers that this gate represents.
    """

    cluster_id: str
    silence_ms: int = 30_000
    give_up_ms: int = 3_600_000
    fallback: Fallback = field(default_factory=dict)
    config: RateConfig = field(default_factory=RateConfig)
    counts: GateCounts = field(default_factory=GateCounts)
    _decided: dict[Entity, Decided] = field(default_factory=dict)
    """The last message about each entity; it has no quotas if they were removed."""
    _resolved: dict[tuple[QuotaType, str, str], Limit] = field(default_factory=dict)
    """Resolved limits, until the next message: one resolution reads eight entities, and a request needs four."""
    _resolved_in: GateState | None = None
    _heard_ms: int | None = None
    _now_ms: int = 0
    _tidied_ms: int = 0
    _manager: QuotaManager = field(init=False)

    def __post_init__(self) -> None:
        self._manager = QuotaManager(self._limit, self.config)

    def take(self, key: bytes | None, value: bytes | None, timestamp_ms: int, time_ms: int) -> None:
        """Apply one message of the topic; an invalid one is counted and changes nothing.

        Args:
            key: key of the message.
            value: value of the message; None for a tombstone.
            timestamp_ms: time of the message, epoch ms; for a tombstone, when it was issued.
            time_ms: now, epoch ms by the gate's clock.
        """
        try:
            message = decode(self.cluster_id, key, value)
        except MessageError as error:
            self.counts.refused += 1
            self.counts.last_refusal = f"{error} at key {(key or b'')[:200]!r}"
            return
        if message is None:
            return
        issued_ms = timestamp_ms if isinstance(message, Removed) else message.issued_ms
        if issued_ms > time_ms + MOST_AHEAD_MS:
            # It would stay in force until then, because every later message would count as outdated.
            self.counts.refused += 1
            self.counts.last_refusal = f"issued more than {MOST_AHEAD_MS // 1_000} s ahead of this clock"
            return
        if isinstance(message, Removed):
            message = Decided(message.entity, {}, issued_ms=issued_ms)
        is_new = self._hear(message, time_ms) if isinstance(message, Heartbeat) else self._learn(message)
        self.counts.taken += is_new
        self.counts.outdated += not is_new

    def state_at(self, time_ms: int) -> GateState:
        """The source of the gate's quotas at `time_ms`."""
        if self._heard_ms is None or time_ms - self._heard_ms > self.give_up_ms:
            return GateState.FALLBACK
        return GateState.STALE if time_ms - self._heard_ms > self.silence_ms else GateState.LIVE

    def limit(self, quota_type: QuotaType, user: str, client_id: str, time_ms: int) -> Limit:
        """The bucket of a client, and its limit per second; None is no limit.

        Args:
            quota_type: produce, fetch or request.
            user: raw name, empty for none.
            client_id: raw name.
            time_ms: now, epoch ms.
        """
        state = self.state_at(time_ms)
        if state is not self._resolved_in or state is GateState.STALE:
            # While the gate is stale, the quotas change with time.
            self._resolved.clear()
            self._resolved_in = state
        key = quota_type, user, client_id
        limit = self._resolved.get(key)
        if limit is None:
            found = resolve(
                user, client_id, quota_type.key, lambda entity: self._quotas_of(entity, state, time_ms)
            )
            limit = self._resolved[key] = Limit(found.bucket, found.limit)
        return limit

    def check(self, request: Request, time_ms: int, thread_time_ns: int = 0) -> Applied:
        """Charge a produce request; see `QuotaManager.check`."""
        self._at(time_ms)
        return self._manager.check(request, time_ms, thread_time_ns)

    def on_response(
        self, request: Request, time_ms: int, *, response_bytes: int = 0, thread_time_ns: int = 0
    ) -> Applied:
        """Charge any request except produce; see `QuotaManager.on_response`.

        Mutations are not charged, because only the controller can compute their cost.

        Args:
            request: the request that the gateway received.
            time_ms: now, epoch ms.
            response_bytes: size of a fetch's response, bytes.
            thread_time_ns: time that threads worked on the request, ns.
        """
        self._at(time_ms)
        return self._manager.on_response(
            request, time_ms, response_bytes=response_bytes, thread_time_ns=thread_time_ns
        )

    def fetch_max_bytes(self, request: Request, time_ms: int) -> int:
        """Maximum bytes to request from the brokers with this fetch; see `QuotaManager.fetch_max_bytes`."""
        self._at(time_ms)
        return self._manager.fetch_max_bytes(request)

    def expired(self, time_ms: int) -> list[Parked]:
        """Take the requests out of the delay queue that have waited their delay."""
        return self._manager.expired(time_ms)

    def shutdown(self) -> list[Parked]:
        """Take all requests out of the delay queue, due or not."""
        return self._manager.shutdown()

    @property
    def ring_count(self) -> int:
        """The number of rate sensors in memory: one per quota type for each recently busy bucket."""
        return self._manager.ring_count

    def _at(self, time_ms: int) -> None:
        self._now_ms = time_ms
        # Clients choose their client ids: the memory of those that are idle is freed.
        if time_ms - self._tidied_ms >= self.config.horizon_ms:
            self._tidied_ms = time_ms
            self._manager.forget_idle(time_ms)
            self._resolved.clear()

    def _limit(self, quota_type: QuotaType, user: str, client_id: str, /) -> Limit:
        return self.limit(quota_type, user, client_id, self._now_ms)

    def _quotas_of(self, entity: Entity, state: GateState, time_ms: int) -> Mapping[QuotaKey, float] | None:
        if state is GateState.FALLBACK:
            return self.fallback.get(entity)
        decided = self._decided.get(entity)
        if decided is None:
            return None
        return decided.quotas if state is GateState.LIVE else decided.after(time_ms)

    def _hear(self, beat: Heartbeat, time_ms: int) -> bool:
        # If the publisher's clock is ahead of ours, the heartbeat counts as one of now.
        heard_ms = min(beat.known_through_ms, time_ms)
        if self._heard_ms is not None and heard_ms < self._heard_ms:
            return False
        self._heard_ms = heard_ms
        return True

    def _learn(self, decided: Decided) -> bool:
        held = self._decided.get(decided.entity)
        # If two were issued in the same millisecond, the later one in the topic counts, as in compaction.
        if held is not None and decided.issued_ms < held.issued_ms:
            return False
        self._decided[decided.entity] = decided
        self._resolved.clear()
        return True
