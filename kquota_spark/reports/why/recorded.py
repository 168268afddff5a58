"""The recorded requests of throttled buckets, as the attribution needs them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import NamedTuple

from kquota_spark.config.governor import rate_config, static_defaults
from kquota_spark.config.settings import Settings
from kquota_spark.model.attribution.counterfactuals import (
    Case,
    Client,
    LimitFrom,
    Replay,
    Request,
    replay_at_recorded_times,
    with_own_times,
)
from kquota_spark.model.attribution.observed import BURST_S
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.govern.traffic import governed_seconds_of
from kquota_spark.model.loops.closed_loop import Sent
from kquota_spark.model.loops.open_loop import THROTTLED_FETCHES
from kquota_spark.model.loops.paces import does_reconnect, is_unmuted
from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.decision import GovernedSecond
from kquota_spark.quotas.sources import from_tables
from kquota_spark.reports.clients.stored_usage import UsagePart, stored_rings, stored_usage
from kquota_spark.reports.clients.what_if import WARM_UP_MS
from kquota_spark.reports.scope.shared_rows import BucketName

_LATER_MS = 1_000 * BURST_S
_MOST_NETWORK_US = 1_023
"""Most time of the network thread per request that is tried, microseconds."""
COVERED = (QuotaType.PRODUCE.value, QuotaType.FETCH.value, QuotaType.REQUEST.value)
"""Quota types with causes: the log has no size of a refused topic, and no refused connection."""


RequestKey = tuple[int, int, int]
"""The broker, the hash of the connection, and the correlation id."""


class Wanted(NamedTuple):
    """A bucket on all brokers, and a period, epoch ms, the end exclusive."""

    bucket: BucketName
    from_ms: int
    to_ms: int


class Recorded(NamedTuple):
    """The requests of one bucket, and their throttles by brokers."""

    case: Case
    replay: Replay
    observed_ms: int
    """Total delay in the period by brokers, ms."""
    later: Sequence[Request]
    """The requests of the minute after the period."""
    keys: Sequence[RequestKey]
    """What identifies each request in the log, by its order."""


def recorded(settings: Settings, wanted: Sequence[Wanted]) -> dict[Wanted, Recorded]:
    """The requests of buckets; those without requests or without a limit are left out.

    Args:
        settings: where the tables are, and the cluster.
        wanted: buckets of the types `COVERED` and without tags of a callback.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    if not wanted:
        return {}
    parts = [_part(one) for one in wanted]
    from_ms, to_ms = min(part.from_ms for part in parts), max(one.to_ms for one in wanted)
    rows = list(stored_usage(settings, from_ms, to_ms + _LATER_MS, tuple(QuotaType), parts=parts))
    governor = RuleGovernor(from_tables(settings).book, static_defaults(settings))
    of_buckets = governed_seconds_of(rows, governor)
    rings, default = stored_rings(settings), rate_config(settings)
    found = {}
    for one in wanted:
        key = QuotaType(one.bucket.quota_type), Bucket(one.bucket.user, one.bucket.client_id)
        of_bucket = {
            broker_id: during
            for (broker_id, *own), seconds in of_buckets.items()
            if tuple(own) == key and (during := _during(one, seconds))
        }
        of_one = _recorded(one, of_bucket, rings, default)
        if of_one is not None:
            found[one] = of_one
    return found


def _part(one: Wanted) -> UsagePart:
    bucket = one.bucket
    begin_ms, end_ms = one.from_ms - WARM_UP_MS, one.to_ms + _LATER_MS
    return UsagePart(bucket.quota_type, bucket.user, bucket.client_id, begin_ms, end_ms)


def _during(one: Wanted, seconds: Sequence[GovernedSecond]) -> list[GovernedSecond]:
    """The seconds that matter for a period: other periods of the same bucket may be wanted as well."""
    begin_ms, end_ms = one.from_ms - WARM_UP_MS, one.to_ms + _LATER_MS
    return [second for second in seconds if begin_ms <= second.second_ms < end_ms]


def _recorded(
    one: Wanted,
    of_bucket: Mapping[int, Sequence[GovernedSecond]],
    rings: Mapping[int, RateConfig],
    default: RateConfig,
) -> Recorded | None:
    points = _points(one, of_bucket)
    limits = _limits([second.governing for of_broker in of_bucket.values() for second in of_broker])
    if not any(point.record_time_ms < one.to_ms for point, *_ in points) or all(
        limit.limit_per_s is None for limit in limits
    ):
        return None
    ring = next(iter({rings.get(broker_id, default) for broker_id in of_bucket}))
    replay = Replay(ring, one.from_ms, rings, one.bucket.quota_type == QuotaType.REQUEST.value)
    observed_ms = sum(
        point.observed_throttle_ms for point, *_ in points if one.from_ms <= point.record_time_ms < one.to_ms
    )
    more_us = _network_us(points, limits, replay, one.to_ms, observed_ms) if replay.is_thread_time else 0
    requests = list(_requests(points, more_us))
    later = [request for request in requests if request.time_ms >= one.to_ms]
    case = Case(requests[: len(requests) - len(later)], limits)
    throttles = {request.order: ms for request, ms in replay_at_recorded_times(replay, case)}
    not_waiting = _not_waiting(case.requests, throttles)
    replay = Replay(ring, one.from_ms, rings, replay.is_thread_time, not_waiting)
    keys = [(broker_id, point.connection_hash, point.correlation_id) for point, broker_id, _ in points]
    return Recorded(with_own_times(case, replay), replay, observed_ms, later, keys)


