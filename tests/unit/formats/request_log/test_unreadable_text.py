"""A line of the text form that is refused: its exact reason."""

from __future__ import annotations

import pytest

from kquota_spark.formats.messages.messages import storable_text
from kquota_spark.formats.request_log.line import RequestLogParser, Unreadable
from kquota_spark.model.measure.points import PointKind
from tests.support.logs.log_lines import changed
from tests.support.logs.text_lines import (
    CREATE_TOPICS_27,
    FETCH_0102,
    FETCH_11,
    FETCH_26,
    FETCH_27,
    PRODUCE_0102,
    PRODUCE_27,
    PRODUCE_27_AT_DEBUG,
    T_MS,
)

PARSER = RequestLogParser()
HEADER = "text form: no request header as Kafka 0.10.2 to 2.7 prints it"
END = "text form: no end as Kafka 0.10.2 to 2.7 prints it (cut in half?)"
TWO_HEADERS = "text form: two ends of the header: a client id or a body imitates one"
BODIES = "text form: a request or response that is not as Kafka prints it"
PRODUCE = "text form: PRODUCE that is not as Kafka prints it"
SIZES = "text form: PRODUCE whose sizes are not as Kafka prints them"
FETCH = "text form: FETCH that is not as Kafka prints it"
RESPONSE = "text form: FETCH whose response is not as Kafka prints it"
TOO_LARGE = "text form: a number beyond 32 bits"


def reason(line: bytes, *replacements: tuple[str, str]) -> str:
    with pytest.raises(Unreadable) as raised:
        PARSER.parse(changed(line, *replacements))
    return str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("clientId=shop", "clientId=\udcff", "text form: not UTF-8"),
        ("RequestHeader(", "RequestHeader[", HEADER),
        ("apiVersion=8", "apiVersion=x", HEADER),
        (") -- {", ")", HEADER),
        ("totalTime:14.02", "totalTime:", END),
        ("sendTime:0.518", "sendTime:-0.518", END),
        ("sendTime:0.518,", "", END),
        ("principal:User:alice", "principal:alice", END),
        ("principal:User:alice", "principal:User:bob,principal:User:alice", "text form: two principals"),
        ("(kafka.request.logger)", "(kafka.request.lo", END),
        ("(kafka.request.logger)", "x (kafka.request.logger)", END),
        ("clientId=shop", "clientId=a, correlationId=1) -- {b", TWO_HEADERS),
        (
            "clientId=shop",
            "clientId=null",
            "text form: client id null, which may be none or a client of this name",
        ),
        ("apiKey=PRODUCE", "apiKey=CONSUME", "text form: an API that Kafka 0.10.2 to 2.7 does not have"),
        ("},response:{", "},answer:{", BODIES),
        ("throttle_time_ms=487}", "throttle_time_ms=487", BODIES),
        ("apiVersion=8", "apiVersion=14", "PRODUCE v14 is not known"),
        ("{acks=-1", "{ack=-1", PRODUCE),
        ("[orders-0=27094]", "[orders-0=27094", PRODUCE),
        ("[orders-0=27094]", "[orders=27094]", SIZES),
        ("[orders-0=27094]", "[or,ders-0=27094]", SIZES),
        ("[orders-0=27094]", "[orders-0=27094,]", SIZES),
        ("[orders-0=27094]", "[orders-0=-1]", SIZES),
        ("[orders-0=27094]", "[orders-0=2147483647]", "a size is beyond 2^31"),
        (",throttle_time_ms=487", "", "text form: a response without throttle_time_ms"),
        ("throttle_time_ms=487", "throttle_time_ms=2147483648", TOO_LARGE),
        ("throttleTime:487", "throttleTime:2147483648", TOO_LARGE),
        ("correlationId=7", "correlationId=2147483648", TOO_LARGE),
        ("sendTime:0.518", "sendTime:1E99", "a time before 1970 or after 9999"),
    ],
    ids=range(29),
)
def test_produces_that_are_refused(old: str, new: str, expected: str) -> None:
    line = PRODUCE_27.replace(old.encode(), new.encode(errors="surrogateescape"))
    assert line != PRODUCE_27
    assert reason(line) == expected


