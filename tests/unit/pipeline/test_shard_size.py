"""The state of a broker with very many busy buckets: no value of it is large, and each core has its part."""

from __future__ import annotations

import numpy as np

from kquota_spark.config.settings import Stream
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.pipeline.bucket_judge import Configs, ShardJudge
from kquota_spark.pipeline.sent import Manager, Pieces, Sent, Terms, unpacked_pieces
from tests.support.chance import Chance
from tests.support.pipeline.packed import packed_bytes
from tests.support.pipeline.packed_pieces import packed_pieces
from tests.support.tables.table_rows import T0_MS

MANAGER = Manager("demo", 1, QuotaType.PRODUCE)
BUCKETS, MOST_BYTES = 100_000, 1_000_000
LIMIT = 10_000.0
REQUESTS_PER_S, SECONDS, SAMPLE = 10, 15, 200


def _most_of_a_shard() -> int:
    """Buckets of the fullest shard of a broker whose clients are numbered."""
    names = [f"app-{number}" for number in range(BUCKETS)]
    pieces = Pieces(
        [MANAGER], [Terms(None, 0, None, False, (), *[None] * 7)], [0] * BUCKETS,
        [""] * BUCKETS, names, [None] * BUCKETS, [T0_MS] * BUCKETS, ["alice"] * BUCKETS, names, [0] * BUCKETS,
        [1] * BUCKETS,
    )  # fmt: skip
    found = pieces.by_shard(np.zeros((BUCKETS, 8), np.int64), Stream().state_shards)
    counts = [len(unpacked_pieces(packed).counts) for packed in found.values()]
    assert sum(counts) == BUCKETS
    return max(counts)


def _sent(chance: Chance, second_ms: int, name: str) -> Sent:
    """Ten requests of one second around the limit: some are throttled, so all rings of the replay are in use."""
    moments = sorted(chance.randrange(1_000) for _ in range(REQUESTS_PER_S))
    points = [
        (second_ms + moment, second_ms + moment + chance.randrange(9), chance.randrange(2**32), index,
         chance.randrange(2_200), chance.choice([0, 0, 0, chance.randrange(1, 900)]), 0, 0)
        for index, moment in enumerate(moments)
    ]  # fmt: skip
    return Sent(second_ms, "alice", name, 0, None, False, packed_bytes(points), limit_per_s=LIMIT)


def test_no_value_of_a_broker_with_100_000_busy_buckets_is_above_1_mb() -> None:
    config, chance = RateConfig(), Chance(75)
    judge = ShardJudge(Configs(config, config))
    for second in range(SECONDS):
        second_ms = T0_MS + second * 1_000
        rows = (
            (MANAGER, ("", f"app-{number}", None), _sent(chance, second_ms, f"app-{number}"))
            for number in range(SAMPLE)
        )
        judge.judge([packed_pieces(rows)])
    state, fullest = judge.state, _most_of_a_shard()
    assert state is not None
    per_bucket = len(state) / SAMPLE
    print(f"{per_bucket:.0f} bytes per bucket, {fullest:,} buckets in the fullest of the shards")
    # 100,000 / 64 = 1,563 on average.
    assert fullest <= 1_700
    assert fullest * per_bucket <= MOST_BYTES
