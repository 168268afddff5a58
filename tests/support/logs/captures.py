"""The captures of tests/data as the replay takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.rules import RuleBook, rule_periods
from kquota_spark.model.replay.agreement import Agreement
from kquota_spark.model.replay.decision import GovernedSecond, judge_bucket
from kquota_spark.model.replay.replay import BucketReplay, Verdict
from kquota_spark.replay.files import BucketKey, broker_id_of, replay_files
from tests.support.places import DATA

ZOOKEEPER_LAG_MS = 95


class Capture(NamedTuple):
    """A run of brokers, see the README of the data."""

    name: str
    config: RateConfig
    apply_lag_ms: int = 0


ZK37 = Capture("zk37", RateConfig(variant=RingVariant.UP_TO_3_7), ZOOKEEPER_LAG_MS)
KRAFT41 = Capture("kraft41", RateConfig())
ZK39_PLAIN = Capture("zk39-plain", RateConfig(5, 2_000), ZOOKEEPER_LAG_MS)
ALL = (
    Capture("zk39-levels", RateConfig(), ZOOKEEPER_LAG_MS),
    ZK39_PLAIN,
    Capture("kraft39", RateConfig()),
    Capture("jmx-telegraf", RateConfig()),
    ZK37,
    KRAFT41,
)
"""All that have quotas and a steady load."""
KRAFT43_SHARE = Capture("kraft43-share", RateConfig())
"""Few clients, which come one after the other; share consumers among them."""
BUSY = (Capture("kraft41-hogs", RateConfig()), Capture("kraft41-jvms", RateConfig()))
"""The load of kraft41 on a broker that shares its two cores: with four spinning processes, with JVMs that start."""


@lru_cache(maxsize=4)
def buckets_of(capture: Capture) -> Mapping[BucketKey, Sequence[GovernedSecond]]:
    """The requests by bucket, which several tests share; every line can be read."""
    changes = read_quota_file(DATA / capture.name / "quotas.yaml")
    governor = RuleGovernor(RuleBook(rule_periods(changes, apply_lag_ms=capture.apply_lag_ms)))
    files = [(broker_id_of(path, None), path) for path in sorted((DATA / capture.name).glob("broker-*.gz"))]
    found = replay_files(files, governor, capture.config)
    assert not found.unreadable
    return MappingProxyType({key: tuple(bucket) for key, bucket in found.governed_seconds.items()})


def limited_produces(capture: Capture) -> Agreement:
    """The tally of all produces under a bandwidth quota."""
    found = Agreement()
    for key, bucket in buckets_of(capture).items():
        if key.quota_type is QuotaType.PRODUCE:
            verdicts = verdicts_of(bucket, capture.config)
            found.add_all(verdict for verdict in verdicts if verdict.governing.limit_per_s is not None)
    return found


def verdicts_of(bucket: Sequence[GovernedSecond], config: RateConfig) -> list[Verdict]:
    """Every request of a bucket judged."""
    verdicts: list[Verdict] = []
    judge_bucket(BucketReplay(config), bucket, verdicts)
    return verdicts
