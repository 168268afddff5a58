"""Throttles before a request tell the broker's window, and with it what is certain. At 1,000 B/s a byte is a ms."""

from __future__ import annotations

import pytest

from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.replay.causes import Cause, Governing
from kquota_spark.model.replay.replay import BucketReplay, Outcome, Verdict
from tests.support.logs.judged_points import judged, point

# 10,050 bytes at once: 10,050 / 1,000 s - 10 s = 50 ms by the replay.
FIRST = 10_050


def second_of(observed_ms: int, *, limit: float = 1_000.0, learns: bool = True) -> Verdict:
    """A byte 20 ms after the first request: 10,051 - 10,020 = 31 ms by the replay."""
    replay = BucketReplay(RateConfig(), learns=learns)
    points = [point(0, FIRST, observed_ms), point(20, 1, correlation=1)]
    return replay.judge(points, [Governing(1_000.0), Governing(limit)])[1]


@pytest.mark.parametrize(
    ("observed_ms", "cause"),
    [
        (50, None),  # the window of the replay
        (22, None),  # 28 ms longer: 31 - 28 = 3 ms are left
        (21, Cause.LOG_TIMES),  # 29 ms longer: 2 ms are within the margin
        (10, Cause.LOG_TIMES),  # 40 ms longer: 9 ms under the limit
        (90, None),  # 40 ms shorter: throttled all the more
        (0, Cause.LOG_TIMES),  # not throttled at all, so the ring is wrong
    ],
)
def test_a_verdict_that_the_brokers_window_would_turn_is_uncertain(
    observed_ms: int, cause: Cause | None
) -> None:
    found = second_of(observed_ms)
    assert (found.throttle_ms, found.cause) == (31, cause)
    assert found.outcome is (Outcome.UNCERTAIN if cause else Outcome.FALSE_POSITIVE)


def test_without_learning_no_throttle_is_looked_at() -> None:
    assert second_of(10, learns=False).cause is None


def test_what_was_told_under_another_limit_does_not_hold() -> None:
    # At 1,001 B/s: 10,051 / 1.001 - 10,020 = 20.96.
    assert second_of(10, limit=1_001.0).cause is None


def test_a_margin_that_a_throttle_confirms_is_certain() -> None:
    # 10,002 bytes are 2 ms over, within the margin; told so to the millisecond, 4 ms later they would be under.
    first, second = judged(point(0, 10_002, 2), point(1, 2, 0, correlation=1))
    assert (first.cause, first.throttle_ms) == (Cause.MARGIN, 2)
    # 10,004 - 10,001 = 3, and by the broker the same.
    assert (second.cause, second.throttle_ms) == (None, 3)


def test_a_told_window_ends_with_its_oldest_sample() -> None:
    # The sample of the first request is gone 12 s later; what is in the ring then has a window of its own.
    later = [point(11_500 + 100 * at, 2_000, correlation=at) for at in range(5)]
    found = judged(point(0, FIRST, 10), *later, point(12_400, 300, correlation=9))[-1]
    assert (found.throttle_ms > 0, found.cause) == (False, None)


@pytest.mark.parametrize(("off_ms", "cause"), [(3, None), (4, Cause.LOG_TIMES)])
def test_while_most_windows_are_off_one_that_is_not_told_may_be_off_by_three_times_as_much(
    off_ms: int, cause: Cause | None
) -> None:
    # Four throttles, each off by so much, then at 1,001 B/s a window that none of them told, 10 ms over the limit.
    replay = BucketReplay(RateConfig())
    throttled = [point(at, FIRST if at == 0 else 1, 50 - off_ms, correlation=at) for at in range(4)]
    # At its time the window is 10,010 ms: 10,053 + amount = 10,020 * 1.001 = 10,030.02.
    last = point(10, 0, correlation=9)
    amount = 0
    found = replay.judge(
        [*throttled, last._replace(amount=amount)], [Governing(1_000.0)] * 4 + [Governing(10_053 / 10.020)]
    )[-1]
    # 10,053 / (10,053 / 10.020) = 10,020 ms, less 10,010.
    assert found.throttle_ms == 10
    assert found.cause is cause
