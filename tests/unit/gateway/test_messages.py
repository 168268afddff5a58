"""What the decision topic says is exact JSON, strictly read, and no more than what is new."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from kquota_spark.enforce.changes import Event, Evidence, LogEntry, Mode, Proposal, Quota, StepId
from kquota_spark.gateway.messages import (
    Decided,
    Encoded,
    Heartbeat,
    Message,
    MessageError,
    Ours,
    Removed,
    decided,
    decode,
    differences,
    encode,
    newest_issue_ms,
)
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey
from kquota_spark.model.quotas.rules import RuleBook, RulePeriod
from tests.support.places import ROOT

PRODUCE, FETCH, REQUEST = list(QuotaKey)[:3]
ALICE, BOB = Entity("alice"), Entity("bob")
CUT = Ours("p-7", "noisy for 10 min", 1_700_000_600_000, 1_000_000.0)
VALUE = (
    b'{"version":1,"entity":{"user":{"name":"alice"}},"quotas":{"producer_byte_rate":500000.0},'
    b'"ours":{"producer_byte_rate":{"plan_id":"p-7","reason":"noisy for 10 min","until_ms":1700000600000,'
    b'"before":1000000.0}},"issued_ms":1700000000000}'
)


def test_a_message_is_this_json() -> None:
    message = Decided(ALICE, {PRODUCE: 500_000.0}, {PRODUCE: CUT}, 1_700_000_000_000)
    assert encode("pay", message) == (b"pay/users/alice", VALUE)
    assert decode("pay", b"pay/users/alice", VALUE) == message


def test_a_heartbeat_has_the_key_of_the_cluster() -> None:
    beat = Encoded(b"pay/", b'{"version":1,"known_through_ms":5,"issued_ms":6}')
    assert encode("pay", Heartbeat(5, 6)) == beat
    assert decode("pay", *beat) == Heartbeat(5, 6)


def test_an_entity_without_quotas_is_a_tombstone() -> None:
    assert encode("pay", Decided(ALICE, {})) == encode("pay", Removed(ALICE)) == (b"pay/users/alice", None)
    assert decode("pay", b"pay/users/alice", None) == Removed(ALICE)


def test_a_key_that_enforcement_removed_is_still_said() -> None:
    message = Decided(ALICE, {}, {PRODUCE: CUT}, 5)
    assert decode("pay", *encode("pay", message)) == message


@pytest.mark.parametrize(
    ("entity", "key", "named"),
    [
        (Entity(DEFAULT), b"users/<default>", {"user": {"default": True}}),
        (Entity("<default>"), b"users/%3Cdefault%3E", {"user": {"name": "<default>"}}),
        (Entity(None, "a/b c"), b"clients/a%2Fb%20c", {"client_id": {"name": "a/b c"}}),
        (
            Entity("CN=ä", DEFAULT),
            b"users/CN%3D%C3%A4/clients/<default>",
            {"user": {"name": "CN=ä"}, "client_id": {"default": True}},
        ),
        (Entity("\x1b]0;x\u202e\x00"), b"users/%1B%5D0%3Bx%E2%80%AE%00", {"user": {"name": "\x1b]0;x\u202e\x00"}}),
    ],
)  # fmt: skip
def test_names_are_raw_in_the_value_and_sanitised_in_the_key(
    entity: Entity, key: bytes, named: dict[str, Any]
) -> None:
    message = Decided(entity, {FETCH: 1.0}, issued_ms=1)
    encoded = encode("pay", message)
    assert encoded.key == b"pay/" + key
    assert encoded.value is not None
    assert json.loads(encoded.value)["entity"] == named
    assert decode("pay", *encoded) == message


def test_two_clusters_never_share_a_key() -> None:
    # Unsanitised, "pay/users/x" with clients/y would be "pay" with users/x/clients/y.
    encoded = encode("pay/users/x", Decided(Entity(None, "y"), {FETCH: 1.0}))
    assert encoded.key == b"pay%2Fusers%2Fx/clients/y"
    assert decode("pay", *encoded) is None


def test_numbers_that_json_has_no_word_for_come_back() -> None:
    quotas = {PRODUCE: math.inf, FETCH: -math.inf, REQUEST: math.nan}
    message = decode("pay", *encode("pay", Decided(ALICE, quotas, {FETCH: CUT}, 1)))
    assert isinstance(message, Decided)
    assert str(message.quotas) == str(quotas)


def test_fields_and_keys_of_a_later_release_are_left_alone() -> None:
    document = json.loads(VALUE)
    document["owner"] = ["x"]
    document["quotas"]["disk_rate"] = 5
    document["entity"]["group"] = {"name": "g"}
    held = decode("pay", b"pay/users/alice", json.dumps(document).encode())
    assert held == decode("pay", b"pay/users/alice", VALUE)


def altered(**fields: Any) -> bytes:
    document = {**json.loads(VALUE), **fields}
    return json.dumps({k: v for k, v in document.items() if v is not ...}).encode()


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, VALUE, "a message without key"),
        (b"pay/", None, "a heartbeat without value"),
        (b"pay/users/bob", VALUE, "about another entity"),
        (b"pay/users/<default>", VALUE, "about another entity"),
        (b"pay/ips/10.0.0.1", VALUE, "its key names no entity"),
        (b"pay/users/%zz", None, "its key names no entity"),
        (b"pay/users/\xff", None, "its key names no entity"),
        (b"pay/users/a+b", None, "not the canonical name"),
        (b"pay/users/alice", b"", "truncated"),
        (b"pay/users/alice", b"\xff\xfe", "malformed"),
        (b"pay/users/alice", b"[" * 100_000, "Expected `object`"),
        (b"pay/users/alice", altered(version=2), "version 2, expected 1"),
        (b"pay/users/alice", altered(version="1"), "Expected `int`"),
        (b"pay/users/alice", altered(version=...), "missing required field `version`"),
        (b"pay/users/alice", altered(quotas=...), "missing required field `quotas`"),
        (b"pay/users/alice", altered(quotas={"producer_byte_rate": "1"}), "Invalid enum value '1'"),
        (b"pay/users/alice", altered(quotas={"producer_byte_rate": True}), "got `bool`"),
        (b"pay/users/alice", altered(quotas={"producer_byte_rate": None}), "got `null`"),
        (b"pay/users/alice", altered(issued_ms=-1), ">= 0"),
        (b"pay/users/alice", altered(issued_ms=1.5), "Expected `int`"),
        (b"pay/users/alice", altered(entity={}), "names no entity"),
        (b"pay/users/alice", altered(entity={"user": {}}), "either a name or the default"),
        (b"pay/users/alice", altered(entity={"user": {"name": "alice", "default": True}}), "either a name"),
        (b"pay/", VALUE, "missing required field `known_through_ms`"),
    ],
)
def test_what_is_not_a_message_is_refused_with_its_reason(
    key: bytes | None, value: bytes | None, reason: str
) -> None:
    with pytest.raises(MessageError, match=reason):
        decode("pay", key, value)


def test_a_refusal_quotes_little() -> None:
    with pytest.raises(MessageError) as refused:
        decode("pay", b"pay/users/alice", altered(quotas={"producer_byte_rate": "x" * 9_999}))
    assert len(str(refused.value)) <= 200


def step(event: Event, after: float | None, *, number: int = 1, key: QuotaKey = PRODUCE) -> LogEntry:
    evidence = Evidence(0, 0, 0, 0, 0)
    proposal = Proposal(Quota(ALICE, key), 1e6, after, "noisy", "too loud", 9_000, evidence)
    return LogEntry(StepId("p", number), event, 0, proposal, Mode.ENFORCE, "enforcer")


def book(**of_alice: float) -> RuleBook:
    keys: dict[AnyKey, float] = {QuotaKey(name): value for name, value in of_alice.items()}
    return RuleBook([RulePeriod(ALICE, {}, 0, 100, None), RulePeriod(ALICE, keys, 100, None, 1)])


OURS = Ours("p", "too loud", 9_000, 1e6)


@pytest.mark.parametrize(
    ("events", "ours"),
    [
        ([], {}),
        ([Event.PLANNED, Event.SENDING], {}),
        ([Event.SENDING, Event.APPLIED], {PRODUCE: OURS}),
        ([Event.APPLIED, Event.RESTORING], {PRODUCE: OURS}),
        ([Event.APPLIED, Event.RESTORED], {}),
        ([Event.APPLIED, Event.SUPERSEDED], {}),
    ],
)
def test_ours_is_what_was_applied_and_not_taken_back(events: list[Event], ours: dict[QuotaKey, Ours]) -> None:
    log = [step(event, 5e5) for event in events]
    found = decided(book(producer_byte_rate=5e5, request_percentage=10.0), log, 200)
    assert found == {ALICE: Decided(ALICE, {PRODUCE: 5e5, REQUEST: 10.0}, ours)}


def test_a_change_is_ours_only_where_the_source_shows_it() -> None:
    log = [step(Event.APPLIED, 5e5), step(Event.APPLIED, None, number=2, key=FETCH)]
    found = decided(book(producer_byte_rate=4e5), log, 200)
    assert found[ALICE].ours == {FETCH: OURS}
    # Before its first quota the entity has nothing of its own; the removal is still to be taken back.
    assert decided(book(producer_byte_rate=4e5), log, 50) == {ALICE: Decided(ALICE, {}, {FETCH: OURS})}
    assert decided(book(producer_byte_rate=4e5), [], 50) == {}


def held(*messages: Message) -> dict[bytes, bytes | None]:
    return dict(encode("pay", message) for message in messages)


def test_only_what_differs_is_written_again() -> None:
    same, changed, added = (
        Decided(ALICE, {PRODUCE: math.nan}),
        Decided(BOB, {PRODUCE: 2.0}),
        Entity(None, "new"),
    )
    topic = held(same, Decided(BOB, {PRODUCE: 1.0}), Decided(Entity("gone"), {FETCH: 1.0}), Heartbeat(1, 1))
    topic |= {b"other/users/x": b"{}", b"pay/users/broken": b"{", b"pay/users/buried": None}
    wanted = {e.entity: e for e in (same, changed, Decided(added, {FETCH: 3.0}))}
    assert differences("pay", topic, wanted, 77) == [
        encode("pay", Decided(added, {FETCH: 3.0}, issued_ms=77)),
        encode("pay", Decided(BOB, {PRODUCE: 2.0}, issued_ms=77)),
        (b"pay/users/broken", None),
        (b"pay/users/gone", None),
    ]
    assert differences("pay", dict(differences("pay", {}, wanted, 77)), wanted, 78) == []


def test_a_message_that_cannot_be_read_is_replaced() -> None:
    wanted = {ALICE: Decided(ALICE, {PRODUCE: 1.0})}
    [found] = differences("pay", {b"pay/users/alice": altered(version=2)}, wanted, 5)
    assert decode("pay", *found) == Decided(ALICE, {PRODUCE: 1.0}, issued_ms=5)


def test_the_newest_issue_is_of_this_cluster_and_readable() -> None:
    topic = held(Decided(ALICE, {PRODUCE: 1.0}, issued_ms=7), Heartbeat(99, 6))
    topic |= {b"pay/users/bob": altered(issued_ms=9), b"other/": encode("other", Heartbeat(8, 8)).value}
    assert newest_issue_ms("pay", topic, 7) == 7
    assert newest_issue_ms("pay", {}, 7) == 0
    # A forged one would make the publisher's own messages those of a time that Kafka refuses.
    topic |= held(Decided(Entity("mallory"), {PRODUCE: 1.0}, issued_ms=60_008))
    assert newest_issue_ms("pay", topic, 7) == 7
    assert newest_issue_ms("pay", topic, 8) == 60_008


def test_the_messages_of_the_page_on_gateways_are_real() -> None:
    page = (ROOT / "kquota_spark/docs/gateways.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"```json\n(.*)\n```", page)
    message = decode("payments", b"payments/users/alice", shown.encode())
    assert isinstance(message, Decided)
    assert encode("payments", message).value == shown.encode()
    assert message.after(1_795_316_400_000) == {PRODUCE: 1_000_000.0, REQUEST: 200.0}
    [beat] = re.findall(r"heartbeat: `(.*)`", page)
    assert decode("payments", b"payments/", beat.encode()) == Heartbeat(1_795_312_799_000, 1_795_312_800_000)
