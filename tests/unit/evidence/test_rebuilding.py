"""One decision from its inputs: the same as the job's, a restatement's and the replay's, from the last pause on."""

from __future__ import annotations

import pytest

from kquota_spark.evidence.rebuilding import NAMES, Inputs, decision_bytes, rebuild
from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.decision import remembers_ms
from kquota_spark.pipeline.bucket_judge import (
    BucketJudge,
    Configs,
    Judged,
    decided_values,
    is_behind,
    warm_start,
)
from kquota_spark.pipeline.rejudge import Reach, rejudged
from kquota_spark.pipeline.sent import Manager, Sent
from tests.support.chance import Chance
from tests.support.pipeline.packed import packed_bytes
from tests.support.tables.table_rows import T0_MS

BUCKET = ("alice", "", None)
RING = RateConfig(num_samples=5, window_ms=1_000)
HORIZON_S = 6  # (5 + 1) samples of 1 s
KINDS = {
    QuotaType.PRODUCE: (PointKind.PRODUCE,),
    QuotaType.REQUEST: (PointKind.REQUEST, PointKind.SHARED_REQUEST),
    QuotaType.CONTROLLER_MUTATION: (
        PointKind.CREATE_TOPIC,
        PointKind.DELETE_TOPIC,
        PointKind.CREATE_PARTITIONS,
    ),
}
MOST = {QuotaType.PRODUCE: 900, QuotaType.REQUEST: 900_000, QuotaType.CONTROLLER_MUTATION: 9}
LIMIT = {QuotaType.PRODUCE: 1_000.0, QuotaType.REQUEST: 100.0, QuotaType.CONTROLLER_MUTATION: 1.0}


def sent(
    second_ms: int,
    *requests: tuple[int, int],
    limit: float = 1_000.0,
    kind: int = 0,
    config: RateConfig = RING,
) -> Sent:
    """A second with requests at so many ms after its start, of so many bytes."""
    points = [
        [second_ms + at_ms, second_ms + at_ms + 1, 7, index, amount, 0, kind, 0]
        for index, (at_ms, amount) in enumerate(requests)
    ]
    return Sent(
        second_ms, "alice", "etl", 0, None, False, packed_bytes(points), "users/alice", 1, 3, limit, 2**60,
        rate_config=config.name,
    )  # fmt: skip


def traffic(
    chance: Chance, quota_type: QuotaType, seconds: int, busy: float, config: RateConfig = RING
) -> list[Sent]:
    found = []
    for second in range(seconds):
        if chance.random() < busy:
            count = chance.choice([1, 2, 5])
            times = sorted(chance.randrange(1_000) for _ in range(count))
            requests = [(at_ms, chance.randrange(1, MOST[quota_type])) for at_ms in times]
            kind = int(chance.choice(KINDS[quota_type]))
            limit = LIMIT[quota_type]
            found.append(sent(T0_MS + second * 1_000, *requests, limit=limit, kind=kind, config=config))
    return found


def inputs(rows: list[Sent], second_ms: int, quota_type: QuotaType = QuotaType.PRODUCE) -> Inputs:
    manager = Manager("kafka", 1, quota_type)
    return Inputs(manager, BUCKET, second_ms, rows, Configs(RING, RING))


def row_of(judged: Judged, quota_type: QuotaType) -> dict[str, object]:
    """A judged second as a row of the table."""
    behind = is_behind(2**60, judged.second.second_ms)
    key = ("kafka", 1, quota_type.value, *BUCKET)
    return dict(zip(NAMES, (*key, *decided_values(judged, is_rules_behind=behind)), strict=True))


@pytest.mark.parametrize("quota_type", KINDS)
@pytest.mark.parametrize("busy", [1.0, 0.6])
def test_every_decision_of_the_job_is_rebuilt_byte_for_byte(
    quota_type: QuotaType, busy: float, chance: Chance
) -> None:
    rows = traffic(chance, quota_type, 60, busy)
    # The job judges some seconds per micro-batch, and encodes its state in between.
    judged: list[Judged] = []
    state: bytes | None = None
    for start in range(0, len(rows), 7):
        judge = BucketJudge(quota_type, Configs(RING, RING), state, RING.name)
        judged += judge.judge(rows[start : start + 7])
        state = judge.state
    assert len(judged) == len(rows)
    for each in judged:
        rebuilt = rebuild(
            inputs(
                [row for row in rows if row.second_ms <= each.second.second_ms],
                each.second.second_ms,
                quota_type,
            )
        )
        assert decision_bytes(rebuilt.row) == decision_bytes(row_of(each, quota_type))
    assert any(each.decision.throttle_ms for each in judged)


