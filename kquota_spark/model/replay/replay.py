"""The replay of one bucket: every request gets the verdict that the broker gave, and says how sure it is.

Requests are recorded in the order of their record times, which the log gives to about a millisecond. Three
things can therefore differ from what happened inside the broker (kinds seen on real brokers): a rate so near
the limit that a millisecond of window decides; two requests of one millisecond, on two connections, taken in the
other order; and a sample that opened or ended at another request, or at a scrape of JMX, which moves the window by
up to its length while the sample lives. A verdict that one of them could flip is uncertain. The third is found by
replaying the bucket in further rings that decide otherwise where the log leaves it open, and by what the throttles of
earlier requests tell of the broker's window (`told_windows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import repeat
from typing import NamedTuple

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig, RingState, SampleRing
from kquota_spark.model.measure.throttle_time import rate_per_s, throttle_time_ms
from kquota_spark.model.replay.shaken_ring import ShakenRings, ShakenState, places_after_gaps
from kquota_spark.model.replay.told_windows import MARGIN_MS, Measured, Sign, ToldWindows
from kquota_spark.model.replay.told_windows import State as ToldState

State = tuple[int, RingState | None, ShakenState | None, int, ToldState | None]
RULE_EDGE_MS = 100
"""Brokers act on an edit within about this long of the moment that the rules table gives."""

_INFINITE = float("inf")
_FETCH = int(PointKind.FETCH)
_THROTTLED_FETCH, _SHARE_FETCH = int(PointKind.THROTTLED_FETCH), int(PointKind.SHARE_FETCH)
_THROTTLED_SHARE_FETCH = int(PointKind.THROTTLED_SHARE_FETCH)


class Outcome(Enum):
    """What a verdict is worth as evidence."""

    AGREES = "agrees"
    FALSE_POSITIVE = "false_positive"
    FALSE_NEGATIVE = "false_negative"
    UNCERTAIN = "uncertain"
    INFERRED = "inferred"
    EXCLUDED = "excluded"


class Cause(Enum):
    """Why a verdict is uncertain."""

    MARGIN = "rate within 2 ms of the limit"
    ORDER = "another request within 1 ms may have been recorded first"
    SAMPLE = "a sample may have opened or ended at another moment"
    LOG_TIMES = "the broker's throttles show another window than the times of the log"
    RULE_EDGE = "the quota changed within 100 ms or the second"
    THREAD_TIME = "the time on network threads is not in the log"
    IDLE = "the broker drops a bucket that was idle for an hour, at a moment that is not in the log"
    PARTITIONS = "the partitions of a topic deleted or enlarged before are not in the log"
    UNSIZED = "a request came shortly before whose size is not in the log"
    GAP = "lines of the broker's log are missing here or shortly before"


class Governing(NamedTuple):
    """What limits a request: the limit (None: nothing), and the stretch of time in which it holds.

    `has_request_quota` says that a request_percentage covers the client too: the throttle that the broker
    logs is then the larger of two, so the bandwidth verdict cannot be compared with it. Where the request quota
    itself is judged, it says that another quota may cover the client.

    `gaps` are stretches of time (epoch ms, the end exclusive) for which the log has not all that a ring remembers.
    """

    limit_per_s: float | None
    valid_from_ms: int = 0
    valid_to_ms: int | None = None
    has_request_quota: bool = False
    gaps: tuple[tuple[int, int], ...] = ()


class Verdict(NamedTuple):
    """One request judged. `throttle_ms` of an inferred one is the broker's own, as its rate is.

    Rates are in the unit of the limit: bytes, percent of a thread, or mutations a second. `rate_at_most_per_s` is
    the upper bound where the rate is an estimate, which a request quota's always is; None elsewhere.
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
        """Whether replay and broker differ on throttled or not; False where the two cannot be compared."""
        if self.outcome in (Outcome.INFERRED, Outcome.EXCLUDED):
            return False
        return (self.throttle_ms > 0) != (self.point.observed_throttle_ms > 0)


