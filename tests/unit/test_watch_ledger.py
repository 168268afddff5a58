"""The ledger of the watch: which nodes are edits, and in which order."""

from __future__ import annotations

from kquota_spark.formats.znodes import Node, QuotaPayload, View
from kquota_spark.io.quota_ledger import Edits, Ledger
from kquota_spark.model.entities import Entity
from kquota_spark.model.quota_types import QuotaKey
from kquota_spark.model.rules import QuotaChange


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
