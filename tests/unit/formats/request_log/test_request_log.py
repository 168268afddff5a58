"""One line of the request log to one request."""

from __future__ import annotations

import gzip
import hashlib

import pytest

from kquota_spark.formats.request_log.line import Request, RequestLogParser
from kquota_spark.formats.request_log.request import Mutation
from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.quotas.quota_types import QuotaType
from tests.support.logs.log_lines import (
    API_VERSIONS_V3,
    CREATE_TOPICS_V7_REFUSED,
    FETCH_V12,
    FETCH_V17_THROTTLED,
    METADATA_V12,
    PRODUCE_V9,
    T0_MS,
    changed,
)
from tests.support.places import DATA

TOPIC_HASH = int.from_bytes(hashlib.blake2b(b"new-topic", digest_size=8).digest()) >> 1
PARSER = RequestLogParser()


def parsed(line: bytes, *replacements: tuple[str, str]) -> Request:
    return PARSER.parse(changed(line, *replacements))


PRODUCE = Request(
    log_time_ms=T0_MS + 123,
    record_time_ms=T0_MS + 119,  # 123 - 0.096 - 0.05 - 3.701 + 0.5 = 119.653
    principal_type="User",
    user="checkout",
    client_id="checkout-svc",
    api_key=0,
    api_version=9,
    api_name="PRODUCE",
    quota_type=QuotaType.PRODUCE,
    point_kind=PointKind.PRODUCE,
    charged_bytes=16_433,
    request_time_percent=0.1204,  # 1.204 ms of a second's 1,000
    observed_throttle_ms=0,
    is_from_follower=False,
    is_forwarded=False,
    connection="10.0.0.11:9093-10.0.7.31:51514-27",
    correlation_id=4711,
    software_name="apache-kafka-java",
    software_version="3.9.0",
    topics=["orders"],
    network_time_us=96,
    mutations=None,
)
FETCH = PRODUCE._replace(
    log_time_ms=T0_MS + 423,
    record_time_ms=T0_MS + 419,
    user="billing",
    client_id="billing-consumer",
    api_key=1,
    api_version=12,
    api_name="FETCH",
    quota_type=QuotaType.FETCH,
    point_kind=PointKind.FETCH,
    charged_bytes=16_448,
    connection="10.0.0.11:9093-10.0.7.44:40022-91",
    correlation_id=815,
)
OTHER = PRODUCE._replace(quota_type=None, point_kind=None, charged_bytes=None, topics=[])


def test_produce_v9() -> None:
    assert parsed(PRODUCE_V9) == PRODUCE


def test_fetch_v12() -> None:
    assert parsed(FETCH_V12) == FETCH


def test_fetch_v17_throttled() -> None:
    assert parsed(FETCH_V17_THROTTLED) == FETCH._replace(
        log_time_ms=T0_MS + 1_001,
        record_time_ms=T0_MS + 997,
        api_version=17,
        point_kind=PointKind.THROTTLED_FETCH,
        charged_bytes=0,
        observed_throttle_ms=1_800,
        correlation_id=816,
        topics=[],
    )


def test_metadata_v12() -> None:
    assert parsed(METADATA_V12) == OTHER._replace(
        log_time_ms=T0_MS + 2_000, record_time_ms=T0_MS + 1_996, api_key=3, api_version=12,
        api_name="METADATA", correlation_id=3,
    )  # fmt: skip


def test_api_versions_v3() -> None:
    assert parsed(API_VERSIONS_V3) == OTHER._replace(
        log_time_ms=T0_MS + 2_001, record_time_ms=T0_MS + 1_997, api_key=18, api_version=3,
        api_name="API_VERSIONS", correlation_id=0,
    )  # fmt: skip


def test_create_topics_refused_has_its_throttle_in_the_response_only() -> None:
    refused = OTHER._replace(
        # The quota is asked when the work begins: 3,000 - 0.096 - 0.05 - 3.701 - 1.204 + 0.5 = 2,995.449
        log_time_ms=T0_MS + 3_000, record_time_ms=T0_MS + 2_995, api_key=19, api_version=7,
        api_name="CREATE_TOPICS", client_id="adminclient-1", correlation_id=9, observed_throttle_ms=1_000,
        mutations=[Mutation(TOPIC_HASH, 0, PointKind.REFUSED_MUTATION)],
    )  # fmt: skip
    assert parsed(CREATE_TOPICS_V7_REFUSED) == refused
    forwarded = parsed(CREATE_TOPICS_V7_REFUSED, ('"isForwarded":false', '"isForwarded":true'))
    assert forwarded == refused._replace(is_forwarded=True, network_time_us=None, mutations=None)


