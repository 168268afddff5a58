"""What makes a verdict uncertain beyond its own moment: edits, gaps, and samples that open or end elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import groupby

import pytest

from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.replay.causes import Cause, Governing
from kquota_spark.model.replay.replay import BucketReplay, Outcome, Verdict
from tests.support.logs.judged_points import LIMIT, T0, only, point


@pytest.mark.parametrize(
    ("valid_from_ms", "valid_to_ms", "cause"),
    [
        (T0 - 100, None, None),
        (T0 - 99, None, Cause.RULE_EDGE),
        (T0, None, Cause.RULE_EDGE),
        (0, T0 + 1_000, None),  # the first moment of the next second
        (0, T0 + 999, Cause.RULE_EDGE),
        (0, T0 + 1, Cause.RULE_EDGE),
        (0, None, None),
    ],
)
def test_edge_of_a_rule(valid_from_ms: int, valid_to_ms: int | None, cause: Cause | None) -> None:
    found = only(point(0, 5_000), governing=Governing(1_000.0, valid_from_ms, valid_to_ms))
    assert found.cause is cause
    assert found.outcome is (Outcome.AGREES if cause is None else Outcome.UNCERTAIN)


@pytest.mark.parametrize(
    ("gaps", "cause"),
    [
        ((), None),
        (((T0 - 5_000, T0),), None),
        (((T0 - 5_000, T0 + 1),), Cause.GAP),
        (((T0, T0 + 1),), Cause.GAP),
        (((T0 - 9_000, T0 - 5_000), (T0 + 1, T0 + 5_000)), None),
    ],
)
def test_a_gap_of_the_log(gaps: tuple[tuple[int, int], ...], cause: Cause | None) -> None:
    found = only(point(0, 15_000, 5_000), governing=Governing(1_000.0, gaps=gaps))
    assert (found.cause, found.throttle_ms) == (cause, 5_000)
    assert found.outcome is (Outcome.AGREES if cause is None else Outcome.UNCERTAIN)


def test_an_edit_earlier_in_the_same_second() -> None:
    governing = Governing(1_000.0, T0 + 200, None)
    assert only(point(900, 5_000), governing=governing).cause is Cause.RULE_EDGE
    assert only(point(1_000, 5_000), governing=governing).cause is None
    # And the last 100 ms of the second before.
    late = Governing(1_000.0, 0, T0 + 1_050)
    assert only(point(949, 5_000), governing=late).cause is None
    assert only(point(951, 5_000), governing=late).cause is Cause.RULE_EDGE


@pytest.mark.parametrize(
    ("apart_ms", "cause", "throttle_ms"),
    [
        # The first 6,000 bytes leave the window 11,000 ms after them, and 10,997 ms in the ring that is early.
        (10_995, None, 1_005),
        (10_996, None, 1_004),
        (10_997, Cause.SAMPLE, 1_003),
        (10_999, Cause.SAMPLE, 1_001),
        (11_000, Cause.SAMPLE, 0),
        (11_002, Cause.SAMPLE, 0),
        (11_006, None, 0),
    ],
)
def test_a_sample_at_its_end(apart_ms: int, cause: Cause | None, throttle_ms: int) -> None:
    found = only(point(0, 6_000), point(apart_ms, 6_000))
    assert (found.cause, found.throttle_ms) == (cause, throttle_ms)


def test_a_sample_that_may_have_opened_earlier() -> None:
    # The request at 998 ms stays in the first sample, and the one at 1,400 opens the next. When the first is
    # gone, at 12,100 ms, the window begins at 1,400: 700 ms and ten windows. Had the one at 998 opened a sample, it
    # would begin there: 11,102 ms. 10,900 bytes are above the limit in the first case alone.
    sent = [point(0, 1), point(998, 1), point(1_400, 1), point(12_100, 10_900)]
    found = only(*sent)
    assert (found.window_ms, found.throttle_ms, found.cause) == (10_700, 201, Cause.SAMPLE)
    certain = only(sent[0], sent[1]._replace(record_time_ms=T0 + 990), *sent[2:])
    assert (certain.window_ms, certain.throttle_ms, certain.cause) == (10_700, 201, None)


def test_a_scrape_of_jmx_may_have_ended_a_sample() -> None:
    # The 9,000 bytes are too old at 11,000 ms, and the next request comes at 14,500: the window at 20,200 ms begins
    # there, 5,700 ms and five missing ones. Had a scrape of the broker's JMX ended the sample at 11,000 ms, it would
    # begin then: 9,200 ms and one missing. 10,500 bytes are above the limit in the second case alone.
    found = only(point(0, 9_000), point(5_000, 1), point(14_500, 499), point(20_200, 10_000))
    assert (found.window_ms, found.throttle_ms, found.cause) == (10_700, 0, Cause.SAMPLE)
    # With a request at that moment no scrape can come before it.
    found = only(point(0, 9_000), point(11_000, 0), point(14_500, 500), point(20_200, 10_000))
    assert (found.window_ms, found.throttle_ms, found.cause) == (10_200, 300, None)


def test_a_window_that_is_about_to_fall_back() -> None:
    # 10,998 ms after 998: two ms later it is 10,000, and 10,500 bytes are above the limit.
    found = only(point(0, 500), point(998, 10_000))
    assert (found.window_ms, found.throttle_ms, found.cause) == (10_998, 0, Cause.MARGIN)
    found = only(point(0, 500), point(1_001, 10_000))
    assert (found.window_ms, found.throttle_ms, found.cause) == (10_001, 499, Cause.MARGIN)
    for after_ms, throttle_ms in ((997, 0), (1_003, 497)):
        found = only(point(0, 500), point(after_ms, 10_000))
        assert (found.throttle_ms, found.cause) == (throttle_ms, None)


GAP = (T0 - 60_000, T0 + 12_000)
"""One that ends at T0, with what the ring remembers after it."""


def after_gap(*points: Point) -> Verdict:
    """The last verdict where the log begins again at T0."""
    return judged_alike(points, [GAP])[-1]


def judged_alike(points: Sequence[Point], gaps: Sequence[tuple[int, int]]) -> list[Verdict]:
    """Verdicts of a bucket in one list, given all gaps, as `kquota replay` judges.

    As the job judges they are the same: second by second, each time from the stored state, given the gaps that reach
    into the second.
    """
    whole = BucketReplay(RateConfig()).judge(points, [Governing(1_000.0, gaps=tuple(gaps))] * len(points))
    cut: list[Verdict] = []
    replay = BucketReplay(RateConfig())
    for _, group in groupby(range(len(points)), key=lambda place: points[place].record_time_ms // 1_000):
        of_second = [points[place] for place in group]
        second_ms = of_second[0].record_time_ms // 1_000 * 1_000
        reaching = tuple(gap for gap in gaps if gap[0] < second_ms + 1_000 and gap[1] > second_ms)
        replay = BucketReplay(RateConfig(), deepcopy(replay.state))
        cut += replay.judge(of_second, [Governing(1_000.0, gaps=reaching)] * len(of_second))
    assert [each._replace(governing=LIMIT) for each in cut] == [
        each._replace(governing=LIMIT) for each in whole
    ]
    return whole


def test_where_a_sample_opened_in_a_gap_is_not_known_and_shows_until_the_bucket_pauses() -> None:
    # A request each 70 ms: a sample opens each 1,050 ms, and of twelve the oldest began 11,550 ms before the one that
    # opens at 12,600 ms: 11,650 bytes are above the limit. Had one opened 200 ms before the end of the gap, the next
    # would have at 840 ms, and the window of 12,600 - 840 = 11,760 ms allows them.
    sent = [point(at_ms, 0) for at_ms in range(0, 12_600, 70)]
    last = point(12_600, 11_650)
    known = only(*sent, last)
    assert (known.window_ms, known.throttle_ms, known.cause) == (11_550, 100, None)
    unknown = after_gap(*sent, last)
    assert (unknown.window_ms, unknown.throttle_ms, unknown.cause) == (11_550, 100, Cause.SAMPLE)
    # After a pause of more than a window, at 7,350 ms, each ring opens a sample: twelve later all are the same.
    paused = [point(at_ms, 0) for at_ms in range(0, 19_950, 70) if not 6_300 < at_ms < 7_350]
    again = after_gap(*paused, point(19_950, 11_650))
    assert (again.window_ms, again.throttle_ms, again.cause) == (11_550, 100, None)


@pytest.mark.parametrize(
    ("begins_ms", "cause"),
    [
        (11_999, Cause.SAMPLE),
        # From here on the ring has forgotten whatever the gap hides: the first request opens a sample, as at a start.
        (12_000, None),
        (180_000, None),
    ],
)
def test_a_bucket_that_begins_long_after_a_gap_is_as_certain_as_a_new_one(
    begins_ms: int, cause: Cause | None
) -> None:
    sent = [point(begins_ms + at_ms, 0) for at_ms in range(0, 12_600, 70)]
    found = after_gap(*sent, point(begins_ms + 12_600, 11_650))
    assert (found.window_ms, found.throttle_ms, found.cause) == (11_550, 100, cause)


def test_after_each_of_several_gaps_it_is_not_known() -> None:
    sent = [point(at_ms, 100 + at_ms % 997) for at_ms in range(0, 60_000, 70)]
    second = (T0 + 20_000, T0 + 37_000)
    causes = {each.point.record_time_ms - T0: each.cause for each in judged_alike(sent, [GAP, second])}
    assert [causes[at_ms] for at_ms in (0, 11_970, 20_020, 36_960)] == [Cause.GAP] * 4
    assert Cause.GAP not in [causes[at_ms] for at_ms in range(12_040, 19_950, 70)]
    assert Cause.GAP not in [causes[at_ms] for at_ms in range(37_030, 60_000, 70)]
