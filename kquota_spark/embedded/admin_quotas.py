"""Quotas set the way an administrator of a newer cluster sets them: by AlterClientQuotas (KIP-546).

With KRaft there is no other way; a broker in ZooKeeper mode takes it too, from 2.6 on. kafka-python has the
message but no call for it, so the message is sent over its admin's connections.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.quotas import Name
from kquota_spark.errors import UserError
from kquota_spark.model.entities import Default


def alter_quota(
    cluster: Cluster,
    limits: Mapping[str, float | None],
    *,
    user: Name | None = None,
    client_id: Name | None = None,
    ip: Name | None = None,
) -> int:
    """Set limits of one entity; those that are not named stay as they are.

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
    from kafka.admin import KafkaAdminClient
    from kafka.protocol.admin import AlterClientQuotasRequest

    parts = {"user": user, "client-id": client_id, "ip": ip}
    entity = [
        (kind, None if isinstance(name, Default) else name)
        for kind, name in parts.items()
        if name is not None
    ]
    changes = [(key, value or 0.0, value is None) for key, value in limits.items()]
    request = AlterClientQuotasRequest(entries=[(entity, changes)], validate_only=False)
    admin = KafkaAdminClient(**_settings(cluster))
    try:
        answer = admin._manager.run(admin._manager.send, request)
        answered_ms = time.time_ns() // 1_000_000
    finally:
        admin.close()
    for entry in answer.entries:
        if entry.error_code:
            msg = f"quota {dict(limits)} of {entity} refused: {entry.error_message or entry.error_code}"
            raise UserError(msg)
    return answered_ms


def _settings(cluster: Cluster) -> dict[str, str]:
    """The login in kafka-python's words."""
    login = cluster.client_settings()
    words = {
        "bootstrap.servers": "bootstrap_servers",
        "security.protocol": "security_protocol",
        "sasl.mechanism": "sasl_mechanism",
        "sasl.username": "sasl_plain_username",
        "sasl.password": "sasl_plain_password",
    }
    return {words[name]: value for name, value in login.items()} | {"client_id": "kquota-admin"}
