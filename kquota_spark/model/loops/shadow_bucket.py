"""One bucket under shadow quotas: recorded requests at their recorded times, second by second, from a kept state.

The arithmetic is that of the open loop. There is one plain ring and no perturbed one, because no broker has answered
under these quotas. Instead, a second is near if a clock error of 2 ms could flip one of its verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from kquota_spark.model.loops.open_loop import (
    SURELY_BELOW,
    THROTTLED_FETCHES,
    MutationLoop,
    bandwidth_throttle_ms,
    is_inferred,
)
from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig, SampleRing
from kquota_spark.model.measure.throttle_time import bounded_throttle_time_ms, rate_per_s
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.request_replay import US_PER_PERCENT
from kquota_spark.model.replay.windows_from_throttles import MARGIN_MS


class ShadowLimit(NamedTuple):
    """The limit that shadow quotas give to a request; None is no limit."""

    limit_per_s: float | None
    level: int | None
    rule: str | None
    has_request_quota: bool
    is_enforced: bool
    """Whether the enforced quotas give the same limit."""
    inferred_limit: float | None = None
    """The enforced limit, if a throttled fetch under it has the throttle of its log."""


class ShadowPart(NamedTuple):
    """Requests of one second in one bucket under one shadow limit."""

    points: Sequence[Point]
    limit: ShadowLimit


class ShadowSecond(NamedTuple):
    """One second of one bucket under shadow quotas; the rate and the limit are those of the request nearest to it."""

    second_ms: int
    limit: ShadowLimit | None
    """None if no request of the second counts in the bucket."""
    rate_per_s: float = 0.0
    requests: int = 0
    throttle_ms: int = 0
    """The longest throttle."""
    throttled_requests: int = 0
    total_throttle_ms: int = 0
    unknown_requests: int = 0
    """Throttled fetches and mutations that have no verdict: their amount is not in the log."""
    is_near: bool = False
    """Whether a clock error of 2 ms could flip a verdict."""

    @property
    def limit_per_s(self) -> float | None:
        """The limit of the second."""
        return None if self.limit is None else self.limit.limit_per_s


class ShadowVerdict(NamedTuple):
    """One request under shadow quotas."""

    rate_per_s: float
    throttle_ms: int
    is_unknown: bool
    is_near: bool


class ShadowReplay:
    """State of one bucket of one broker under shadow quotas, continued from a `state`.

    Args:
        quota_type: type of the bucket.
        config: settings of quota.window.*, or of controller.quota.window.* for controller mutations.
        state: `state` of another replay; of a sampled rate it is the state of a `SampleRing`.
    """

    __slots__ = ("_config", "_loop", "_quota_type", "_ring")

    def __init__(self, quota_type: QuotaType, config: RateConfig, state: Any = None) -> None:
        self._quota_type, self._config = quota_type, config
        is_mutation = quota_type is QuotaType.CONTROLLER_MUTATION
        self._loop = MutationLoop(config, state) if is_mutation else None
        self._ring = SampleRing(config, None if is_mutation else state)

    @property
    def state(self) -> Any:
        """The state from which another replay can continue."""
        return self._ring.state if self._loop is None else self._loop.state

    def judge(self, second_ms: int, parts: Sequence[ShadowPart]) -> ShadowSecond:
        """Record and judge all requests of one second.

        Args:
            second_ms: start of the second, epoch ms; it is not older than that of an earlier call.
            parts: its requests; at least one part with a request.
        """
        entries = sorted((point, index) for index, part in enumerate(parts) for point in part.points)
        points, limits = (
            [point for point, _ in entries],
            [parts[index].limit for _, index in entries],
        )
        if self._loop is not None:
            found = [self._mutation(self._loop, *each) for each in zip(points, limits, strict=True)]
            return summed_second(second_ms, limits, found)
        columns = tuple(zip(*points, strict=True))
        totals, windows_ms = self._ring.record_all(columns[4], columns[0])
        if self._are_surely_below(limits, totals, windows_ms, columns[6]):
            rate = max(map(rate_per_s, totals, windows_ms)) / self._scale
            return ShadowSecond(second_ms, limits[0], rate, len(points))
        judged = partial(sampled_verdict, self._quota_type, self._config)
        return summed_second(second_ms, limits, list(map(judged, points, limits, totals, windows_ms)))

    @property
    def _scale(self) -> int:
        """Recorded amount per unit of the limit."""
        return scale_of(self._quota_type)

    def _are_surely_below(
        self,
        limits: Sequence[ShadowLimit],
        totals: Sequence[int],
        windows_ms: Sequence[int],
        kinds: Sequence[int],
    ) -> bool:
        """Whether all requests have one limit, are not near it, and have a known amount."""
        first = limits[0]
        if any(each.limit_per_s != first.limit_per_s for each in limits):
            return False
        if not set(THROTTLED_FETCHES).isdisjoint(kinds):
            return False
        limit = first.limit_per_s
        if limit is None:
            return True
        allowed = limit * self._scale / 1_000 * (min(windows_ms) - MARGIN_MS)
        return max(totals) * SURELY_BELOW < allowed

    def _mutation(self, loop: MutationLoop, point: Point, shadow: ShadowLimit) -> ShadowVerdict:
        limit = shadow.limit_per_s
        charged = loop.charge(point, limit)
        if limit is None:
            return ShadowVerdict(0.0, 0, is_unknown=False, is_near=False)
        capacity_ms = self._config.num_samples * self._config.window_ms
        rate = rate_per_s(limit * capacity_ms / 1_000 - charged.tokens, capacity_ms)
        is_near = abs(charged.tokens) <= MARGIN_MS * limit / 1_000
        return ShadowVerdict(rate, charged.throttle_ms, charged.is_unknown, is_near)


def scale_of(quota_type: QuotaType) -> int:
    """Recorded amount per unit of the limit."""
    return US_PER_PERCENT if quota_type is QuotaType.REQUEST else 1


def sampled_verdict(
    quota_type: QuotaType, config: RateConfig, point: Point, shadow: ShadowLimit, total: int, window_ms: int
) -> ShadowVerdict:
    """Judge one request of a sampled rate.

    Args:
        quota_type: type of the bucket; not controller mutations.
        config: settings of quota.window.*.
        point: the request.
        shadow: its limit.
        total: recorded amount in the window after it.
        window_ms: length of the window, ms.
    """
    scale = scale_of(quota_type)
    limit, rate = shadow.limit_per_s, rate_per_s(total / scale, window_ms)
    if limit is None:
        return ShadowVerdict(rate, 0, is_unknown=False, is_near=False)
    if quota_type is QuotaType.REQUEST:
        cap_ms = config.window_ms
        throttle_ms = max(bounded_throttle_time_ms(total / scale, window_ms, limit, cap_ms), 0)
    elif is_inferred(point.kind, limit, has_request_quota=shadow.has_request_quota):
        if shadow.inferred_limit not in (None, limit):
            return ShadowVerdict(rate, 0, is_unknown=True, is_near=False)
        throttle_ms = point.observed_throttle_ms
        inferred = limit * (1.0 + throttle_ms / window_ms)
        return ShadowVerdict(inferred, throttle_ms, is_unknown=False, is_near=False)
    else:
        is_unknown = point.kind in THROTTLED_FETCHES and shadow.inferred_limit not in (None, limit)
        if is_unknown:
            return ShadowVerdict(rate, 0, is_unknown=True, is_near=False)
        throttle_ms = bandwidth_throttle_ms(limit, total, window_ms)
    per_ms = limit * scale / 1_000
    is_near = abs(total - per_ms * window_ms) <= MARGIN_MS * per_ms
    return ShadowVerdict(rate, throttle_ms, is_unknown=False, is_near=is_near)


def summed_second(
    second_ms: int, limits: Sequence[ShadowLimit], found: Sequence[ShadowVerdict]
) -> ShadowSecond:
    """The sums of a second; rate and limit are those of the request with the largest share of its limit."""

    def share(place: int) -> tuple[float, float]:
        limit, rate = limits[place].limit_per_s, found[place].rate_per_s
        return (rate / limit if limit else 0.0), rate

    worst = max(range(len(found)), key=share)
    throttles_ms = [each.throttle_ms for each in found if each.throttle_ms > 0]
    return ShadowSecond(
        second_ms, limits[worst], found[worst].rate_per_s, len(found), max(throttles_ms, default=0),
        len(throttles_ms), sum(throttles_ms), sum(each.is_unknown for each in found),
        is_near=any(each.is_near for each in found),
    )  # fmt: skip