class Quiet(NamedTuple):
    """Requests that agree with the broker and are certain: nothing is throttled, by the replay or by the log."""

    totals: Sequence[int]
    """After each request the amount in the window."""
    windows_ms: Sequence[int]


class BucketReplay:
    """State of one bucket of one broker: the broker's ring, and those that tell what is certain.

    It goes on from a `state`. Unless it `learns`, it looks at no throttle to tell what is certain.
    """

    __slots__ = ("_learns", "_ring", "_shaken", "_told", "_unsized_ms", "folded_through_ms")

    def __init__(self, config: RateConfig, state: State | None = None, *, learns: bool = True) -> None:
        self._learns = learns
        self.folded_through_ms, ring, shaken, self._unsized_ms, told = state or (0, None, None, 0, None)
        self._ring, self._shaken = SampleRing(config, ring), ShakenRings(config, shaken)
        self._told = ToldWindows(config, told)

    @property
    def state(self) -> State:
        """What another replay needs to go on from here."""
        return (
            self.folded_through_ms, self._ring.state, self._shaken.state, self._unsized_ms, self._told.state
        )  # fmt: skip

    @property
    def memory(self) -> object:
        """All that is known of the past, in a form that can be compared."""
        rings = (ring.memory for ring in (self._ring, *self._shaken.recorded()))
        return [self._unsized_ms, self._told.state, *rings]

    @property
    def forget_at_ms(self) -> int:
        """From when on a new replay gives the same verdicts."""
        return self.folded_through_ms + self._ring.config.horizon_ms

    def judge(self, points: Sequence[Point], governing: Sequence[Governing]) -> list[Verdict]:
        """Record and judge the requests of whole seconds, in order.

        Args:
            points: requests in `Point` order, none before `folded_through_ms`, all there are of each second.
            governing: what governs each of them.
        """
        found = self.judge_quickly(points, governing)
        if isinstance(found, Quiet):
            return list(map(_verdict, points, governing, *found, repeat(None)))
        return found

    def judge_quickly(self, points: Sequence[Point], governing: Sequence[Governing]) -> list[Verdict] | Quiet:
        """The same; where all requests are quiet, it says so without a verdict for each.

        Written for speed: a list at a time, because calls cost more here than the arithmetic.
        """
        for each in governing:
            if each[4]:
                break
        else:
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
                self._shaken.begin(points[place].record_time_ms)
            start = place
        return verdicts

    def _judge(self, points: Sequence[Point], governing: Sequence[Governing]) -> list[Verdict] | Quiet:
        if not points:
            return []
        self.folded_through_ms = points[-1][0] // 1_000 * 1_000 + 1_000
        times_ms, _, _, _, amounts, throttles_ms, kinds, _ = zip(*points, strict=True)
        allowed = [(each[0] or _INFINITE) / 1_000.0 for each in governing]
        totals, windows_ms = self._ring.record_all(amounts, times_ms)
        if _are_far_below(totals, amounts, min(allowed), self._ring.config):
            is_over, causes = [False] * len(points), list[Cause | None]((None,) * len(points))
        else:
            is_over = _are_over(totals, allowed, windows_ms)
            causes = _causes(points, allowed, totals, windows_ms, self._ring.config)
        is_quiet = True not in is_over and not self._told and max(throttles_ms) == 0
        # Whether the other rings wait must change nothing: not what is told of them either.
        if is_quiet and self._shaken.wait(amounts, times_ms, min(allowed)):
            is_alike = max(kinds) <= _FETCH and True not in [each[3] for each in governing]
        else:
            is_alike = False
            own = totals, windows_ms
            others = self._shaken.record_all(amounts, times_ms)
            are_over = [_are_over(other[0], allowed, other[1]) for other in others if other != own]
            if not self._learns:
                for is_other_over in are_over:
                    _mark_samples(causes, is_over, is_other_over)
            elif not is_quiet or any(True in is_other_over for is_other_over in are_over):
                self._mark_told(causes, points, governing, allowed, [own, *others])
        _mark_edges(causes, points, governing)
        if self._unsized_ms or max(kinds) >= _SHARE_FETCH:
            horizon_ms = self._ring.config.horizon_ms
            unsized_ms = _mark_unsized(causes, points, allowed, self._unsized_ms, horizon_ms)
            self._unsized_ms = unsized_ms if unsized_ms + horizon_ms > self.folded_through_ms else 0
        if is_alike and not any(causes):
            return Quiet(totals, windows_ms)
        return list(map(_verdict, points, governing, totals, windows_ms, causes))

    def _mark_told(
        self,
        causes: list[Cause | None],
        points: Sequence[Point],
        governing: Sequence[Governing],
        allowed: Sequence[float],
        rings: Sequence[Measured],
    ) -> None:
        """Mark what the rings leave open in the light of the throttles before; a confirmed margin is none."""
        signs = self._told.signs(points, allowed, [not each[3] for each in governing], rings)
        for place, sign in enumerate(signs):
            if sign is Sign.CONFIRMED:
                if causes[place] is Cause.MARGIN:
                    causes[place] = None
            elif sign is not None and causes[place] is None:
                causes[place] = Cause.SAMPLE if sign is Sign.RINGS_DIFFER else Cause.LOG_TIMES
        self._told.forget(self.folded_through_ms)


