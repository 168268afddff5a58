"""Each wrong verdict gets the likeliest cause, the same in every run."""

from __future__ import annotations

import pytest

from kquota_spark.findings.agreement_causes import cause_of
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.replay import BucketReplay, Verdict

T0 = 1_795_239_600_000
CONFIG = RateConfig()


def point(after_ms: int, amount: int, observed_ms: int = 0, kind: int = PointKind.PRODUCE) -> Point:
    return Point(T0 + after_ms, T0 + after_ms + 1, 7, after_ms, amount, observed_ms, kind)


def judged(*points: Point) -> list[Verdict]:
    """At 1,000 B/s a byte is a millisecond."""
    replay = BucketReplay(CONFIG)
    return [replay.judge([p], [Governing(1_000.0)])[0] for p in sorted(points)]


def wrong_cause(*points: Point) -> str:
    verdicts = judged(*points)
    assert [v.is_wrong for v in verdicts] == [False] * (len(verdicts) - 1) + [True]
    return cause_of(verdicts, len(verdicts) - 1, CONFIG)


def test_an_uncertain_one_has_its_cause_already() -> None:
    assert wrong_cause(point(0, 10_001)) == "rate within 2 ms of the limit"


def test_a_throttled_fetch_nearby() -> None:
    fetch = point(995, 0, 900, PointKind.THROTTLED_FETCH)
    expected = "a throttled fetch of the bucket overlapped: its bytes counted until they were un-recorded"
    assert wrong_cause(fetch, point(1_000, 5_000, 3, PointKind.FETCH)) == expected
    earlier = point(994, 0, 900, PointKind.THROTTLED_FETCH)
    assert wrong_cause(earlier, point(1_000, 5_000, 3, PointKind.FETCH)) != expected


@pytest.mark.parametrize(("apart_ms", "noise_ms"), [(10_994, 5), (10_970, 25), (10_850, 100)])
def test_the_clock_of_the_log(apart_ms: int, noise_ms: int) -> None:
    # The first request leaves the window 11,000 ms after it. Ours still counts it and throttles; had the two
    # been further apart by what each may be off, the broker would not have.
    expected = f"record times off by up to {noise_ms} ms, in another order, give the broker's verdict"
    assert wrong_cause(point(0, 9_000), point(apart_ms, 9_000)) == expected
    assert wrong_cause(point(0, 9_000), point(apart_ms, 9_000)) == expected


def test_another_order() -> None:
    # Ours takes the 9,000 first. The other way round the small one was below the limit.
    assert wrong_cause(point(0, 9_000), point(3, 1_500)) == (
        "record times off by up to 5 ms, in another order, give the broker's verdict"
    )


def test_what_no_clock_explains() -> None:
    unexplained = "not explained by the clock: check window settings, broker version and quotas"
    assert wrong_cause(point(0, 50_000)) == unexplained
    assert wrong_cause(point(0, 100, 700)) == unexplained
