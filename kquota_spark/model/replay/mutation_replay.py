"""The replay of one controller mutation bucket: accepted or refused, topic by topic (KIP-599).

The log contains the number of partitions with which a topic was created. It does not contain how many partitions a
deleted topic had, or a topic before partitions were added. That is known only if the topic was created or enlarged in
the same bucket before. Otherwise the bucket's tokens lie between two bounds. Later answers, and the throttle times in
them, narrow the bounds again. The answer to a request is never used for its own verdict.

The controller charges a request at some time between its beginning and its end. A verdict that depends on this time is
uncertain.

The replay leaves out requests that only validate, and topics that are answered with another error than the quota's: the
controller finds such errors before it charges. A new controller begins with full buckets, and no log shows it.

Brokers drop a bucket from which nothing was taken for an hour. It is then full again, however far below 0 it was.
Refusals take nothing. Between the hour and the next sweep the tokens lie between two bounds as well.

Source: Kafka's `ControllerMutationQuotaManager`, `ZkAdminManager`, `ReplicationControlManager`, `Sensor.hasExpired`,
`Metrics.ExpireSensorTask`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.measure.throttle_time import rate_per_s, to_int32
from kquota_spark.model.measure.token_bucket import TokenBucket, TokenState, wait_ms
from kquota_spark.model.replay.causes import Cause, Governing, edge_of
from kquota_spark.model.replay.replay import Outcome, Verdict
from kquota_spark.model.replay.windows_from_throttles import MARGIN_MS

FORGET_AFTER_MS = 24 * 3_600_000
"""Time (ms) without a mutation after which the topics are forgotten; the bucket is full long before."""
EXPIRES_AFTER_MS = 3_600_000
"""Time (ms) without a recording after which brokers drop a sensor."""
SWEPT_EVERY_MS = 30_000
"""Interval (ms) at which brokers check for such sensors."""
MAX_TOPICS = 1_000
"""Maximum number of topics remembered per bucket, the latest ones."""

State = tuple[int, int, TokenState, TokenState, dict[int, int], tuple[int, int]]

_CREATES = (PointKind.CREATE_TOPIC, PointKind.PERMISSIVE_CREATE_TOPIC)
_ADDS = (PointKind.CREATE_PARTITIONS, PointKind.PERMISSIVE_CREATE_PARTITIONS)


class _Charge(NamedTuple):
    """The fewest and the most mutations that can have been charged for a topic."""

    least: float
    most: float


class MutationReplay:
    """State of one bucket, continued from a `state`; the settings are those of controller.quota.window.*.

    `_most` has the tokens if each unknown charge was the smallest possible, `_least` if it was the largest. The last
    charge was made between the two times of `_charged_ms`, which are 0 before the first.
    """

    __slots__ = (
        "_capacity_ms", "_charged_ms", "_config", "_last_ms", "_least", "_most", "_partitions", "folded_through_ms",
    )  # fmt: skip

    def __init__(self, config: RateConfig, state: State | None = None) -> None:
        self.folded_through_ms, self._last_ms, most, least, partitions, charged_ms = state or (
            0, 0, None, None, {}, (0, 0)
        )  # fmt: skip
        self._charged_ms = charged_ms[0], charged_ms[1]
        self._config = config
        self._capacity_ms = config.num_samples * config.window_ms
        self._most, self._least = TokenBucket(config, most), TokenBucket(config, least)
        self._partitions = partitions

    @property
    def state(self) -> State:
        """The state from which another replay can continue."""
        return (
            self.folded_through_ms, self._last_ms, self._most.state, self._least.state, self._partitions,
            self._charged_ms,
        )  # fmt: skip

    @property
    def memory(self) -> object:
        """Everything that the replay remembers, in a form that can be compared."""
        return self.state[1:]

    @property
    def forget_at_ms(self) -> int:
        """The time (epoch ms) from which a new replay gives the same verdicts."""
        return self._last_ms + FORGET_AFTER_MS

    def judge(self, points: Sequence[Point], governing: Sequence[Governing]) -> list[Verdict]:
        """Judge and charge the topics of whole seconds, in order; see `BucketReplay.judge`."""
        if points:
            self.folded_through_ms = points[-1].record_time_ms // 1_000 * 1_000 + 1_000
        in_order = sorted(range(len(points)), key=lambda place: _order(points[place]))
        verdicts = {place: self._judged(points[place], governing[place]) for place in in_order}
        return [verdicts[place] for place in range(len(points))]

    def _judged(self, point: Point, governing: Governing) -> Verdict:
        time_ms, limit = point.record_time_ms, governing.limit_per_s
        if time_ms >= self.forget_at_ms:
            self._partitions = {}
        self._last_ms = time_ms
        is_idle = self._drop_idle(point)
        charge = self._charge_of(point)
        is_permissive = PointKind.PERMISSIVE_CREATE_TOPIC <= point.kind <= PointKind.PERMISSIVE_DELETE_TOPIC
        is_unsized = point.kind == PointKind.UNSIZED_MUTATION
        if is_permissive:
            most = self._most.record(charge.least, time_ms, limit)
            least = self._least.record(charge.most, time_ms, limit)
        else:
            most, least = self._most.tokens(time_ms, limit), self._least.tokens(time_ms, limit)
            if most != least and not is_unsized:
                self._learn(point, governing, most, least)
            self._most.record(charge.least, time_ms, limit)
            self._least.record(charge.most, time_ms, limit)
        if point.kind != PointKind.REFUSED_MUTATION:
            from_ms = self._charged_ms[0] if is_unsized else time_ms
            self._charged_ms = from_ms, max(time_ms, point.log_time_ms)
        cause = _cause(point, governing, most, least)
        if is_idle and cause is Cause.PARTITIONS:
            cause = Cause.IDLE
        if is_unsized and governing.limit_per_s is not None:
            cause = cause or Cause.UNSIZED
        return self._verdict(point, governing, most, cause, is_permissive=is_permissive)

    def _drop_idle(self, point: Point) -> bool:
        """Fill the bucket if the broker has dropped it; return whether it may have, which leaves two bounds."""
        from_ms, to_ms = self._charged_ms
        if point.record_time_ms > to_ms + EXPIRES_AFTER_MS + SWEPT_EVERY_MS:
            self._most, self._least = TokenBucket(self._config), TokenBucket(self._config)
        elif point.log_time_ms > from_ms + EXPIRES_AFTER_MS:
            self._most = TokenBucket(self._config)
            return True
        return False

    def _verdict(
        self, point: Point, governing: Governing, tokens: float, cause: Cause | None, *, is_permissive: bool
    ) -> Verdict:
        limit, throttle_ms, rate = governing.limit_per_s, 0, 0.0
        if limit is not None:
            rate = rate_per_s(limit * self._capacity_ms / 1_000 - tokens, self._capacity_ms)
            if tokens < 0:
                throttle_ms = max(to_int32(wait_ms(tokens, limit)), 1)
        is_held = (
            point.observed_throttle_ms > 0 if is_permissive else point.kind == PointKind.REFUSED_MUTATION
        )
        if is_permissive and governing.has_request_quota:
            outcome, cause = Outcome.EXCLUDED, None
        elif cause is not None:
            outcome = Outcome.UNCERTAIN
        elif (throttle_ms > 0) is is_held:
            outcome = Outcome.AGREES
        else:
            outcome = Outcome.FALSE_POSITIVE if throttle_ms > 0 else Outcome.FALSE_NEGATIVE
        return Verdict(point, governing, rate, self._capacity_ms, throttle_ms, outcome, cause)

    def _charge_of(self, point: Point) -> _Charge:
        """The mutations that were charged for the topic; the replay remembers its partitions."""
        if point.kind == PointKind.REFUSED_MUTATION:
            return _Charge(0, 0)
        if point.kind == PointKind.UNSIZED_MUTATION:
            return _Charge(0, math.inf)
        known = self._partitions.pop(point.connection_hash, None)
        if point.kind in _CREATES or point.kind in _ADDS:
            self._partitions[point.connection_hash] = point.amount
            if len(self._partitions) > MAX_TOPICS:
                del self._partitions[next(iter(self._partitions))]
            if point.kind in _CREATES:
                return _Charge(point.amount, point.amount)
            return _Charge(1, point.amount - 1) if known is None else _Charge(*2 * (point.amount - known,))
        return _Charge(1, math.inf) if known is None else _Charge(known, known)

    def _learn(self, point: Point, governing: Governing, most: float, least: float) -> None:
        """Narrow the bounds by the answer: it was charged at 0 tokens or more, or refused so far below 0."""
        time_ms, limit = point.record_time_ms, governing.limit_per_s or 0.0
        came_back = limit * (point.log_time_ms - time_ms + 1) / 1_000
        if point.kind != PointKind.REFUSED_MUTATION:
            self._least.settle(min(max(least, -came_back), most), time_ms)
            return
        # If there is a request quota too, the throttle in the log may be that quota's, which is longer.
        missing = 0.0 if governing.has_request_quota else limit * point.observed_throttle_ms / 1_000
        low = -missing - came_back if missing else -math.inf
        high = -max(missing - limit / 1_000, 0.0)
        self._most.settle(max(min(most, high), low), time_ms)
        self._least.settle(min(max(least, low), high), time_ms)


def _order(point: Point) -> tuple[int, int, int, bool]:
    """The sort key of a topic: refused topics of a request come last, as none is charged once tokens are below 0."""
    is_refused = point.kind == PointKind.REFUSED_MUTATION
    return point.record_time_ms, point.log_time_ms, point.correlation_id, is_refused


def _cause(point: Point, governing: Governing, most: float, least: float) -> Cause | None:
    """Why the verdict could be the other one: tokens are refilled while the controller handles the request."""
    limit = governing.limit_per_s
    if edge := edge_of(governing, point.record_time_ms):
        return edge
    if not limit:
        return None
    lowest = least - limit * MARGIN_MS / 1_000
    highest = most + limit * max(point.log_time_ms - point.record_time_ms, MARGIN_MS) / 1_000
    if lowest >= 0 or highest < 0:
        return None
    return Cause.MARGIN if most == least else Cause.PARTITIONS
