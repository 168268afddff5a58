"""The replay of one bucket: the broker's verdict on every request, and how certain it is.

Requests are recorded in the order of their record times, which the log gives to about a millisecond. So three things
can differ from what happened inside the broker. All were seen on real brokers:

* A rate is so near the limit that a millisecond of window decides.
* Two requests of one millisecond, on two connections, were recorded in the other order.
* A sample opened or ended at another request, or at a scrape of JMX. This moves the window by up to the length of the
  sample while the sample exists.

A verdict that one of them could flip is uncertain. The third is found in two ways. The bucket is replayed in further
rings, which decide differently where the log leaves it open. And the throttles of earlier requests show the broker's
window (`windows_from_throttles`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import repeat
from typing import NamedTuple

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig, RingState, SampleRing
from kquota_spark.model.measure.throttle_time import rate_per_s, throttle_time_ms
from kquota_spark.model.replay.causes import (
    Cause,
    Governing,
    are_far_below,
    causes_of,
    mark_edges,
    mark_unsized,
    may_have_edge,
)
from kquota_spark.model.replay.perturbed_rings import (
    NO_RINGS,
    PerturbedRings,
    PerturbedState,
    places_after_gaps,
)
from kquota_spark.model.replay.windows_from_throttles import Measured, Sign, WindowsFromThrottles
from kquota_spark.model.replay.windows_from_throttles import State as WindowsState

State = tuple[int, RingState | None, PerturbedState | None, int, WindowsState | None]
_INFINITE = float("inf")
_FETCH = int(PointKind.FETCH)
_THROTTLED_FETCH, _SHARE_FETCH = int(PointKind.THROTTLED_FETCH), int(PointKind.SHARE_FETCH)
_THROTTLED_SHARE_FETCH = int(PointKind.THROTTLED_SHARE_FETCH)


class Outcome(Enum):
    """The worth of a verdict as evidence."""

    AGREES = "agrees"
    FALSE_POSITIVE = "false_positive"
    FALSE_NEGATIVE = "false_negative"
    UNCERTAIN = "uncertain"
    INFERRED = "inferred"
    EXCLUDED = "excluded"


class Verdict(NamedTuple):
    """One judged request. For an inferred one, `throttle_ms` is the broker's own, and the rate follows from it.

    Rates are in the unit of the limit: bytes, percent of a thread, or mutations, per second. `rate_at_most_per_s` is
    the upper bound if the rate is an estimate, as it always is for a request quota; otherwise it is None.
    """

    point: Point
    governing: Governing
    rate_per_s: float
    window_ms: int
    throttle_ms: int
    outcome: Outcome
    cause: Cause | None
    rate_at_most_per_s: float | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether replay and broker differ on throttled or not; False if the two cannot be compared."""
        if self.outcome in (Outcome.INFERRED, Outcome.EXCLUDED):
            return False
        return (self.throttle_ms > 0) != (self.point.observed_throttle_ms > 0)


class Quiet(NamedTuple):
    """Requests that agree with the broker and are certain: none is throttled, by the replay or in the log."""

    totals: Sequence[int]
    """The amount in the window after each request."""
    windows_ms: Sequence[int]


_NOTHING: State = (0, None, None, 0, None)


