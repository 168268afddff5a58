"""Quotas set the way an administrator of a newer cluster sets them: by AlterClientQuotas (KIP-546).

With KRaft there is no other way. A broker in ZooKeeper mode takes it too, from 2.6 on.
"""

from __future__ import annotations

from collections.abc import Mapping

from kquota_spark.embedded.cluster import Cluster
from kquota_spark.errors import UserError
from kquota_spark.kafka.quota_admin import QuotaAdmin
from kquota_spark.model.quotas.entities import Entity, IpEntity, Name
from kquota_spark.model.quotas.quota_types import parse_key
from kquota_spark.process.clock import now_ms

_TIMEOUT_MS = 30_000


def alter_quota(
    cluster: Cluster,
    limits: Mapping[str, float | None],
    *,
    user: Name = None,
    client_id: Name = None,
    ip: Name = None,
) -> int:
    """Set limits of one entity, and wait until a broker tells them; those that are not named stay as they are.

    Args:
        cluster: where.
        limits: values by Kafka's own keys, e.g. `producer_byte_rate`; None removes one.
        user: a user's raw name, DEFAULT, or None for a quota that does not look at users.
        client_id: likewise; with a user it is the pair.
        ip: an address or DEFAULT; alone.

    Returns:
        When the answer came, in epoch ms. A KRaft broker acts on it at about the same moment.

    Raises:
        UserError: the broker refused, with its words.
    """
    entity = Entity(user, client_id) if ip is None else IpEntity(ip)
    admin = QuotaAdmin(cluster.bootstrap_servers, cluster.client_settings(), timeout_ms=_TIMEOUT_MS)
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