def test_acks_0_has_no_response_and_its_throttle_at_top_level() -> None:
    found = parsed(
        without_response(PRODUCE_V9), ('"acks":-1', '"acks":0'), ('"throttleTimeMs":0', '"throttleTimeMs":58')
    )
    assert found == PRODUCE._replace(observed_throttle_ms=58, network_time_us=None)


TRANSACTIONAL = ('"transactionalId":null', '"transactionalId":"tx"')
# The id takes its two bytes more: 16,433 + 2.
IN_TRANSACTION = PRODUCE._replace(charged_bytes=16_435)


def test_a_produce_whose_transactional_id_was_refused_is_charged_to_no_bandwidth_quota() -> None:
    refused = parsed(PRODUCE_V9, TRANSACTIONAL, ('"errorCode":0', '"errorCode":53'))
    assert refused == PRODUCE._replace(quota_type=None, point_kind=None, charged_bytes=None)
    # A partition that was refused otherwise, beside one in order, is charged with the rest.
    for code in (0, 29, 530):
        other = f'"errorCode":53}},{{"index":4,"errorCode":{code}'
        assert parsed(PRODUCE_V9, TRANSACTIONAL, ('"errorCode":0', other)) == IN_TRANSACTION
    assert parsed(PRODUCE_V9, TRANSACTIONAL) == IN_TRANSACTION


def without_response(line: bytes) -> bytes:
    start, end = line.index(b'"response":{'), line.index(b',"connection"')
    return line[:start] + b'"response":""' + line[end:]


def test_a_fetch_without_a_response_and_without_a_throttle_has_a_size_that_nobody_knows() -> None:
    assert parsed(without_response(FETCH_V12)) == FETCH._replace(
        point_kind=PointKind.UNSIZED, charged_bytes=None, topics=[]
    )
    assert parsed(without_response(FETCH_V17_THROTTLED)).point_kind == PointKind.THROTTLED_FETCH


def test_a_fetch_that_was_converted_for_an_old_consumer_has_a_size_that_is_not_logged() -> None:
    converted = parsed(FETCH_V12, ('"isForwarded"', '"messageConversionsTime":0.2,"isForwarded"'))
    assert converted == FETCH._replace(point_kind=PointKind.UNSIZED, charged_bytes=None)


@pytest.mark.parametrize(
    ("in_response", "at_top", "observed_ms"), [(5_000, 5_000, 5_000), (0, 58, 58), (77, 0, 77), (9, 8, 9)]
)
def test_where_the_throttle_stands(in_response: int, at_top: int, observed_ms: int) -> None:
    in_both = changed(PRODUCE_V9, ('],"throttleTimeMs":0}', f'],"throttleTimeMs":{in_response}}}'))
    found = parsed(in_both, ('3.701,"throttleTimeMs":0', f'3.701,"throttleTimeMs":{at_top}'))
    assert found == PRODUCE._replace(observed_throttle_ms=observed_ms)
    fetch = changed(
        FETCH_V12, ('"response":{"throttleTimeMs":0', f'"response":{{"throttleTimeMs":{in_response}')
    )
    found = parsed(fetch, ('3.701,"throttleTimeMs":0', f'3.701,"throttleTimeMs":{at_top}'))
    assert found == FETCH._replace(
        observed_throttle_ms=observed_ms, charged_bytes=0, point_kind=PointKind.THROTTLED_FETCH
    )


FOLLOWER = FETCH._replace(
    quota_type=None, point_kind=None, charged_bytes=None, is_from_follower=True, network_time_us=None
)
REPLICA_STATE = '"request":{"clusterId":"abc","replicaState":{"replicaId":2,"replicaEpoch":118},"maxWaitMs"'


def _share_fetches() -> list[bytes]:
    """SHARE_FETCH v2 lines of a real 4.3.0 broker."""
    path = DATA / "kraft43-share" / "broker-1.kafka-request.log.gz"
    return [line for line in gzip.decompress(path.read_bytes()).splitlines() if b'"SHARE_FETCH"' in line]


def test_a_share_fetch_is_charged_to_the_fetch_quota_and_has_no_size() -> None:
    answered = next(line for line in _share_fetches() if b'"acquiredRecords":[{' in line)
    found = PARSER.parse(answered)
    assert (found.api_key, found.api_version, found.api_name) == (78, 2, "SHARE_FETCH")
    assert (found.quota_type, found.point_kind, found.charged_bytes) == (
        QuotaType.FETCH, PointKind.SHARE_FETCH, None
    )  # fmt: skip
    assert (found.client_id, found.topics) == ("sharer", ["DPE1HZ9DQVCvSp12x_1GBg"])