class BucketReplay:
    """State of one bucket of one broker: the broker's ring, and the rings that show which verdicts are certain.

    It continues from a `state`. Unless it `learns`, it uses no throttle to decide which verdicts are certain.
    """

    __slots__ = ("_learns", "_perturbed", "_ring", "_unsized_ms", "_windows", "folded_through_ms")

    def __init__(self, config: RateConfig, state: State | None = None, *, learns: bool = True) -> None:
        self._learns = learns
        self.folded_through_ms, ring, perturbed, self._unsized_ms, windows = state or _NOTHING
        self._ring, self._perturbed = SampleRing(config, ring), PerturbedRings(config, perturbed)
        # Most buckets are never throttled, so nothing shows the broker's windows.
        self._windows = WindowsFromThrottles(config, windows) if windows else None

    @property
    def state(self) -> State:
        """The state from which another replay can continue."""
        return (
            self.folded_through_ms, self._ring.state, self._perturbed.state, self._unsized_ms,
            self._windows.state if self._windows else None,
        )  # fmt: skip

    @property
    def memory(self) -> object:
        """Everything that the replay remembers, in a form that can be compared."""
        rings = (ring.memory for ring in (self._ring, *self._perturbed.recorded()))
        return [self._unsized_ms, self._windows.state if self._windows else None, *rings]

    @property
    def forget_at_ms(self) -> int:
        """The time (epoch ms) from which a new replay gives the same verdicts."""
        return self.folded_through_ms + self._ring.config.horizon_ms

    def judge(self, points: Sequence[Point], governing: Sequence[Governing]) -> list[Verdict]:
        """Record and judge the requests of whole seconds, in order.

        Args:
            points: requests in `Point` order, none before `folded_through_ms`, with all requests of each second.
            governing: the limit of each request.
        """
        found = self.judge_quickly(points, governing)
        if isinstance(found, Quiet):
            return list(map(_verdict, points, governing, *found, repeat(None)))
        return found

    def judge_alike(self, points: Sequence[Point], governing: Governing) -> list[Verdict] | Quiet:
        """Do `judge_quickly` for requests under the same limit; if all are quiet, none is judged on its own."""
        limit, has_request_quota = governing[0], governing[3]
        may_differ = self._windows or self._unsized_ms
        if has_request_quota or may_differ or may_have_edge(governing, points[0][0], points[-1][0]):
            return self.judge_quickly(points, [governing] * len(points))
        columns = tuple(zip(*points, strict=True))
        times_ms, _, _, _, amounts, throttles_ms, kinds, _ = columns
        measured = totals, _ = self._ring.record_all(amounts, times_ms)
        if max(throttles_ms) == 0 and max(kinds) <= _FETCH:
            per_ms = (limit or _INFINITE) / 1_000.0
            is_far = are_far_below(totals, amounts, per_ms, self._ring.config)
            if is_far and self._perturbed.wait(amounts, times_ms, per_ms):
                self.folded_through_ms = times_ms[-1] // 1_000 * 1_000 + 1_000
                return tuple.__new__(Quiet, measured)
        return self._measured(points, [governing] * len(points), columns, measured)

    def judge_quickly(self, points: Sequence[Point], governing: Sequence[Governing]) -> list[Verdict] | Quiet:
        """Do the same as `judge`; if all requests are quiet, return that fact without a verdict for each.

        It is written for speed: it handles a list at a time, because calls cost more here than the arithmetic.
        """
        if not any(each[4] for each in governing):
            return self._judge(points, governing)
        verdicts: list[Verdict] = []
        broker, start = self._ring, 0
        moments = [(point.record_time_ms, each.gaps) for point, each in zip(points, governing, strict=True)]
        places = [*places_after_gaps(moments, broker.last_ms, broker.config.horizon_ms)]
        for place in (*places, len(points)):
            part = points[start:place], governing[start:place]
            found = self._judge(*part)
            verdicts += map(_verdict, *part, *found, repeat(None)) if isinstance(found, Quiet) else found
            if place < len(points):
                self._perturbed.begin(points[place].record_time_ms)
            start = place
        return verdicts

    def _judge(self, points: Sequence[Point], governing: Sequence[Governing]) -> list[Verdict] | Quiet:
        if not points:
            return []
        columns = tuple(zip(*points, strict=True))
        return self._measured(points, governing, columns, self._ring.record_all(columns[4], columns[0]))

    def _measured(
        self,
        points: Sequence[Point],
        governing: Sequence[Governing],
        columns: Sequence[Sequence[int]],
        measured: tuple[list[int], list[int]],
    ) -> list[Verdict] | Quiet:
        """Judge requests that the broker's ring has recorded; `columns` are their fields, `measured` its results."""
        times_ms, _, _, _, amounts, throttles_ms, kinds, _ = columns
        totals, windows_ms = measured
        self.folded_through_ms = times_ms[-1] // 1_000 * 1_000 + 1_000
        allowed = [(each[0] or _INFINITE) / 1_000.0 for each in governing]
        if are_far_below(totals, amounts, min(allowed), self._ring.config):
            is_over, causes = [False] * len(points), list[Cause | None]((None,) * len(points))
        else:
            is_over = _are_over(totals, allowed, windows_ms)
            causes = causes_of(points, allowed, totals, windows_ms, self._ring.config)
        is_quiet = True not in is_over and not self._windows and max(throttles_ms) == 0
        # It must make no difference whether the other rings wait, also not for what throttles have shown of them.
        if is_quiet and self._perturbed.wait(amounts, times_ms, min(allowed)):
            is_alike = max(kinds) <= _FETCH and True not in [each[3] for each in governing]
        else:
            is_alike = False
            own = totals, windows_ms
            others = self._perturbed.record_all(amounts, times_ms)
            are_over = [_are_over(other[0], allowed, other[1]) for other in others if other != own]
            if not self._learns:
                for is_other_over in are_over:
                    _mark_samples(causes, is_over, is_other_over)
            elif not is_quiet or any(True in is_other_over for is_other_over in are_over):
                self._mark_windows(causes, points, governing, allowed, [own, *others])
        mark_edges(causes, points, governing)
        if self._unsized_ms or max(kinds) >= _SHARE_FETCH:
            horizon_ms = self._ring.config.horizon_ms
            unsized_ms = mark_unsized(causes, points, allowed, self._unsized_ms, horizon_ms)
            self._unsized_ms = unsized_ms if unsized_ms + horizon_ms > self.folded_through_ms else 0
        if is_alike and not any(causes):
            return Quiet(totals, windows_ms)
        return list(map(_verdict, points, governing, totals, windows_ms, causes))

    def _mark_windows(
        self,
        causes: list[Cause | None],
        points: Sequence[Point],
        governing: Sequence[Governing],
        allowed: Sequence[float],
        rings: Sequence[Measured],
    ) -> None:
        """Mark verdicts that the rings leave open, given the earlier throttles; clear margins that these confirm."""
        if self._windows is None:
            self._windows = WindowsFromThrottles(self._ring.config)
        signs = self._windows.signs(points, allowed, [not each[3] for each in governing], rings)
        for place, sign in enumerate(signs):
            if sign is Sign.CONFIRMED:
                if causes[place] is Cause.MARGIN:
                    causes[place] = None
            elif sign is not None and causes[place] is None:
                causes[place] = Cause.SAMPLE if sign is Sign.RINGS_DIFFER else Cause.LOG_TIMES
        self._windows.forget(self.folded_through_ms)


