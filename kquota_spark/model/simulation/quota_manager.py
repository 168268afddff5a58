"""Charges requests to their buckets, and parks the throttled ones until their delay is over.

The interface is that of KIP-13: `check` for a produce, `on_response` for other requests, `expired` for the delay queue.
Source: Kafka's `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager`, and the
order of charges in `KafkaApis`.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kquota_spark.model.govern.govern import Governor
from kquota_spark.model.measure.apis import Api, is_request_quota_exempt, is_strict_mutation
from kquota_spark.model.measure.combining import NOT_THROTTLED, Applied, combined, fetch_max_bytes
from kquota_spark.model.measure.sampled_rate import FloatRing, RateConfig
from kquota_spark.model.measure.throttle_time import (
    bounded_throttle_time_ms,
    rate_per_s,
    request_percent,
    throttle_time_ms,
)
from kquota_spark.model.measure.token_bucket import MutationCharge, TokenBucket
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import QuotaType


class Limit(NamedTuple):
    """The bucket to which a request is charged, and its limit per second; None is no limit."""

    bucket: Hashable
    per_s: float | None


class Limits(Protocol):
    """Source of the bucket of a client and its limit. It is asked again for every charge, so the answer may change."""

    def __call__(self, quota_type: QuotaType, user: str, client_id: str, /) -> Limit:
        """The bucket and limit of one quota type for one client."""
        ...


def governed_limits(governor: Governor, broker_id: int, time_ms: int) -> Limits:
    """The limits of a governor at one time: from a quota file, the history of a cluster, or a callback."""

    def limits(quota_type: QuotaType, user: str, client_id: str, /) -> Limit:
        found = governor.govern(broker_id, quota_type, Principal("User", user), client_id, time_ms)
        return Limit(found.bucket, found.governing.limit_per_s)

    return limits


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request that quotas use.

    `size_bytes` is the size of a whole produce request, or the most bytes that a fetch asks for.
    """

    api: Api
    user: str
    client_id: str
    connection: Hashable
    version: int = 0
    size_bytes: int = 0
    acks: int = -1
    is_follower: bool = False


class Parked(NamedTuple):
    """A throttled request in the delay queue; the field order is the order in which requests leave the queue."""

    due_ms: int
    order: int
    connection: Hashable
    applied: Applied


