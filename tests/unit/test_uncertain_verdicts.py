"""What makes a verdict uncertain beyond its own moment: edits, gaps, and samples that open or end elsewhere."""

from __future__ import annotations

import pytest

from kquota_spark.model.replay import Cause, Governing, Outcome
from tests.unit.test_replay import T0, only, point


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
