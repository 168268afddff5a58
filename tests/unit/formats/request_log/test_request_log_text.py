"""The text form of the request log, which Kafka 0.10.2 to 2.7 wrote."""

from __future__ import annotations

import gzip
from collections import Counter

import pytest

from kquota_spark.formats.request_log.line import Request, RequestLogParser
from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.quotas.quota_types import QuotaType
from tests.support.logs.log_lines import changed
from tests.support.logs.text_lines import (
    CREATE_TOPICS_27,
    FETCH_26,
    FETCH_27,
    PRODUCE_0102,
    PRODUCE_011,
    PRODUCE_11,
    PRODUCE_27,
    T_MS,
)
from tests.support.places import DATA

CAPTURE = DATA / "kafka27-text" / "broker-1.kafka-request.log.gz"
PARSER = RequestLogParser()


def parsed(line: bytes, *replacements: tuple[str, str]) -> Request:
    return PARSER.parse(changed(line, *replacements))


PRODUCE = Request(
    log_time_ms=T_MS,
    record_time_ms=T_MS - 7,  # 0.518 + 1.288 + 4.987 + 0.002 that no other time explains - 0.5 = 6.295
    principal_type="User",
    user="alice",
    client_id="shop",
    api_key=0,
    api_version=8,
    api_name="PRODUCE",
    quota_type=QuotaType.PRODUCE,
    point_kind=PointKind.PRODUCE,
    charged_bytes=27_140,  # 10 + 4; 2 + 2 + 4 + 4 + (2 + 6 + 4 + (8 + 27,094))
    request_time_percent=6.698 / 10,  # 6.698 ms of a second's 1,000
    observed_throttle_ms=487,
    is_from_follower=False,
    is_forwarded=False,
    connection="127.0.0.1:45007-127.0.0.1:59100-1",
    correlation_id=7,
    software_name="confluent-kafka-python",
    software_version="2.16.1-rdkafka-2.16.0",
    topics=["orders"],
    network_time_us=518,
    mutations=None,
)
FETCH = PRODUCE._replace(
    record_time_ms=T_MS - 2,  # 0.729 + 0.076 + 1.184 + 0.002 - 0.5 = 1.491
    client_id="reader",
    api_key=1,
    api_version=12,
    api_name="FETCH",
    quota_type=QuotaType.FETCH,
    point_kind=PointKind.FETCH,
    # 4 + (4 + 2 + 4 + 1 + 1); 1 + 6 + 1 + 1; two partitions of 36 with lengths of 1 and 3 bytes
    charged_bytes=16 + 9 + 36 + 1 + 36 + 3 + 30_000,
    request_time_percent=0.3762,
    network_time_us=729,
    observed_throttle_ms=0,
    connection="127.0.0.1:45007-127.0.0.1:51866-6",
    correlation_id=12,
)


def test_a_produce_of_2_7() -> None:
    assert parsed(PRODUCE_27) == PRODUCE


def test_a_fetch_of_2_7() -> None:
    assert parsed(FETCH_27) == FETCH


def test_a_fetch_of_2_6() -> None:
    found = parsed(FETCH_26)
    # 4 + 14; 2 + 6 + 4; 38 + 4 + 30,000
    assert (found.api_version, found.charged_bytes, found.point_kind) == (11, 30_072, PointKind.FETCH)


def test_a_request_that_no_bandwidth_quota_is_charged() -> None:
    found = parsed(CREATE_TOPICS_27)
    assert (found.api_key, found.api_name, found.api_version) == (19, "CREATE_TOPICS", 4)
    assert (found.quota_type, found.point_kind, found.charged_bytes, found.topics) == (None, None, None, [])
    # A throttle of the controller stands in the response only.
    assert found.observed_throttle_ms == 31


def test_sizes_of_many_partitions() -> None:
    sizes = ("[orders-0=27094]", "[orders-0=118,orders-1=7,a_b-0-0=0,my-topic.with-1-12=5]")
    found = parsed(PRODUCE_27, sizes)
    assert found.topics == ["orders", "a_b-0", "my-topic.with-1"]
    # 10 + 4; 12; (2 + 6 + 4 + 126 + 15); (2 + 5 + 4 + 8); (2 + 15 + 4 + 13)
    assert found.charged_bytes == 14 + 12 + 153 + 19 + 34
    assert parsed(PRODUCE_27, ("[orders-0=27094]", "[]")).charged_bytes == 14 + 12


def test_aborted_transactions() -> None:
    two = "[{producer_id=1,first_offset=2},{producer_id=3,first_offset=4}]"
    assert parsed(FETCH_26, ("transactions=[]", f"transactions={two}")).charged_bytes == 30_072 + 32
    assert parsed(FETCH_26, ("transactions=[]", "transactions=null")).charged_bytes == 30_072