def test_a_produce_at_level_debug_says_what_to_do() -> None:
    assert reason(PRODUCE_27_AT_DEBUG) == (
        "text form: PRODUCE without sizes: set kafka.request.logger to TRACE (at DEBUG they are left out)"
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("apiVersion=12", "apiVersion=19", "FETCH v19 is not known"),
        ("{replica_id=-1,", "{", FETCH),
        ("response:{throttle_time_ms=0,", "response:{", "text form: a response without throttle_time_ms"),
        ("topic=orders,partition_responses", "topic=or ders,partition_responses", RESPONSE),
        ("error_code=0,high_watermark=0", "error_code=x,high_watermark=0", RESPONSE),
        (
            "_tagged_fields={}}],_tagged_fields={}}],_tagged_fields={}} from",
            "_tagged_fields={1={}}} from",
            RESPONSE,
        ),
        ("end=30000),_tagged_fields={}}],", "end=30000),_tagged_fields={}}", RESPONSE),
        ("aborted_transactions=[],", "", "JSON: abortedTransactions is missing, so the bytes are not known"),
        ("_tagged_fields={}} from", "_tagged_fields={}}} from", RESPONSE),
    ],
    ids=range(9),
)
def test_fetches_that_are_refused(old: str, new: str, expected: str) -> None:
    assert reason(FETCH_27, (old, new)) == expected


def test_record_sets_without_a_size() -> None:
    without = "text form: FETCH without the size of a record set: Kafka before 2.0 logs none, "
    without += "and no version those that it converts"
    assert reason(FETCH_11) == without
    sets = (
        "record_set=FileRecords(size=30000, file=/data/orders-0/00000000000000000000.log, start=0, end=30000)"
    )
    assert reason(FETCH_26, (sets, "record_set=[(record=DefaultRecord(offset=0))]")) == without
    assert reason(FETCH_26, (sets, "record_set=LazyDownConversionRecords(size=7)")) == without
    # A whole file instead of a slice of it, and one that ends before it begins.
    whole = "record_set=FileRecords(file= /data/0.log, start=0, end=2147483647)"
    assert reason(FETCH_26, (sets, whole)) == RESPONSE
    assert reason(FETCH_26, (sets, whole), ("start=0, end=2147483647", "start=9, end=8")) == RESPONSE


def test_lines_before_1_0() -> None:
    assert reason(FETCH_0102) == (
        "text form: FETCH without a response: Kafka before 1.0 does not log the bytes"
    )
    assert reason(PRODUCE_0102, ("api_key=0", "api_key=58")) == (
        "text form: an API that Kafka 0.10.2 to 2.7 does not have"
    )
    assert reason(PRODUCE_0102, ("client_id=shop", "client_id=a} -- {b")) == TWO_HEADERS


def test_a_cut_line_is_refused_wherever_it_is_cut() -> None:
    odd = changed(PRODUCE_27, ("User:alice", "User:CN=a,listener:b"))
    for line in (odd, FETCH_27, PRODUCE_0102, CREATE_TOPICS_27):
        for cut in range(len(line)):
            with pytest.raises(Unreadable):
                PARSER.parse(line[:cut])


def test_no_secret_of_the_text_form_is_stored() -> None:
    body = "{resources=[{configs=[{name=ssl.keystore.password,value=hunter2}]}]}"
    line = PRODUCE_27.replace(b"SASL_", b"").replace(b"{acks", f"{body}{{acks".encode())
    assert storable_text(line, 4_096) is None
    plain = PRODUCE_27_AT_DEBUG.replace(b"SASL_", b"")
    assert storable_text(plain, 4_096) == plain.decode()
    assert storable_text(plain.replace(b"PRODUCE", b"INCREMENTAL_ALTER_CONFIGS"), 4_096) is None
    assert storable_text(plain.replace(b"PRODUCE", b"CREATE_DELEGATION_TOKEN"), 4_096) is None


