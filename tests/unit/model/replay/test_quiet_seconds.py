"""Quiet seconds are judged without an object per verdict, and a bucket's first one without a ring: nothing differs."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant, SampleRing
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.decision import (
    GovernedSecond,
    QuietSecond,
    judge_bucket,
    judge_first,
    judge_seconds,
)
from kquota_spark.model.replay.replay import BucketReplay, Verdict

S = 1_795_239_600_000
CONFIGS = st.sampled_from(
    [RateConfig(), RateConfig(11, 1_000, RingVariant.UP_TO_3_7), RateConfig(2, 1_000), RateConfig(1, 500),
     RateConfig(3, 1)]
)  # fmt: skip
KINDS = st.sampled_from([PointKind.PRODUCE] * 6 + [PointKind.THROTTLED_FETCH, PointKind.UNSIZED])
GOVERNING = st.builds(
    Governing,
    st.sampled_from([None, 0.0, 1_000.0, 1_000.0, 20_000.0]),
    st.sampled_from([0, 0, S - 60_000, S + 1_400]),
    st.sampled_from([None, None, S + 3_600, S + 900_000]),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([(), (), ((S - 5_000, S + 7_000),)]),
)
REQUEST = st.tuples(
    st.integers(0, 1_500), st.integers(0, 4_000), st.sampled_from([0, 0, 0, 0, 700]), KINDS, st.booleans()
)
"""Time since the request before, bytes, logged throttle, kind, and of which of two users."""
_PRODUCE = (0, 0, 0, PointKind.PRODUCE, False)


def _bucket(
    requests: list[tuple[int, int, int, PointKind, bool]], governing: Governing
) -> list[GovernedSecond]:
    after_ms, points = 0, dict[tuple[int, str], list[Point]]()
    for place, (gap_ms, amount, observed_ms, kind, is_other) in enumerate(requests):
        after_ms += gap_ms
        point = Point(S + after_ms, S + after_ms + 2, 7 + is_other, place, amount, observed_ms, kind)
        points.setdefault((after_ms // 1_000, "bob" if is_other else "alice"), []).append(point)
    return [
        GovernedSecond(S + second * 1_000, user, "etl", governing, 7, "clients/etl", 1, found)
        for (second, user), found in points.items()
    ]


@settings(deadline=None, print_blob=True, max_examples=60)
@given(CONFIGS, st.lists(REQUEST, min_size=1, max_size=20), GOVERNING)
@example(RateConfig(3, 1), [*[_PRODUCE] * 7, (1, *_PRODUCE[1:])], Governing(None))
def test_decisions_without_verdicts_equal_those_with_them(
    config: RateConfig, requests: list[tuple[int, int, int, PointKind, bool]], governing: Governing
) -> None:
    governed_seconds, verdicts = _bucket(requests, governing), list[Verdict]()
    slow, at_once, by_second = BucketReplay(config), BucketReplay(config), BucketReplay(config)
    expected = judge_bucket(slow, governed_seconds, verdicts)
    assert len(verdicts) == len(requests)
    assert judge_bucket(at_once, governed_seconds) == expected
    found = []
    for second_ms in sorted({each.second_ms for each in governed_seconds}):
        found += judge_bucket(by_second, [each for each in governed_seconds if each.second_ms == second_ms])
    assert found == expected
    assert slow.memory == at_once.memory == by_second.memory
    assert slow.state == at_once.state == by_second.state


@settings(deadline=None, print_blob=True, max_examples=200)
@given(CONFIGS, REQUEST, GOVERNING)
@example(RateConfig(), (0, 1_000, 0, PointKind.PRODUCE, False), Governing(1_000.0))
def test_the_first_request_of_a_bucket_needs_no_ring(
    config: RateConfig, request: tuple[int, int, int, PointKind, bool], governing: Governing
) -> None:
    [governed] = _bucket([request], governing)
    replay, first = BucketReplay(config), judge_first(config, governed)
    expected = judge_seconds(replay, [governed])
    if first is not None:
        state, second = first
        assert [second] == expected
        assert BucketReplay(config, state).state == replay.state


def test_a_small_first_request_is_quiet_and_one_near_the_limit_is_judged_in_full() -> None:
    """Quiet if two more of its size would stay below the 10 s of quota that the shortest window allows."""
    config, governing = RateConfig(), Governing(1_000.0)
    assert config.first_window_ms == SampleRing(config).record(1, S) == 10_000
    for amount, is_quiet in ((3_333, True), (3_334, False)):
        [governed] = _bucket([(0, amount, 0, PointKind.PRODUCE, False)], governing)
        assert (judge_first(config, governed) is not None) is is_quiet
    [governed] = _bucket([(0, 3_333, 0, PointKind.PRODUCE, False)], governing)
    assert judge_first(config, governed) == (
        (S + 1_000, (0, [3_333], [S], [S]), ((None,) * 4, [3_333], [S]), 0, None),
        QuietSecond(S, governed, 333.3, 3_333, 1, 0, ["alice"], ["etl"]),
    )