def test_a_throttled_share_fetch_comes_back_empty() -> None:
    throttled = next(line for line in _share_fetches() if b'"throttleTimeMs":114' in line)
    found = PARSER.parse(throttled)
    assert (found.quota_type, found.point_kind, found.charged_bytes) == (
        QuotaType.FETCH, PointKind.THROTTLED_SHARE_FETCH, 0
    )  # fmt: skip
    assert found.observed_throttle_ms == 114


def test_a_share_acknowledge_counts_for_the_request_quota_alone() -> None:
    share_fetch = _share_fetches()[0].replace(b'"requestApiKey":78', b'"requestApiKey":79')
    found = PARSER.parse(share_fetch.replace(b'"SHARE_FETCH"', b'"SHARE_ACKNOWLEDGE"'))
    assert (found.api_key, found.quota_type, found.charged_bytes) == (79, None, None)
    assert found.network_time_us is not None


def test_followers() -> None:
    assert parsed(FETCH_V12, ('"replicaId":-1', '"replicaId":2')) == FOLLOWER
    assert parsed(FETCH_V12, ('"replicaId":-1', '"replicaId":0')) == FOLLOWER
    assert parsed(FETCH_V12, ('"replicaId":-1', '"replicaId":-2')) == FETCH  # a debug consumer
    found = parsed(FETCH_V17_THROTTLED, ('"request":{"maxWaitMs"', REPLICA_STATE))
    assert (found.is_from_follower, found.quota_type, found.charged_bytes) == (True, None, None)
    v17 = changed(FETCH_V12, ('"requestApiVersion":12', '"requestApiVersion":17'), ('"topic":', '"topicId":'))
    found = parsed(v17, ('"request":{"replicaId":-1,"maxWaitMs"', REPLICA_STATE))
    assert found == FOLLOWER._replace(api_version=17)
    # From v15 on a consumer has neither.
    consumer = parsed(v17, ('"request":{"replicaId":-1,"maxWaitMs"', '"request":{"maxWaitMs"'))
    assert (consumer.is_from_follower, consumer.point_kind) == (False, PointKind.FETCH)


def test_forwarded_requests_are_not_counted() -> None:
    forwarded = ('"isForwarded":false', '"isForwarded":true')
    uncounted = PRODUCE._replace(
        quota_type=None, point_kind=None, charged_bytes=None, is_forwarded=True, network_time_us=None
    )
    assert parsed(PRODUCE_V9, forwarded) == uncounted
    assert parsed(FETCH_V12, forwarded) == FOLLOWER._replace(is_forwarded=True, is_from_follower=False)


@pytest.mark.parametrize(
    ("logged", "client_id", "more_bytes"),
    [
        ("", "", -12),  # checkout-svc has 12
        (r"a;b=c,\"d\"", 'a;b=c,"d"', 9 - 12),
        ("sp ace ünï", "sp ace ünï", 12 - 12),  # ü and ï are two bytes each
        (r"\u00fc\n", "ü\n", 3 - 12),
        (r"x\"requestApiKey\":1,", 'x"requestApiKey":1,', 19 - 12),
    ],
)
def test_client_ids(logged: str, client_id: str, more_bytes: int) -> None:
    found = parsed(PRODUCE_V9, ('"clientId":"checkout-svc"', f'"clientId":"{logged}"'))
    assert found == PRODUCE._replace(client_id=client_id, charged_bytes=16_433 + more_bytes)


def test_a_null_client_id_is_the_empty_one_and_charges_the_user() -> None:
    # Brokers before KAFKA-13385 (2.8 and 3.0) write null. In the header it has the size of an empty one: two bytes.
    found = parsed(PRODUCE_V9, ('"clientId":"checkout-svc"', '"clientId":null'))
    assert found == PRODUCE._replace(client_id="", charged_bytes=16_433 - 12)


def test_no_client_id_in_the_header_of_version_0() -> None:
    # Only ControlledShutdown v0 has such a header.
    shutdown = ('"requestApiKey":3,"requestApiVersion":12', '"requestApiKey":7,"requestApiVersion":0')
    assert parsed(METADATA_V12, shutdown, ('"clientId":"checkout-svc",', "")).client_id == ""


@pytest.mark.parametrize(
    ("principal", "kind", "user"),
    [
        ("User:team:pay+ments@corp", "User", "team:pay+ments@corp"),
        ("User:CN=app-1,OU=x", "User", "CN=app-1,OU=x"),
        ("User:müller", "User", "müller"),
        ("Group:admins", "Group", "admins"),
        ("User:", "User", ""),
    ],
)
def test_principals(principal: str, kind: str, user: str) -> None:
    found = parsed(PRODUCE_V9, ("User:checkout", principal))
    assert found == PRODUCE._replace(principal_type=kind, user=user)


