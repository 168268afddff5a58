"""The open loop: recorded requests at their recorded times, judged under given quotas.

Under lower limits throttled clients would have sent later, so the total delay is too high. Under higher limits they
would have sent more, so it is too low.

The throttles are those of the audit's replay. Which verdicts are certain is left out: that costs ten times as much, and
no broker has answered under the tried quotas.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig, SampleRing
from kquota_spark.model.measure.throttle_time import bounded_throttle_time_ms, throttle_time_ms, to_int32
from kquota_spark.model.measure.token_bucket import TokenBucket, TokenState, wait_ms
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.decision import GovernedSecond
from kquota_spark.model.replay.mutation_replay import MAX_TOPICS, MutationReplay
from kquota_spark.model.replay.request_replay import RequestReplay

THROTTLED_FETCHES = (int(PointKind.THROTTLED_FETCH), int(PointKind.THROTTLED_SHARE_FETCH))
SURELY_BELOW = 1.000001
"""A rate this much below its limit is not above it, whatever the rounding of doubles."""
_CREATES = (PointKind.CREATE_TOPIC, PointKind.PERMISSIVE_CREATE_TOPIC)
_ADDS = (PointKind.CREATE_PARTITIONS, PointKind.PERMISSIVE_CREATE_PARTITIONS)
_DELETES = (PointKind.DELETE_TOPIC, PointKind.PERMISSIVE_DELETE_TOPIC)


class Judged(NamedTuple):
    """One request in one bucket under given quotas.

    `throttle_ms` is by replay; for a refused topic it is the time until the bucket is at 0 again. `at_most_ms` is the
    upper bound, different only for thread time. `client` is user and client id.
    """

    point: Point
    client: tuple[str, str]
    limit_per_s: float | None
    throttle_ms: int
    at_most_ms: int
    is_unknown: bool = False
    """Whether the amount is not in the log, so that another limit leaves the verdict open."""
    is_inferred: bool = False
    """Whether the throttle is the broker's own: of a throttled fetch, if no other quota can have throttled it."""


_Found = tuple[int, int, bool, bool]
"""The throttle, its upper bound (ms), whether they are unknown, and whether they are inferred."""


def judged(
    quota_type: QuotaType, of_bucket: Sequence[GovernedSecond], ring: RateConfig, *, is_recorded: bool
) -> list[Judged]:
    """Judge all requests of a bucket in the order in which the broker took them.

    Args:
        quota_type: the bucket's type.
        of_bucket: its requests by second and client, in any order.
        ring: settings of quota.window.*, or of controller.quota.window.* for controller mutations.
        is_recorded: the quotas are those under which the requests were recorded, so that answers show the tokens of a
            mutation bucket.
    """
    entries: list[tuple[Point, tuple[str, str], Governing]] = []
    for each in of_bucket:
        client, governed = (each.user, each.client_id), each.governing
        entries += [(point, client, governed) for point in each.points]
    entries.sort(key=itemgetter(0))
    points, governing = [entry[0] for entry in entries], [entry[2] for entry in entries]
    if quota_type is QuotaType.REQUEST:
        found = _of_thread_time(points, governing, ring)
    elif quota_type is QuotaType.CONTROLLER_MUTATION:
        verdicts = MutationReplay(ring).judge(points, governing) if is_recorded else ()
        found = [(each.throttle_ms, each.throttle_ms, False, False) for each in verdicts]
        found = found if is_recorded else _of_mutations(points, governing, ring)
    else:
        limits = [each[0] for each in governing]
        throttles = bandwidth_throttles(points, limits, ring)
        if quota_type is QuotaType.PRODUCE:  # no throttle is inferred: half the time
            return [
                _new_judged(Judged, (entry[0], entry[1], limit, ms, ms, False, False))
                for entry, limit, ms in zip(entries, limits, throttles, strict=True)
            ]
        found = [
            _inferred(point)
            if point[6] in THROTTLED_FETCHES  # quick, and false for most
            and is_inferred(point[6], each[0], has_request_quota=each.has_request_quota)
            else (ms, ms, False, False)
            for point, each, ms in zip(points, governing, throttles, strict=True)
        ]
    return [
        _new_judged(Judged, (point, client, each[0], *of_point))
        for (point, client, each), of_point in zip(entries, found, strict=True)
    ]


_new_judged = tuple.__new__  # three times as fast as the constructor, as in `replay`


def bandwidth_throttles(
    points: Sequence[Point], limits: Sequence[float | None], ring: RateConfig
) -> list[int]:
    """The throttle (ms) of each request of a bandwidth bucket by its amount; a throttled fetch has none.

    Args:
        points: the requests, in their order.
        limits: the limit on each, bytes per second; None for no limit.
        ring: the broker's sample ring.
    """
    if not any(limit is not None for limit in limits):
        return [0] * len(points)
    totals, windows_ms = SampleRing(ring).record_all(
        [point.amount for point in points], [point.record_time_ms for point in points]
    )
    return list(map(bandwidth_throttle_ms, limits, totals, windows_ms))


