"""Logins with tokens: one source for both Python clients, Java's words for the same, and one line for each failure."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import partial
from urllib.parse import parse_qs, urlsplit

import pytest

from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.kafka.client_properties import (
    connection_options,
    is_for_java_only,
    java_options,
    python_options,
)
from kquota_spark.kafka.clients import admin, connection
from kquota_spark.kafka.tokens import TokenSource, token_source
from tests.support.clock import set_clock
from tests.support.clusters.token_endpoint import SECRET, TokenEndpoint, token_endpoint

OAUTH = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
    "sasl.oauthbearer.client.id": "audit",
    "sasl.oauthbearer.client.secret": 'a"b',
    "sasl.oauthbearer.scope": "kafka",
    "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
    "https.ca.location": "ca.pem",
}
JAVA = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
    "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
    "OAuthBearerLoginCallbackHandler",
    "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'clientId="audit" clientSecret="a\\"b" scope="kafka" extension_logicalCluster="lkc-1" '
    'extension_identityPoolId="pool-2" ssl.truststore.type="PEM" ssl.truststore.location="ca.pem";',
}
MSK = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
BROKERS = "b-1.pay.ab12cd.c2.kafka.eu-west-3.amazonaws.com:9098"


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with token_endpoint() as running:
        yield running


def source_of(endpoint: TokenEndpoint, **other: str) -> TokenSource:
    found = token_source("a:9092", {**endpoint.login("audit"), **other})
    assert found is not None
    return found


def refusal(endpoint: TokenEndpoint, secret: str = SECRET) -> UserError:
    source = token_source("a:9092", endpoint.login("audit", secret))
    assert source is not None
    with pytest.raises(UserError) as raised:
        source.token()
    assert SECRET not in str(raised.value)
    return raised.value


def test_one_set_of_properties_serves_java_and_both_python_clients() -> None:
    of_python = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    for given in (OAUTH, JAVA):
        assert java_options(given) == JAVA
        assert connection_options(given) == of_python
        assert python_options(given) == {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
        source = token_source("a:9092", given)
        assert source is not None
        assert source.extensions() == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}
        assert not is_for_java_only(given)


def test_msk_iam_is_javas_own_mechanism_and_a_token_to_the_others() -> None:
    assert java_options(MSK) == {
        **MSK,
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
    assert connection_options(MSK) == {**MSK, "sasl.mechanism": "OAUTHBEARER"}
    assert python_options(MSK) == {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}


def test_msk_iam_is_signed_for_the_region_of_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    regions = [_signed_for(servers) for servers in (BROKERS, "boot.corp.example:9098")]
    assert regions == ["eu-west-3", "us-east-2"]


def _signed_for(servers: str) -> str:
    """The region that a token is for, from the URL that it is."""
    source = token_source(servers, MSK)
    assert source is not None
    text, expires_at_s, principal, extensions = source("")
    url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    query = parse_qs(url.query)
    region = query["X-Amz-Credential"][0].split("/")[2]
    assert url.hostname == f"kafka.{region}.amazonaws.com"
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert (principal, extensions, expires_at_s > 1.7e9) == ("", {}, True)
    return region


def test_msk_iam_without_a_region_a_library_or_credentials_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError) as region:
        token_source("boot:9098", MSK)
    assert str(region.value) == (
        "sasl.mechanism AWS_MSK_IAM needs a region, and boot:9098 names none: set AWS_REGION"
    )
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_PROFILE", "none-of-this-name")
    assert _msk_problem() == (
        "sasl.mechanism AWS_MSK_IAM: no credentials of AWS (ProfileNotFound): set AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or run with a role"
    )
    monkeypatch.setitem(__import__("sys").modules, "aws_msk_iam_sasl_signer", None)
    assert _msk_problem() == (
        "sasl.mechanism AWS_MSK_IAM needs aws-msk-iam-sasl-signer-python: in a checkout pip install '.[msk]', "
        "else pip install 'WHEEL[msk]' with the wheel's path"
    )


def _msk_problem() -> str:
    with pytest.raises(UserError) as raised:
        admin(connection(BROKERS, MSK))
    return str(raised.value)


def test_a_part_of_the_login_that_is_missing_is_named() -> None:
    with pytest.raises(UserError) as raised:
        connection("a:9092", {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.client.id": "audit"})
    assert str(raised.value) == (
        "sasl.mechanism OAUTHBEARER needs a client of a token endpoint: give "
        "sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.secret"
    )


def test_a_token_is_used_until_most_of_its_life_is_over(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(endpoint, **{"sasl.oauthbearer.scope": "kafka"})
    text, expires_at_s, *_ = source("")
    now = round(expires_at_s * 1_000) - 3_600_000
    for later_ms, fetched in ((2_800_000, 1), (2_900_000, 2)):
        set_clock(monkeypatch, partial(int, now + later_ms))
        source.token()
        assert endpoint.scopes == ["kafka"] * fetched
    assert text.count(".") == 2


def test_an_endpoint_that_does_not_answer_is_one_line(endpoint: TokenEndpoint) -> None:
    url = endpoint.url = "http://127.0.0.1:1/token"
    error = refusal(endpoint)
    assert isinstance(error, UnreachableError)
    assert str(error) == (
        f"token endpoint {url} does not answer ([Errno 111] Connection refused): check "
        "sasl.oauthbearer.token.endpoint.url and https.ca.location, and that it runs"
    )


def test_a_client_that_is_refused_is_named(endpoint: TokenEndpoint) -> None:
    assert str(refusal(endpoint, "wrong")) == (
        f"token endpoint {endpoint.url} refuses client 'audit' (HTTP 401 'invalid_client'): check "
        "sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret and sasl.oauthbearer.scope"
    )


def test_a_token_that_has_expired_already_says_by_how_much(endpoint: TokenEndpoint) -> None:
    endpoint.lasts_s = -60
    assert str(refusal(endpoint)).startswith(
        f"token endpoint {endpoint.url} gives tokens that have expired 6"
    )


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[]", b'{"token": "x"}', b'{"access_token": "a.b.c", "expires_in": "x"}']
)
def test_an_answer_that_is_no_token_is_one_line(endpoint: TokenEndpoint, answer: bytes) -> None:
    endpoint.answer = answer
    assert str(refusal(endpoint)) == (
        f"token endpoint {endpoint.url} did not answer with a token: check sasl.oauthbearer.token.endpoint.url"
    )