class QuotaManager:
    """All client quotas of one broker.

    Args:
        limits: the limits; they may be replaced at any time, and new limits apply to the history in the buckets. A
            limit of None switches quotas off for that client, but its traffic is still measured.
        config: quota.window.num and .window.size.seconds, and the broker's ring.
        mutation_config: controller.quota.window.num and .window.size.seconds; None for those of `config`.
        charges_requested_fetch: charge a fetch in `check`, by the size that it asks for, instead of in `on_response`,
            by the bytes that were read. No Kafka version does so; KIP-13 considers it.
    """

    def __init__(
        self,
        limits: Limits,
        config: RateConfig,
        *,
        mutation_config: RateConfig | None = None,
        charges_requested_fetch: bool = False,
    ) -> None:
        self.limits = limits
        self.config = config
        self.is_enabled = True
        """Whether the broker has any quota; if not, nothing is measured."""
        self._mutation_config = mutation_config or config
        self._charges_requested_fetch = charges_requested_fetch
        self._rings: dict[tuple[QuotaType, Hashable], FloatRing] = {}
        self._tokens: dict[Hashable, TokenBucket] = {}
        self._delay_queue: list[Parked] = []
        self._parked = 0

    def check(self, request: Request, time_ms: int, thread_time_ns: int = 0) -> Applied:
        """Charge a produce that has been appended; other requests pass uncharged until `on_response`.

        Raises:
            ValueError: the request is a fetch: only `on_response` knows its bytes.
        """
        if request.api is Api.FETCH and not self._charges_requested_fetch:
            raise ValueError("a fetch is charged by on_response, when its bytes are known")
        if not self.is_enabled or request.is_follower:
            return NOT_THROTTLED
        if request.api is Api.PRODUCE:
            own_ms = self._charge(QuotaType.PRODUCE, request, request.size_bytes, time_ms)
            request_ms = self._charge_request(request, thread_time_ns, time_ms)
            return self._park(request, combined(QuotaType.PRODUCE, own_ms, request_ms), time_ms)
        if request.api is Api.FETCH and self._charges_requested_fetch:
            own_ms = self._charge(QuotaType.FETCH, request, request.size_bytes, time_ms)
            return self._park(request, combined(QuotaType.FETCH, own_ms, 0), time_ms)
        return NOT_THROTTLED

    def on_response(
        self,
        request: Request,
        time_ms: int,
        *,
        response_bytes: int = 0,
        thread_time_ns: int = 0,
        mutations: MutationCharge | None = None,
    ) -> Applied:
        """Charge any request except a produce, when its response is ready.

        A throttled fetch is answered empty, and its bytes are un-recorded, whichever quota throttles it.

        Args:
            request: the request; not a produce.
            time_ms: the present time (ms).
            response_bytes: bytes that a fetch would send.
            thread_time_ns: time on the broker's threads.
            mutations: result of `mutation_charge` when the request began.
        """
        if not self.is_enabled or request.is_follower:
            return NOT_THROTTLED
        request_ms = self._charge_request(request, thread_time_ns, time_ms)
        if request.api is Api.FETCH and not self._charges_requested_fetch:
            own_ms = self._charge(QuotaType.FETCH, request, response_bytes, time_ms)
            applied = combined(QuotaType.FETCH, own_ms, request_ms)
            if applied.throttle_ms > 0:
                self._ring(QuotaType.FETCH, request.user, request.client_id).add(-response_bytes, time_ms)
        else:
            own_ms = mutations.throttle_ms(time_ms) if mutations else 0
            applied = combined(QuotaType.CONTROLLER_MUTATION, own_ms, request_ms)
        return self._park(request, applied, time_ms)

    def mutation_charge(self, request: Request) -> MutationCharge:
        """The charge of a request that creates or deletes partitions, to be given to `on_response` afterwards."""
        if not self.is_enabled:
            return MutationCharge(TokenBucket(self._mutation_config), None, is_strict=False)
        bucket, limit = self.limits(QuotaType.CONTROLLER_MUTATION, request.user, request.client_id)
        tokens = self._tokens.setdefault(bucket, TokenBucket(self._mutation_config))
        return MutationCharge(tokens, limit, is_strict=is_strict_mutation(request.api, request.version))

    def fetch_max_bytes(self, request: Request) -> int:
        """The most bytes that a broker from 2.5 on reads for this fetch."""
        if not self.is_enabled or request.is_follower:
            return request.size_bytes
        limit = self.limits(QuotaType.FETCH, request.user, request.client_id).per_s
        return fetch_max_bytes(request.size_bytes, limit, self.config)

    def rate_per_s(self, quota_type: QuotaType, user: str, client_id: str, time_ms: int) -> float:
        """The rate that the broker measures for a client, as JMX shows it; not for mutations.

        Args:
            quota_type: the quota type; not controller mutations.
            user: raw user name.
            client_id: raw client id.
            time_ms: time of the measurement, epoch ms.
        """
        return rate_per_s(*self._ring(quota_type, user, client_id).measure(time_ms))

    def queue_size(self, quota_type: QuotaType) -> int:
        """Number of requests that one manager delays."""
        return sum(parked.applied.by is quota_type for parked in self._delay_queue)

    def expired(self, time_ms: int) -> list[Parked]:
        """Remove the requests from the delay queue that are due at `time_ms`, and return them."""
        found = []
        while self._delay_queue and self._delay_queue[0].due_ms <= time_ms:
            found.append(heapq.heappop(self._delay_queue))
        return found

    @property
    def ring_count(self) -> int:
        """Number of rate sensors in memory: one per bucket and quota type."""
        return len(self._rings)

    def forget_idle(self, time_ms: int) -> None:
        """Free the rate sensors that equal a new one; brokers do so after an hour."""
        from_ms = time_ms - self.config.horizon_ms
        self._rings = {key: ring for key, ring in self._rings.items() if ring.last_event_ms > from_ms}

    def shutdown(self) -> list[Parked]:
        """Remove all requests from the delay queue, due or not, and return them."""
        found = sorted(self._delay_queue)
        self._delay_queue.clear()
        return found

    def _charge_request(self, request: Request, thread_time_ns: int, time_ms: int) -> int:
        if is_request_quota_exempt(request.api, acks=request.acks):
            return 0
        return self._charge(QuotaType.REQUEST, request, request_percent(thread_time_ns), time_ms)

    def _charge(self, quota_type: QuotaType, request: Request, amount: float, time_ms: int) -> int:
        limit = self.limits(quota_type, request.user, request.client_id).per_s
        ring = self._ring(quota_type, request.user, request.client_id)
        window_ms = ring.record(amount, time_ms)
        if quota_type is QuotaType.REQUEST:
            return bounded_throttle_time_ms(ring.total, window_ms, limit, self.config.window_ms)
        return throttle_time_ms(ring.total, window_ms, limit)

    def _ring(self, quota_type: QuotaType, user: str, client_id: str) -> FloatRing:
        key = quota_type, self.limits(quota_type, user, client_id).bucket
        ring = self._rings.get(key)
        if ring is None:
            ring = self._rings[key] = FloatRing(self.config)
        return ring

    def _park(self, request: Request, applied: Applied, time_ms: int) -> Applied:
        if applied.throttle_ms > 0:
            parked = Parked(time_ms + applied.throttle_ms, self._parked, request.connection, applied)
            heapq.heappush(self._delay_queue, parked)
            self._parked += 1
        return applied
