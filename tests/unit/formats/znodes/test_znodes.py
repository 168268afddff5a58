"""Node payloads and names are read the way brokers read them, and nothing foreign gets out."""

from __future__ import annotations

import json
import math
from typing import NamedTuple

import pytest

from kquota_spark.formats.znodes.nodes import (
    Node,
    QuotaPayload,
    View,
    decode_node,
    decode_quota_node,
    name_nodes,
)
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
PERCENT, MUTATIONS = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE
CANARY = "c2FsdA-canary"


def node(**config: object) -> bytes:
    return json.dumps({"version": 1, "config": config}).encode()


class IpPayload(NamedTuple):
    """What brokers make of the data of an ip node."""

    limit: int | None = None
    is_left_alone: bool = False
    problem: str | None = None


def decode_ip_node(data: bytes | None) -> IpPayload:
    found = decode_node("ips/192.0.2.1", data)
    key = IpQuotaKey.CONNECTION_CREATION_RATE
    assert found.values.keys() | found.left_alone <= {key}
    limit = int(found.values[key]) if key in found.values else None
    return IpPayload(limit, key in found.left_alone, found.problem)


def test_values_are_texts_integers_for_rates_and_doubles_for_the_rest() -> None:
    data = node(
        producer_byte_rate="1048576",
        consumer_byte_rate="-1",
        request_percentage="12.5",
        controller_mutation_rate="1e1",
    )
    assert decode_quota_node(data) == QuotaPayload(
        {PRODUCE: 1_048_576.0, FETCH: -1.0, PERCENT: 12.5, MUTATIONS: 10.0}
    )


@pytest.mark.parametrize("data", [None, b"", node(), node(**{"SCRAM-SHA-256": CANARY})])
def test_nodes_without_quotas_are_no_problem(data: bytes | None) -> None:
    assert decode_quota_node(data) == QuotaPayload()


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"nonsense",
        b"\xff\xfe\xff",
        b"   ",
        b'{"config": NaN}',
        b"[" * 100_000,
        b"[]",
        b"7",
        b"{}",
        b'{"version":1,"config":null}',
        b'{"version":1,"config":["producer_byte_rate"]}',
    ],
)
def test_what_is_no_config_is_no_quotas_but_said_so(data: bytes) -> None:
    payload = decode_quota_node(data)
    assert (dict(payload.values), payload.left_alone) == ({}, frozenset())
    assert payload.problem is not None
    assert payload.problem.endswith("brokers read it as no quotas")


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + node(producer_byte_rate="7"),
        node(producer_byte_rate="7") + b" trailing",
        b'{"config":{"producer_byte_rate":"1"},"config":{"producer_byte_rate":"7"}}',
        b'{"version":99,"config":{"producer_byte_rate":"7"}}',
        json.dumps({"config": {"producer_byte_rate": "7"}}).encode("utf-16"),
    ],
)
def test_what_jackson_reads_is_read(data: bytes) -> None:
    assert decode_quota_node(data) == QuotaPayload({PRODUCE: 7.0})


@pytest.mark.parametrize(
    "config",
    [
        {"producer_byte_rate": 7},
        {"producer_byte_rate": "7", "consumer_byte_rate": None},
        {"producer_byte_rate": "7", "SCRAM-SHA-256": {"salt": CANARY}},
    ],
)
def test_a_value_that_is_not_a_text_makes_brokers_keep_everything(config: dict[str, object]) -> None:
    payload = decode_quota_node(node(**config))
    assert (dict(payload.values), payload.left_alone) == ({}, frozenset(QuotaKey))
    assert payload.problem is not None
    assert CANARY not in payload.problem


@pytest.mark.parametrize(
    "text", ["1.0E6", "", " 7", "7 ", "1_000", "0x10", "9223372036854775808", "NaN", CANARY]
)
def test_a_byte_rate_that_is_no_java_long_stops_the_broker_there(text: str) -> None:
    payload = decode_quota_node(node(producer_byte_rate="5", consumer_byte_rate=text, request_percentage="1"))
    # QuotaConfigHandler updates produce, then throws: fetch, request and mutation stay as they were.
    assert payload == QuotaPayload(
        {PRODUCE: 5.0},
        frozenset({FETCH, PERCENT, MUTATIONS}),
        "consumer_byte_rate is not a whole number of 64 bits: brokers keep what they had for it and the keys "
        "after it",
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0.0), ("+7", 7.0), ("-0", 0.0), ("9223372036854775807", 9.223372036854775807e18)],
)
def test_byte_rates_at_the_edges(text: str, value: float) -> None:
    assert decode_quota_node(node(producer_byte_rate=text)) == QuotaPayload({PRODUCE: value})


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1.0), (" 2.5 ", 2.5), (".5", 0.5), ("5.", 5.0), ("1e-3", 0.001), ("3d", 3.0)]
)
def test_percentages_are_java_doubles(text: str, value: float) -> None:
    assert decode_quota_node(node(request_percentage=text)) == QuotaPayload({PERCENT: value})


@pytest.mark.parametrize("text", ["", "1,5", "nan", "inf", "1e", "--1", "1ff"])
def test_percentages_that_java_refuses(text: str) -> None:
    assert decode_quota_node(node(request_percentage=text)).left_alone == {PERCENT, MUTATIONS}