def _are_over(totals: Sequence[int], allowed: Sequence[float], windows_ms: Sequence[int]) -> list[bool]:
    """Whether each is above what is allowed, in bytes a ms."""
    return [
        total > allowed_per_ms * window_ms
        for total, allowed_per_ms, window_ms in zip(totals, allowed, windows_ms, strict=True)
    ]


def _are_far_below(
    totals: Sequence[int], amounts: Sequence[int], least_per_ms: float, config: RateConfig
) -> bool:
    """Whether all are so far below the lowest of their limits that `_causes` finds nothing, whatever the windows are.

    No window is shorter than the shortest, and each cause is within the length of a sample or the largest requests.
    """
    shortest_ms = (config.num_samples - 1) * config.window_ms
    least_ms = shortest_ms - max(config.window_ms, MARGIN_MS)
    most = max(totals)
    return most < least_per_ms * least_ms and most < least_per_ms * shortest_ms - 2 * max(amounts)


def _mark_samples(causes: list[Cause | None], is_over: Sequence[bool], is_other_over: Sequence[bool]) -> None:
    """Mark requests of which another ring says something else."""
    if is_other_over != is_over:
        for place, over in enumerate(is_over):
            if over is not is_other_over[place] and causes[place] is None:
                causes[place] = Cause.SAMPLE


def edge_of(governing: Governing, time_ms: int) -> Cause | None:
    """Why nothing is certain at this moment: a gap in the log, or an edit of the quota in the same second.

    The broker may still have acted on the quota before, or already on the one after.
    """
    _, valid_from_ms, valid_to_ms, _, gaps = governing
    if gaps and any(from_ms <= time_ms < until_ms for from_ms, until_ms in gaps):
        return Cause.GAP
    second_ms = time_ms // 1_000 * 1_000
    if valid_from_ms and valid_from_ms > min(time_ms - RULE_EDGE_MS, second_ms - 1):
        return Cause.RULE_EDGE
    if valid_to_ms is not None and valid_to_ms < max(time_ms + RULE_EDGE_MS, second_ms + 1_000):
        return Cause.RULE_EDGE
    return None


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
            # The broker un-recorded the bytes; only the throttle it logged tells how far above it was.
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
    # Three times as fast as the constructor, and this runs once a request.
    return tuple.__new__(Verdict, (point, governing, rate, window_ms, throttle_ms, outcome, cause, None))