_Placed = tuple[Point, int, Client]


def _points(one: Wanted, of_bucket: Mapping[int, Sequence[GovernedSecond]]) -> list[_Placed]:
    """The points of a bucket with their broker and client, in the order in which brokers took them."""
    found = [
        (point, broker_id, (second.user, second.client_id))
        for broker_id, of_broker in of_bucket.items()
        for second in of_broker
        for point in second.points
        if one.from_ms - WARM_UP_MS <= point.record_time_ms < one.to_ms + _LATER_MS
    ]
    found.sort(key=itemgetter(0, 1))
    return found


def _network_us(
    points: Sequence[_Placed], limits: tuple[LimitFrom, ...], replay: Replay, to_ms: int, observed_ms: int
) -> int:
    """The time of the network thread per request with which the delay by replay is nearest to that by brokers.

    Brokers charge the time in which their network thread reads a request and writes its response. The log lacks it.
    `sendTimeMs` is another time: it has the waiting for the thread, and lacks the reading. On three real brokers the
    charged time was 26 to 36 microseconds per request, and the mean `sendTimeMs` was 48 to 149.
    """
    of_period = [each for each in _requests(points, 0) if each.time_ms < to_ms]

    @cache
    def delay_ms(more_us: int) -> int:
        charged = [
            request if request.is_probe else request._replace(amount=request.amount + more_us)
            for request in of_period
        ]
        throttles = replay_at_recorded_times(replay, Case(charged, limits))
        return sum(ms for request, ms in throttles if request.time_ms >= replay.from_ms)

    # A longer time never shortens a throttle.
    enough_us = bisect_left(range(_MOST_NETWORK_US), observed_ms, key=delay_ms)
    tried_us = (enough_us - 1, enough_us) if enough_us else (0,)
    return min(tried_us, key=lambda more_us: abs(delay_ms(more_us) - observed_ms))


def _requests(points: Sequence[_Placed], network_us: int) -> Iterator[Request]:
    """The requests; a throttled fetch has the size of the next answered fetch of its connection."""
    names: dict[tuple[int, int], int] = {}
    sizes: dict[tuple[int, int], int] = {}
    asked: list[int] = []
    for point, broker_id, _ in reversed(points):
        key = broker_id, point.connection_hash
        if point.kind not in THROTTLED_FETCHES:
            sizes[key] = point.amount
        asked.append(sizes.get(key, 0))
    for order, ((point, broker_id, client), size) in enumerate(zip(points, reversed(asked), strict=True)):
        key = broker_id, point.connection_hash
        is_probe = point.kind in THROTTLED_FETCHES
        yield Request(
            point.record_time_ms, order, broker_id, names.setdefault(key, len(names)), client,
            size if is_probe else point.amount + network_us, is_probe,
        )  # fmt: skip


def _limits(governing: Sequence[Governing]) -> tuple[LimitFrom, ...]:
    """The limits of a bucket over time, from what governed its requests."""
    steps: dict[int, float | None] = {}
    for each in sorted(set(governing), key=lambda each: each.valid_from_ms):
        if each.before is not None and not any(start < each.valid_from_ms for start in steps):
            steps[0] = each.before.limit_per_s
        steps[each.valid_from_ms if steps else min(each.valid_from_ms, 0)] = each.limit_per_s
    found: list[LimitFrom] = []
    for start, limit in sorted(steps.items()):
        if not found or found[-1].limit_per_s != limit:
            found.append(LimitFrom(start, limit))
    return tuple(found)


def limit_at(case: Case, time_ms: int) -> float | None:
    """The limit of a bucket at a time (epoch ms)."""
    starts_ms = [limit.from_ms for limit in case.limits]
    return case.limits[max(bisect_right(starts_ms, time_ms) - 1, 0)].limit_per_s


def _not_waiting(requests: Sequence[Request], throttles: Mapping[int, int]) -> frozenset[int]:
    """Connections that do not wait for their throttles, by their record."""
    sent: dict[int, list[Sent]] = defaultdict(list)
    client_of: dict[int, Client] = {}
    for request in requests:
        throttle_ms = throttles.get(request.order, 0)
        sent[request.connection].append(Sent(request.time_ms, request.order, throttle_ms, throttle_ms, ()))
        client_of[request.connection] = request.client
    of_client: dict[Client, list[Sequence[Sent]]] = defaultdict(list)
    for connection, of_one in sent.items():
        of_client[client_of[connection]].append(of_one)
    leaving = {client for client, connections in of_client.items() if does_reconnect(connections)}
    return frozenset(
        connection
        for connection, of_one in sent.items()
        if client_of[connection] in leaving or is_unmuted(of_one)
    )