def test_infinite_and_nan_percentages_are_values_and_flagged() -> None:
    infinite = decode_quota_node(node(request_percentage="Infinity"))
    assert (infinite.values[PERCENT], infinite.problem) == (math.inf, "request_percentage is not finite")
    assert math.isnan(decode_quota_node(node(request_percentage="NaN")).values[PERCENT])


def test_foreign_keys_never_get_out() -> None:
    data = node(**{"SCRAM-SHA-256": f"salt={CANARY}", CANARY: "x", "producer_byte_rate": "x" + CANARY})
    assert CANARY not in repr(decode_quota_node(data))


def test_names_of_all_eight_levels() -> None:
    paths = [
        "users/alice/clients/etl-1",
        "users/alice/clients/<default>",
        "users/alice",
        "users/<default>/clients/etl-1",
        "users/<default>/clients/<default>",
        "users/<default>",
        "clients/etl-1",
        "clients/<default>",
    ]
    names = name_nodes(paths)
    assert [names.entities[path].level for path in paths] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert names.problems == {}


def test_names_are_decoded() -> None:
    assert name_nodes(["users/%3Cdefault%3E/clients/a%3Bb%3Dc%2C%22d%22"]).entities == {
        "users/%3Cdefault%3E/clients/a%3Bb%3Dc%2C%22d%22": Entity("<default>", 'a;b=c,"d"')
    }
    assert name_nodes(["clients/<default>"]).entities == {"clients/<default>": Entity(None, DEFAULT)}


def test_malformed_names_are_problems_and_leave_the_others() -> None:
    names = name_nodes(["users/bad%zz", "users/%ff", "users/alice", "users/a~b", "clients/" + "%" * 10_000])
    assert names.entities == {"users/alice": Entity("alice")}
    assert set(names.problems) == {"users/bad%zz", "users/%ff", "users/a~b", "clients/" + "%" * 10_000}
    assert names.problems["users/a~b"] == "brokers never find this user: Kafka spells it users/a%7Eb"
    assert all(len(problem) < 300 for problem in names.problems.values())


def test_a_client_id_in_another_spelling_counts_unless_the_proper_one_is_there() -> None:
    assert name_nodes(["clients/a~b"]).entities == {"clients/a~b": Entity(None, "a~b")}
    both = name_nodes(["clients/a~b", "clients/a%7Eb"])
    assert both.entities == {"clients/a%7Eb": Entity(None, "a~b")}
    assert both.problems == {"clients/a~b": "clashes with clients/a%7Eb, which is the same client id"}


def test_a_removed_node_has_the_pzxid_of_its_nearest_ancestor() -> None:
    view = View({"users/a": Node(QuotaPayload(), 1, 2)}, {"users": 20, "clients": 30, "users/a": 25})
    assert [view.removed_at(path) for path in ("users/b", "users/b/clients/c", "clients/c")] == [20, 20, 30]
    assert view.removed_at("users/a/clients/c") == 25


def test_what_is_below_an_unreadable_path_is_hidden() -> None:
    view = View({}, {}, {"users/a": "no right to read /config/users/a"})
    assert [view.is_hidden(path) for path in ("users/a", "users/a/clients/c", "users/b")] == [
        True,
        True,
        False,
    ]


def test_a_node_that_a_real_broker_wrote() -> None:
    # From a Kafka 3.9.1 broker: AlterClientQuotas for reqhog.
    data = b'{"version":1,"config":{"producer_byte_rate":"150000","request_percentage":"1.0"}}'
    assert decode_quota_node(data) == QuotaPayload({PRODUCE: 150_000.0, PERCENT: 1.0})


@pytest.mark.parametrize(
    ("data", "limit"),
    [
        (None, None),
        (b"", None),
        (b'{"version":1,"config":{}}', None),
        (node(connection_creation_rate="20"), 20),
        (node(connection_creation_rate="0"), 0),
        (node(connection_creation_rate="+7"), 7),
        (node(connection_creation_rate="2147483647"), 2_147_483_647),
        (node(producer_byte_rate="5"), None),
    ],
)
def test_limits_of_ips_are_whole_numbers(data: bytes | None, limit: int | None) -> None:
    assert decode_ip_node(data) == IpPayload(limit)


@pytest.mark.parametrize("text", ["7.0", " 7", "1e1", "2147483648", "", CANARY])
def test_a_limit_of_an_ip_that_is_no_java_int_is_not_applied(text: str) -> None:
    refusal = "connection_creation_rate is not a whole number of 32 bits: brokers keep what they had"
    assert decode_ip_node(node(connection_creation_rate=text)) == IpPayload(None, True, refusal)


def test_an_ip_node_that_is_no_config_is_no_limit_or_is_refused() -> None:
    nothing = "not JSON: brokers read it as no quotas"
    assert decode_ip_node(b"nonsense") == IpPayload(None, False, nothing)
    refusal = "a value in config is not a JSON text: brokers refuse the node and keep the quotas they had"
    assert decode_ip_node(node(connection_creation_rate=7)) == IpPayload(None, True, refusal)


def test_a_user_node_in_bytes_that_are_not_utf_8_is_never_found() -> None:
    # The broker reads %ff as U+FFFD and looks users up under its encoding; a client id it only reads.
    names = name_nodes(["users/%ff", "clients/%ff"])
    assert names.problems == {"users/%ff": "brokers never find this user: Kafka spells it users/%EF%BF%BD"}
    assert names.entities == {"clients/%ff": Entity(None, "\ufffd")}
