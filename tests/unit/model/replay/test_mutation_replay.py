"""Controller mutations topic by topic: arithmetic by hand, and what real controllers answered."""

from __future__ import annotations

from collections import Counter

import pytest

from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.formats.request_log.line import Request, RequestLogParser
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.points import CONTROLLER_ID, Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.rules import RuleBook, rule_periods
from kquota_spark.model.replay.causes import Cause, Governing
from kquota_spark.model.replay.mutation_replay import FORGET_AFTER_MS, MutationReplay
from kquota_spark.model.replay.replay import Outcome, Verdict
from kquota_spark.replay.files import broker_id_of, replay_files
from tests.support.logs.log_lines import CREATE_TOPICS_V7_REFUSED, changed
from tests.support.places import DATA

T0_MS = 1_795_239_600_000
FIVE_A_SECOND = Governing(5.0)
"""The bucket holds 11 s of it: 55."""


def topic(
    offset_ms: int,
    kind: PointKind,
    partitions: int = 0,
    *,
    name: int = 1,
    observed_ms: int = 0,
    took_ms: int = 0,
) -> Point:
    time_ms = T0_MS + offset_ms
    return Point(time_ms, time_ms + took_ms, name, offset_ms, partitions, observed_ms, kind)


def judged(*points: Point, governing: Governing = FIVE_A_SECOND) -> list[Verdict]:
    return MutationReplay(RateConfig()).judge(points, [governing] * len(points))


def outcomes(*points: Point) -> list[tuple[int, str]]:
    return [(verdict.throttle_ms, verdict.outcome.value) for verdict in judged(*points)]


def test_a_full_bucket_gives_any_amount_and_then_refuses() -> None:
    first, second = judged(
        topic(0, PointKind.CREATE_TOPIC, 60), topic(500, PointKind.REFUSED_MUTATION, name=2, observed_ms=500)
    )
    # 55 - 60 = -5; half a second later -2.5, which takes 500 ms to come back.
    assert (first.throttle_ms, first.outcome) == (0, Outcome.AGREES)
    assert (second.throttle_ms, second.outcome) == (500, Outcome.AGREES)
    # Above 0 tokens is below 100 %: (55 - 55) / 11 s, then (55 + 2.5) / 11 s of 5 a second.
    assert (first.rate_per_s, second.rate_per_s) == (0.0, 57.5 / 11)
    assert second.window_ms == 11_000


def test_after_the_wait_the_bucket_gives_again() -> None:
    spent = topic(0, PointKind.CREATE_TOPIC, 60)
    assert outcomes(spent, topic(1_010, PointKind.CREATE_TOPIC, 1, name=2))[1] == (0, "agrees")
    assert outcomes(spent, topic(900, PointKind.CREATE_TOPIC, 1, name=2))[1] == (100, "false_positive")
    assert outcomes(spent, topic(1_010, PointKind.REFUSED_MUTATION, name=2))[1] == (0, "false_negative")


def test_tokens_that_come_back_while_the_request_is_worked_on_decide_nothing() -> None:
    spent = topic(0, PointKind.CREATE_TOPIC, 60)
    # At 990 ms 0.05 tokens are missing: 10 ms. The controller charges at some time in the 40 ms that it took.
    *_, found = judged(spent, topic(990, PointKind.CREATE_TOPIC, 1, name=2, took_ms=40))
    assert (found.outcome, found.cause) == (Outcome.UNCERTAIN, Cause.MARGIN)


def test_older_versions_are_throttled_and_not_refused() -> None:
    found = outcomes(
        topic(0, PointKind.PERMISSIVE_CREATE_TOPIC, 60, observed_ms=1_000),
        topic(100, PointKind.PERMISSIVE_CREATE_TOPIC, 1, name=2, observed_ms=1_100),
    )
    # 55 - 60 = -5: a second; 100 ms later -4.5 - 1 = -5.5.
    assert found == [(1_000, "agrees"), (1_100, "agrees")]


def test_partitions_are_known_of_topics_made_in_the_same_bucket() -> None:
    found = judged(
        topic(0, PointKind.CREATE_TOPIC, 20),
        topic(100, PointKind.CREATE_PARTITIONS, 30),  # 10 more
        topic(200, PointKind.DELETE_TOPIC),  # all 30
        topic(300, PointKind.REFUSED_MUTATION, name=2),
    )
    # 55 - 20; + 0.5 - 10; + 0.5 - 30; + 0.5 = -3.5, so 700 ms.
    assert [verdict.cause for verdict in found] == [None] * 4
    assert (found[-1].throttle_ms, found[-1].outcome) == (700, Outcome.AGREES)


