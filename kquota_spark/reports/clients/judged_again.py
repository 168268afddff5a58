"""A period of `usage`, judged again with the audit's own fold: decisions, and every verdict with its certainty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kquota_spark.model.govern.govern import Governor
from kquota_spark.model.govern.traffic import BrokerBucket, Gaps, Traffic, governed_seconds_of
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.replay.decision import Decision, GovernedSecond, judge_bucket, replay_of
from kquota_spark.model.replay.replay import Verdict


@dataclass(frozen=True, slots=True)
class Judged:
    """One bucket of one broker: its seconds, and every verdict in them."""

    decisions: list[Decision]
    verdicts: list[Verdict]


def judged_again(
    traffic: Iterable[Traffic],
    governor: Governor,
    rings: Mapping[int, RateConfig],
    default: RateConfig,
    gaps: Mapping[int, Gaps] | None = None,
) -> dict[BrokerBucket, Judged]:
    """Usage judged under given quotas; the same quotas and rings give the decisions of the tables.

    Args:
        traffic: usage by second and client.
        governor: the quotas over time.
        rings: sample rings by broker.
        default: sample ring of the other brokers.
        gaps: gaps of the log by broker; None for none.
    """
    buckets = governed_seconds_of(traffic, governor, gaps=gaps)
    return {key: _judged(key, of_bucket, rings.get(key[0], default)) for key, of_bucket in buckets.items()}


def _judged(key: BrokerBucket, of_bucket: Sequence[GovernedSecond], ring: RateConfig) -> Judged:
    verdicts: list[Verdict] = []
    return Judged(judge_bucket(replay_of(key[1], ring), of_bucket, verdicts), verdicts)