def bandwidth_throttle_ms(limit: float | None, total: int, window_ms: int) -> int:
    """The throttle (ms) for the amount in the window after a request."""
    if limit is None or total * 1_000 * SURELY_BELOW < limit * window_ms:
        return 0
    return max(throttle_time_ms(total, window_ms, limit), 0)


def is_inferred(kind: int, limit_per_s: float | None, *, has_request_quota: bool) -> bool:
    """Whether the throttle of a request of this kind is the broker's own, under this limit of bytes."""
    return kind in THROTTLED_FETCHES and limit_per_s is not None and not has_request_quota


def _inferred(point: Point) -> _Found:
    return point.observed_throttle_ms, point.observed_throttle_ms, False, True


def _of_thread_time(
    points: Sequence[Point], governing: Sequence[Governing], ring: RateConfig
) -> list[_Found]:
    """The throttles of a request bucket by the lower and by the upper bound of the thread time."""
    found = []
    for verdict in RequestReplay(ring).judge(points, governing):
        window_ms, limit = verdict.window_ms, verdict.governing.limit_per_s
        at_most = (verdict.rate_at_most_per_s or 0.0) * window_ms / 1_000
        at_most_ms = bounded_throttle_time_ms(at_most, window_ms, limit, ring.window_ms)
        found.append((verdict.throttle_ms, max(at_most_ms, verdict.throttle_ms), False, False))
    return found


def _of_mutations(points: Sequence[Point], governing: Sequence[Governing], ring: RateConfig) -> list[_Found]:
    """The throttles of a mutation bucket under tried quotas, see `MutationLoop`."""
    loop, found = MutationLoop(ring), list[_Found]()
    for point, each in zip(points, governing, strict=True):
        charged = loop.charge(point, each.limit_per_s)
        found.append((charged.throttle_ms, charged.throttle_ms, charged.is_unknown, False))
    return found


class Charged(NamedTuple):
    """A topic in a mutation bucket under tried quotas."""

    throttle_ms: int
    is_unknown: bool
    """Whether its charge is not in the log."""
    tokens: float
    """The tokens by which it is judged."""


MutationState = tuple[TokenState, dict[int, int]]
"""The tokens, and the partitions of topics by the hash of their names."""


class MutationLoop:
    """A mutation bucket in the open loop, continued from a `state`.

    A strict topic is refused and not charged below 0 tokens. A charge that the log does not contain counts as 1, so the
    throttles are lower bounds. It is unknown for a topic that the controller had refused, and for changes of topics
    that were created before.
    """

    __slots__ = ("_bucket", "_partitions")

    def __init__(self, config: RateConfig, state: MutationState | None = None) -> None:
        tokens, self._partitions = state or (None, {})
        self._bucket = TokenBucket(config, tokens)

    @property
    def state(self) -> MutationState:
        """The state from which another bucket can continue."""
        return self._bucket.state, self._partitions

    def charge(self, point: Point, limit: float | None) -> Charged:
        """Judge one topic, and charge it unless it is refused."""
        kind, charge, is_unknown = point.kind, *self._charge(point)
        is_permissive = PointKind.PERMISSIVE_CREATE_TOPIC <= kind <= PointKind.PERMISSIVE_DELETE_TOPIC
        tokens = self._bucket.record(charge if is_permissive else 0, point.record_time_ms, limit)
        if tokens < 0 and limit is not None:
            found = Charged(max(to_int32(wait_ms(tokens, limit)), 1), is_unknown=False, tokens=tokens)
            if not is_permissive:
                return found
        else:
            found = Charged(0, is_unknown and limit is not None, tokens)
        if not is_permissive:
            self._bucket.record(charge, point.record_time_ms, limit)
        if kind in _CREATES or kind in _ADDS:
            self._partitions[point.connection_hash] = point.amount
            if len(self._partitions) > MAX_TOPICS:
                del self._partitions[next(iter(self._partitions))]
        elif kind in _DELETES:
            self._partitions.pop(point.connection_hash, None)
        return found

    def _charge(self, point: Point) -> tuple[int, bool]:
        """The mutations of a topic as far as the log has them, and whether they may be more."""
        known = self._partitions.get(point.connection_hash)
        if point.kind in _CREATES:
            return point.amount, False
        if point.kind in _ADDS:
            return (1, True) if known is None else (max(point.amount - known, 0), False)
        if point.kind in _DELETES and known is not None:
            return known, False
        return 1, True