def test_of_a_topic_that_was_there_before_the_charge_is_unknown_until_an_answer_tells() -> None:
    found = judged(
        topic(0, PointKind.DELETE_TOPIC),
        topic(100, PointKind.REFUSED_MUTATION, name=2, observed_ms=2_000),
        topic(200, PointKind.REFUSED_MUTATION, name=2, observed_ms=1_900),
        topic(3_000, PointKind.CREATE_TOPIC, 1, name=3),
    )
    assert [verdict.cause for verdict in found] == [None, Cause.PARTITIONS, None, None]
    # 2,000 ms at 100 ms were 10 tokens; what the answer rounds off is left open, a millisecond of them.
    assert found[2].throttle_ms in (1_899, 1_900)
    assert [verdict.outcome.value for verdict in found[2:]] == ["agrees", "agrees"]


def test_a_wait_under_a_request_quota_does_not_tell_how_far_below_zero_the_bucket_was() -> None:
    # The 2,000 ms may be the request quota's. Whether 5 a second have filled the bucket after 3 s is not known.
    found = judged(
        topic(0, PointKind.DELETE_TOPIC),
        topic(100, PointKind.REFUSED_MUTATION, name=2, observed_ms=2_000),
        topic(3_000, PointKind.CREATE_TOPIC, 1, name=3),
        governing=Governing(5.0, has_request_quota=True),
    )
    assert [verdict.cause for verdict in found] == [None, Cause.PARTITIONS, Cause.PARTITIONS]


def test_an_acceptance_shows_that_the_bucket_was_not_below_zero() -> None:
    found = judged(
        topic(0, PointKind.CREATE_PARTITIONS, 100),  # 1 to 99 more
        topic(1_000, PointKind.CREATE_TOPIC, 1, name=2),
        topic(2_000, PointKind.CREATE_TOPIC, 1, name=3),
    )
    # The second one: -44 + 5 to 54. It was accepted: 0 at least, and after a second 4 at least.
    assert [verdict.cause for verdict in found] == [None, Cause.PARTITIONS, None]


def test_of_one_request_the_refused_topics_come_last() -> None:
    refused = topic(0, PointKind.REFUSED_MUTATION, name=1, observed_ms=1_000)
    accepted = topic(0, PointKind.CREATE_TOPIC, 60, name=2)
    # The order of points is that of the topics' numbers.
    assert outcomes(refused, accepted) == [(1_000, "agrees"), (0, "agrees")]


HOUR_MS, SWEEP_MS = 3_600_000, 30_000
DEEP = topic(0, PointKind.CREATE_TOPIC, 60_000)
"""Takes the bucket to 55 - 60,000: at 5 a second more than three hours below 0."""


def test_a_bucket_that_nothing_was_taken_from_for_an_hour_is_full_again() -> None:
    accepted = topic(HOUR_MS + SWEEP_MS + 1, PointKind.CREATE_TOPIC, 60, name=2)
    after = topic(HOUR_MS + SWEEP_MS + 501, PointKind.REFUSED_MUTATION, name=3, observed_ms=500)
    # Full: 55 - 60 = -5, and half a second later -2.5.
    assert outcomes(DEEP, accepted, after)[1:] == [(0, "agrees"), (500, "agrees")]


