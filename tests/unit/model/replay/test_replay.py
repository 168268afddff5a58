"""Every kind of verdict from hand-made requests. At 1,000 B/s a byte of the limit is a millisecond."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.replay.causes import Cause, Governing
from kquota_spark.model.replay.replay import BucketReplay, Outcome, Verdict
from tests.support.logs.judged_points import LIMIT, T0, judged, only, point


@pytest.mark.parametrize(
    ("amount", "observed_ms", "throttle_ms", "outcome", "cause"),
    [
        (5_000, 0, 0, Outcome.AGREES, None),
        (15_000, 5_000, 5_000, Outcome.AGREES, None),
        (15_000, 4_000, 5_000, Outcome.AGREES, None),  # throttled or not is compared, not the length
        (15_000, 0, 5_000, Outcome.FALSE_POSITIVE, None),
        (5_000, 1, 0, Outcome.FALSE_NEGATIVE, None),
        # The window of a first request is 10,000 ms: 10,000 bytes are the limit, 2 either way uncertain.
        (9_997, 0, 0, Outcome.AGREES, None),
        (9_998, 0, 0, Outcome.UNCERTAIN, Cause.MARGIN),
        (10_000, 0, 0, Outcome.UNCERTAIN, Cause.MARGIN),
        (10_001, 0, 1, Outcome.UNCERTAIN, Cause.MARGIN),
        (10_002, 2, 2, Outcome.UNCERTAIN, Cause.MARGIN),
        (10_003, 3, 3, Outcome.AGREES, None),
    ],
)
def test_one_request(
    amount: int, observed_ms: int, throttle_ms: int, outcome: Outcome, cause: Cause | None
) -> None:
    sent = point(0, amount, observed_ms)
    assert only(sent) == Verdict(sent, LIMIT, amount / 10.0, 10_000, throttle_ms, outcome, cause)


@pytest.mark.parametrize(
    ("outcome_of", "is_wrong"),
    [
        (point(0, 5_000), False),
        (point(0, 15_000), True),
        (point(0, 5_000, 1), True),
        (point(0, 10_001), True),  # uncertain, and the other way
        (point(0, 10_001, 9), False),
        (point(0, 0, 1_800, kind=PointKind.THROTTLED_FETCH), False),
    ],
)
def test_wrong_is_throttled_or_not(outcome_of: Point, is_wrong: bool) -> None:
    assert only(outcome_of).is_wrong is is_wrong


def test_nothing_limits() -> None:
    sent = point(0, 10**9)
    assert only(sent, governing=Governing(None)) == Verdict(
        sent, Governing(None), 1e8, 10_000, 0, Outcome.AGREES, None
    )
    # The broker throttled where we know of no quota: the quotas we were given are not its.
    assert only(point(0, 1, 5), governing=Governing(None)).outcome is Outcome.FALSE_NEGATIVE


def test_a_limit_of_zero_throttles_nobody() -> None:
    # Kafka's own overflow gives -1 ms, which is not above 0.
    found = only(point(0, 10**9), governing=Governing(0.0))
    assert (found.throttle_ms, found.outcome) == (0, Outcome.AGREES)


@pytest.mark.parametrize("apart_ms", [0, 1])
def test_two_requests_of_one_millisecond_may_change_places(apart_ms: int) -> None:
    # Alone each is below (6,000 of 10,000), the one recorded second is above.
    first, second = judged(point(0, 6_000), point(apart_ms, 6_000, 2_000, correlation=1))
    assert [first.throttle_ms, second.throttle_ms] == [0, 2_000 - apart_ms]
    assert [first.cause, second.cause] == [Cause.ORDER, Cause.ORDER]


@pytest.mark.parametrize(
    ("correlations", "cause"),
    [
        ((0, 1), None),
        ((1, 0), Cause.ORDER),
    ],  # a broker takes one after the other: the second pair is out of order
)
def test_one_connection_keeps_its_order(correlations: tuple[int, int], cause: Cause | None) -> None:
    sent = [
        Point(T0 + n, T0 + n, 7, correlation, 6_000, 0, PointKind.PRODUCE)
        for n, correlation in enumerate(correlations)
    ]
    assert [v.cause for v in judged(*sent)] == [cause, cause]


def test_two_milliseconds_apart_the_order_is_known() -> None:
    # 12,000 - 10,002.
    first, second = judged(point(0, 6_000), point(2, 6_000, 1_998, correlation=1))
    assert [first.outcome, second.outcome] == [Outcome.AGREES, Outcome.AGREES]
    assert second.throttle_ms == 1_998


def test_up_to_two_neighbours_are_tried() -> None:
    # 4,000 each: the third is above (12,000), and so might each be if both others came first; of four, the
    # first would need three before it (12,000 of 16,000 - 4,000) but two do (4,000 + 2 * 4,000 = 12,000).
    verdicts = judged(*(point(0, 4_000, correlation=n) for n in range(3)))
    assert [v.throttle_ms for v in verdicts] == [0, 0, 2_000]
    assert [v.cause for v in verdicts] == [Cause.ORDER] * 3
    # 3,000 each: the fourth is above, the first would need all three others before it.
    verdicts = judged(*(point(0, 3_000, correlation=n) for n in range(4)))
    assert [v.throttle_ms for v in verdicts] == [0, 0, 0, 2_000]
    assert [v.cause for v in verdicts] == [None, Cause.ORDER, Cause.ORDER, Cause.ORDER]


def test_two_requests_before_may_have_come_after() -> None:
    # 10,650 of 10,500: above by 150, by 100 without the 50 before, below without the 4,000 before that.
    sent = [point(0, 5_000)]
    sent += [point(500, amount, correlation=n) for n, amount in enumerate((4_000, 50, 1_600))]
    assert only(*sent).throttle_ms == 150
    assert only(*sent).cause is Cause.ORDER
    # With another 50 in between the 4,000 are three places away: that is not tried.
    sent = [point(0, 5_000)]
    sent += [point(500, amount, correlation=n) for n, amount in enumerate((4_000, 50, 50, 1_600))]
    assert only(*sent).throttle_ms == 200
    assert only(*sent).cause is None


def test_neighbours_that_change_nothing_leave_it_certain() -> None:
    # 15,100 - 10,500 and 15,200 - 10,500: with or without the other 100, above.
    verdicts = judged(point(0, 15_000, 5_000), *(point(500, 100, 4_600, correlation=n) for n in (1, 2)))
    assert [v.throttle_ms for v in verdicts] == [5_000, 4_600, 4_700]
    assert [v.outcome for v in verdicts] == [Outcome.AGREES] * 3


def test_neighbours_of_another_second_are_left_out() -> None:
    # Which seconds come in one batch must not matter.
    first, second = judged(point(999, 6_000), point(1_000, 6_000, 1_999, correlation=1))
    assert [first.throttle_ms, second.throttle_ms] == [0, 1_999]
    assert [first.cause, second.cause] == [None, None]


def test_without_a_limit_nothing_is_shaky() -> None:
    for n in range(40):
        found = only(point(0, 6_000), point(11_000, 6_000, correlation=n), governing=Governing(None))
        assert found.outcome is Outcome.AGREES


def test_a_throttled_fetch_is_inferred_from_the_logged_throttle() -> None:
    fetch = point(0, 0, 1_800, kind=PointKind.THROTTLED_FETCH)
    # rate = limit * (1 + throttle / window) = 1,000 * (1 + 1,800 / 10,000)
    assert only(fetch) == Verdict(fetch, LIMIT, 1_180.0, 10_000, 1_800, Outcome.INFERRED, None)
    unlimited = only(fetch, governing=Governing(None))
    assert (unlimited.rate_per_s, unlimited.throttle_ms, unlimited.outcome) == (0.0, 0, Outcome.INFERRED)


def test_a_throttled_fetch_touches_the_ring() -> None:
    # The 8,000 bytes are gone at 11,000 ms. The fetch opened a sample at 10,900 ms that is still in use at
    # 11,800: 900 ms and ten windows less the part; without it the request opens one of its own.
    fetch = point(10_900, 0, 500, kind=PointKind.THROTTLED_FETCH)
    without = only(point(0, 8_000), point(11_800, 1_000))
    touched = only(point(0, 8_000), fetch, point(11_800, 1_000))
    assert (without.window_ms, touched.window_ms) == (10_000, 10_900)
    assert (without.rate_per_s, touched.rate_per_s) == (100.0, 1_000 / 10.9)


@pytest.mark.parametrize("kind", list(PointKind))
def test_under_a_request_quota_nothing_is_compared(kind: PointKind) -> None:
    governing = Governing(1_000.0, has_request_quota=True)
    found = only(point(0, 15_000, 0, kind=kind), governing=governing)
    assert (found.rate_per_s, found.throttle_ms) == (1_500.0, 5_000)
    assert (found.outcome, found.cause, found.is_wrong) == (Outcome.EXCLUDED, None, False)


POINTS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 3), st.integers(0, 1_500), st.integers(0, 12_000)),
        st.integers(0, 6_000),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=30,
)


def _sent(events: list[tuple[int, int, int]], data: st.DataObject) -> list[Point]:
    after_ms, sent = 0, []
    for gap_ms, amount, correlation in events:
        after_ms += gap_ms
        kind = data.draw(st.sampled_from([PointKind.PRODUCE, PointKind.FETCH]))
        sent.append(point(after_ms, amount, correlation=correlation, kind=kind))
    return sorted(sent)


def _logged(sent: list[Point], data: st.DataObject) -> list[Point]:
    """With throttles drawn: none, near the right one, or any."""
    throttles_ms = st.one_of(st.just(0), st.integers(1, 60), st.integers(0, 9_999))
    return [each._replace(observed_throttle_ms=data.draw(throttles_ms)) for each in sent]


def _judged_in_order(sent: list[Point], limit: float | None) -> list[Verdict]:
    """Second by second. Points of one time and correlation keep their places, whatever their throttles are."""
    replay = BucketReplay(RateConfig())
    verdicts: list[Verdict] = []
    for second_ms in sorted({p.record_time_ms // 1_000 * 1_000 for p in sent}):
        of_second = [p for p in sent if p.record_time_ms // 1_000 * 1_000 == second_ms]
        verdicts += replay.judge(of_second, [Governing(limit)] * len(of_second))
        replay = BucketReplay(RateConfig(), replay.state)
    return verdicts


LIMITS = st.sampled_from([None, 0.0, 100.0, 1_000.0])


@settings(deadline=None, print_blob=True)
@given(POINTS, LIMITS, st.data())
def test_no_throttle_changes_what_the_replay_gives(
    events: list[tuple[int, int, int]], limit: float | None, data: st.DataObject
) -> None:
    sent = _sent(events, data)
    given_ = [
        (v.rate_per_s, v.window_ms, v.throttle_ms) for v in _judged_in_order(_logged(sent, data), limit)
    ]
    assert given_ == [(v.rate_per_s, v.window_ms, v.throttle_ms) for v in _judged_in_order(sent, limit)]


@settings(deadline=None, print_blob=True)
@given(POINTS, LIMITS, st.data())
def test_no_verdict_reads_the_throttle_it_is_compared_with(
    events: list[tuple[int, int, int]], limit: float | None, data: st.DataObject
) -> None:
    logged = _logged(_sent(events, data), data)
    place = data.draw(st.integers(0, len(logged) - 1))
    other = [*logged]
    other[place] = logged[place]._replace(observed_throttle_ms=data.draw(st.integers(0, 9_999)))
    ours, theirs = _judged_in_order(logged, limit)[place], _judged_in_order(other, limit)[place]
    assert (ours.throttle_ms, ours.cause) == (theirs.throttle_ms, theirs.cause)


@settings(deadline=None, print_blob=True)
@given(POINTS, LIMITS, st.data())
def test_seconds_at_once_are_judged_as_one_by_one(
    events: list[tuple[int, int, int]], limit: float | None, data: st.DataObject
) -> None:
    logged = _logged(_sent(events, data), data)
    assert BucketReplay(RateConfig()).judge(logged, [Governing(limit)] * len(logged)) == _judged_in_order(
        logged, limit
    )
