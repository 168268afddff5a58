"""The replay of one bucket: every request gets the verdict that the broker gave, and says how sure it is.

Requests are recorded in the order of their record times, which the log gives to about a millisecond. Three
things can therefore differ from what happened inside the broker (kinds seen on real brokers): a rate so near
the limit that a millisecond of window decides; two requests of one millisecond taken in the other order; and
a sample that opened one request earlier or later, which moves the window by up to its length while the
sample lives. A verdict that one of them could flip is uncertain. The third is found by replaying the bucket
in a few further rings whose times carry 2 ms of noise; the noise is a function of the request itself, so the
same input gives the same answer in every run.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import Enum
from itertools import accumulate
from typing import NamedTuple

from kquota_spark.model.points import Point, PointKind
from kquota_spark.model.sampled_rate import RateConfig, SampleRing
from kquota_spark.model.throttle_time import rate_per_s, throttle_time_ms

NOISY_RINGS = 3
"""Over 24,353 real verdicts, 36 of them wrong: 2 rings leave 11 wrong ones certain, 3 leave 8, 8 leave 7."""

MARGIN_MS = 2
RULE_EDGE_MS = 100
"""Brokers act on an edit within about this long of the moment that the rules table gives."""

_MASK = 2**64 - 1
_SPREAD = 0x9E3779B97F4A7C15  # golden ratio: neighbouring numbers get unlike bits
_NOISY = range(1, 1 + NOISY_RINGS)
_THROTTLED_FETCH = int(PointKind.THROTTLED_FETCH)


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
    SAMPLE = "a sample may have opened one request earlier or later"
    RULE_EDGE = "the quota changed within 100 ms"
    THREAD_TIME = "the time on network threads is not in the log"
    PARTITIONS = "the partitions of a topic deleted or enlarged before are not in the log"


class Governing(NamedTuple):
    """What limits a request: the limit (None: nothing), and the stretch of time in which it holds.

    `has_request_quota` says that a request_percentage covers the client too: the throttle that the broker
    logs is then the larger of two, so the bandwidth verdict cannot be compared with it. Where the request quota
    itself is judged, it says that another quota may cover the client.
    """

    limit_per_s: float | None
    valid_from_ms: int = 0
    valid_to_ms: int | None = None
    has_request_quota: bool = False


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


class BucketReplay:
    """State of one bucket of one broker. `rings[0]` is the broker's; the others carry noise."""

    __slots__ = ("folded_through_ms", "rings", "times_ms")

    def __init__(self, config: RateConfig) -> None:
        self.rings = [SampleRing(config) for _ in range(1 + NOISY_RINGS)]
        self.times_ms = [0] * (1 + NOISY_RINGS)
        self.folded_through_ms = 0

    def judge(self, points: Sequence[Point], governing: Sequence[Governing]) -> list[Verdict]:
        """Record and judge the requests of whole seconds, in order.

        Written for speed: a list at a time, because calls cost more here than the arithmetic.

        Args:
            points: requests in `Point` order, none before `folded_through_ms`, all there are of each second.
            governing: what governs each of them.
        """
        if not points:
            return []
        self.folded_through_ms = points[-1].record_time_ms // 1_000 * 1_000 + 1_000
        times_ms, _, hashes, correlations, amounts, _, _, _ = zip(*points, strict=True)
        allowed = [(each[0] or 0.0) / 1_000.0 for each in governing]
        totals, windows_ms = self.rings[0].record_all(amounts, times_ms)
        is_over = list(map(_is_over, totals, allowed, windows_ms))
        noise = [
            (of_connection * 1_000_003 + correlation * 7_919 + time_ms) * _SPREAD & _MASK
            for of_connection, correlation, time_ms in zip(hashes, correlations, times_ms, strict=True)
        ]
        shaky: set[int] = set()
        for index in _NOISY:
            noisy_totals, noisy_ms = self.rings[index].record_all(
                amounts, self._shifted(index, times_ms, noise)
            )
            is_noisy_over = list(map(_is_over, noisy_totals, allowed, noisy_ms))
            if is_noisy_over != is_over:
                shaky.update(place for place, over in enumerate(is_over) if over is not is_noisy_over[place])
        causes = _causes(governing, times_ms, amounts, totals, windows_ms, shaky)
        return list(map(_verdict, points, governing, totals, windows_ms, causes))

    def _shifted(self, index: int, times_ms: Sequence[int], noise: Sequence[int]) -> list[int]:
        """The times with 2 ms of noise for one ring; the order of the requests stays."""
        shift = 12 * index
        moved_ms = [
            time_ms + (bits >> shift & 0xFFF) % 5 - 2 for time_ms, bits in zip(times_ms, noise, strict=True)
        ]
        shifted_ms = list(accumulate(moved_ms, max, initial=self.times_ms[index]))
        self.times_ms[index] = shifted_ms[-1]
        return shifted_ms[1:]


