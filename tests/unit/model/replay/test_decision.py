"""Seconds of a bucket fold into decisions, and how they are split over calls does not matter."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.replay.agreement import Agreement
from kquota_spark.model.replay.causes import Cause, Governing, RuleLimit
from kquota_spark.model.replay.decision import Decision, GovernedSecond, judge_bucket
from kquota_spark.model.replay.replay import BucketReplay, Outcome, Verdict

S = 1_795_239_600_000
LIMIT = Governing(1_000.0)


def point(after_ms: int, amount: int, observed_ms: int = 0, *, correlation: int = 0) -> Point:
    return Point(S + after_ms, S + after_ms + 1, 7, correlation, amount, observed_ms, PointKind.PRODUCE)


def governed(
    after_s: int, *points: Point, user: str = "alice", client_id: str = "etl", governing: Governing = LIMIT,
    version: int = 1,
) -> GovernedSecond:  # fmt: skip
    return GovernedSecond(S + after_s * 1_000, user, client_id, governing, 7, "clients/etl", version, points)


def folded(*governed_seconds: GovernedSecond) -> list[Decision]:
    return judge_bucket(BucketReplay(RateConfig()), governed_seconds)


def test_an_edit_within_a_second_makes_two_periods_that_are_uncertain() -> None:
    before, after = Governing(1_000.0, 0, S + 400), Governing(500.0, S + 400, None)
    # At 700 ms: 8,000 B in 10,000 + 600 ms; 8,000 / 500 s of quota - 10.6 s = 5,400 ms.
    found = folded(
        governed(0, point(700, 4_000, 5_401), governing=after, version=2),
        governed(0, point(100, 4_000), governing=before),
    )
    rate = 8_000 / 10.6
    assert found == [
        Decision(
            S, level=7, rule="clients/etl", rule_version=2, limit_per_s=500.0, rate_per_s=rate,
            quota_used_percent=100.0 * rate / 500.0, amount=8_000, requests=2, throttle_ms=5_400,
            observed_throttle_ms=5_401, throttled_requests=1, observed_throttled_requests=1,
            total_throttle_ms=5_400,
            agreement=Agreement(uncertain=2),
            users=["alice"], client_ids=["etl"], observed_total_throttle_ms=5_401,
        )
    ]  # fmt: skip
    assert not found[0].is_certain


def test_the_throttle_of_a_cut_shows_that_the_cut_was_in_force() -> None:
    # By the rules table the cut came 1 ms after the request. 8,000 B in 10,000 ms are 80 % of 1,000 B/s: no throttle.
    # Under 500 B/s: 8,000 / 500 s of quota - 10 s = 6,000 ms, which the broker logged but for 285 ms, less than 5 %.
    cut = RuleLimit(500.0, 3, "users/alice", 2)
    before = Governing(1_000.0, 0, S + 401, after=cut)
    (found,) = folded(governed(0, point(400, 8_000, 5_715), governing=before))
    assert (found.limit_per_s, found.level, found.rule, found.rule_version) == cut
    assert (found.rate_per_s, found.quota_used_percent) == (800.0, 160.0)
    # The verdict is still that of the rules table, and uncertain: the answer is no evidence for its own verdict.
    assert (found.throttled_requests, found.observed_total_throttle_ms) == (0, 5_715)
    assert (found.agreement.uncertain, found.agreement.uncertain_wrong) == (1, 1)


def test_a_request_that_a_cut_would_have_throttled_was_under_the_limit_before_it() -> None:
    # The cut holds from 400 ms. At 401 ms it would throttle for 6,000 ms, but the log has no throttle.
    raised = RuleLimit(1_000.0, 7, "clients/etl", 1)
    after = Governing(500.0, S + 400, before=raised)
    (found,) = folded(governed(0, point(401, 8_000), governing=after, version=2))
    assert (found.limit_per_s, found.rule_version, found.quota_used_percent) == (1_000.0, 1, 80.0)


CUT_IN_1_MS = Governing(1_000.0, 0, S + 401, after=RuleLimit(500.0))


@pytest.mark.parametrize(
    ("observed_ms", "governing"),
    [
        pytest.param(5_714, CUT_IN_1_MS, id="more than 5 % off"),
        pytest.param(100, CUT_IN_1_MS, id="fits the limit of the rules table"),
        pytest.param(6_000, CUT_IN_1_MS._replace(valid_to_ms=S + 1_000), id="the edit is in the next second"),
        pytest.param(6_000, CUT_IN_1_MS._replace(after=None), id="the other limit is unknown"),
        pytest.param(
            6_000, CUT_IN_1_MS._replace(valid_from_ms=S + 300, before=RuleLimit(502.0)), id="both others fit"
        ),
        pytest.param(6_000, CUT_IN_1_MS._replace(has_request_quota=True), id="perhaps of another quota"),
        pytest.param(6_000, CUT_IN_1_MS._replace(gaps=((S, S + 500),)), id="the window is unknown"),
    ],
)
def test_a_throttle_that_shows_no_other_limit_leaves_that_of_the_rules(
    observed_ms: int, governing: Governing
) -> None:
    (found,) = folded(governed(0, point(400, 8_000, observed_ms), governing=governing))
    assert (found.limit_per_s, found.rule) == (1_000.0, "clients/etl")


def test_the_worst_request_gives_rate_limit_and_rule() -> None:
    # 300 ms: 9,000 B of 1,000 B/s, 90 %. 600 ms: 9,100 B of 2,000 B/s, about 45 %: not the worst, though last.
    low, high = Governing(1_000.0, 0, S + 450), Governing(2_000.0, S + 450, None)
    (found,) = folded(
        governed(0, point(0, 100), point(300, 8_900), governing=low),
        governed(0, point(600, 100), governing=high, version=2),
    )
    assert (found.rule_version, found.limit_per_s, found.rate_per_s) == (1, 1_000.0, 9_000 / 10.3)
    assert found.quota_used_percent == 100.0 * (9_000 / 10.3) / 1_000.0
    assert (found.amount, found.requests) == (9_100, 3)


def test_without_a_limit_the_highest_rate_is_shown() -> None:
    # 2,000 B / 10 s, then 2,001 B / 10.5 s, which is less.
    (found,) = folded(governed(0, point(0, 2_000), point(500, 1), governing=Governing(None)))
    assert (found.rate_per_s, found.limit_per_s, found.quota_used_percent) == (200.0, None, None)


def test_throttles_add_up_over_the_second() -> None:
    (found,) = folded(
        governed(0, point(0, 15_000, 5_000), point(100, 1_000, 5_900), point(200, 1_000), user="alice"),
        governed(0, point(300, 1_000, 7_700, correlation=1), user="bob", client_id="x"),
    )
    # 15,000 - 10,000; 16,000 - 10,100; 17,000 - 10,200; 18,000 - 10,300.
    assert (found.throttle_ms, found.throttled_requests) == (7_700, 4)
    assert found.total_throttle_ms == 5_000 + 5_900 + 6_800 + 7_700
    assert (found.observed_throttle_ms, found.observed_throttled_requests) == (7_700, 3)
    assert found.observed_total_throttle_ms == 5_000 + 5_900 + 7_700
    # The third was not throttled, so the window is another than the replay's: after it nothing is certain.
    tally = found.agreement
    assert (tally.agreeing, tally.false_positive, tally.uncertain, tally.window_off) == (2, 1, 1, 1)
    assert (found.users, found.client_ids) == (["alice", "bob"], ["etl", "x"])


def test_of_two_quotas_a_throttle_belongs_to_one_whose_limit_can_be_reached() -> None:
    # 1,000 B are a tenth of the limit: the broker's 900 ms are the request quota's. 15,000 B are above it, by 5,000 ms
    # less what the first one adds; the broker's 8,000 ms may be of either.
    both = Governing(1_000.0, has_request_quota=True)
    (found,) = folded(governed(0, point(0, 1_000, 900), point(100, 14_000, 8_000), governing=both))
    assert (found.agreement.excluded, found.throttled_requests) == (2, 1)
    assert (found.observed_throttle_ms, found.observed_throttled_requests) == (8_000, 1)
    assert found.observed_total_throttle_ms == 8_000
    unlimited = Governing(None, has_request_quota=True)
    (found,) = folded(governed(0, point(0, 1_000, 900), governing=unlimited))
    assert (found.observed_throttled_requests, found.observed_total_throttle_ms) == (0, 0)


def test_one_uncertain_request_makes_the_second_uncertain() -> None:
    (found,) = folded(governed(0, point(0, 10_001), point(500, 100)))
    assert (found.agreement.uncertain, found.agreement.agreeing, found.is_certain) == (1, 1, False)


def test_at_most_twenty_names() -> None:
    governed_seconds = [
        governed(0, point(n, 1, correlation=n), user=f"u{n:02}", client_id=f"c{n:02}") for n in range(25)
    ]
    (found,) = folded(*reversed(governed_seconds))
    assert found.users == [f"u{n:02}" for n in range(20)]
    assert found.client_ids == [f"c{n:02}" for n in range(20)]
    assert found.requests == 25


def test_a_second_already_folded_is_late() -> None:
    replay = BucketReplay(RateConfig())
    judge_bucket(replay, [governed(2, point(2_000, 9_000))])
    assert replay.folded_through_ms == S + 3_000
    verdicts: list[Verdict] = []
    late = [governed(2, point(2_500, 5_000)), governed(1, point(1_000, 1), point(1_001, 1), user="bob")]
    assert judge_bucket(replay, late, verdicts) == [
        Decision(S + 1_000, late=2, users=["bob"], client_ids=["etl"]),
        Decision(S + 2_000, late=1, users=["alice"], client_ids=["etl"]),
    ]
    assert verdicts == []
    # It moved nothing: 9,000 + 500 B in 11,000 - 1,000 ms.
    (following,) = judge_bucket(replay, [governed(3, point(3_000, 500))])
    assert (following.rate_per_s, following.is_certain) == (950.0, True)
    assert not Decision(S, late=1).is_certain


def test_verdicts_come_in_the_order_of_the_requests() -> None:
    verdicts: list[Verdict] = []
    judge_bucket(
        BucketReplay(RateConfig()),
        [
            governed(1, point(1_500, 6_000)),
            governed(0, point(700, 10), user="bob"),
            governed(0, point(100, 6_000)),
        ],
        verdicts,
    )
    assert [v.point.record_time_ms - S for v in verdicts] == [100, 700, 1_500]
    # 12,010 B in 10,000 + 400 ms: above by 1,610 ms.
    assert (verdicts[-1].throttle_ms, verdicts[-1].outcome) == (1_610, Outcome.FALSE_POSITIVE)
    assert verdicts[-1].cause is not Cause.MARGIN


EVENTS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 2), st.integers(0, 900), st.integers(0, 13_000)),
        st.integers(0, 4_000),
        st.integers(0, 3),
        st.sampled_from(["alice", "bob"]),
        st.sampled_from(list(PointKind)),
        st.sampled_from([0, 0, 40]),
    ),
    min_size=1,
    max_size=40,
)


@settings(deadline=None, print_blob=True, max_examples=150)
@given(EVENTS, st.data())
def test_decisions_do_not_depend_on_how_seconds_are_split_over_calls(
    events: list[tuple[int, int, int, str, PointKind, int]], data: st.DataObject
) -> None:
    after_ms = 0
    points: dict[tuple[int, str], list[Point]] = {}
    for gap_ms, amount, correlation, user, kind, observed_ms in events:
        after_ms += gap_ms
        sent = Point(S + after_ms, S + after_ms + 2, 7, correlation, amount, observed_ms, kind)
        points.setdefault((after_ms // 1_000, user), []).append(sent)
    governed_seconds = [governed(second, *found, user=user) for (second, user), found in points.items()]
    seconds = sorted({s.second_ms for s in governed_seconds})
    cuts = data.draw(st.sets(st.sampled_from(seconds)))

    at_once: list[Verdict] = []
    expected = judge_bucket(BucketReplay(RateConfig()), governed_seconds, at_once)

    replay, found_verdicts, found_decisions = BucketReplay(RateConfig()), list[Verdict](), list[Decision]()
    edges = [0, *sorted(cuts), 2 * S]
    for start_ms, end_ms in pairwise(edges):
        batch = data.draw(st.permutations([s for s in governed_seconds if start_ms <= s.second_ms < end_ms]))
        found_decisions += judge_bucket(replay, batch, found_verdicts)
    assert found_verdicts == at_once
    assert found_decisions == expected
    assert sum(d.requests for d in expected) == len(events)
