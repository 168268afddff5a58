"""The servers that tests share: a cluster with ZooKeeper and a KRaft node, each without and with logins.

A file takes its cluster without quotas and leaves it so. Its topics and users have names that no other file uses, and
what needs a ZooKeeper alone works in a chroot. A test whose subject is the cluster itself starts one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kquota_spark.config.settings import Quotas
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.settings import BROKER_USER, BrokerSettings
from kquota_spark.enforce.ports import Change, Outcome
from kquota_spark.kafka.quota_admin import Named, QuotaAdmin
from kquota_spark.quotas import zookeeper_cluster as zookeeper_quotas
from tests.support.clusters.token_endpoint import AUDIENCE, ISSUER, write_jwks
from tests.support.clusters.waiting import until, until_brokers_act

ORDERS = "orders"
"""A topic with a single partition, for clients that produce whatever it is."""
CANARY = "canary-\u00e4\"\\ 'x"
"""The password of `auditor`, which must not show anywhere."""
PROGRAMS = {user: f"password of {user}" for user in ("kquota-ship", "kquota-audit", "kquota-enforce")}
"""Users that may do what they are granted; everybody else may do everything."""


def _guarded(authorizer: str, *users: str) -> dict[str, str]:
    everybody = (BROKER_USER, "ANONYMOUS", "alice", *users)
    return {
        "authorizer.class.name": authorizer,
        "super.users": ";".join(f"User:{user}" for user in everybody),
    }


LOGINS = BrokerSettings(
    users={"alice": "alice's password", "auditor": CANARY, "shipper": "s", **PROGRAMS},
    properties={
        **_guarded("kafka.security.authorizer.AclAuthorizer", "auditor", "shipper"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    },
)
"""Passwords of SASL/PLAIN, and of SCRAM: those are in ZooKeeper."""
_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"


def kraft_logins(jwks: Path) -> BrokerSettings:
    """Passwords, and tokens of `token_endpoint`, whose public key is in this file."""
    of_tokens = "listener.name.sasl_plaintext.oauthbearer.sasl"
    return BrokerSettings(
        kraft=True,
        users={"alice": "alice's password", **PROGRAMS},
        properties={
            **_guarded("org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            f"{of_tokens}.jaas.config": f"{_OAUTHBEARER}LoginModule required;",
            f"{of_tokens}.server.callback.handler.class": f"{_OAUTHBEARER}ValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        },
    )


@pytest.fixture(scope="session")
def running_with_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker without logins: take `zookeeper_cluster`."""
    with embedded_cluster(tmp_path_factory.mktemp("zookeeper-cluster")) as running:
        create_topics(running, {ORDERS: 1})
        yield running


@pytest.fixture(scope="session")
def running_with_kraft(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node without logins: take `kraft_cluster`."""
    with embedded_cluster(
        tmp_path_factory.mktemp("kraft-cluster"), settings=BrokerSettings(kraft=True)
    ) as running:
        yield running


@pytest.fixture(scope="session")
def running_with_logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker with ZooKeeper and `LOGINS`: take `sasl_cluster`."""
    with embedded_cluster(tmp_path_factory.mktemp("sasl-cluster"), settings=LOGINS) as running:
        yield running


@pytest.fixture(scope="session")
def running_with_kraft_logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One KRaft node with `kraft_logins`: take `kraft_sasl_cluster`."""
    directory = tmp_path_factory.mktemp("kraft-sasl-cluster")
    write_jwks(directory / "jwks.json")
    with embedded_cluster(directory / "servers", settings=kraft_logins(directory / "jwks.json")) as running:
        yield running


@pytest.fixture(scope="module")
def zookeeper_cluster(running_with_zookeeper: Cluster) -> Iterator[Cluster]:
    """A broker with ZooKeeper, without logins and without quotas; it has the topic `orders`."""
    yield running_with_zookeeper
    without_quotas(running_with_zookeeper)


@pytest.fixture(scope="module")
def kraft_cluster(running_with_kraft: Cluster) -> Iterator[Cluster]:
    """A KRaft node without logins and without quotas."""
    yield running_with_kraft
    without_quotas(running_with_kraft)


@pytest.fixture(scope="module")
def sasl_cluster(running_with_logins: Cluster) -> Iterator[Cluster]:
    """A broker with ZooKeeper and `LOGINS`, without quotas."""
    yield running_with_logins
    without_quotas(running_with_logins)


@pytest.fixture(scope="module")
def kraft_sasl_cluster(running_with_kraft_logins: Cluster) -> Iterator[Cluster]:
    """A KRaft node with `kraft_logins`, without quotas."""
    yield running_with_kraft_logins
    without_quotas(running_with_kraft_logins)


def without_quotas(cluster: Cluster) -> None:
    """Remove all quotas of a cluster, and wait until its broker knows."""
    if cluster.has_zookeeper:
        quotas = Quotas(zookeeper_connect=cluster.zookeeper_connect)
        with zookeeper_quotas.zookeeper_cluster(quotas, named=Named()) as nodes:
            for entity, values in nodes.image().quotas.items():
                assert nodes.write(Change(entity, dict.fromkeys(values))).outcome is Outcome.DONE
        until_brokers_act(cluster)
        return
    login = cluster.client_settings()
    with closing(QuotaAdmin(login.pop("bootstrap.servers"), login, timeout_ms=60_000)) as admin:
        for entity, key, _ in admin.describe():
            assert admin.alter(entity, {key.value: None}) is None
        until(lambda: not admin.describe())