def test_what_stands_after_a_request_is_the_name_of_a_logger() -> None:
    # A piece of the line in its place: whose principal is it then?
    broken = changed(PRODUCE_27, ("(kafka.request.logger)", "(,listener:SASL_PLAINTEXT,clientInformation)"))
    with pytest.raises(Unreadable, match="no end as Kafka"):
        PARSER.parse(broken)


def refused(line: bytes) -> Unreadable:
    with pytest.raises(Unreadable) as raised:
        PARSER.parse(line)
    return raised.value


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # All three are places that hold anything: a cut that begins and ends in one leaves a line in its form.
        ("aborted_transactions=[]", "aborted_transactions=[{producer_id=1,first_\0r_id=9,first_offset=8}]"),
        ("buffer=java.nio.HeapByteBuffer", "buffer=java.nio.\0ByteBuffer"),
        ("file=/data/orders-0/", "file=/data/\0s-0/"),
    ],
    ids=["aborted transactions", "buffer", "file"],
)
def test_a_fetch_whose_middle_was_cut_out_has_no_size(old: str, new: str) -> None:
    line = FETCH_27.replace(old.encode(), new.encode(), 1)
    assert line != FETCH_27
    found = refused(line)
    assert str(found) == "text form: the middle of the line was cut out"
    assert found.request is not None
    assert (found.request.point_kind, found.request.charged_bytes) == (PointKind.UNSIZED, None)
    assert found.request.client_id == "reader"


def test_a_client_id_may_hold_the_byte_that_marks_a_cut() -> None:
    read = PARSER.parse(changed(PRODUCE_27, ("clientId=shop", "clientId=sh\0p")))
    assert read == PARSER.parse(PRODUCE_27)._replace(client_id="sh\0p")


def cut_ms(line: bytes) -> int | None:
    found = refused(line)
    assert found.request is None
    return found.cut_ms


# More than a client id can have, so that the header of the line is surely a whole one.
MANY = ",".join(f"{{partition={number},fetch_offset=0}}" for number in range(1_500))


def test_a_long_cut_fetch_of_a_follower_makes_nothing_uncertain() -> None:
    follower = changed(
        FETCH_27, ("{replica_id=-1", "{replica_id=2"), ("partitions=[", f"partitions=[{MANY},")
    )
    assert cut_ms(follower[:40_000]) is None
    consumer = changed(FETCH_27, ("partitions=[", f"partitions=[{MANY},"))
    assert cut_ms(consumer[:40_000]) == T_MS


def test_a_client_id_cannot_imitate_the_cut_fetch_of_a_follower() -> None:
    imitation = "clientId=x, correlationId=1) -- {replica_id=2,"
    # By a newline in a client id, its client cuts the line where it wants.
    at_newline = changed(FETCH_27, ("clientId=reader", imitation))
    assert cut_ms(at_newline[: at_newline.index(b"replica_id=2,") + 13]) == T_MS
    # The longest client id; after it stands the end that the broker wrote.
    name = imitation + "y" * (32_767 - len(imitation) + len("clientId="))
    longest = changed(FETCH_27, ("clientId=reader", name), ("partitions=[", f"partitions=[{MANY},"))
    assert cut_ms(longest[:40_000]) == T_MS
    assert cut_ms(longest[: longest.index(b"yy") + 32_000]) == T_MS


def test_a_line_that_ends_in_its_client_id_is_cut_if_a_quota_charges_its_api() -> None:
    for line, name in (
        (PRODUCE_27, b"clientId=sh"),
        (FETCH_27, b"clientId=re"),
        (PRODUCE_0102, b"client_id=sh"),
    ):
        assert cut_ms(line[: line.index(name) + len(name)]) is not None
    metadata = changed(PRODUCE_27, ("apiKey=PRODUCE", "apiKey=METADATA"))
    assert cut_ms(metadata[: metadata.index(b"op, correlationId")]) is None
    old = changed(PRODUCE_0102, ("api_key=0", "api_key=3"))
    assert cut_ms(old[: old.index(b"op} -- ")]) is None
    # Of a name that may go on nothing is known.
    assert cut_ms(metadata[: metadata.index(b"DATA, apiVersion")]) == T_MS