def test_every_decision_of_a_restatement_is_rebuilt_byte_for_byte(chance: Chance) -> None:
    configs = Configs(RING, RING)
    rows = traffic(chance, QuotaType.PRODUCE, 90, 0.8)
    from_ms, to_ms = T0_MS + 40_000, T0_MS + 50_000
    inside = [row for row in rows if from_ms <= row.second_ms < to_ms]
    kept = [row for row in rows if row not in inside]
    reach = Reach(from_ms, to_ms, T0_MS, T0_MS + 90_000, is_from_beginning=True)
    again = rejudged(QuotaType.PRODUCE, kept, inside[1:], inside, configs, reach)
    assert len(again.decisions) == sum(row.second_ms >= from_ms for row in rows)
    for each in again.decisions:
        rebuilt = rebuild(
            inputs([row for row in rows if row.second_ms <= each.second.second_ms], each.second.second_ms)
        )
        assert decision_bytes(rebuilt.row) == decision_bytes(row_of(each, QuotaType.PRODUCE))


@pytest.mark.parametrize("variant", RingVariant)
@pytest.mark.parametrize("quota_type", [QuotaType.PRODUCE, QuotaType.REQUEST])
def test_requests_before_a_pause_as_long_as_the_ring_remembers_make_no_difference(
    variant: RingVariant, quota_type: QuotaType, chance: Chance
) -> None:
    config = RateConfig(5, 1_000, variant)
    assert remembers_ms(quota_type, config) == HORIZON_S * 1_000
    differing = 0
    for _ in range(6):
        rows = traffic(chance, quota_type, 50, 0.9, config)
        # No request for 6 s: from the end of second 20 to the start of second 27.
        paused = [row for row in rows if not 21 <= (row.second_ms - T0_MS) // 1_000 < 27]
        after = [row for row in paused if row.second_ms >= T0_MS + 27_000]
        short = [row for row in rows if not 21 <= (row.second_ms - T0_MS) // 1_000 < 23]
        for row in after:
            whole, part = (
                rebuild(
                    inputs(
                        [each for each in part if each.second_ms <= row.second_ms], row.second_ms, quota_type
                    )
                )
                for part in (paused, after)
            )
            assert decision_bytes(whole.row) == decision_bytes(part.row)
        # Control: a pause of 2 s is too short.
        tail = [row for row in short if row.second_ms >= T0_MS + 23_000]
        for row in tail[:5]:
            whole, part = (
                rebuild(
                    inputs(
                        [each for each in part if each.second_ms <= row.second_ms], row.second_ms, quota_type
                    )
                )
                for part in (short, tail)
            )
            differing += decision_bytes(whole.row) != decision_bytes(part.row)
    assert differing > 0


def test_a_request_a_millisecond_less_than_5_samples_ago_makes_a_difference() -> None:
    """5 samples of 1 s: 900 bytes at 0.999 s. A request 4,999 ms later still has them in its ring."""
    first, last = sent(T0_MS, (999, 900)), sent(T0_MS + 5_000, (998, 100))
    whole = rebuild(inputs([first, last], T0_MS + 5_000)).row
    part = rebuild(inputs([last], T0_MS + 5_000)).row
    # Whole: 1,000 bytes in 4.999 s, padded as Kafka does to 4 s and more. Part: 100 bytes in 4 s.
    assert part["rate_per_s"] == 25.0
    assert whole["rate_per_s"] == 1_000 / 4.999


@pytest.mark.parametrize(
    ("seconds", "is_from_beginning", "expected"),
    [
        ([0, 1, 2, 30, 31], False, (30, True)),
        (
            [0, 7, 14, 20, 26],
            False,
            (14, True),
        ),  # from the end of 7 to 14 there are 6 s, from 14 to 20 only 5
        ([18, 24, 30], False, (18, True)),
        ([0, 5, 10, 15, 20, 25, 30], False, (0, False)),
        ([0, 5, 10, 15, 20, 25, 30], True, (0, True)),
    ],
    ids=["a long pause", "the last of two", "before the first request", "never", "from the beginning"],
)
def test_the_replay_begins_after_the_last_pause_that_is_long_enough(
    seconds: list[int], is_from_beginning: bool, expected: tuple[int, bool]
) -> None:
    seconds_ms = [second * 1_000 for second in seconds]
    found = warm_start(seconds_ms, 32_000, 6_000, 0, is_from_beginning=is_from_beginning)
    assert found == (expected[0] * 1_000, expected[1])


def test_a_second_without_a_request_has_no_decision() -> None:
    with pytest.raises(ValueError, match="no request in this second"):
        rebuild(inputs([sent(T0_MS, (0, 1))], T0_MS + 1_000))
