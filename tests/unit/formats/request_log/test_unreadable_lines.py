"""A line that cannot be read: its exact reason, that it is never counted, and what of it may be stored."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.formats.request_log.line import RequestLogParser, Unreadable
from kquota_spark.model.measure.points import PointKind
from tests.support.logs.log_lines import (
    CREATE_TOPICS_V7_REFUSED,
    FETCH_V12,
    FETCH_V17_THROTTLED,
    METADATA_V12,
    PRODUCE_V9,
    T0_MS,
    changed,
)
from tests.support.places import DATA

PARSER = RequestLogParser()
UNKNOWN = "is missing, so the bytes are not known"
MISSING = "JSON: Object missing required field"
NOT_A_LOGGER = "text after the request that is not a logger's name"
ABORTED_AT = "$.response.responses[0].partitions[0].abortedTransactions[0]"
NOT_JSON = "not valid JSON (cut in half, or not UTF-8)"
SIZE_AT = "$.request.topicData[0].partitionData[0].recordsSizeInBytes"


def reason(line: bytes, *replacements: tuple[str, str]) -> str:
    with pytest.raises(Unreadable) as raised:
        PARSER.parse(changed(line, *replacements))
    return str(raised.value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"", "no 'Completed request:' near the start"),
        (b"[2024-11-20 12:00:00,123] INFO started", "no 'Completed request:' near the start"),
        (b"x" * 161 + PRODUCE_V9, "no 'Completed request:' near the start"),
        (PRODUCE_V9[1:], "no log time [yyyy-mm-dd hh:mm:ss,mmm] at the start"),
        (PRODUCE_V9[26:], "no log time [yyyy-mm-dd hh:mm:ss,mmm] at the start"),
        (b"[2024-13-20" + PRODUCE_V9[11:], "no log time [yyyy-mm-dd hh:mm:ss,mmm] at the start"),
        (b"[1969-12-31" + PRODUCE_V9[11:], "a time before 1970 or after 9999"),
        (PRODUCE_V9[:400], NOT_JSON),
        (PRODUCE_V9[: PRODUCE_V9.rindex(b"}")], NOT_JSON),
        (PRODUCE_V9[:500] + PRODUCE_V9, NOT_JSON),  # one broke off, the next one followed
        (PRODUCE_V9.replace(b"checkout-svc", b"\xff\xfe"), NOT_JSON),
        (
            PRODUCE_V9.replace(b'"listener":"', b'"listener":"\xff'),
            NOT_JSON,
        ),  # in a field that is skipped, too
        (PRODUCE_V9 + b" " * (4 << 20), "line longer than 4194304 bytes"),
        (PRODUCE_V9.replace(b"orders", b"o" * 5_000_000), "line longer than 4194304 bytes"),
        (FETCH_V12.replace(b'"rackId":""', b'"rackId":' + b"[" * 90_000 + b"]" * 90_000), NOT_JSON),
        (FETCH_V12.replace(b'"rackId":""', b'"rackId":' + b'{"a":' * 90_000), NOT_JSON),
    ],
    ids=range(16),
)
def test_lines_that_are_refused(line: bytes, expected: str) -> None:
    assert reason(line) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("16384", '"16384"', f"JSON: Expected `int`, got `str` - at `{SIZE_AT}`"),
        ("16384", "-1", f"JSON: Expected `int` >= 0 - at `{SIZE_AT}`"),
        ("16384", "2147483648", f"JSON: Expected `int` <= 2147483647 - at `{SIZE_AT}`"),
        ("16384", "9" * 30, f"JSON: Expected `int` <= 2147483647 - at `{SIZE_AT}`"),
        ("16384", "2147483647", "a size is beyond 2^31"),  # itself not, but with the rest of the request
        ('d":"checkout-svc"', 'd":5', "JSON: Expected `str | null`, got `int` - at `$.requestHeader.clientId`"),
        ('"principal":"User:checkout",', "", f"{MISSING} `principal`"),
        ('"acks":-1', '"acks":"all"', "JSON: Expected `int`, got `str` - at `$.request.acks`"),
        ('],"throttleTimeMs":0', '],"throttleTimeMs":-1', "JSON: Expected `int` >= 0 - at `$.response.throttleTimeMs`"),
        ('"sendTimeMs":0.096', '"sendTimeMs":1e300', "a time before 1970 or after 9999"),
        ('"sendTimeMs":0.096', '"sendTimeMs":-0.1', "JSON: Expected `float` >= 0.0 - at `$.sendTimeMs`"),
        ('"sendTimeMs":0.096', '"sendTimeMs":1e999', "JSON: Number out of range - at `$.sendTimeMs`"),
        ('"sendTimeMs":0.096', '"sendTimeMs":NaN', NOT_JSON),
        ('"clientId":"checkout-svc"', r'"clientId":"\ud800"', NOT_JSON),
        ('"requestApiVersion":9', '"requestApiVersion":-1', "PRODUCE v-1 is not known"),
        ('"requestApiVersion":9', '"requestApiVersion":14', "PRODUCE v14 is not known"),
        ('"isForwarded"', '"x":"' + "a" * 200 + '","isForwarded"', "request header is not where Kafka writes it"),
        ('"isForwarded":false,', "", f"{MISSING} `isForwarded`"),
        ('"clientId":"checkout-svc",', "", f"{MISSING} `clientId` - at `$.requestHeader`"),
        ('"response":{', '"response":"x","y":{', "JSON: Expected `object` or an empty string - at `$.response`"),
        (
            '"throttleTimeMs":0},"connection"',
            '"y":0},"connection"',
            f"{MISSING} `throttleTimeMs` - at `$.response`",
        ),
        ("User:checkout", "checkout", "a principal that is not `type:name`"),
        ('"recordsSizeInBytes":16384', '"x":1', f"JSON: the size of a record set {UNKNOWN}"),
        ('"name":"orders","partitionData"', '"partitionData"', f"JSON: the name of a topic {UNKNOWN}"),
        (" (kafka.request.logger)", " (kafka.request.lo", NOT_A_LOGGER),
        (" (kafka.request.logger)", ' "x" (kafka.request.logger)', NOT_A_LOGGER),
        (" (kafka.request.logger)", "} (kafka.request.logger)", NOT_JSON),
    ],
    ids=range(27),
)  # fmt: skip
def test_produces_that_are_refused(old: str, new: str, expected: str) -> None:
    assert reason(PRODUCE_V9, (old, new)) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"requestApiVersion":12', '"requestApiVersion":19', "FETCH v19 is not known"),
        ('"replicaId":-1,', "", f"{MISSING} `replicaId` - at `$.request`"),
        (
            '"request":{"replicaId":-1,',
            '"request":{"replicaState":{},',
            f"{MISSING} `replicaId` - at `$.request.replicaState`",
        ),
        ('"response":{"throttleTimeMs":0,', '"response":{', f"{MISSING} `throttleTimeMs` - at `$.response`"),
        ('"abortedTransactions":null,', "", f"JSON: abortedTransactions {UNKNOWN}"),
        (
            '"abortedTransactions":null,',
            '"abortedTransactions":[{"producerId":1}],',
            f"{MISSING} `firstOffset` - at `{ABORTED_AT}`",
        ),
    ],
    ids=range(6),
)  # fmt: skip
def test_fetches_that_are_refused(old: str, new: str, expected: str) -> None:
    assert reason(FETCH_V12, (old, new)) == expected


def refused(line: bytes, *replacements: tuple[str, str]) -> Unreadable:
    with pytest.raises(Unreadable) as raised:
        PARSER.parse(changed(line, *replacements))
    return raised.value


@pytest.mark.parametrize(
    ("line", "change"),
    [
        (PRODUCE_V9, ('"requestApiVersion":9', '"requestApiVersion":14')),
        (PRODUCE_V9, ('"recordsSizeInBytes":16384', '"recordsSizeInBytes":16384"')),
        # As kquota ship cuts a line that is too long for a message.
        (PRODUCE_V9, ('recordsSizeInBytes":16384}]}]},"response":{"resp', "record\0")),
        (PRODUCE_V9, ('"name":"orders","partitionData"', f'"name":"{"o" * 5_000_000}","partitionData"')),
        (FETCH_V12, ('"highWatermark":918290', '"highWatermark":918290"')),
        (FETCH_V12, ('"requestApiVersion":12', '"requestApiVersion":19')),
    ],
    ids=range(6),
)
def test_of_a_line_with_both_of_its_ends_all_but_the_size_is_known(
    line: bytes, change: tuple[str, str]
) -> None:
    found, read = refused(line, change), PARSER.parse(line)
    assert found.cut_ms is None
    assert found.request is not None
    assert found.request == read._replace(
        point_kind=PointKind.UNSIZED, charged_bytes=None, topics=[], api_version=found.request.api_version
    )


def test_of_other_requests_and_of_throttled_fetches_no_size_is_missing() -> None:
    broken = ('"throttleTimeMs":0}', '"throttleTimeMs":0"}')
    metadata = PARSER.parse(METADATA_V12)
    assert refused(METADATA_V12, ('"brokers":[]', '"brokers":[')).request == metadata
    assert refused(FETCH_V17_THROTTLED, ('"responses":[]', '"responses":[')).request == PARSER.parse(
        FETCH_V17_THROTTLED
    )
    follower = refused(
        FETCH_V12, ('"replicaId":-1', '"replicaId":2'), ('"responses":[', '"responses":[[')
    ).request
    assert follower is not None
    assert (follower.quota_type, follower.is_from_follower, follower.network_time_us) == (None, True, None)
    forwarded = refused(PRODUCE_V9, ('"isForwarded":false', '"isForwarded":true'), broken).request
    assert forwarded is not None
    assert (forwarded.quota_type, forwarded.is_forwarded) == (None, True)


def test_a_change_of_topics_that_cannot_be_read_may_have_been_charged_with_anything() -> None:
    found = refused(CREATE_TOPICS_V7_REFUSED, ('"numPartitions":60', '"numPartitions":"'))
    read = PARSER.parse(CREATE_TOPICS_V7_REFUSED)
    assert found.request is not None
    [mutation] = found.request.mutations or []
    assert (mutation.partitions, mutation.point_kind) == (0, PointKind.UNSIZED_MUTATION)
    # The throttle of 1,000 ms stands in the response only.
    assert found.request._replace(mutations=read.mutations, observed_throttle_ms=1_000) == read


def test_of_a_line_without_its_end_only_the_time_is_known() -> None:
    header_end = PRODUCE_V9.index(b',"request":')
    for line in (PRODUCE_V9[:400], PRODUCE_V9[: header_end - 30], PRODUCE_V9[:500] + PRODUCE_V9):
        found = refused(line)
        assert (found.request, found.cut_ms) == (None, T0_MS + 123)
    # No bandwidth quota charges it, and the text of another logger is no request.
    for line in (METADATA_V12[:400], b"[2024-11-20 12:00:00,123] INFO started"):
        found = refused(line)
        assert (found.request, found.cut_ms) == (None, None)


@pytest.mark.parametrize(
    "line",
    [
        changed(FETCH_V12, ('"replicaId":-1', '"replicaId":2')),
        changed(
            FETCH_V17_THROTTLED,
            ('"request":{', '"request":{"replicaState":{"replicaId":2,"replicaEpoch":5},'),
        ),
        changed(CREATE_TOPICS_V7_REFUSED, ('"isForwarded":false', '"isForwarded":true')),
    ],
    ids=["follower", "follower of v17", "forwarded"],
)
def test_a_cut_line_of_a_request_that_no_quota_charges_makes_nothing_uncertain(line: bytes) -> None:
    found = refused(line[: line.index(b'"response":')])
    assert (found.request, found.cut_ms) == (None, None)


def test_a_client_cannot_imitate_a_follower_by_its_names() -> None:
    name = r"{\"replicaId\":2"
    line = changed(
        FETCH_V12, ("billing-consumer", name), ('"request":{', f'"request":{{"clusterId":"{name}",')
    )
    assert refused(line[: line.index(b'"response":')]).cut_ms == T0_MS + 423


def test_a_name_cannot_imitate_an_end_of_the_line() -> None:
    imitation = PRODUCE_V9[PRODUCE_V9.index(b'"connection"') :].replace(b"User:checkout", b"User:root")
    name = imitation.decode().replace('"', '\\"')
    found = refused(
        PRODUCE_V9, ('"clientId":"checkout-svc"', f'"clientId":"{name}"'), ('"acks":-1', '"acks":-')
    )
    assert found.request is not None
    assert (found.request.user, found.request.client_id) == ("checkout", imitation.decode())
    cut = refused(changed(PRODUCE_V9, ('"name":"orders"', f'"name":"{name}"'))[:1_000])
    assert (cut.request, cut.cut_ms) == (None, T0_MS + 123)


def test_another_request_that_is_refused() -> None:
    assert reason(METADATA_V12, ('"response":{', '"response":[],"x":{')) == (
        "JSON: Expected `str | object`, got `array` - at `$.response`"
    )


@pytest.mark.parametrize("name", ["acks", "response", "connection", "localTimeMs", "clientId"])
def test_a_reason_never_quotes_the_line(name: str) -> None:
    assert "hunter2" not in reason(PRODUCE_V9, (f'"{name}":', f'"{name}":["hunter2"],"x":'))


def real_lines() -> list[bytes]:
    with gzip.open(DATA / "jmx-telegraf" / "broker-1.kafka-request.log.gz") as file:
        return [line.rstrip(b"\n") for line in file]


LINES = st.sampled_from([*real_lines(), PRODUCE_V9, FETCH_V12, FETCH_V17_THROTTLED, CREATE_TOPICS_V7_REFUSED])
_SETTINGS = settings(deadline=None, print_blob=True, max_examples=300)


@_SETTINGS
@given(LINES, st.data())
def test_a_truncated_line_is_never_counted(line: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, line.rindex(b"}")))
    with pytest.raises(Unreadable):
        PARSER.parse(line[:cut])


EDITS = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.integers(0, 12),
        st.one_of(
            st.binary(max_size=6),
            st.sampled_from(
                [
                    b"-",
                    b"0",
                    b"9" * 40,
                    b"1e308",
                    b'"',
                    b"}",
                    b"{",
                    b"[",
                    b"]",
                    b",",
                    b"null",
                    b"\\u0000",
                    b"\xff",
                ]
            ),
        ),
    ),
    min_size=1,
    max_size=5,
)


@_SETTINGS
@given(LINES, EDITS)
def test_a_mutated_line_raises_nothing_but_unreadable(
    line: bytes, edits: list[tuple[float, int, bytes]]
) -> None:
    for place, length, new in edits:
        at = round(place * len(line))
        line = line[:at] + new + line[at + length :]
    try:
        found = PARSER.parse(line)
    except Unreadable:
        return
    # What is read fits the columns of the requests table.
    assert 0 <= found.record_time_ms < 2**63
    assert found.charged_bytes is None or 0 <= found.charged_bytes < 2**31
    assert 0 <= found.observed_throttle_ms < 2**31
    assert -(2**31) <= found.correlation_id < 2**31
    "".join([found.user, found.client_id, found.connection, *found.topics]).encode("utf-8")


@_SETTINGS
@given(st.binary(max_size=300), st.booleans())
def test_noise_raises_nothing_but_unreadable(noise: bytes, has_start: bool) -> None:
    with pytest.raises(Unreadable):
        PARSER.parse(PRODUCE_V9[:50] + noise if has_start else noise)
