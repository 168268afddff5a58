"""The ledger of the watch: which nodes are edits, and in which order."""

from __future__ import annotations

import math

import pytest

from kquota_spark.formats.znodes.nodes import Node, QuotaPayload, View
from kquota_spark.model.quotas.entities import AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange
from kquota_spark.quotas.ledger import Edits, Ledger


def test_a_clock_ahead_of_the_server_does_not_bury_a_node_that_came_again() -> None:
    alice, key = Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE
    ledger = Ledger([QuotaChange(alice, key, 1.0, None, 1_000, 5)], {})
    # Our clock is 400 ms ahead: the deletion at 2,000 is recorded at 2,400, the next edit has mtime 2,100.
    assert ledger.compare(View({}, {"users": 6}), 2_400).changes == [
        QuotaChange(alice, key, None, 1.0, 2_400, 6)
    ]
    again = Node(QuotaPayload({key: 3.0}), 2_100, 7)
    assert ledger.compare(View({"users/alice": again}, {"users": 7}), 2_500).changes == [
        QuotaChange(alice, key, 3.0, None, 2_400, 7)
    ]


def test_a_password_alone_is_no_edit_but_its_version_counts() -> None:
    ledger = Ledger([QuotaChange(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE, 1.0, None, 1_000, 5)], {})
    same = QuotaPayload({QuotaKey.PRODUCER_BYTE_RATE: 1.0})
    assert ledger.compare(View({"users/alice": Node(same, 3_000, 9)}, {"users": 2}), 3_100) == Edits()
    older = ledger.compare(View({"users/alice": Node(QuotaPayload(), 2_000, 8)}, {"users": 2}), 3_200)
    assert older == Edits(refused=["users/alice"])


KEY = QuotaKey.PRODUCER_BYTE_RATE


def recorded(count: int) -> list[QuotaChange]:
    return [QuotaChange(Entity(f"u{number}"), KEY, 1.0, None, 1_000, 5) for number in range(count)]


def described(*users: str) -> dict[AnyEntity, dict[AnyKey, float]]:
    return {Entity(user): {KEY: 1.0} for user in users}


@pytest.mark.parametrize(
    ("held", "left", "is_believed"),
    [
        (9, 0, True),  # a small cluster may be emptied by hand
        (10, 0, False),
        (10, 1, True),
        (199, 100, True),  # 99 of 199 go: fewer than a hundred
        (200, 101, True),
        (200, 100, False),  # a hundred, and half of all
        (10_000, 0, False),
        (10_000, 5_001, True),
    ],
)
def test_quotas_that_vanish_together_are_not_believed(held: int, left: int, is_believed: bool) -> None:
    gone = sorted(f"users/u{number}" for number in range(left, held))
    polled = Ledger(recorded(held), {})
    edits = polled.compare_described(described(*(f"u{number}" for number in range(left))), 2_000, 3_000)
    assert (edits.vanished, len(edits.changes)) == (([], len(gone)) if is_believed else (gone, 0))
    nodes = {f"users/u{number}": Node(QuotaPayload({KEY: 1.0}), 1_000, 5) for number in range(left)}
    view = View(nodes, {"users": 9})
    edits = Ledger(recorded(held), {}).compare(view, 3_000)
    assert (edits.vanished, len(edits.changes)) == (([], len(gone)) if is_believed else (gone, 0))
    # With the flag it is as good as any other answer; and what is not believed stays what it was.
    assert len(Ledger(recorded(held), {}, accepts_removal=True).compare(view, 3_000).changes) == len(gone)
    again = polled.compare_described(described(*(f"u{number}" for number in range(held))), 3_000, 4_000)
    assert len(again.changes) == (len(gone) if is_believed else 0)


def test_other_edits_of_an_answer_that_is_not_believed_are_recorded() -> None:
    ledger = Ledger(recorded(10), {})
    edits = ledger.compare_described({Entity("new"): {KEY: 7.0}}, 2_000, 3_000)
    assert len(edits.vanished) == 10
    assert edits.changes == [QuotaChange(Entity("new"), KEY, 7.0, None, 2_000, 3_000, 3_000)]


def test_after_a_restore_of_old_data_the_flag_ends_the_doubt_for_good() -> None:
    old = Node(QuotaPayload({KEY: 3.0}), 500, 4)
    same = Node(QuotaPayload({KEY: 1.0}), 500, 4)
    view = View({"users/u0": old, "users/u1": same}, {"users": 4})
    assert Ledger(recorded(2), {}).compare(view, 9_000) == Edits(refused=["users/u0"])
    accepted = Ledger(recorded(2), {}, accepts_removal=True).compare(view, 9_000)
    # Its own time is before that of the record that it replaces: a millisecond after it has to do.
    assert accepted.changes == [QuotaChange(Entity("u0"), KEY, 3.0, 1.0, 1_001, 4)]
    assert Ledger([*recorded(2), *accepted.changes], {}).compare(view, 9_000) == Edits()


def test_a_poll_finds_edits_between_the_last_one_and_itself() -> None:
    alice, ip = Entity("alice"), IpEntity("10.0.0.1")
    percent, rate = QuotaKey.REQUEST_PERCENTAGE, IpQuotaKey.CONNECTION_CREATION_RATE
    ledger = Ledger([], {})
    first = ledger.compare_described({alice: {KEY: 1.0, percent: math.nan}, ip: {rate: 5.0}}, 0, 1_000)
    assert first.changes[0] == QuotaChange(ip, rate, 5.0, None, 0, 1_000, 1_000)
    assert (
        ledger.compare_described({alice: {KEY: 1.0, percent: math.nan}, ip: {rate: 5.0}}, 900, 2_000)
        == Edits()
    )
    edits = ledger.compare_described({alice: {KEY: 2.0}, ip: {}}, 1_900, 3_000)
    assert [(change.value, change.changed_at_ms, change.version) for change in edits.changes] == [
        (None, 1_900, 3_000),  # the ip's
        (2.0, 1_900, 3_000),
        (None, 1_900, 3_000),  # the percentage
    ]
    # A clock that steps back: later edits still come later.
    [back] = ledger.compare_described({alice: {KEY: 4.0}}, 1_000, 1_500).changes
    assert (back.changed_at_ms, back.version) == (1_900, 3_001)
