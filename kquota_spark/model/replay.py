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

from collections.abc import Sequence
from enum import Enum
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


class Governing(NamedTuple):
    """What limits a request: the limit (None: nothing), and the stretch of time in which it holds.

    `has_request_quota` says that a request_percentage covers the client too: the throttle that the broker
    logs is then the larger of two, so the bandwidth verdict cannot be compared with it.
    """

    limit_per_s: float | None
    valid_from_ms: int = 0
    valid_to_ms: int | None = None
    has_request_quota: bool = False


class Verdict(NamedTuple):
    """One request judged. `throttle_ms` of an inferred one is the broker's own, as its rate is."""

    point: Point
    governing: Governing
    rate_per_s: float
    window_ms: int
    throttle_ms: int
    outcome: Outcome
    cause: Cause | None

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

    def judge_second(self, second_ms: int, requests: Sequence[tuple[Point, Governing]]) -> list[Verdict]:
        """Record and judge the requests of one second, all at once and in order.

        Args:
            second_ms: start of the second; not before `folded_through_ms`.
            requests: points of this second in `Point` order, each with what governs it.
        """
        judged = [self._record(point, governing) for point, governing in requests]
        self.folded_through_ms = second_ms + 1_000
        return [
            _verdict(requests, index, total, window_ms, is_shaky)
            for index, (total, window_ms, is_shaky) in enumerate(judged)
        ]

    def _record(self, point: Point, governing: Governing) -> tuple[int, int, bool]:
        """Amount in the window, its length, and whether a noisy ring judges otherwise.

        The hot loop of the audit: it runs once a request, for each ring.
        """
        record_time_ms, _, connection_hash, correlation_id, amount, _, _ = point
        limit = governing.limit_per_s
        rings = self.rings
        ring = rings[0]
        window_ms = ring.record(amount, record_time_ms)
        total = ring.total
        allowed = 0.0 if limit is None else limit / 1_000.0
        is_over = total > allowed * window_ms
        bits = (connection_hash * 1_000_003 + correlation_id * 7_919 + record_time_ms) * _SPREAD & _MASK
        is_shaky = False
        times = self.times_ms
        for index in _NOISY:
            bits >>= 12
            time_ms = record_time_ms + (bits & 0xFFF) % 5 - 2
            if time_ms < times[index]:
                time_ms = times[index]  # the order of the requests stays
            else:
                times[index] = time_ms
            ring = rings[index]
            if (ring.record(amount, time_ms) * allowed < ring.total) is not is_over:
                is_shaky = True
        return total, window_ms, is_shaky and limit is not None


def _verdict(
    requests: Sequence[tuple[Point, Governing]], index: int, total: int, window_ms: int, is_shaky: bool
) -> Verdict:
    point, governing = requests[index]
    limit = governing.limit_per_s
    rate = rate_per_s(total, window_ms)
    is_over = limit is not None and rate > limit
    throttle_ms = max(throttle_time_ms(total, window_ms, limit), 0) if is_over else 0
    cause = None
    if governing.has_request_quota:
        outcome = Outcome.EXCLUDED
    elif point.kind == PointKind.THROTTLED_FETCH:
        outcome = Outcome.INFERRED
        if limit is not None:
            # The broker un-recorded the bytes; only the throttle it logged tells how far above it was.
            throttle_ms = point.observed_throttle_ms
            rate = limit * (1.0 + throttle_ms / window_ms)
    else:
        cause = _cause(requests, index, total, window_ms, is_shaky)
        outcome = _outcome(throttle_ms > 0, point.observed_throttle_ms > 0, cause)
    return Verdict(point, governing, rate, window_ms, throttle_ms, outcome, cause)


def _outcome(is_throttled: bool, was_throttled: bool, cause: Cause | None) -> Outcome:
    if cause is not None:
        return Outcome.UNCERTAIN
    if is_throttled == was_throttled:
        return Outcome.AGREES
    return Outcome.FALSE_POSITIVE if is_throttled else Outcome.FALSE_NEGATIVE


def _cause(
    requests: Sequence[tuple[Point, Governing]], index: int, total: int, window_ms: int, is_shaky: bool
) -> Cause | None:
    """Why the verdict could be the other one; None where it could not."""
    point, governing = requests[index]
    time_ms = point.record_time_ms
    if governing.valid_from_ms and time_ms - governing.valid_from_ms < RULE_EDGE_MS:
        return Cause.RULE_EDGE
    if governing.valid_to_ms is not None and governing.valid_to_ms - time_ms < RULE_EDGE_MS:
        return Cause.RULE_EDGE
    limit = governing.limit_per_s
    if not limit:
        return None
    above_ms = total * 1_000.0 / limit - window_ms
    if abs(above_ms) <= MARGIN_MS:
        return Cause.MARGIN
    if _has_neighbour(requests, index) and _could_swap(requests, index, above_ms * limit / 1_000.0):
        return Cause.ORDER
    return Cause.SAMPLE if is_shaky else None


def _has_neighbour(requests: Sequence[tuple[Point, Governing]], index: int) -> bool:
    """Whether another request was recorded within a millisecond: for most there is none to look at."""
    time_ms = requests[index][0].record_time_ms
    if index and time_ms - requests[index - 1][0].record_time_ms <= 1:
        return True
    return index + 1 < len(requests) and requests[index + 1][0].record_time_ms - time_ms <= 1


def _could_swap(requests: Sequence[tuple[Point, Governing]], index: int, above: float) -> bool:
    """Whether recording up to two neighbours of the same millisecond in another order flips the verdict.

    `above` is the amount beyond the limit (negative: below). Neighbours of another second are left out, so
    that the answer does not depend on which seconds come in one batch.
    """
    time_ms = requests[index][0].record_time_ms
    without = above
    for other in range(index - 1, max(index - 3, -1), -1):
        if time_ms - requests[other][0].record_time_ms > 1:
            break
        without -= requests[other][0].amount
        if (without > 0) != (above > 0):
            return True
    beyond = above
    for other in range(index + 1, min(index + 3, len(requests))):
        if requests[other][0].record_time_ms - time_ms > 1:
            break
        beyond += requests[other][0].amount
        if (beyond > 0) != (above > 0):
            return True
    return False
