"""Logins with tokens (SASL/OAUTHBEARER) at a real broker, which checks each token with a key: all clients in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest

from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.embedded.admin import alter_quota, create_topics
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.errors import UserError
from kquota_spark.kafka.broker_checks import kafka_checks
from kquota_spark.kafka.quota_admin import QuotaAdmin
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.process.clock import now_ms
from kquota_spark.ship.topic import KafkaTopic, KafkaUnreachableError
from tests.support.clusters.token_endpoint import ISSUER, SECRET, TokenEndpoint, token_endpoint

TOPIC = "token-lines"
EXPECTED = (
    "compare it with what the brokers expect (sasl.oauthbearer.expected.audience and .expected.issuer, their keys, "
    "their clocks) and check "
)
REFUSED = f"refused the token (audience 'other', issuer '{ISSUER}', subject 'alice')"


@pytest.fixture(scope="module")
def cluster(kraft_sasl_cluster: Cluster) -> Cluster:
    create_topics(kraft_sasl_cluster, {TOPIC: 1})
    return kraft_sasl_cluster


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with token_endpoint() as running:
        yield running


def described(cluster: Cluster, login: Mapping[str, str]) -> list[tuple[object, object, float]]:
    with closing(QuotaAdmin(cluster.bootstrap_servers, login, timeout_ms=60_000)) as admin:
        return list(admin.describe())


def shipped(cluster: Cluster, login: Mapping[str, str], timeout_s: float = 60.0) -> int:
    """How many of two lines that are sent nobody acknowledges."""
    topic = KafkaTopic(cluster.bootstrap_servers, TOPIC, client_id="t", options=login, timeout_s=timeout_s)
    topic.send([b"one", b"two"], key=b"1", headers=[])
    left = topic.unacknowledged(60.0)
    topic.close()
    return left


def findings(cluster: Cluster, login: dict[str, str]) -> list[str]:
    """What `kquota doctor --before` finds wrong with Kafka as a whole."""
    kafka = Kafka(bootstrap_servers=cluster.bootstrap_servers, topic=TOPIC, options=login)
    checks = kafka_checks(Settings(kafka=kafka), None, now_ms())
    return [
        f"{check.evidence} -> {check.advice}" for check in checks if check.what == "Kafka" and check.advice
    ]


def test_quotas_are_read_and_lines_are_shipped_with_a_token(
    cluster: Cluster, endpoint: TokenEndpoint
) -> None:
    login = endpoint.login("alice")
    alter_quota(cluster, {"producer_byte_rate": 5.0}, user="by-token")
    assert (Entity("by-token"), QuotaKey.PRODUCER_BYTE_RATE, 5.0) in described(cluster, login)
    assert shipped(cluster, login) == 0
    assert findings(cluster, login) == []


def test_a_token_that_the_broker_refuses_is_shown_by_what_it_claims(
    cluster: Cluster, endpoint: TokenEndpoint
) -> None:
    endpoint.claims = {"aud": "other"}
    login = endpoint.login("alice")
    where = f"Kafka {cluster.bootstrap_servers} {REFUSED}"
    with pytest.raises(UserError) as raised:
        described(cluster, login)
    assert str(raised.value) == f"{where}: {EXPECTED}kafka.options"
    with pytest.raises(KafkaUnreachableError) as unshipped:
        shipped(cluster, login, timeout_s=2.0)
    assert str(unshipped.value) == f"{where}: {EXPECTED}ship.options"
    assert findings(cluster, login) == [f"{where} -> {EXPECTED}kafka.options"]


def test_the_doctor_says_which_part_of_getting_a_token_failed(
    cluster: Cluster, endpoint: TokenEndpoint
) -> None:
    where = f"token endpoint {endpoint.url}"
    [refused] = findings(cluster, endpoint.login("alice", "wrong"))
    assert refused == (
        f"{where} refuses client 'alice' (HTTP 401 'invalid_client') -> check sasl.oauthbearer.client.id, "
        "sasl.oauthbearer.client.secret and sasl.oauthbearer.scope"
    )
    endpoint.lasts_s = -60
    [expired] = findings(cluster, endpoint.login("alice"))
    assert expired.startswith(f"{where} gives tokens that have expired 6")
    assert expired.endswith("s ago by this machine's clock -> set the clocks, or the life of tokens there")
    endpoint.url = "http://127.0.0.1:1/token"
    [silent] = findings(cluster, endpoint.login("alice"))
    assert silent == (
        "token endpoint http://127.0.0.1:1/token does not answer ([Errno 111] Connection refused) -> check "
        "sasl.oauthbearer.token.endpoint.url and https.ca.location, and that it runs"
    )
    assert SECRET not in refused + expired + silent
