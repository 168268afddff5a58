"""A line that cannot be read: its exact reason, that it is never counted, and what of it may be stored."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.formats.request_log import RequestLogParser, Unreadable, storable_text
from tests.unit.log_lines import (
    CREATE_TOPICS_V7_REFUSED,
    FETCH_V12,
    FETCH_V17_THROTTLED,
    METADATA_V12,
    PRODUCE_V9,
    changed,
)

DATA = Path(__file__).parents[1] / "data"
PARSER = RequestLogParser()
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
        (
            b"[2024-11-20 12:00:00,123] DEBUG Completed request:RequestHeader(apiKey=PRODUCE, apiVersion=7",
            "not the JSON form of the request log (Kafka 2.8 and later)",
        ),
        (PRODUCE_V9[1:], "no log time [yyyy-mm-dd hh:mm:ss,mmm] at the start"),
        (PRODUCE_V9[26:], "no log time [yyyy-mm-dd hh:mm:ss,mmm] at the start"),
        (b"[2024-13-20" + PRODUCE_V9[11:], "no log time [yyyy-mm-dd hh:mm:ss,mmm] at the start"),
        (b"[1969-12-31" + PRODUCE_V9[11:], "a time before 1970 or after 9999"),
        (PRODUCE_V9[:400], NOT_JSON),
        (PRODUCE_V9[: PRODUCE_V9.rindex(b"}")], NOT_JSON),
        (PRODUCE_V9[:500] + PRODUCE_V9, NOT_JSON),  # one broke off, the next one followed
        (PRODUCE_V9.replace(b"checkout-svc", b"\xff\xfe"), NOT_JSON),
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
        ("16384", '"16384"', f"JSON: Expected `int | null`, got `str` - at `{SIZE_AT}`"),
        ("16384", "-1", f"JSON: Expected `int` >= 0 - at `{SIZE_AT}`"),
        ("16384", "2147483648", f"JSON: Expected `int` <= 2147483647 - at `{SIZE_AT}`"),
        ("16384", "9" * 30, f"JSON: Expected `int` <= 2147483647 - at `{SIZE_AT}`"),
        ("16384", "2147483647", "a size is beyond 2^31"),  # itself not, but with the rest of the request
        ('d":"checkout-svc"', 'd":null', "JSON: Expected `str`, got `null` - at `$.requestHeader.clientId`"),
        ('"principal":"User:checkout",', "", "JSON: Object missing required field `principal`"),
        ('"acks":-1', '"acks":"all"', "JSON: Expected `int`, got `str` - at `$.request.acks`"),
        ('],"throttleTimeMs":0', '],"throttleTimeMs":-1', "JSON: Expected `int` >= 0 - at `$.response.throttleTimeMs`"),
        ('"sendTimeMs":0.096', '"sendTimeMs":1e300', "a time before 1970 or after 9999"),
        ('"sendTimeMs":0.096', '"sendTimeMs":-1e300', "a time before 1970 or after 9999"),
        ('"sendTimeMs":0.096', '"sendTimeMs":1e999', "JSON: Number out of range - at `$.sendTimeMs`"),
        ('"sendTimeMs":0.096', '"sendTimeMs":NaN', NOT_JSON),
        ('"clientId":"checkout-svc"', r'"clientId":"\ud800"', NOT_JSON),
        ('"requestApiVersion":9', '"requestApiVersion":2', "PRODUCE v2 is not known"),
        ('"requestApiVersion":9', '"requestApiVersion":14', "PRODUCE v14 is not known"),
        ('"isForwarded":false', '"x":"' + "a" * 200 + '"', "request header is not where Kafka writes it"),
    ],
    ids=range(17),
)  # fmt: skip
def test_produces_that_are_refused(old: str, new: str, expected: str) -> None:
    assert reason(PRODUCE_V9, (old, new)) == expected


@pytest.mark.parametrize("version", [6, 19])
def test_unknown_versions_of_fetch(version: int) -> None:
    new = f'"requestApiVersion":{version}'
    assert reason(FETCH_V12, ('"requestApiVersion":12', new)) == f"FETCH v{version} is not known"


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


def plain(line: bytes) -> bytes:
    """Without the security protocol, whose name alone keeps a SASL cluster's lines from being stored."""
    return line.replace(b"SASL_SSL", b"SSL")


