"""A log judged with the wrong sample ring is noticed, and nothing is said where it is not clear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat

import pytest

from kquota_spark.findings.ring_check import MOST_OF_A_BUCKET, RingEvidence, likely_variant
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.decision import GovernedSecond
from tests.support.logs.captures import KRAFT41, ZK37, ZK39_PLAIN, Capture, buckets_of

S = 1_795_239_600_000
LIMIT = Governing(1_000.0)
OLDER, NEWER = RateConfig(variant=RingVariant.UP_TO_3_7), RateConfig(variant=RingVariant.FROM_3_8)


def bucket(
    *, observed_ms: int, governing: Governing = LIMIT, kind: PointKind = PointKind.PRODUCE, last: int = 4_000
) -> list[GovernedSecond]:
    """Three requests of 5,000 B, 4,000 B and `last` at 0, 0.9 and 11.5 s; the broker throttled the third.

    At 1,000 B/s and with 4,000 B: an older ring has dropped the sample that began at 0, so 4,000 B are in the
    window and nothing is throttled. A newer one keeps it until 11.9 s, as its last event was at 0.9 s: 13,000 B
    in 11.5 s, 13,000 / 1,000 B/s - 11,500 ms = 1,500 ms.
    """
    sizes = ((0, 5_000, 0), (900, 4_000, 0), (11_500, last, observed_ms))
    return [
        GovernedSecond(
            S + after_ms // 1_000 * 1_000, "alice", "etl", governing, 7, "clients/etl", 1,
            [Point(S + after_ms, S + after_ms + 1, 7, 0, amount, throttle_ms, kind)],
        )
        for after_ms, amount, throttle_ms in sizes
    ]  # fmt: skip


OF_NEWER, OF_OLDER = bucket(observed_ms=1_500), bucket(observed_ms=0)


def test_the_broker_is_newer_than_configured() -> None:
    evidence = likely_variant([OF_NEWER] * 30, OLDER)
    assert evidence == RingEvidence(RingVariant.FROM_3_8, 30, 0, 90)
    assert evidence.message == (
        "this looks like a broker of 3.8 or later: of 90 verdicts 30 are not the broker's as configured, "
        "0 with the sample ring of such a broker"
    )
    assert likely_variant([OF_NEWER] * 30, NEWER) is None


def test_the_broker_is_older_than_configured() -> None:
    evidence = likely_variant([OF_OLDER] * 30, NEWER)
    assert evidence == RingEvidence(RingVariant.UP_TO_3_7, 30, 0, 90)
    assert evidence.message.startswith("this looks like a broker before 3.8: of 90 verdicts 30 are not ")
    assert likely_variant([OF_OLDER] * 30, OLDER) is None


def test_nineteen_wrong_verdicts_are_too_thin() -> None:
    assert likely_variant([], OLDER) is None
    assert likely_variant([OF_NEWER] * 19, OLDER) is None
    assert likely_variant([OF_NEWER] * 20, OLDER) == RingEvidence(RingVariant.FROM_3_8, 20, 0, 60)


def test_the_other_ring_has_to_leave_a_tenth_at_most() -> None:
    assert likely_variant([OF_NEWER] * 40 + [OF_OLDER] * 4, OLDER) == RingEvidence(
        RingVariant.FROM_3_8, 40, 4, 132
    )
    assert likely_variant([OF_NEWER] * 40 + [OF_OLDER] * 5, OLDER) is None
    assert likely_variant([OF_NEWER] * 40 + [OF_OLDER] * 40, OLDER) is None


@pytest.mark.parametrize(
    "silent",
    [
        bucket(observed_ms=1_500, governing=Governing(None)),
        bucket(observed_ms=1_500, governing=Governing(0.0)),
        bucket(observed_ms=1_500, governing=Governing(1_000.0, has_request_quota=True)),
        bucket(observed_ms=1_500, kind=PointKind.FETCH),
    ],
    ids=["no limit", "limit 0", "request quota", "fetch"],
)
def test_what_tells_nothing_takes_no_room_in_the_sample(silent: Sequence[GovernedSecond]) -> None:
    assert likely_variant([silent] * 30, OLDER) is None
    # 21,000 requests, more than the sample takes.
    evidence = likely_variant([silent] * 7_000 + [OF_NEWER] * 30, OLDER)
    assert evidence == RingEvidence(RingVariant.FROM_3_8, 30, 0, 90)


def test_what_one_of_the_rings_is_not_certain_of_is_not_counted() -> None:
    # 11,502 B in 11.5 s is 2 ms above the limit: a newer ring cannot be sure, an older one is, and wrong.
    uncertain = bucket(observed_ms=2, last=2_502)
    assert likely_variant([uncertain] * 30, OLDER) is None
    evidence = likely_variant([uncertain] * 30 + [OF_NEWER] * 30, OLDER)
    assert evidence == RingEvidence(RingVariant.FROM_3_8, 30, 0, 30 * 2 + 90)


def test_windows_that_are_not_the_brokers_are_not_taken_for_its_ring() -> None:
    # With 6 samples 4,000 B are all that either ring has after 11.5 s: both miss the throttle.
    assert likely_variant([OF_NEWER] * 30, replace(OLDER, num_samples=6)) is None


def test_the_sample_is_bounded() -> None:
    # Three requests a bucket: 6,666 of them have 19,998; of the next one its first second, with two, is enough.
    evidence = likely_variant(repeat(OF_NEWER), OLDER)
    assert evidence == RingEvidence(RingVariant.FROM_3_8, 6_666, 0, 20_000)


def test_one_bucket_is_not_the_whole_sample() -> None:
    # One request a second of 1 B, never near its limit, for twice as long as a bucket may take.
    idle = [
        OF_NEWER[0]._replace(
            second_ms=S + second * 1_000,
            points=[Point(S + second * 1_000, S + second * 1_000, 7, 0, 1, 0, PointKind.PRODUCE)],
        )
        for second in range(2 * MOST_OF_A_BUCKET)
    ]
    evidence = likely_variant([idle, *[OF_NEWER] * 20], OLDER)
    assert evidence == RingEvidence(RingVariant.FROM_3_8, 20, 0, MOST_OF_A_BUCKET + 60)


@pytest.mark.parametrize(
    ("capture", "evidence"),
    [
        (ZK37, RingEvidence(RingVariant.UP_TO_3_7, 3_530, 0, 10_120)),
        (KRAFT41, RingEvidence(RingVariant.FROM_3_8, 2_465, 0, 9_682)),
        (ZK39_PLAIN, RingEvidence(RingVariant.FROM_3_8, 877, 0, 5_555)),
    ],
    ids=["zk37", "kraft41", "zk39-plain"],
)
def test_the_ring_of_a_real_broker(capture: Capture, evidence: RingEvidence) -> None:
    buckets = buckets_of(capture)
    assert capture.config.variant is evidence.variant
    assert likely_variant(buckets.values(), capture.config) is None
    for variant in set(RingVariant) - {evidence.variant}:
        assert likely_variant(buckets.values(), replace(capture.config, variant=variant)) == evidence


@pytest.mark.parametrize("windows", [(5, 2_000), (10, 1_000), (12, 1_000), (11, 2_000)])
@pytest.mark.parametrize("variant", RingVariant)
def test_the_windows_of_a_real_broker_are_not_taken_for_its_ring(
    variant: RingVariant, windows: tuple[int, int]
) -> None:
    # The broker had 11 x 1 s.
    assert likely_variant(buckets_of(KRAFT41).values(), RateConfig(*windows, variant)) is None