def first_request(config: RateConfig, point: Point, governing: Governing) -> tuple[State, Quiet] | None:
    """The state of a bucket after its first request, and its measure; None unless the request is certainly quiet.

    The result equals that of `BucketReplay(config).judge_alike([point], governing)`, without its objects. With 100,000
    clients, most requests are the first that a ring remembers.
    """
    time_ms, _, _, _, amount, throttle_ms, kind, _ = point
    if throttle_ms or kind > _FETCH or governing[3] or may_have_edge(governing, time_ms, time_ms):
        return None
    totals = [amount]
    if not are_far_below(totals, totals, (governing[0] or _INFINITE) / 1_000.0, config):
        return None
    folded_through_ms = time_ms // 1_000 * 1_000 + 1_000
    ring: RingState = 0, [amount], [time_ms], [time_ms]
    state: State = folded_through_ms, ring, (NO_RINGS, [amount], [time_ms]), 0, None
    return state, tuple.__new__(Quiet, (totals, [config.first_window_ms]))


def _are_over(totals: Sequence[int], allowed: Sequence[float], windows_ms: Sequence[int]) -> list[bool]:
    """Whether each total is above the allowed amount (bytes per ms) for its window."""
    return [
        total > allowed_per_ms * window_ms
        for total, allowed_per_ms, window_ms in zip(totals, allowed, windows_ms, strict=True)
    ]


def _mark_samples(causes: list[Cause | None], is_over: Sequence[bool], is_other_over: Sequence[bool]) -> None:
    """Mark requests for which another ring gives the other verdict."""
    if is_other_over != is_over:
        for place, over in enumerate(is_over):
            if over is not is_other_over[place] and causes[place] is None:
                causes[place] = Cause.SAMPLE


def _verdict(point: Point, governing: Governing, total: int, window_ms: int, cause: Cause | None) -> Verdict:
    limit = governing[0]
    rate = rate_per_s(total, window_ms)
    throttle_ms = 0
    if limit is not None and rate > limit:
        throttle_ms = max(throttle_time_ms(total, window_ms, limit), 0)
    observed_ms, kind = point[5:7]
    if governing[3]:  # has_request_quota
        outcome, cause = Outcome.EXCLUDED, None
    elif kind in (_THROTTLED_FETCH, _THROTTLED_SHARE_FETCH):
        is_beside_unsized = cause is Cause.UNSIZED
        outcome, cause = (Outcome.UNCERTAIN, cause) if is_beside_unsized else (Outcome.INFERRED, None)
        if limit is not None:
            # The broker un-recorded the bytes. Only the throttle in its log shows how far above the limit it was.
            throttle_ms = observed_ms
            rate = limit * (1.0 + throttle_ms / window_ms)
    else:
        is_right = (throttle_ms > 0) is (observed_ms > 0)
        if cause is not None:
            outcome = Outcome.UNCERTAIN
        elif is_right:
            outcome = Outcome.AGREES
        else:
            outcome = Outcome.FALSE_POSITIVE if throttle_ms > 0 else Outcome.FALSE_NEGATIVE
    # Three times as fast as the constructor, and this runs once per request.
    return tuple.__new__(Verdict, (point, governing, rate, window_ms, throttle_ms, outcome, cause, None))