def test_tagged_fields_of_partitions() -> None:
    leader = '"logStartOffset":0,"currentLeader":{"leaderId":1,"leaderEpoch":4}'
    assert parsed(FETCH_V12, ('"logStartOffset":0', leader)).charged_bytes == 16_448 + 11
    both = leader + ',"divergingEpoch":{"epoch":3,"endOffset":9}'
    assert parsed(FETCH_V12, ('"logStartOffset":0', both)).charged_bytes == 16_448 + 11 + 15


def test_a_current_leader_of_a_real_broker() -> None:
    lines: list[bytes] = []
    for path in sorted((DATA / "zk39-levels").glob("broker-*.gz")):
        with gzip.open(path) as file:
            lines += [line.rstrip(b"\n") for line in file if b'"currentLeader":' in line]
    assert [PARSER.parse(line).is_from_follower for line in lines] == [True, True]
    as_consumer = changed(lines[0], ('"replicaState":{"replicaId":2,"replicaEpoch":45},', ""))
    # 4 + 10 + (1 + 1) of the response, 16 + 1 + 1 of the topic, 30 + 1 + 4 + 1 + 0 + 1 of the partition, 11 of
    # the leader; the end points of nodes are not counted.
    assert PARSER.parse(as_consumer).charged_bytes == 4 + 12 + 18 + 37 + 11


@pytest.mark.parametrize(
    ("replacements", "after_ms"),
    [
        ((), 119),  # 123 - 0.146 - 3.701 + 0.5 = 119.653
        ((("3.701", "4.999"),), 118),  # below 5 ms: only the way to the queue; 118.355
        ((("3.701", "5.0"),), 123),  # waited for replicas: 123 - 0.146 + 0.5 = 123.354
        ((("3.701", "5.0"), ('"acks":-1', '"acks":1')), 118),  # only acks=all waits; 118.354
        ((("3.701", "80.0"), ('"acks":-1', '"acks":0')), 43),
        ((("3.701", "0.0"), ("0.096", "20.5"), ('eueTimeMs":0.05', 'eueTimeMs":2.0')), 101),  # 100.5 + 0.5
        ((("3.701", "5.0E-4"),), 123),  # 123 - 0.146 - 0.0005 + 0.5
    ],
)
def test_record_time_of_a_produce(replacements: tuple[tuple[str, str], ...], after_ms: int) -> None:
    assert parsed(PRODUCE_V9, *replacements).record_time_ms - T0_MS == after_ms


@pytest.mark.parametrize(
    ("remote_ms", "after_ms"), [("3.701", 419), ("49.9", 373), ("50.0", 423), ("501.2", 423)]
)
def test_record_time_of_a_fetch(remote_ms: str, after_ms: int) -> None:
    # 423 - 0.146 - 49.9 + 0.5 = 373.454; from 50 ms on it waited for data, and was charged after the wait.
    assert parsed(FETCH_V12, ("3.701", remote_ms)).record_time_ms - T0_MS == after_ms


def test_a_log_in_another_zone() -> None:
    found = RequestLogParser("Europe/Berlin").parse(PRODUCE_V9)
    assert (found.log_time_ms, found.record_time_ms) == (T0_MS + 123 - 3_600_000, T0_MS + 119 - 3_600_000)


def test_topics_beyond_32_count_but_are_not_named() -> None:
    one = '{"name":"orders","partitionData":[{"index":3,"recordsSizeInBytes":16384}]}'
    found = parsed(PRODUCE_V9, (one, ",".join([one] * 40)))
    assert found.topics == ["orders"] * 32
    # A topic is 1 + 6 of name, 1, 4 + 3 + 16,384 + 1 of the partition, 1.
    assert found.charged_bytes == 16_433 + 39 * 16_401


def test_a_null_record_set_is_empty() -> None:
    # 16,433 less 16,384 and two of the three bytes of its length.
    assert parsed(PRODUCE_V9, ('"recordsSizeInBytes":16384', '"records":null')).charged_bytes == 47


@pytest.mark.parametrize("after", [b"", b" (kafka.request.logger)", b" (a.b) ", b"\t(x$Y)\r"])
def test_what_may_stand_after_a_request(after: bytes) -> None:
    assert PARSER.parse(PRODUCE_V9[: PRODUCE_V9.rindex(b"}") + 1] + after) == PRODUCE
