"""The state of a bucket: it comes back as it was, second by second, and another release refuses it."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from operator import attrgetter

import msgspec
import numpy as np
import pytest

from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.rules import RuleBook, rule_periods
from kquota_spark.model.replay.decision import Decision, judge_bucket, replay_of
from kquota_spark.pipeline.bucket_judge import BucketJudge, Configs, Judged, ShardJudge
from kquota_spark.pipeline.sent import BucketTags, Manager, Pieces, Sent, Terms, unpacked_pieces
from kquota_spark.replay.files import replay_files
from kquota_spark.schema.columns import STATE_FORM
from tests.support.chance import Chance
from tests.support.pipeline.packed import packed_bytes
from tests.support.pipeline.packed_pieces import packed_pieces, tick
from tests.support.places import DATA
from tests.support.tables.table_rows import T0_MS

CONFIG = RateConfig()
CONFIGS = Configs(CONFIG, CONFIG)
MANAGER = Manager("demo", 1, QuotaType.PRODUCE)


@pytest.mark.parametrize("variant", RingVariant)
def test_the_state_comes_back_as_it_was(variant: RingVariant, chance: Chance) -> None:
    config = RateConfig(num_samples=4, window_ms=500, variant=variant)
    configs = Configs(config, config)
    kept, stored = BucketJudge(QuotaType.PRODUCE, configs), BucketJudge(QuotaType.PRODUCE, configs)
    assert BucketJudge(QuotaType.PRODUCE, configs, stored.state).state == stored.state
    second_ms = T0_MS
    for _ in range(300):
        second_ms += 1_000 * chance.choice([1, 1, 1, 2, 5])
        row = _sent(chance, second_ms)
        stored = BucketJudge(QuotaType.PRODUCE, configs, stored.state)
        assert stored.judge([row]) == kept.judge([row])
    assert stored.state == kept.state


def _sent(chance: Chance, second_ms: int, rate_config: str | None = None) -> Sent:
    moments = sorted(chance.randrange(1_000) for _ in range(chance.randrange(1, 6)))
    points = [
        (second_ms + moment, 0, chance.randrange(2**32), index, chance.randrange(2**31), 0, 0, 0)
        for index, moment in enumerate(moments)
    ]
    limit = chance.choice([None, 0.0, 700.0])
    data = packed_bytes(points)
    return Sent(second_ms, "alice", "etl", 0, None, False, data, limit_per_s=limit, rate_config=rate_config)


def test_the_state_of_every_quota_type_goes_on_second_by_second() -> None:
    capture = DATA / "kraft39"
    book = RuleBook(rule_periods(read_quota_file(capture / "quotas.yaml")))
    found = replay_files([(1, capture / "broker-1.kafka-request.log.gz")], RuleGovernor(book), RateConfig())
    assert {key.quota_type for key in found.governed_seconds} == set(QuotaType)
    for key, of_bucket in found.governed_seconds.items():
        replay, decisions = replay_of(key.quota_type, RateConfig()), list[Decision]()
        by_second = sorted(of_bucket, key=attrgetter("second_ms"))
        for _, second in groupby(by_second, key=attrgetter("second_ms")):
            state = msgspec.msgpack.decode(msgspec.msgpack.encode(replay.state))
            replay = replay_of(key.quota_type, RateConfig(), state)
            decisions += judge_bucket(replay, second)
        assert decisions == found.decisions[key]


def test_a_state_of_another_release_is_refused() -> None:
    foreign = msgspec.msgpack.encode([STATE_FORM + 1, 1, []])
    with pytest.raises(
        ValueError, match=f"form {STATE_FORM + 1}, expected {STATE_FORM}: move the checkpoint log away"
    ):
        ShardJudge(CONFIGS, state=foreign)


def test_a_state_of_another_number_of_shards_is_refused() -> None:
    """Its buckets would be looked for elsewhere, and begin with empty rings."""
    judge = ShardJudge(CONFIGS, 8)
    _judge(judge, ("a", T0_MS))
    state = judge.state
    assert ShardJudge(CONFIGS, 8, state).buckets == [(MANAGER, _bucket("a"))]
    with pytest.raises(ValueError, match=r"has 8 shards, expected 64: see stream\.state_shards"):
        ShardJudge(CONFIGS, 64, state)


def test_a_shard_keeps_its_buckets_apart_and_goes_on_with_each() -> None:
    """The same client of two brokers has two buckets."""
    chance = Chance(3)
    rows = [
        (
            Manager("demo", broker_id, QuotaType.PRODUCE),
            _bucket(f"c{number}"),
            _sent(chance, T0_MS + second * 1_000),
        )
        for second in range(30)
        for broker_id in (1, 2)
        for number in range(2)
    ]
    at_once = ShardJudge(CONFIGS).judge([packed_pieces(rows)])
    expected = {(each.manager, each.bucket): _decisions(each.judged) for each in at_once}
    assert len(expected) == 4
    state, found = None, dict[tuple[Manager, BucketTags], list[Decision]]()
    for row in rows:  # a row per micro-batch: three of four buckets are only carried along
        judge = ShardJudge(CONFIGS, state=state)
        for each in judge.judge([packed_pieces([row])]):
            found.setdefault((each.manager, each.bucket), []).extend(_decisions(each.judged))
        state = judge.state
    assert found == expected


def _decisions(judged: list[Judged]) -> list[Decision]:
    return [each.decision for each in judged]


def test_a_shard_forgets_what_no_ring_remembers() -> None:
    judge = ShardJudge(CONFIGS)
    _judge(judge, ("early", T0_MS), ("late", T0_MS + 1_000))
    # 12 s after the end of its last second: T0 + 1 s + 12 s. Of the seconds that come next the oldest counts.
    _judge(judge, ("next", T0_MS + 90_000), ("next", T0_MS + 12_000))
    assert _clients(judge) == ["early", "late", "next"]
    _judge(judge, ("next", T0_MS + 13_000))
    assert _clients(judge) == ["late", "next"]


def _judge(judge: ShardJudge, *rows: tuple[str, int], manager: Manager = MANAGER) -> None:
    """A micro-batch of clients at seconds."""
    chance = Chance(4)
    judge.judge(
        [packed_pieces((manager, _bucket(client), _sent(chance, second_ms)) for client, second_ms in rows)]
    )


def _bucket(client_id: str) -> BucketTags:
    return "", client_id, None


def _clients(judge: ShardJudge) -> list[str]:
    return [client_id for _, (_, client_id, _) in ShardJudge(CONFIGS, state=judge.state).buckets]


def test_the_state_of_a_broker_that_is_gone_goes_with_the_seconds_of_the_others() -> None:
    """By the time of the log, however long the job stood still."""
    gone, judge = Manager("demo", 7, QuotaType.PRODUCE), ShardJudge(CONFIGS)
    _judge(judge, ("a", T0_MS), manager=gone)
    _judge(judge, ("a", T0_MS), ("a", T0_MS + 12_000))
    assert judge.buckets == [(gone, _bucket("a")), (MANAGER, _bucket("a"))]
    # 12 s after the end of its last second.
    _judge(judge, ("a", T0_MS + 13_000))
    assert ShardJudge(CONFIGS, state=judge.state).buckets == [(MANAGER, _bucket("a"))]


def test_a_shard_without_a_request_forgets_too_and_leaves_no_value() -> None:
    judge = ShardJudge(CONFIGS)
    _judge(judge, ("a", T0_MS))
    assert judge.judge([tick(T0_MS + 12_000)]) == []
    assert _clients(judge) == ["a"]
    # 1 s and 12 s after the start of its only second.
    assert judge.judge([tick(T0_MS + 13_000)]) == []
    assert judge.state is None


def test_every_shard_is_looked_at_within_ten_minutes_of_any_traffic() -> None:
    """One client, one request per second: each second visits the client's shard and one that its own hash gives."""
    pieces = Pieces([MANAGER], [Terms(None, 0, None, False, (), *[None] * 7)])
    visited = dict[int, int]()
    for second in range(600):
        second_ms = T0_MS + second * 1_000
        now = replace(
            pieces, manager_of=[0], user_tags=["alice"], client_tags=[""], tags=[None], seconds_ms=[second_ms],
            users=["alice"], client_ids=["etl"], terms_of=[0], counts=[1],
        )  # fmt: skip
        for shard, packed in now.by_shard(np.zeros((1, 8), np.int64), 64).items():
            assert unpacked_pieces(packed).oldest_ms == second_ms
            visited.setdefault(shard, second)
    assert sorted(visited) == list(range(64))