def test_a_refusal_takes_nothing_and_so_does_not_keep_a_bucket() -> None:
    refused = topic(HOUR_MS // 2, PointKind.REFUSED_MUTATION, name=2, observed_ms=10_189_000)
    accepted = topic(HOUR_MS + SWEEP_MS + 1, PointKind.CREATE_TOPIC, 1, name=3)
    # 59,945 are missing, 9,000 have come back after half an hour: 50,945 / 5 s.
    assert outcomes(DEEP, refused, accepted)[1:] == [(10_189_000, "agrees"), (0, "agrees")]


@pytest.mark.parametrize(
    ("after_ms", "cause"),
    [
        (HOUR_MS, None),
        (HOUR_MS + 1, Cause.IDLE),
        (HOUR_MS + SWEEP_MS, Cause.IDLE),
        (HOUR_MS + SWEEP_MS + 1, None),
    ],
)
def test_between_an_hour_and_the_next_sweep_a_verdict_on_an_idle_bucket_is_uncertain(
    after_ms: int, cause: Cause | None
) -> None:
    *_, found = judged(DEEP, topic(after_ms, PointKind.CREATE_TOPIC, 1, name=2))
    assert found.cause is cause


def test_an_older_version_takes_from_an_empty_bucket_and_so_keeps_it() -> None:
    taken = topic(HOUR_MS // 2, PointKind.PERMISSIVE_CREATE_TOPIC, 1, name=2, observed_ms=10_189_200)
    refused = topic(HOUR_MS + SWEEP_MS + 1, PointKind.REFUSED_MUTATION, name=3, observed_ms=8_383_200)
    # 59,946 are missing; 5 a second come back for 3,630.001 s: 41,795.995, or 8,359.199 s.
    *_, found = judged(DEEP, taken, refused)
    assert (found.throttle_ms, found.outcome) == (8_359_199, Outcome.AGREES)


def test_after_a_day_nothing_is_remembered() -> None:
    found = judged(
        topic(0, PointKind.CREATE_TOPIC, 3),
        topic(FORGET_AFTER_MS, PointKind.DELETE_TOPIC),
        topic(FORGET_AFTER_MS + 10, PointKind.CREATE_TOPIC, 1, name=2),
    )
    assert [verdict.cause for verdict in found] == [None, None, Cause.PARTITIONS]


def test_a_stored_state_goes_on_as_the_kept_one() -> None:
    kept, stored = MutationReplay(RateConfig()), MutationReplay(RateConfig())
    kinds = (PointKind.CREATE_TOPIC, PointKind.DELETE_TOPIC, PointKind.CREATE_PARTITIONS)
    for step in range(60):
        point = topic(step * 700, kinds[step % 3], step % 7 + 2, name=step % 5)
        stored = MutationReplay(RateConfig(), stored.state)
        assert stored.judge([point], [FIVE_A_SECOND]) == kept.judge([point], [FIVE_A_SECOND])
    assert stored.state == kept.state


@pytest.mark.parametrize(
    ("name", "apply_lag_ms", "topics", "refused"), [("kraft39", 0, 63, 28), ("zk39-levels", 95, 61, 21)]
)
def test_every_answer_is_the_controllers(name: str, apply_lag_ms: int, topics: int, refused: int) -> None:
    folder = DATA / name
    book = RuleBook(rule_periods(read_quota_file(folder / "quotas.yaml"), apply_lag_ms=apply_lag_ms))
    files = [(broker_id_of(path, None), path) for path in sorted(folder.glob("*.log.gz"))]
    found = replay_files(files, RuleGovernor(book), RateConfig())
    [verdicts] = [
        of_bucket for key, of_bucket in found.verdicts.items()
        if (key.quota_type, key.bucket.user) == (QuotaType.CONTROLLER_MUTATION, "ctl")
    ]  # fmt: skip
    assert {key.broker_id for key in found.verdicts if key.quota_type is QuotaType.CONTROLLER_MUTATION} == {
        CONTROLLER_ID
    }
    answers = Counter(
        (verdict.throttle_ms > 0, verdict.point.kind == PointKind.REFUSED_MUTATION) for verdict in verdicts
    )
    assert answers == {(True, True): refused, (False, False): topics - refused}
    # One is within the time that its request took, one in the second of an edit.
    assert sum(verdict.cause is not None for verdict in verdicts) <= 2


def parsed(*replacements: tuple[str, str]) -> Request:
    return RequestLogParser().parse(changed(CREATE_TOPICS_V7_REFUSED, *replacements))


ACCEPTED = ('"errorCode":89', '"errorCode":0')
EXISTS = ('"errorCode":89', '"errorCode":36')
OLD = ('"requestApiVersion":7', '"requestApiVersion":5')
TIMED_OUT = ('"errorCode":89', '"errorCode":7')
BY_DEFAULT = ('"numPartitions":60', '"numPartitions":-1')


@pytest.mark.parametrize(
    ("replacements", "expected"),
    [
        ((), (0, PointKind.REFUSED_MUTATION)),
        ((ACCEPTED,), (60, PointKind.CREATE_TOPIC)),
        ((TIMED_OUT,), (60, PointKind.CREATE_TOPIC)),
        ((ACCEPTED, OLD), (60, PointKind.PERMISSIVE_CREATE_TOPIC)),
        # -1 asks for the broker's default, which the answer tells.
        ((ACCEPTED, BY_DEFAULT), (0, PointKind.CREATE_TOPIC)),
        ((EXISTS,), None),
        ((ACCEPTED, ('"validateOnly":false', '"validateOnly":true')), None),
        ((('"isForwarded":false', '"isForwarded":true'),), None),
    ],
)
def test_what_a_request_says(
    replacements: tuple[tuple[str, str], ...], expected: tuple[int, PointKind] | None
) -> None:
    mutations = parsed(*replacements).mutations
    found = None if mutations is None else [(each.partitions, each.point_kind) for each in mutations]
    assert found == (None if expected is None else [(expected[0], int(expected[1]))])
