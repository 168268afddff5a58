"""Lines in the envelopes of shippers: what the tools wrote gives the requests of the bare lines, or a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kquota_spark.formats.messages.envelopes import KINDS, MAX_ENVELOPE_BYTES, Envelopes
from kquota_spark.formats.request_log.line import RequestLogParser, Unreadable
from tests.support.logs.envelope_samples import LINES, WRITTEN, sample
from tests.support.logs.log_lines import PRODUCE_V9, T0_MS

AUTO = Envelopes()


def object_of(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(("name", "kind", "broker", "host", "read_ms"), WRITTEN, ids=str)
def test_what_the_tools_wrote_is_the_bare_line_and_where_it_is_from(
    name: str, kind: str, broker: bytes | None, host: bytes | None, read_ms: int
) -> None:
    for envelopes in (AUTO, Envelopes(kind)):
        opened = [envelopes.opened(value) for value in sample(name)]
        assert [line for line, _ in opened] == LINES
        for _, fields in opened:
            assert (envelopes.broker(fields), envelopes.host(fields)) == (broker, host)
        assert envelopes.read_ms(opened[0][1]) == read_ms


@pytest.mark.parametrize("name", [written[0] for written in WRITTEN])
def test_what_the_tools_wrote_parses_to_the_requests_of_the_bare_lines(name: str) -> None:
    parse = RequestLogParser().parse
    bare = [parse(line) for line in LINES]
    assert [request.client_id for request in bare][-1] == 'b\u00e4 "x\\ <&> \u20ac\U0001f600'
    assert [parse(AUTO.opened(value)[0]) for value in sample(name)] == bare


def test_every_kind_has_a_sample_but_the_bare_ones() -> None:
    assert {kind for _, kind, *_ in WRITTEN} == set(KINDS) - {"auto", "raw", "json"}


def test_a_bare_line_is_itself() -> None:
    for kind in ("auto", "raw"):
        assert Envelopes(kind).opened(PRODUCE_V9) == (PRODUCE_V9, {})
    assert Envelopes("raw").opened(b'{"message":"a"}') == (b'{"message":"a"}', {})
    assert AUTO.opened(b"") == (b"", {})


def test_a_kind_takes_nothing_else() -> None:
    for kind in set(KINDS) - {"auto", "raw"}:
        with pytest.raises(Unreadable, match=r"^envelope: not of the kind that kafka\.envelope names$"):
            Envelopes(kind).opened(PRODUCE_V9)
    with pytest.raises(Unreadable, match=r"^envelope: no text in field message$"):
        Envelopes("filebeat").opened(object_of(log="[a"))


FIELDS = [
    ({"message": "a.b"}, {"a": {"b": "[line"}}, b"[line"),
    ({"message": "a.b"}, {"a.b": "[line", "a": {"b": "no"}}, b"[line"),  # a name with a dot comes first
    ({"message": "a.b.c"}, {"a": {"b": {"c": "[line"}}}, b"[line"),
    ({"message": "a"}, {"a": "[line", "message": "no"}, b"[line"),
    ({}, {"log": {"file": {"path": "p"}}, "message": "[line"}, b"[line"),
    ({}, {"message": {"a": 1}, "log": "[line"}, b"[line"),
    ({}, {"msg": " [line\r\n"}, b"[line"),
]


@pytest.mark.parametrize(("options", "value", "line"), FIELDS)
def test_the_field_of_the_line(options: dict[str, str], value: dict[str, Any], line: bytes) -> None:
    assert Envelopes(**options).opened(object_of(**value))[0] == line


BROKERS = [
    (
        {"broker": "kubernetes.pod_name"},
        {"kubernetes": {"pod_name": "kafka-0"}, "host": "h"},
        b"kafka-0",
        None,
    ),
    ({"broker": "host.name"}, {"host": {"name": "h"}, "broker_id": "1"}, b"h", None),
    ({}, {"broker_id": 7, "host": "h"}, b"7", b"h"),
    ({}, {"fields": {"broker_id": "7"}, "host": {"hostname": "h"}}, b"7", b"h"),
    ({}, {"broker_id": None, "host": ["h"]}, None, None),
    ({}, {"broker_id": {"a": 1}, "fields": "x", "hostname": "h"}, None, b"h"),
    ({}, {"broker_id": 1.5, "host": True}, b"1.5", None),
]


@pytest.mark.parametrize(("options", "value", "broker", "host"), BROKERS)
def test_the_fields_of_the_broker(
    options: dict[str, str], value: dict[str, Any], broker: bytes | None, host: bytes | None
) -> None:
    envelopes = Envelopes(**options)
    _, fields = envelopes.opened(object_of(message="[", **value))
    assert (envelopes.broker(fields), envelopes.host(fields)) == (broker, host)


@pytest.mark.parametrize(
    ("time", "read_ms"),
    [
        ("2024-11-20T12:00:00Z", T0_MS), ("2024-11-20T13:00:00.5+01:00", T0_MS + 500),
        ("2024-11-20T12:00:00.123456789Z", T0_MS + 123), (1_732_104_000, T0_MS), (1_732_104_000.25, T0_MS + 250),
        (1_732_104_000_123, T0_MS + 123), ("1732104000", None), ("2024-11-20T12:00:00", None), ("noon", None),
        (17, None), (-1, None), (1e300, None), (10**40, None), (None, None), ({"a": 1}, None),
    ],
)  # fmt: skip
def test_the_time_at_which_a_line_was_read(time: Any, read_ms: int | None) -> None:
    _, fields = AUTO.opened(object_of(message="[", **{"@timestamp": time}))
    assert AUTO.read_ms(fields) == read_ms
    elsewhere = Envelopes(timestamp="a.t")
    _, fields = elsewhere.opened(object_of(message="[", a={"t": time}))
    assert elsewhere.read_ms(fields) == read_ms


REFUSED = [
    (b"{}", "no text in field message, log, msg"),
    (b'{"message":null}', "no text in field message, log, msg"),
    (b'{"message":["[a"]}', "no text in field message, log, msg"),
    (b'{"event":"[a"}', "no text in field message, log, msg"),
    (b'{"message":"[a\\n[b"}', "several lines in one message"),
    (b'{"message":"[a', "not valid JSON (cut in half, or not UTF-8)"),
    (b'{"message":"[a"} {}', "not valid JSON (cut in half, or not UTF-8)"),
    (b'{"message":"[a\xff"}', "not valid JSON (cut in half, or not UTF-8)"),
    (b'{"message":"[a\\ud800"}', "not valid JSON (cut in half, or not UTF-8)"),
    (b'{"message":' + b"[" * 100_000, "not valid JSON (cut in half, or not UTF-8)"),
    (b"{\x00\x01\x02", "not valid JSON (cut in half, or not UTF-8)"),
    (b"Nov 21 05:40:48 h t: [2024-11-20 12:00:00,123] a\n[", "several lines in one message"),
]


@pytest.mark.parametrize(("value", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused_and_why(value: bytes, reason: str) -> None:
    with pytest.raises(Unreadable) as raised:
        AUTO.opened(value)
    assert str(raised.value) == f"envelope: {reason}"


def test_an_envelope_beyond_all_measure_is_not_decoded() -> None:
    with pytest.raises(Unreadable, match=r"^envelope longer than 9437184 bytes$"):
        AUTO.opened(b'{"message":"' + b"a" * MAX_ENVELOPE_BYTES + b'"}')


def test_blanks_and_a_byte_order_mark_before_an_envelope() -> None:
    for before in (b"\xef\xbb\xbf", b" \n"):
        assert AUTO.opened(before + b'{"message":"[a"}')[0] == b"[a"


@pytest.mark.parametrize(
    ("header", "host", "read_ms"),
    [
        (b"Nov 21 05:40:48 kafka-1 kafka: ", b"kafka-1", None),  # RFC 3164 says neither year nor zone
        (b"<134>Nov  1 05:40:48 kafka-1 kafka[17]: ", b"kafka-1", None),
        (b"<134>1 2024-11-20T13:00:00.123+01:00 kafka-1 kafka 17 - - ", b"kafka-1", T0_MS + 123),
        (b'<134>1 2024-11-20T12:00:00Z kafka-1 kafka - ID47 [x@32473 a="b"] ', b"kafka-1", T0_MS),
        (b"2024-11-20T12:00:00.5Z 10.0.0.1 ", b"10.0.0.1", T0_MS + 500),
    ],
)
def test_syslog_headers(header: bytes, host: bytes, read_ms: int | None) -> None:
    line, fields = AUTO.opened(header + PRODUCE_V9)
    assert (line, AUTO.host(fields), AUTO.read_ms(fields)) == (PRODUCE_V9, host, read_ms)
