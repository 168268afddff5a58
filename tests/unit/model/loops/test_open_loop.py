"""The throttles of recorded requests at their times: those of the audit's replay, and of tried quotas."""

from __future__ import annotations

from kquota_spark.model.loops.open_loop import Judged, judged
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.decision import GovernedSecond
from tests.support.logs.judged_points import T0

CREATE, ADD, DELETE = PointKind.CREATE_TOPIC, PointKind.CREATE_PARTITIONS, PointKind.DELETE_TOPIC


def topic(after_ms: int, name: int, partitions: int, kind: PointKind = CREATE) -> Point:
    """A topic; its name is a number, which the replay takes topics of one millisecond in the order of."""
    return Point(T0 + after_ms, T0 + after_ms + 1, name, after_ms, partitions, 0, int(kind))


def mutations(limit: float, *points: Point) -> list[Judged]:
    governed = GovernedSecond(T0, "alice", "", Governing(limit), None, None, None, points)
    return judged(QuotaType.CONTROLLER_MUTATION, [governed], RateConfig(), is_recorded=False)


def test_a_topic_is_refused_while_the_bucket_is_below_zero_and_takes_nothing() -> None:
    # 1/s: 11 tokens. 20 partitions leave -9; a second later -8, and the topic is refused: 8 s until 0. After 9 s more
    # there is 1 token, and as nothing was taken the last topic is accepted.
    found = mutations(1.0, topic(0, 1, 20), topic(1_000, 2, 5), topic(10_000, 3, 5))
    assert [(each.throttle_ms, each.is_unknown) for each in found] == [(0, False), (8_000, False), (0, False)]


def test_an_older_request_is_charged_whatever_the_tokens_are() -> None:
    old = PointKind.PERMISSIVE_CREATE_TOPIC
    # 11 - 20 = -9, and then -9 - 5 = -14.
    assert [each.throttle_ms for each in mutations(1.0, topic(0, 1, 20, old), topic(0, 2, 5, old))] == [
        9_000,
        14_000,
    ]


def test_the_charge_of_a_topic_comes_from_its_own_record() -> None:
    # 8 created, 11 in all after adding: 3 more. 11 - 8 - 3 = 0, so deleting is accepted, and takes 11. 3 ms later the
    # bucket is at -10.997.
    found = mutations(1.0, topic(0, 1, 8), topic(1, 1, 11, ADD), topic(2, 1, 0, DELETE), topic(3, 2, 1))
    assert [(each.throttle_ms, each.is_unknown) for each in found] == [(0, False)] * 3 + [(10_997, False)]


def test_a_topic_that_was_refused_or_is_older_than_the_record_is_unknown_if_it_is_accepted() -> None:
    found = mutations(1.0, topic(0, 1, 0, PointKind.REFUSED_MUTATION), topic(0, 2, 0, DELETE))
    assert [(each.throttle_ms, each.is_unknown) for each in found] == [(0, True), (0, True)]
