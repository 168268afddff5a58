"""A node whose quota was changed is put back to the byte, whatever stands beside it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.formats.znodes.writes import (
    EMPTY_NODE,
    Form,
    NodeNote,
    encoded_config,
    note_of,
    with_noted,
    with_quotas,
)
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey

ALICE = Entity("alice")
PRODUCE, FETCH, PERCENT = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
)
SECRET = "salt=canary,stored_key=a+b/c=="
TEXTS = {
    PRODUCE: ["1", "+05", "9223372036854775807", "-3"],
    FETCH: ["0", "7"],
    PERCENT: ["1.50e1", " 3d ", ".5F"],
}


def test_a_note_holds_names_and_one_text_and_no_secret() -> None:
    data = encoded_config({"SCRAM-SHA-256": SECRET, "producer_byte_rate": "+05", "x": "y"})
    note = note_of(ALICE, PRODUCE, data, exists=True)
    assert note.to_json() == (
        '{"form":"config","keys":["SCRAM-SHA-256","producer_byte_rate","x"],"text":"+05"}'
    )
    assert NodeNote.from_json(note.to_json()) == note


@st.composite
def _nodes(draw: st.DrawFn) -> tuple[bytes, QuotaKey]:
    config = {"SCRAM-SHA-512": SECRET} if draw(st.booleans()) else {}
    config |= draw(st.dictionaries(st.text('abcé"', min_size=1, max_size=3), st.text(max_size=5), max_size=3))
    for key, texts in TEXTS.items():
        if draw(st.booleans()):
            config[key.value] = draw(st.sampled_from(texts))
    names = draw(st.permutations(list(config)))
    return encoded_config({name: config[name] for name in names}), draw(st.sampled_from(list(TEXTS)))


@settings(deadline=None, print_blob=True)
@given(node=_nodes(), value=st.sampled_from([None, 5.0]))
def test_any_node_of_a_broker_comes_back(node: tuple[bytes, QuotaKey], value: float | None) -> None:
    data, key = node
    note = note_of(ALICE, key, data, exists=True)
    changed = with_quotas(ALICE, data, {key: value})
    restored = with_noted(ALICE, key, EMPTY_NODE if changed is None else changed, note)
    assert (note.emptied if restored is None else restored) == data


@pytest.mark.parametrize(
    ("data", "exists", "form"),
    [
        (None, False, Form.ABSENT),
        (None, True, Form.NULL),
        (b"", True, Form.EMPTY),
        (EMPTY_NODE, True, Form.CONFIG),
    ],
)
def test_a_node_without_keys_gets_its_form_back(data: bytes | None, exists: bool, form: Form) -> None:
    note = note_of(ALICE, PRODUCE, data, exists=exists)
    assert note == NodeNote(form, (), None)
    changed = with_quotas(ALICE, data, {PRODUCE: 5.0})
    assert with_noted(ALICE, PRODUCE, changed, note) is None
    assert note.emptied == (data if exists else EMPTY_NODE)


def test_keys_that_came_and_went_in_between_are_left_to_those_who_did_that() -> None:
    noted = encoded_config({"a": "1", "producer_byte_rate": "5", "b": "2", "c": "3"})
    note = note_of(ALICE, PRODUCE, noted, exists=True)

    def order(*names: str) -> list[str]:
        restored = with_noted(ALICE, PRODUCE, encoded_config(dict.fromkeys(names, "1")), note)
        assert restored is not None
        return list(json.loads(restored)["config"])

    assert order("a", "new", "b", "c") == ["a", "producer_byte_rate", "new", "b", "c"]
    assert order("new", "b", "c") == ["new", "producer_byte_rate", "b", "c"]
    assert order("new", "other") == ["new", "other", "producer_byte_rate"]
    assert with_noted(ALICE, PRODUCE, None, note) == encoded_config({"producer_byte_rate": "5"})


@pytest.mark.parametrize(
    "data",
    [
        b'{"version": 1,"config":{}}',
        b'{"version":1,"config":{}} ',
        b'{"config":{},"version":1}',
        b'{"config":{}}',
        b'{"version":1,"config":{"a":"1","a":"2"}}',
        b'{"version":1,"config":{"a":"\xc3\xa9"}}',
        b'{"version":1,"config":{"producer_byte_rate":"x"}}',
        b'{"version":1,"config":{"request_percentage":"NaN"}}',
        b'{"version":1,"config":{"a":1}}',
        b"canary",
    ],
)
def test_what_our_writer_would_not_write_back_has_no_note(data: bytes) -> None:
    with pytest.raises(ValueError, match="users/alice: its node is") as raised:
        note_of(ALICE, FETCH, data, exists=True)
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", '{"form":"odd","keys":[],"text":null}', '{"value": 5.0}', "{"]
)
def test_what_is_no_note_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not the note of a ZooKeeper node"):
        NodeNote.from_json(text)
