"""The tally counts each verdict once, under what it is worth."""

from __future__ import annotations

import pytest

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.replay.agreement import Agreement, error_summary
from kquota_spark.model.replay.causes import Cause, Governing
from kquota_spark.model.replay.replay import Outcome, Verdict


def verdict(
    outcome: Outcome, throttle_ms: int = 0, observed_ms: int = 0, *, rate: float = 100.0,
    limit: float | None = 1_000.0,
) -> Verdict:  # fmt: skip
    cause = Cause.MARGIN if outcome is Outcome.UNCERTAIN else None
    sent = Point(1_000, 1_001, 7, 0, 10, observed_ms, PointKind.PRODUCE)
    return Verdict(sent, Governing(limit), rate, 10_000, throttle_ms, outcome, cause)


def tally(*verdicts: Verdict) -> Agreement:
    found = Agreement()
    found.add_all(verdicts)
    return found


def test_nothing() -> None:
    assert tally() == Agreement()
    assert Agreement().as_dict() == {
        "requests_judged": 0, "throttled_by_broker": 0, "throttled_by_model": 0, "agreeing": 0,
        "false_positive": 0, "false_negative": 0, "near_limit": 0, "uncertain": 0, "uncertain_wrong": 0,
        "inferred": 0, "excluded": 0, "window_off": 0, "window_off_false_positive": 0,
        "window_off_false_negative": 0,
        "throttle_error_ms": {"median": None, "p90": None, "p99": None, "max": None},
    }  # fmt: skip


def test_one_of_each_outcome() -> None:
    found = tally(
        verdict(Outcome.AGREES),
        verdict(Outcome.AGREES, 50, 48),
        verdict(Outcome.FALSE_POSITIVE, 9),
        verdict(Outcome.FALSE_NEGATIVE, 0, 7),
        verdict(Outcome.UNCERTAIN, 1, 0),
        verdict(Outcome.UNCERTAIN, 1, 2),
        verdict(Outcome.INFERRED, 1_800, 1_800),
        verdict(Outcome.EXCLUDED, 0, 500),
    )
    assert found == Agreement(
        requests_judged=4, throttled_by_broker=2, throttled_by_model=2, agreeing=2, false_positive=1,
        false_negative=1, uncertain=2, uncertain_wrong=1, inferred=1, excluded=1, throttle_errors_ms=[2],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rate", "limit", "near"),
    [
        (950.0, 1_000.0, 1), (1_050.0, 1_000.0, 1), (949.9, 1_000.0, 0), (1_050.1, 1_000.0, 0),
        (0.0, 0.0, 0), (100.0, None, 0),
    ],
)  # fmt: skip
def test_near_the_limit_is_within_five_percent(rate: float, limit: float | None, near: int) -> None:
    assert tally(verdict(Outcome.AGREES, rate=rate, limit=limit)).near_limit == near


def test_errors_keep_their_sign_and_their_sizes_are_summed_up() -> None:
    found = tally(verdict(Outcome.AGREES, 10, 12), verdict(Outcome.AGREES, 13, 12))
    assert found.throttle_errors_ms == [-2, 1]
    assert found.as_dict()["throttle_error_ms"] == {"median": 1, "p90": 2, "p99": 2, "max": 2}


@pytest.mark.parametrize(
    ("errors", "median", "p90", "p99", "largest"),
    [
        ([5], 5, 5, 5, 5),
        ([-3, 1], 1, 3, 3, 3),
        (list(range(1, 11)), 5, 9, 10, 10),  # nearest rank: the 5th, the 9th, the 10th
        (list(range(-100, 0)), 50, 90, 99, 100),
        (list(range(1, 102)), 51, 91, 100, 101),  # 50.5, 90.9 and 99.99 of 101, upwards
    ],
)
def test_nearest_rank(errors: list[int], median: int, p90: int, p99: int, largest: int) -> None:
    assert error_summary(errors) == {"median": median, "p90": p90, "p99": p99, "max": largest}