def _causes(
    points: Sequence[Point],
    allowed: Sequence[float],
    totals: Sequence[int],
    windows_ms: Sequence[int],
    config: RateConfig,
) -> list[Cause | None]:
    """Why a verdict could be the other one, as far as its own moment and its neighbours tell."""
    causes: list[Cause | None] = [None] * len(points)
    most = 2 * max(point[4] for point in points)
    size_ms = config.window_ms
    shortest_ms = (config.num_samples - 1) * size_ms
    for place, (per_ms, total, window_ms) in enumerate(zip(allowed, totals, windows_ms, strict=True)):
        if per_ms == _INFINITE:
            continue
        above, margin = total - per_ms * window_ms, MARGIN_MS * per_ms
        more_ms = window_ms - shortest_ms
        is_filling = more_ms < size_ms and total > points[place][4]
        if -margin <= above <= margin or (is_filling and _falls_back(above, more_ms, size_ms, per_ms)):
            causes[place] = Cause.MARGIN
        elif -most <= above <= most and _could_swap(points, place, above):
            causes[place] = Cause.ORDER
    return causes


def _falls_back(above: float, more_ms: int, size_ms: int, per_ms: float) -> bool:
    """Whether the verdict flips because the window is about to fall back to the shortest, or just did.

    While windows are missing (`Rate.windowSize`) it grows by a sample's length and falls back.
    """
    if more_ms <= MARGIN_MS:
        return 0 < above < size_ms * per_ms
    return size_ms - MARGIN_MS <= more_ms < size_ms and -more_ms * per_ms < above <= 0


def _could_swap(points: Sequence[Point], place: int, above: float) -> bool:
    """Whether recording up to two neighbours of the same millisecond in another order flips the verdict.

    `above` is the amount beyond the limit (negative: below). A broker takes the requests of one connection one
    by one, in the order of their correlation ids: only those of other connections can change places with it.
    Neighbours of another second are left out, so that the answer does not depend on which seconds come in one
    batch.
    """
    time_ms, _, connection, correlation, *_ = points[place]
    second_ms = time_ms // 1_000 * 1_000
    without, left = above, 2
    for other in reversed(points[max(place - 9, 0) : place]):
        if time_ms - other[0] > 1 or other[0] < second_ms or not left:
            break
        if other[2] != connection or other[3] > correlation:
            left -= 1
            without -= other[4]
            if (without > 0) != (above > 0):
                return True
    beyond, left = above, 2
    for other in points[place + 1 : place + 10]:
        if other[0] - time_ms > 1 or other[0] >= second_ms + 1_000 or not left:
            break
        if other[2] != connection or other[3] < correlation:
            left -= 1
            beyond += other[4]
            if (beyond > 0) != (above > 0):
                return True
    return False


def _mark_edges(causes: list[Cause | None], points: Sequence[Point], governing: Sequence[Governing]) -> None:
    """Mark requests next to an edit of their quota, or of the same second as one, or in a gap of the log."""
    for place, each in enumerate(governing):
        if each[4] or each[1] or each[2] is not None:
            causes[place] = edge_of(each, points[place][0]) or causes[place]


def _mark_unsized(
    causes: list[Cause | None],
    points: Sequence[Point],
    allowed: Sequence[float],
    unsized_ms: int,
    horizon_ms: int,
) -> int:
    """Mark requests under a limit that can have one in their ring of which nothing says how much it took.

    From the beginning of its second, so that the order within a few milliseconds decides nothing.

    Returns:
        Time of the last one without a size, `unsized_ms` if there is none among these.
    """
    found_ms = [point[0] for point in points if point[6] >= _SHARE_FETCH]
    seconds = {time_ms // 1_000 for time_ms in found_ms}
    for place, (time_ms, _, _, _, _, _, kind, _) in enumerate(points):
        if kind >= _SHARE_FETCH:
            unsized_ms = time_ms
        is_in_ring = unsized_ms and time_ms - unsized_ms < horizon_ms
        if allowed[place] != _INFINITE and (is_in_ring or time_ms // 1_000 in seconds):
            causes[place] = Cause.UNSIZED
    return unsized_ms
