"""What the log of the first limit predicts for the second one, and what the broker then did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.loops.open_loop import Judged, judged
from kquota_spark.model.loops.tried import Closed, closed_loop
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.quotas.rules import RuleBook, RulePeriod
from kquota_spark.model.replay.decision import GovernedSecond
from kquota_spark.replay.files import BucketKey, replay_files
from tests.closed_loop_pairs.plan import SECONDS, Pair

_RING = RateConfig()


@dataclass(frozen=True, slots=True)
class Outcome:
    """One pair: delays in ms and bytes, all within the same time after the start."""

    pair: Pair
    before_ms: int
    measured_ms: int
    open_ms: int
    closed: Closed
    before_bytes: int
    measured_bytes: int

    @property
    def is_inside(self) -> bool:
        """Whether the measured delay lies within the bound."""
        high = self.closed.delay.high
        return self.closed.delay.low <= self.measured_ms and (high is None or self.measured_ms <= high)

    @property
    def errors_ms(self) -> tuple[int, int]:
        """How far the open and the closed loop are from the measured delay."""
        return abs(self.open_ms - self.measured_ms), abs(self.closed.throttled_ms - self.measured_ms)


def outcomes(log: Path, pairs: Sequence[Pair]) -> list[Outcome]:
    """Predict each pair from the request log, and compare. The time of a run begins with its first request."""
    rules = [
        RulePeriod(
            Entity(None, pair.client_id(side)), {QuotaKey.PRODUCER_BYTE_RATE: float(limit)}, 0, None, 1
        )
        for pair in pairs
        for side, limit in (("a", pair.limit_a), ("b", pair.limit_b))
    ]
    found = replay_files([(1, log)], RuleGovernor(RuleBook(rules)), _RING).governed_seconds
    return [_outcome(pair, found) for pair in pairs]


def _outcome(pair: Pair, found: dict[BucketKey, list[GovernedSecond]]) -> Outcome:
    buckets = [Bucket("", pair.client_id(side)) for side in "ab"]
    of_a, of_b = (_within(found[BucketKey(1, QuotaType.PRODUCE, bucket)]) for bucket in buckets)
    key = QuotaType.PRODUCE, buckets[0]
    was = judged(QuotaType.PRODUCE, of_a, _RING, is_recorded=True)
    under_b = [
        each._replace(governing=each.governing._replace(limit_per_s=float(pair.limit_b))) for each in of_a
    ]
    tried = judged(QuotaType.PRODUCE, under_b, _RING, is_recorded=False)
    start_ms = was[0].point.record_time_ms
    closed = closed_loop({key: was}, {key: tried}, {key}, _RING, start_ms, start_ms + 1_000 * SECONDS)[key]
    measured = judged(QuotaType.PRODUCE, of_b, _RING, is_recorded=True)
    return Outcome(
        pair, _observed_ms(was), _observed_ms(measured), sum(each.throttle_ms for each in tried), closed,
        _bytes(was), _bytes(measured),
    )  # fmt: skip


def _within(of_bucket: Sequence[GovernedSecond]) -> list[GovernedSecond]:
    """The requests of the time that counts."""
    until_ms = min(each.points[0].record_time_ms for each in of_bucket) + 1_000 * SECONDS
    found = (
        each._replace(points=[point for point in each.points if point.record_time_ms < until_ms])
        for each in of_bucket
    )
    return [each for each in found if each.points]


def _observed_ms(requests: Sequence[Judged]) -> int:
    return sum(each.point.observed_throttle_ms for each in requests)


def _bytes(requests: Sequence[Judged]) -> int:
    return sum(each.point.amount for each in requests)
