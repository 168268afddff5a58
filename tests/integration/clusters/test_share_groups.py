"""A share consumer (KIP-932) on a real broker of Kafka 4.3: throttled by the fetch quota, judged with no certainty."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from kquota_spark.embedded.admin import alter_quota, create_topics
from kquota_spark.embedded.cluster import embedded_cluster
from kquota_spark.embedded.demo.load import ClientPlan, run_load
from kquota_spark.embedded.settings import BrokerSettings
from kquota_spark.embedded.setup.jars import find_jars
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, rule_periods
from kquota_spark.model.replay.replay import Outcome
from kquota_spark.replay.files import replay_files
from tests.tools import NEWEST_KAFKA

SECONDS = 25.0
LIMIT = 50_000


def test_its_throttles_are_the_brokers_and_its_verdicts_uncertain(tmp_path: Path) -> None:
    with embedded_cluster(
        tmp_path, settings=BrokerSettings(kraft=True), jars=find_jars(NEWEST_KAFKA)
    ) as cluster:
        create_topics(cluster, {"orders": 1})
        since_ms = alter_quota(cluster, {"consumer_byte_rate": LIMIT}, client_id="pool")
        results = run_load(
            cluster,
            [
                ClientPlan("produce", "writer", "orders", 200_000, stop_s=SECONDS),
                ClientPlan("share", "pool", "orders", 1_000_000, stop_s=SECONDS),
                # Reads what is new, well under the limit of its own bucket.
                ClientPlan("consume", "reader", "orders", 20_000, stop_s=SECONDS),
            ],
        )
        print(results)
        log = cluster.brokers[0].request_log
    assert results[1].records > 0
    change = QuotaChange(Entity(None, "pool"), QuotaKey.CONSUMER_BYTE_RATE, LIMIT, None, since_ms, 1)
    governor = RuleGovernor(RuleBook(rule_periods([change])))
    found = replay_files([(1, log)], governor, RateConfig())
    assert not found.unreadable
    of_pool = [
        verdict
        for key, verdicts in found.verdicts.items()
        if key.quota_type is QuotaType.FETCH and key.bucket.client_id == "pool"
        for verdict in verdicts
    ]
    outcomes = Counter((PointKind(one.point.kind), one.outcome) for one in of_pool)
    print(outcomes)
    assert {kind for kind, _ in outcomes} == {PointKind.SHARE_FETCH, PointKind.THROTTLED_SHARE_FETCH}
    assert {outcome for _, outcome in outcomes} == {Outcome.UNCERTAIN}
    # Four times the limit for 25 s: the broker holds it back, and the audit has that to the millisecond.
    by_audit = sum(
        second.observed_total_throttle_ms
        for key, seconds in found.decisions.items()
        if key.quota_type is QuotaType.FETCH and key.bucket.client_id == "pool"
        for second in seconds
    )
    by_log = sum(one.point.observed_throttle_ms for one in of_pool)
    assert by_audit == by_log > 5_000
