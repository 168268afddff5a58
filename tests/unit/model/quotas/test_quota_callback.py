"""Quota callbacks (KIP-257): the default one, and those that come with the product."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.quotas.entities import DEFAULT, Entity, Name
from kquota_spark.model.quotas.group_callbacks import GroupedUserCallback, PartitionBasedCallback
from kquota_spark.model.quotas.quota_callback import (
    ClusterMetadata,
    DefaultQuotaCallback,
    TopicPartition,
)
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from tests.support.chance import Chance
from tests.support.quotas.callback_quotas import book, user

PRODUCE, FETCH, REQUEST = QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST
PRODUCER = QuotaKey.PRODUCER_BYTE_RATE


def test_the_default_callback_answers_as_the_resolution_does(chance: Chance) -> None:
    # Chance quotas on all levels; a broker that has seen no other kinds of quotas takes short cuts that name
    # the bucket of unlimited traffic otherwise, so all three kinds are shown to it first.
    names: list[Name] = ["a", "ü b", DEFAULT, None]
    entities = [Entity(u, c) for u, c in product(names, names) if (u, c) != (None, None)]
    for _ in range(50):
        given = {entity: float(chance.randrange(1, 100)) for entity in entities if chance.random() < 0.3}
        callback = DefaultQuotaCallback()
        for entity in (Entity("x"), Entity("x", "y"), Entity(None, "y")):
            callback.update_quota(PRODUCE, entity, 1.0)
            callback.remove_quota(PRODUCE, entity)
        for entity, value in given.items():
            callback.update_quota(PRODUCE, entity, value)
        rules = book(*((e.user, e.client_id, PRODUCER, v, 0) for e, v in given.items()))
        governor = RuleGovernor(rules)
        for name, client_id in product(("a", "ü b", "nobody"), ("a", "x", "")):
            tags = callback.quota_metric_tags(PRODUCE, user(name), client_id)
            expected = governor.govern(1, PRODUCE, user(name), client_id, 5)
            bucket = Bucket(name if tags["user"] else "", tags["client-id"])
            found = (bucket, callback.quota_limit(PRODUCE, tags))
            assert found == (expected.bucket, expected.governing.limit_per_s), (given, name, client_id)


def test_the_default_callback_sanitises_the_user_and_takes_short_cuts() -> None:
    callback = DefaultQuotaCallback()
    assert callback.quota_metric_tags(PRODUCE, user("a b"), "c") == {"user": "", "client-id": "c"}
    callback.update_quota(PRODUCE, Entity("x"), 5.0)
    assert callback.quota_metric_tags(PRODUCE, user("a b"), "c") == {"user": "a%20b", "client-id": ""}
    assert callback.quota_metric_tags(FETCH, user("a b"), "c") == {"user": "", "client-id": "c"}


def grouped(*quotas: tuple[str, float], kind: type[GroupedUserCallback] = GroupedUserCallback) -> Any:
    callback = kind()
    callback.configure({"broker.id": "1"})
    for name, value in quotas:
        for quota_type in (PRODUCE, REQUEST):
            callback.update_quota(quota_type, Entity(name), value)
    return callback


@pytest.mark.parametrize(
    ("name", "tags", "limit"),
    [
        ("pay_1", {"group": "pay"}, 100.0),
        ("pay_a_b", {"group": "pay"}, 100.0),  # up to the first separator
        ("ops_1", {"group": "ops"}, 7.0),  # the default group's
        ("_x", {"group": ""}, 7.0),
        ("pay", {}, None),  # in no group
    ],
)
def test_users_of_a_group_share_a_bucket(name: str, tags: dict[str, str], limit: float | None) -> None:
    callback = grouped(("pay_", 100.0), ("_", 7.0))
    found = callback.quota_metric_tags(PRODUCE, user(name), "any")
    assert (found, callback.quota_limit(PRODUCE, found)) == (tags, limit)
    assert callback.quota_metric_tags(FETCH, user(name), "any") == {}  # no such quota for anybody


def test_a_removed_group_falls_back_to_the_default_group() -> None:
    callback = grouped(("pay_", 100.0), ("_", 7.0))
    callback.remove_quota(PRODUCE, Entity("pay_"))
    assert callback.quota_limit(PRODUCE, {"group": "pay"}) == 7.0
    callback.remove_quota(PRODUCE, Entity("_"))
    assert callback.quota_limit(PRODUCE, {"group": "pay"}) is None


def test_quotas_of_other_entities_mean_nothing_to_it() -> None:
    callback = grouped()
    for entity in (Entity(DEFAULT), Entity(None, "pay_"), Entity("pay_", "c"), Entity("nogroup")):
        callback.update_quota(PRODUCE, entity, 1.0)
        callback.remove_quota(PRODUCE, entity)
        callback.update_quota(PRODUCE, entity, 1.0)
    assert callback.quota_metric_tags(PRODUCE, user("pay_1"), "c") == {}


def leaders(**of_topic: list[int | None]) -> ClusterMetadata:
    return ClusterMetadata(
        {TopicPartition(topic, i): leader for topic, led in of_topic.items() for i, leader in enumerate(led)}
    )


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (leaders(pay_a=[1, 1, 2], pay_b=[1, None]), 60.0),  # 3 of 5 partitions: 100 * 3 / 5
        (leaders(pay_a=[2, 2, 2, 2]), 25.0),  # leads none of 4: 100 / 4
        (leaders(ops_a=[1]), 100.0),  # the group has no topic
        (leaders(pay=[2]), 100.0),  # a topic of no group
    ],
)
def test_a_limit_is_scaled_by_the_partitions_led(cluster: ClusterMetadata, expected: float) -> None:
    callback = grouped(("pay_", 100.0), kind=PartitionBasedCallback)
    callback.update_cluster_metadata(cluster)
    assert callback.quota_limit(PRODUCE, {"group": "pay"}) == expected
    assert callback.quota_limit(REQUEST, {"group": "pay"}) == 100.0  # never scaled


def test_metadata_that_changes_no_share_needs_no_new_limits() -> None:
    callback = grouped(("pay_", 100.0), kind=PartitionBasedCallback)
    assert callback.update_cluster_metadata(leaders(pay_a=[1, 2]))
    assert not callback.update_cluster_metadata(leaders(pay_a=[2, 1]))
    assert callback.update_cluster_metadata(leaders(pay_a=[2, 2, 2]))
