"""Share consumers (KIP-932): their fetches are charged, no line says how much, and what hangs on that is uncertain."""

from __future__ import annotations

from collections import Counter

import pytest

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.causes import Cause, Governing
from kquota_spark.model.replay.decision import GovernedSecond, judge_bucket
from kquota_spark.model.replay.replay import BucketReplay, Outcome, Verdict
from tests.support.logs.captures import KRAFT43_SHARE, buckets_of, verdicts_of

LIMITED = Governing(1_000.0)
# The audit's ring remembers 11 windows of 1 s and one more.
HORIZON_MS = 12_000


def fetch(time_ms: int, kind: PointKind = PointKind.FETCH, throttle_ms: int = 0, amount: int = 100) -> Point:
    return Point(time_ms, time_ms, 1, time_ms, amount, throttle_ms, kind)


def judged(points: list[Point], governing: Governing = LIMITED) -> list[Verdict]:
    return BucketReplay(RateConfig()).judge(points, [governing] * len(points))


def test_nothing_is_certain_from_the_second_of_a_share_fetch_until_no_ring_can_hold_it() -> None:
    share = fetch(5_500, PointKind.SHARE_FETCH, amount=0)
    others = [fetch(time_ms) for time_ms in (4_999, 5_000, 5_501, 5_500 + HORIZON_MS - 1, 5_500 + HORIZON_MS)]
    verdicts = judged(sorted([share, *others]))
    assert [(each.point.record_time_ms, each.outcome, each.cause) for each in verdicts] == [
        (4_999, Outcome.AGREES, None),
        (5_000, Outcome.UNCERTAIN, Cause.UNSIZED),
        (5_500, Outcome.UNCERTAIN, Cause.UNSIZED),
        (5_501, Outcome.UNCERTAIN, Cause.UNSIZED),
        (17_499, Outcome.UNCERTAIN, Cause.UNSIZED),
        (17_500, Outcome.AGREES, None),
    ]


@pytest.mark.parametrize("kind", [PointKind.PRODUCE, PointKind.FETCH])
def test_any_request_without_a_size_makes_its_bucket_uncertain_for_as_long(kind: PointKind) -> None:
    unsized = fetch(5_500, PointKind.UNSIZED, amount=0)
    others = [fetch(time_ms, kind) for time_ms in (4_999, 5_501, 5_500 + HORIZON_MS - 1, 5_500 + HORIZON_MS)]
    verdicts = judged(sorted([unsized, *others]))
    # 100 bytes a request are far below 1,000 B/s; the size that is missing decides.
    assert [each.cause for each in verdicts] == [None, Cause.UNSIZED, Cause.UNSIZED, Cause.UNSIZED, None]
    assert [each.outcome for each in verdicts[1:4]] == [Outcome.UNCERTAIN] * 3


def test_a_bucket_without_a_limit_is_certain_beside_a_share_fetch() -> None:
    verdicts = judged([fetch(5_500, PointKind.SHARE_FETCH, amount=0), fetch(5_600)], Governing(None))
    assert [each.outcome for each in verdicts] == [Outcome.AGREES, Outcome.AGREES]


@pytest.mark.parametrize("kind", [PointKind.THROTTLED_SHARE_FETCH, PointKind.THROTTLED_FETCH])
def test_a_throttled_fetch_beside_share_fetches_has_the_brokers_throttle_and_is_uncertain(
    kind: PointKind,
) -> None:
    share = fetch(5_500, PointKind.SHARE_FETCH, amount=0)
    _, verdict = judged([share, fetch(6_000, kind, throttle_ms=4_993, amount=0)])
    assert (verdict.throttle_ms, verdict.outcome, verdict.cause) == (
        4_993, Outcome.UNCERTAIN, Cause.UNSIZED
    )  # fmt: skip


def test_the_mark_goes_on_in_another_replay_and_ends_with_the_ring() -> None:
    first = BucketReplay(RateConfig())
    first.judge([fetch(5_500, PointKind.SHARE_FETCH, amount=0)], [LIMITED])
    second = BucketReplay(RateConfig(), first.state)
    (verdict,) = second.judge([fetch(17_400)], [LIMITED])
    assert verdict.cause is Cause.UNSIZED
    (verdict,) = second.judge([fetch(18_000)], [LIMITED])
    assert verdict.cause is None
    # What comes after is the same as if there had never been one.
    never = BucketReplay(RateConfig())
    never.judge([fetch(17_400), fetch(18_000)], [LIMITED] * 2)
    assert second.state[3] == never.state[3] == 0


def test_a_decision_counts_what_has_no_size() -> None:
    points = [
        fetch(5_500, PointKind.SHARE_FETCH, amount=0),
        fetch(5_600, PointKind.THROTTLED_SHARE_FETCH, throttle_ms=300, amount=0),
        fetch(5_700),
        fetch(5_800, PointKind.UNSIZED, amount=0),
    ]
    governed = GovernedSecond(5_000, "alice", "mixed", LIMITED, 8, "clients/mixed", 1, points)
    (decision,) = judge_bucket(BucketReplay(RateConfig()), [governed])
    assert (decision.requests, decision.unsized_requests, decision.amount) == (4, 2, 100)
    assert (decision.observed_throttled_requests, decision.observed_total_throttle_ms) == (1, 300)
    assert not decision.is_certain


def test_a_log_of_4_3_with_share_groups() -> None:
    """All produces right, no certain fetch with a share fetch in its ring, and all 12 throttles are there."""
    verdicts = {
        key: verdicts_of(bucket, KRAFT43_SHARE.config)
        for key, bucket in buckets_of(KRAFT43_SHARE).items()
        if key.quota_type in (QuotaType.PRODUCE, QuotaType.FETCH)
    }
    produced = [
        one for key, found in verdicts.items() if key.quota_type is QuotaType.PRODUCE for one in found
    ]
    outcomes = Counter((one.outcome, one.point.observed_throttle_ms > 0) for one in produced)
    assert outcomes == {
        (Outcome.AGREES, True): 217,
        (Outcome.AGREES, False): 830,
        (Outcome.UNCERTAIN, True): 5,
        (Outcome.UNCERTAIN, False): 3,
    }

    seen = Counter[tuple[str, PointKind, Outcome]]()
    for key, found in verdicts.items():
        last_share_ms = -HORIZON_MS
        for one in found:
            if one.point.kind >= PointKind.SHARE_FETCH:
                last_share_ms = one.point.record_time_ms
                seen[key.bucket.client_id, PointKind(one.point.kind), one.outcome] += 1
            is_limited = one.governing.limit_per_s is not None
            if is_limited and one.point.record_time_ms - last_share_ms < HORIZON_MS:
                assert one.outcome is Outcome.UNCERTAIN
    # grep -c of the log: 104 SHARE_FETCH, 12 with a throttle.
    assert sum(seen.values()) == 104
    assert sum(count for (_, kind, _), count in seen.items() if kind == PointKind.THROTTLED_SHARE_FETCH) == 12