def test_what_is_kept_of_a_harmless_line() -> None:
    assert storable_text(b"one \x00 \xff line", 100) == "one \ufffd \ufffd line"
    assert storable_text(plain(PRODUCE_V9), 30) == "[2024-11-20 12:00:00,123] DEBU"
    assert storable_text(plain(PRODUCE_V9[:500]), 4_096) == PRODUCE_V9[:500].decode()
    assert storable_text(b"", 100) == ""


def test_nothing_is_kept_of_a_line_that_names_sasl() -> None:
    assert storable_text(PRODUCE_V9, 100) is None


SECRETS = [
    (17, "SASL_HANDSHAKE", '{"mechanism":"hunter2"}', '{"errorCode":0,"mechanisms":[]}'),
    (36, "SASL_AUTHENTICATE", '{"authBytes":"hunter2"}', '{"errorCode":0,"authBytes":"hunter2"}'),
    (38, "CREATE_DELEGATION_TOKEN", '{"renewers":[]}', '{"errorCode":0,"tokenId":"t","hmac":"hunter2"}'),
    (39, "RENEW_DELEGATION_TOKEN", '{"hmac":"hunter2"}', '{"errorCode":0}'),
    (40, "EXPIRE_DELEGATION_TOKEN", '{"hmac":"hunter2"}', '{"errorCode":0}'),
    (41, "DESCRIBE_DELEGATION_TOKEN", '{"owners":null}', '{"tokens":[{"tokenId":"t","hmac":"hunter2"}]}'),
    (50, "DESCRIBE_USER_SCRAM_CREDENTIALS", '{"users":[]}', '{"results":[{"user":"hunter2"}]}'),
    (
        51,
        "ALTER_USER_SCRAM_CREDENTIALS",
        '{"deletions":[],"upsertions":[{"name":"alice","salt":"hunter2","saltedPassword":"hunter2"}]}',
        '{"results":[]}',
    ),
    (
        33,
        "ALTER_CONFIGS",
        '{"resources":[{"configs":[{"name":"ssl.keystore.password","value":"hunter2"}]}]}',
        '{"responses":[]}',
    ),
    (
        44,
        "INCREMENTAL_ALTER_CONFIGS",
        '{"resources":[{"configs":[{"name":"listener.name.x.ssl.keystore.key","value":"hunter2"}]}]}',
        '{"responses":[]}',
    ),
    (58, "ENVELOPE", '{"requestData":"hunter2","requestPrincipal":"AAA="}', '{"errorCode":31}'),
]


@pytest.mark.parametrize(
    ("key", "name", "request_json", "response_json"), SECRETS, ids=lambda value: str(value)[:30]
)
def test_no_secret_is_ever_kept_whole_or_cut(
    key: int, name: str, request_json: str, response_json: str
) -> None:
    start = METADATA_V12.index(b'"request":')
    end = METADATA_V12.index(b',"connection"')
    head = changed(
        METADATA_V12[:start], ('"requestApiKey":3,', f'"requestApiKey":{key},'), ("METADATA", name)
    )
    body = f'"request":{request_json},"response":{response_json}'.encode()
    line = plain(head + body + METADATA_V12[end:])
    assert storable_text(line, 4_096) is None
    nameless = changed(line, (f',"requestApiKeyName":"{name}"', ""))
    assert storable_text(nameless, 4_096) is None
    # However far the line was written: if the secret has begun, nothing is kept.
    for cut in range(line.index(b"hunter2") + 1, len(line)):
        assert storable_text(line[:cut], 4_096) is None
    # The limit cuts what is stored, not what is looked at.
    assert storable_text(line, 20) is None


@_SETTINGS
@given(st.binary(max_size=200), st.integers(0, 100))
def test_stored_text_is_short_and_printable_utf_8(noise: bytes, limit: int) -> None:
    text = storable_text(noise, limit)
    if text is not None:
        assert len(text) <= limit
        assert "\x00" not in text
        text.encode("utf-8")