def test_record_sets_of_2_0_to_2_3_say_where_they_begin_and_end() -> None:
    old = ("FileRecords(size=30000, file=/data", "FileRecords(file= /data")
    assert parsed(FETCH_26, old).charged_bytes == 30_072
    assert parsed(FETCH_26, old, ("start=0, end=30000", "start=1, end=61")).charged_bytes == 72 + 60


@pytest.mark.parametrize(
    ("client_id", "length"),
    [
        ("", 0),
        ("x, correlationId=7", 18),
        ("ünï -- {a};b", 14),
        ("a -- {b}", 8),
        ("a) -- b", 7),
        ("]},response:", 12),
    ],
)
def test_client_ids(client_id: str, length: int) -> None:
    found = parsed(PRODUCE_27, ("clientId=shop", f"clientId={client_id}"))
    assert found == PRODUCE._replace(client_id=client_id, charged_bytes=27_136 + length)


@pytest.mark.parametrize(
    "user",
    [
        "CN=app,OU=pay,listener:z",
        "a:b",
        "",
        "müller",
        "x from connection y",
        "a (b)",
        "listener:y,listener:x",
    ],
)
def test_principals(user: str) -> None:
    found = parsed(PRODUCE_27, ("User:alice", f"User:{user}"))
    assert found == PRODUCE._replace(user=user)


def test_the_type_of_a_principal_ends_at_the_first_colon() -> None:
    # `KafkaPrincipal.toString` is the type, a colon and the name, and a principal builder may name a type so.
    found = parsed(PRODUCE_27, ("principal:User:alice", "principal:Userprincipal:User:alice"))
    assert found == PRODUCE._replace(principal_type="Userprincipal", user="User:alice")


def test_a_client_id_or_a_body_cannot_imitate_the_end_of_the_line() -> None:
    at = PRODUCE_27.index(b" from connection")
    imitation = PRODUCE_27[at:].decode().replace("alice", "root").removesuffix(" (kafka.request.logger)")
    found = parsed(PRODUCE_27, ("clientId=shop", f"clientId=shop{imitation}"))
    assert (found.user, found.client_id) == ("alice", f"shop{imitation}")
    assert parsed(CREATE_TOPICS_27, ("name=orders,num", f"name={imitation},num")).user == "alice"


def test_the_throttle_of_a_throttled_fetch() -> None:
    start, end = FETCH_27.index(b"responses=["), FETCH_27.index(b",_tagged_fields={}} from")
    empty = FETCH_27[:start] + b"responses=[]" + FETCH_27[end:]
    found = parsed(empty, ("response:{throttle_time_ms=0", "response:{throttle_time_ms=996"))
    assert found == FETCH._replace(
        charged_bytes=0, point_kind=PointKind.THROTTLED_FETCH, observed_throttle_ms=996, topics=[]
    )
    assert parsed(empty).charged_bytes == 16


def test_a_fetch_without_a_response_was_throttled_only_if_there_is_a_throttle() -> None:
    start, end = FETCH_27.index(b"{throttle_time_ms=0,"), FETCH_27.index(b" from connection")
    line = FETCH_27[:start] + FETCH_27[end:]
    assert parsed(line) == FETCH._replace(point_kind=PointKind.UNSIZED, charged_bytes=None, topics=[])
    throttled = parsed(line, ("throttleTime:0", "throttleTime:996"))
    assert (throttled.point_kind, throttled.charged_bytes) == (PointKind.THROTTLED_FETCH, 0)


def test_a_fetch_that_was_converted_for_an_old_consumer_has_a_size_that_is_not_logged() -> None:
    converted = parsed(FETCH_27, (") (kafka.request", "),messageConversionsTime:0.5 (kafka.request"))
    assert converted == FETCH._replace(point_kind=PointKind.UNSIZED, charged_bytes=None)


@pytest.mark.parametrize(
    ("code", "is_charged"),
    # Up to 2.7 a producer may need a right of its own to be idempotent; that is asked before the quota too.
    [("53", False), ("31", False), ("29", True), ("530", True)],
)
def test_a_produce_that_was_refused_as_a_whole_is_charged_to_no_bandwidth_quota(
    code: str, is_charged: bool
) -> None:
    refused = parsed(PRODUCE_27, ("error_code=0", f"error_code={code}"))
    uncharged = PRODUCE._replace(quota_type=None, point_kind=None, charged_bytes=None)
    assert refused == (PRODUCE if is_charged else uncharged)
    other = f"error_code={code},base_offset=-1}},{{partition=1,error_code=0"
    assert parsed(PRODUCE_27, ("error_code=0", other)) == PRODUCE


