"""Sets topics and quotas of an embedded cluster by Kafka's Admin API, like an administrator.

Quotas are set by AlterClientQuotas (KIP-546), the only way with KRaft. Brokers in ZooKeeper mode accept it from 2.6
on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kquota_spark.embedded.cluster import Cluster
from kquota_spark.errors import UserError
from kquota_spark.kafka import clients as kafka_clients
from kquota_spark.kafka.quota_admin import QuotaAdmin
from kquota_spark.model.quotas.entities import Entity, IpEntity, Name
from kquota_spark.model.quotas.quota_types import parse_key
from kquota_spark.process.clock import now_ms

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_POLL_S = 0.05
_WITHIN_S = 60.0
_QUOTAS_TIMEOUT_MS = 30_000


def create_topics(
    cluster: Cluster,
    partitions: Mapping[str, int],
    *,
    config: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Create topics and wait until they have leaders; existing topics stay.

    Args:
        cluster: a running cluster.
        partitions: number of partitions by topic.
        config: settings of the topics, by Kafka's keys.

    Raises:
        UserError: the broker refused, or a partition has no leader in time.
    """
    from confluent_kafka import KafkaError
    from confluent_kafka.cimpl import NewTopic

    admin = kafka_clients.admin(cluster.client_settings())
    topics = [NewTopic(name, count, 1, config=dict(config)) for name, count in partitions.items()]
    for name, answer in admin.create_topics(topics, operation_timeout=_WITHIN_S).items():
        with kafka_clients.kafka_errors(partial(_not_created, name), unless=KafkaError.TOPIC_ALREADY_EXISTS):
            answer.result(2 * _WITHIN_S)
    deadline = time.monotonic() + _WITHIN_S
    while not _have_leaders(admin.list_topics(timeout=_WITHIN_S).topics, partitions):
        if time.monotonic() > deadline:
            raise UserError(
                f"topics {', '.join(partitions)} have no leaders after {_WITHIN_S:.0f} s: "
                "check the brokers' server.log"
            )
        time.sleep(_POLL_S)


def _not_created(name: str, reason: KafkaError) -> UserError:
    return UserError(f"topic {name} could not be created: {reason.str()}")


def _have_leaders(topics: Mapping[str, Any], partitions: Mapping[str, int]) -> bool:
    return all(
        name in topics
        and len(topics[name].partitions) >= count
        and all(partition.leader >= 0 for partition in topics[name].partitions.values())
        for name, count in partitions.items()
    )


def alter_quota(
    cluster: Cluster,
    limits: Mapping[str, float | None],
    *,
    user: Name = None,
    client_id: Name = None,
    ip: Name = None,
) -> int:
    """Set limits of one entity, and wait until a broker reports them; its other limits stay as they are.

    Args:
        cluster: a running cluster.
        limits: limits per second, by Kafka's own key, e.g. `producer_byte_rate`; None removes the key.
        user: raw name or DEFAULT; together with a client id it names the pair.
        client_id: raw name or DEFAULT.
        ip: an address or DEFAULT, without a user and a client id.

    Returns:
        Time of the broker's answer, epoch ms. A KRaft broker acts on the limits at about the same moment.

    Raises:
        UserError: the broker refused; the message contains its reason.
    """
    entity = Entity(user, client_id) if ip is None else IpEntity(ip)
    admin = QuotaAdmin(cluster.bootstrap_servers, cluster.client_settings(), timeout_ms=_QUOTAS_TIMEOUT_MS)
    try:
        refusal = admin.alter(entity, limits)
        answered_ms = now_ms()
        if refusal is None:
            admin.wait_for(entity, {parse_key(key): value for key, value in limits.items()})
    finally:
        admin.close()
    if refusal is not None:
        raise UserError(f"quota {dict(limits)} of {entity} refused: {refusal.words}")
    return answered_ms