def is_near_edit(governing: Governing, time_ms: int) -> bool:
    """Whether the broker may still have acted on the quota before, or already on the one after."""
    _, valid_from_ms, valid_to_ms, _ = governing
    if valid_from_ms and time_ms - valid_from_ms < RULE_EDGE_MS:
        return True
    return valid_to_ms is not None and valid_to_ms - time_ms < RULE_EDGE_MS


def _is_over(total: int, allowed_per_ms: float, window_ms: int) -> bool:
    return total > allowed_per_ms * window_ms


def _verdict(point: Point, governing: Governing, total: int, window_ms: int, cause: Cause | None) -> Verdict:
    limit = governing[0]
    rate = rate_per_s(total, window_ms)
    throttle_ms = 0
    if limit is not None and rate > limit:
        throttle_ms = max(throttle_time_ms(total, window_ms, limit), 0)
    observed_ms, kind = point[5:7]
    if governing[3]:  # has_request_quota
        outcome, cause = Outcome.EXCLUDED, None
    elif kind == _THROTTLED_FETCH:
        outcome, cause = Outcome.INFERRED, None
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
    governing: Sequence[Governing],
    times_ms: Sequence[int],
    amounts: Sequence[int],
    totals: Sequence[int],
    windows_ms: Sequence[int],
    shaky: Container[int],
) -> list[Cause | None]:
    """Why each verdict could be the other one; None where it could not."""
    causes: list[Cause | None] = []
    most = 2 * max(amounts)
    for place, each in enumerate(governing):
        time_ms, limit, cause = times_ms[place], each[0], None
        if is_near_edit(each, time_ms):
            cause = Cause.RULE_EDGE
        elif limit:
            above_ms = totals[place] * 1_000.0 / limit - windows_ms[place]
            above = above_ms * limit / 1_000.0
            if -MARGIN_MS <= above_ms <= MARGIN_MS:
                cause = Cause.MARGIN
            elif -most <= above <= most and _could_swap(times_ms, amounts, place, above):
                cause = Cause.ORDER
            elif place in shaky:
                cause = Cause.SAMPLE
        causes.append(cause)
    return causes


def _could_swap(times_ms: Sequence[int], amounts: Sequence[int], place: int, above: float) -> bool:
    """Whether recording up to two neighbours of the same millisecond in another order flips the verdict.

    `above` is the amount beyond the limit (negative: below). Neighbours of another second are left out, so
    that the answer does not depend on which seconds come in one batch.
    """
    time_ms = times_ms[place]
    second_ms = time_ms // 1_000 * 1_000
    without = above
    for other in range(place - 1, max(place - 3, -1), -1):
        if time_ms - times_ms[other] > 1 or times_ms[other] < second_ms:
            break
        without -= amounts[other]
        if (without > 0) != (above > 0):
            return True
    beyond = above
    for other in range(place + 1, min(place + 3, len(times_ms))):
        if times_ms[other] - time_ms > 1 or times_ms[other] >= second_ms + 1_000:
            break
        beyond += amounts[other]
        if (beyond > 0) != (above > 0):
            return True
    return False