def test_a_throttled_fetch_before_2_0_was_charged_and_held_back() -> None:
    sets = "FileRecords(size=30000, file=/data/orders-0/00000000000000000000.log, start=0, end=30000)"
    throttled = ("response:{throttle_time_ms=0", "response:{throttle_time_ms=996")
    found = parsed(FETCH_26, (sets, "[]"), throttled, ("throttleTime:0", "throttleTime:998.868"))
    assert (found.point_kind, found.charged_bytes, found.observed_throttle_ms) == (PointKind.FETCH, 72, 996)


@pytest.mark.parametrize(
    ("at_top", "in_response", "expected"),
    [
        ("487", "0", 487),  # 2.6 and 2.7: the throttle that was applied
        ("0", "31", 31),
        ("0.047", "487", 487),  # 2.0 to 2.5: about 0, whatever was applied
        ("491.1", "488", 488),  # before 2.0: how long the response was held
        ("13.687", "0", 0),
    ],
)
def test_which_throttle_time_counts(at_top: str, in_response: str, expected: int) -> None:
    top = ("throttleTime:487", f"throttleTime:{at_top}")
    found = parsed(PRODUCE_27, top, ("throttle_time_ms=487", f"throttle_time_ms={in_response}"))
    assert found == PRODUCE._replace(observed_throttle_ms=expected)


def test_acks_0_has_no_response() -> None:
    start, end = PRODUCE_27.index(b"{responses="), PRODUCE_27.index(b" from connection")
    line = PRODUCE_27[:start] + PRODUCE_27[end:]
    assert parsed(line, ("acks=-1", "acks=0")) == PRODUCE._replace(network_time_us=None)
    # Without a response the time that it would have been held is left; from 2.0 to 2.5 there is none.
    assert parsed(line, ("throttleTime:487", "throttleTime:0.05")).observed_throttle_ms == 0
    held = parsed(line, ("throttleTime:487", "throttleTime:491.1"), ("totalTime:14.02", "totalTime:505.12"))
    assert held.observed_throttle_ms == 491  # 505.12 - 14.018


def test_responses_held_back_before_2_0() -> None:
    # The request was recorded before: 497.181 in all, 9.302 of it explained; 0.497 + 0.512 + 487.879 - 0.5 = 488.388
    found = parsed(PRODUCE_11)
    assert (found.observed_throttle_ms, T_MS - found.record_time_ms) == (488, 489)
    assert found.charged_bytes == 27_140


def test_lines_before_1_0_have_no_response() -> None:
    found = parsed(PRODUCE_011)
    # 467.207 - 0.125 - 2.027 - 0.174 - 0.492 = 464.389
    assert (found.observed_throttle_ms, T_MS - found.record_time_ms) == (464, 465)
    assert (found.api_name, found.api_version, found.charged_bytes) == ("PRODUCE", 3, 27_140)
    found = parsed(PRODUCE_0102)
    # 474 - 1 - 4 - 1; v2 has no transactional id
    assert (found.observed_throttle_ms, T_MS - found.record_time_ms) == (468, 469)
    assert (found.api_version, found.charged_bytes) == (2, 14 + 10 + 12 + 8 + 27_102)
    assert (found.client_id, found.software_name) == ("shop", "unknown")


def test_followers() -> None:
    found = parsed(
        FETCH_27,
        ("replica_id=-1", "replica_id=2"),
        ("_tagged_fields={}}],_tagged", "_tagged_fields={1={}}}],_tagged"),
    )
    assert found == FETCH._replace(
        quota_type=None,
        point_kind=None,
        charged_bytes=None,
        is_from_follower=True,
        topics=[],
        network_time_us=None,
    )


def test_every_line_of_a_real_broker() -> None:
    with gzip.open(CAPTURE) as file:
        requests = [PARSER.parse(line.rstrip(b"\n")) for line in file]
    assert len(requests) == 140
    kinds = Counter(
        (request.user, request.point_kind) for request in requests if request.point_kind is not None
    )
    assert kinds == {
        ("alice", PointKind.PRODUCE): 5,
        ("alice", PointKind.FETCH): 15,
        ("alice", PointKind.THROTTLED_FETCH): 5,
        ("CN=app,OU=pay,listener:z", PointKind.PRODUCE): 9,
        ("CN=app,OU=pay,listener:z", PointKind.FETCH): 22,
        ("müller", PointKind.PRODUCE): 6,
    }
    produced = [
        request
        for request in requests
        if request.client_id == "many" and request.point_kind is PointKind.PRODUCE
    ]
    assert produced[-1].topics == ["orders", "a_b-0", "my-topic.with-1"]
