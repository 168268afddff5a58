"""Quotas go into nodes the way brokers write them, and whatever else a node holds stays there."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.formats.znodes.nodes import QuotaPayload, decode_node, decode_quota_node
from kquota_spark.formats.znodes.writes import (
    CHANGE_NODE_PREFIX,
    EMPTY_NODE,
    change_notification,
    with_quotas,
)
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey

_SETTINGS = settings(deadline=None, print_blob=True)
PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
PERCENT, MUTATIONS = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE
CONNECTIONS = IpQuotaKey.CONNECTION_CREATION_RATE
CANARY = "c2FsdA-canary"
ALICE = Entity("alice")


def node(**config: object) -> bytes:
    return json.dumps({"version": 1, "config": config}).encode()


def test_a_new_node_is_what_a_real_broker_wrote() -> None:
    # From a Kafka 3.9.1 broker: AlterClientQuotas for reqhog.
    data = b'{"version":1,"config":{"producer_byte_rate":"150000","request_percentage":"1.0"}}'
    assert with_quotas(Entity("reqhog"), None, {PRODUCE: 150_000.0, PERCENT: 1.0}) == data
    assert with_quotas(Entity("reqhog"), b"", {PRODUCE: 150_000, PERCENT: 1}) == data


def test_keys_that_are_not_named_stay_and_logins_are_kept() -> None:
    login = f"salt={CANARY},stored_key=a/b+c==,server_key=d,iterations=4096"
    data = node(**{"SCRAM-SHA-256": login, "producer_byte_rate": "1048576", "consumer_byte_rate": "7"})
    assert (
        with_quotas(ALICE, data, {PRODUCE: 2_097_152.0, FETCH: None, PERCENT: 12.5})
        == (
            f'{{"version":1,"config":{{"SCRAM-SHA-256":"{login}","producer_byte_rate":"2097152",'
            '"request_percentage":"12.5"}}'
        ).encode()
    )


def test_removing_the_last_quota_leaves_the_login_or_nothing() -> None:
    data = node(**{"SCRAM-SHA-512": CANARY, "producer_byte_rate": "1"})
    assert with_quotas(ALICE, data, {PRODUCE: None}) == node(**{"SCRAM-SHA-512": CANARY}).replace(b" ", b"")
    assert with_quotas(ALICE, node(producer_byte_rate="1"), {PRODUCE: None, FETCH: None}) is None
    assert with_quotas(ALICE, None, {PRODUCE: None}) is None
    assert decode_quota_node(EMPTY_NODE) == QuotaPayload()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (PRODUCE, 1e15, "1000000000000000"),
        (PRODUCE, 0, "0"),
        (PRODUCE, -1.0, "-1"),
        (FETCH, 9.223372036854775807e18, "9223372036854775807"),
        (FETCH, -9.223372036854775808e18, "-9223372036854775808"),
        (PERCENT, 1e16, "1e+16"),  # Double.parseDouble reads it as 1.0E16
        (MUTATIONS, 0.1, "0.1"),
        (MUTATIONS, 5, "5.0"),
    ],
)
def test_byte_rates_are_whole_and_the_rest_are_doubles(key: QuotaKey, value: float, text: str) -> None:
    assert with_quotas(ALICE, None, {key: value}) == node(**{key.value: text}).replace(b" ", b"")


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (PRODUCE, 1.5, "producer_byte_rate 1.5, expected a whole number of 64 bits"),
        (PRODUCE, math.inf, "producer_byte_rate inf, expected a whole number of 64 bits"),
        (FETCH, math.nan, "consumer_byte_rate nan, expected a whole number of 64 bits"),
        (FETCH, 1e19, "consumer_byte_rate 1e+19, expected a whole number of 64 bits"),
        (PERCENT, math.nan, "request_percentage nan, expected a finite number"),
        (MUTATIONS, -math.inf, "controller_mutation_rate -inf, expected a finite number"),
    ],
)
def test_values_that_brokers_would_not_read_are_refused(key: QuotaKey, value: float, problem: str) -> None:
    with pytest.raises(ValueError) as raised:
        with_quotas(ALICE, None, {key: value})
    assert str(raised.value) == f"users/alice: {problem}"


NOT_WHOLE = (
    "consumer_byte_rate is not a whole number of 64 bits: "
    "brokers keep what they had for it and the keys after it"
)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (CANARY.encode(), "not JSON: brokers read it as no quotas"),
        (b"[" * 100_000, "not JSON: brokers read it as no quotas"),
        (f'["{CANARY}"]'.encode(), "no object config: brokers read it as no quotas"),
        (f'{{"config":["{CANARY}"]}}'.encode(), "no object config: brokers read it as no quotas"),
        (
            f'{{"config":{{"SCRAM-SHA-256":{{"salt":"{CANARY}"}}}}}}'.encode(),
            "a value in config is not a JSON text: brokers refuse the node and keep the quotas they had",
        ),
        (b'{"version":2,"config":{}}', "not in the format of version 1"),
        (f'{{"version":1,"config":{{}},"{CANARY}":1}}'.encode(), "not in the format of version 1"),
        (
            node(consumer_byte_rate=CANARY),
            NOT_WHOLE,
        ),
    ],
)
def test_a_node_that_could_be_harmed_is_left_as_it_is(data: bytes, problem: str) -> None:
    with pytest.raises(ValueError) as raised:
        with_quotas(ALICE, data, {PRODUCE: 1.0})
    assert str(raised.value) == f"users/alice: its node is left as it is: {problem}"


def test_a_broken_quota_can_be_replaced_and_removed() -> None:
    broken = node(consumer_byte_rate="1.0E6", producer_byte_rate="5")
    assert (
        with_quotas(ALICE, broken, {FETCH: 7, PRODUCE: None})
        == b'{"version":1,"config":{"consumer_byte_rate":"7"}}'
    )
    assert with_quotas(ALICE, broken, {FETCH: None}) == b'{"version":1,"config":{"producer_byte_rate":"5"}}'


@pytest.mark.parametrize(
    "entity",
    [
        Entity(DEFAULT),
        Entity("alice", "etl"),
        Entity("alice", DEFAULT),
        Entity(None, "etl"),
        Entity(None, DEFAULT),
    ],
)
def test_only_a_user_by_name_may_hold_other_keys(entity: Entity) -> None:
    with pytest.raises(ValueError) as raised:
        with_quotas(entity, node(**{CANARY: "x"}), {PRODUCE: 1.0})
    assert str(raised.value) == (
        f"{entity}: its node is left as it is: it holds other keys than quotas, which brokers refuse to write there"
    )
    assert with_quotas(entity, node(consumer_byte_rate="7"), {PRODUCE: 1.0, FETCH: None}) is not None


def test_an_ip_is_a_whole_number_of_32_bits_and_its_node_holds_nothing_else() -> None:
    data = b'{"version":1,"config":{"connection_creation_rate":"5"}}'
    ip = IpEntity("10.0.0.1")
    assert (
        with_quotas(ip, None, {CONNECTIONS: 5.0}) == with_quotas(ip, EMPTY_NODE, {CONNECTIONS: 5.0}) == data
    )
    assert with_quotas(ip, data, {CONNECTIONS: None}) is None
    assert decode_node("ips/10.0.0.1", with_quotas(ip, data, {CONNECTIONS: 2.0**31 - 1})).values == {
        CONNECTIONS: 2_147_483_647.0
    }
    for value in (-1.0, 1.5, 2.0**31, math.nan, math.inf):
        with pytest.raises(ValueError, match="expected a whole number of 32 bits, 0 or more"):
            with_quotas(ip, None, {CONNECTIONS: value})
    with pytest.raises(ValueError, match="its node is left as it is: it holds other keys than quotas"):
        with_quotas(ip, node(**{CANARY: "x"}), {CONNECTIONS: 1.0})


def test_a_key_is_of_users_and_client_ids_or_of_ips() -> None:
    cases: list[tuple[AnyEntity, AnyKey, str]] = [
        (IpEntity(DEFAULT), PRODUCE, "ips/<default>: producer_byte_rate is no quota of ips"),
        (ALICE, CONNECTIONS, "users/alice: connection_creation_rate is no quota of users and client ids"),
    ]
    for entity, key, problem in cases:
        with pytest.raises(ValueError) as raised:
            with_quotas(entity, None, {key: 1.0})
        assert str(raised.value) == problem


def test_notifications_are_those_of_a_broker() -> None:
    # ConfigEntityChangeNotificationSequenceZNode.encode and createPath, Kafka 3.9.1.
    pair = b'{"version":2,"entity_path":"users/a%20b/clients/<default>"}'
    assert change_notification(Entity("a b", DEFAULT)) == pair
    assert change_notification(IpEntity("::1")) == b'{"version":2,"entity_path":"ips/::1"}'
    assert CHANGE_NODE_PREFIX == "config_change_"


NAMES = [key.value for key in QuotaKey]
FOREIGN = st.dictionaries(
    st.text(max_size=8).filter(lambda key: key not in NAMES), st.text(max_size=30), max_size=4
)
WHOLE = st.integers(-(2**53), 2**53).map(float)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
QUOTAS = st.fixed_dictionaries(
    {}, optional={PRODUCE: WHOLE, FETCH: WHOLE, PERCENT: FINITE, MUTATIONS: FINITE}
)


@_SETTINGS
@given(FOREIGN, QUOTAS, QUOTAS, st.sets(st.sampled_from(QuotaKey)))
def test_a_change_is_that_of_a_map_and_foreign_keys_are_kept(
    foreign: dict[str, str],
    before: dict[AnyKey, float | None],
    changes: dict[AnyKey, float],
    removed: set[QuotaKey],
) -> None:
    held = json.dumps({"version": 1, "config": foreign}).encode()
    data = with_quotas(ALICE, held, before) or EMPTY_NODE
    asked: dict[AnyKey, float | None] = {**changes, **dict.fromkeys(removed)}
    data = with_quotas(ALICE, data, asked) or EMPTY_NODE
    expected: dict[AnyKey, float] = {key: v for key, v in {**before, **asked}.items() if v is not None}
    assert decode_quota_node(data) == QuotaPayload(expected)
    config = json.loads(data)["config"]
    assert {key: value for key, value in config.items() if key not in NAMES} == foreign


@_SETTINGS
@given(st.text(max_size=12), st.text(max_size=12))
def test_a_notification_names_the_path_of_any_entity(user: str, client_id: str) -> None:
    entity = Entity(user, client_id)
    assert json.loads(change_notification(entity)) == {"version": 2, "entity_path": str(entity)}
