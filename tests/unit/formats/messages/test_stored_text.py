"""What of an unreadable line may be stored: never a secret, whole or cut."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.formats.messages.messages import storable_text
from tests.support.logs.log_lines import METADATA_V12, PRODUCE_V9, changed

_SETTINGS = settings(deadline=None, print_blob=True, max_examples=300)


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


def wordless(line: bytes) -> bytes:
    """With no word but the API key that says what it is."""
    return re.sub(rb'"(?!requestApiKey"|hunter2")[A-Za-z.]+":', b'"x":', line).replace(b"_", b"")


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
    # In the envelope of a shipper its quotation marks are escaped, and what stands before it may be long.
    enveloped = json.dumps({"host": {"name": "h" * 500}, "message": line.decode()}).encode()
    no_words = json.dumps({"host": {"name": "h" * 500}, "message": wordless(line).decode()}).encode()
    for text in (enveloped, no_words):
        for cut in range(text.index(b"hunter2") + 1, len(text) + 1):
            assert storable_text(text[:cut], 4_096) is None
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