def test_the_shard_of_a_bucket_is_the_same_in_every_release() -> None:
    """Another hash would look for its ring elsewhere."""
    terms = Terms(None, 0, None, False, (), *[None] * 7)
    for manager, (user, client_id, tags), shard in (
        (MANAGER, ("alice", "etl", None), 49),
        (Manager("demo", 2, QuotaType.FETCH), ("", "café", '{"a":"b"}'), 42),
    ):
        pieces = Pieces([manager], [terms], [0], [user], [client_id], [tags], [T0_MS], ["u"], ["c"], [0], [1])
        found = pieces.by_shard(np.zeros((1, 8), np.int64), 64)
        assert [each for each, packed in found.items() if unpacked_pieces(packed).counts] == [shard]


def test_what_is_known_of_the_rules_is_the_least_of_all_rows() -> None:
    def known(*through_ms: int | None) -> int | None:
        chance = Chance(5)
        rows = [_sent(chance, T0_MS) for _ in through_ms]
        for row, time_ms in zip(rows, through_ms, strict=True):
            row.known_through_ms = time_ms
        [judged] = ShardJudge(CONFIGS).judge([packed_pieces((MANAGER, _bucket("c"), row) for row in rows)])
        return judged.known_through_ms

    assert known(T0_MS + 5, T0_MS + 3) == T0_MS + 3
    assert known(T0_MS + 5, None) is None


def test_a_state_names_its_own_windows() -> None:
    name = "<=3.7/5x2000ms"
    judge = BucketJudge(QuotaType.PRODUCE, CONFIGS)
    [judged] = judge.judge([_sent(Chance(1), T0_MS, name)])
    assert judged.model_variant == name
    again = BucketJudge(QuotaType.PRODUCE, CONFIGS, judge.state)
    assert again.config == RateConfig(5, 2_000, RingVariant.UP_TO_3_7)
    assert again.forget_at_ms == T0_MS + 1_000 + again.config.horizon_ms
    # Another ring is a restart of the broker: what it had measured is gone.
    [restarted] = again.judge([_sent(Chance(1), T0_MS + 1_000)])
    [fresh] = BucketJudge(QuotaType.PRODUCE, CONFIGS).judge([_sent(Chance(1), T0_MS + 1_000)])
    assert restarted == fresh
