"""Users with a SCRAM credential, set and described by the Admin API."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kquota_spark.embedded.cluster import Cluster

_TIMEOUT_S = 60


def broker_client(cluster: Cluster, **login: str) -> AdminClient:
    """A client of the cluster, of the broker's own user unless told otherwise."""
    return AdminClient({**cluster.client_settings(), **login})


def set_credential(cluster: Cluster, user: str, password: str) -> None:
    """Give a user a password."""
    client: Any = broker_client(cluster)  # its answers end with it
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion(user, info, password.encode())
    client.alter_user_scram_credentials([upsertion])[user].result(timeout=_TIMEOUT_S)


def credentials(cluster: Cluster, user: str) -> list[tuple[str, int]]:
    """Mechanism and iterations of each credential of a user."""
    client: Any = broker_client(cluster)
    found = client.describe_user_scram_credentials([user])[user].result(timeout=_TIMEOUT_S)
    return [(str(info.mechanism), info.iterations) for info in found.scram_credential_infos]
