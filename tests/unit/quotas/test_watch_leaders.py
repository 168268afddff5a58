"""Leaders of partitions as polled, and whether brokers and settings agree on having a quota callback."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kquota_spark.kafka.broker_checks import callback_checks
from kquota_spark.model.quotas.quota_callback import LeaderBook, LeaderChange, TopicPartition
from kquota_spark.process.check import Status
from kquota_spark.quotas.leaders import leader_changes, leaders_of

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_nobody_leads_where_the_client_says_minus_one() -> None:
    partitions = {0: SimpleNamespace(leader=3), 1: SimpleNamespace(leader=-1)}
    assert leaders_of({"a": SimpleNamespace(partitions=partitions)}) == {A0: 3, A1: None}


@pytest.mark.parametrize(
    ("known", "found", "expected"),
    [
        ({}, {A0: 1, A1: None}, [LeaderChange(A0, 1, 9), LeaderChange(A1, None, 9)]),
        ({A0: 1, A1: 2}, {A0: 1, A1: 2}, []),
        ({A0: 1}, {A0: 2}, [LeaderChange(A0, 2, 9)]),
        ({A0: 1}, {A0: None}, [LeaderChange(A0, None, 9)]),
        ({A0: None}, {A0: None}, []),
        ({A0: 1, B0: 1}, {A0: 1}, [LeaderChange(B0, None, 9, is_deleted=True)]),
    ],
)
def test_a_poll_writes_what_is_new(
    known: dict[TopicPartition, int | None],
    found: dict[TopicPartition, int | None],
    expected: list[LeaderChange],
) -> None:
    assert leader_changes(known, found, 9) == expected


def test_polls_written_one_after_the_other_read_back_as_they_were() -> None:
    polls: list[tuple[int, dict[TopicPartition, int | None]]] = [
        (10, {A0: 1, A1: 2}),
        (20, {A0: None, A1: 2}),
        (30, {A1: 2, B0: 3}),
        (40, {}),
    ]
    changes: list[LeaderChange] = []
    known: dict[TopicPartition, int | None] = {}
    for at_ms, found in polls:
        changes += leader_changes(known, found, at_ms)
        known = found
    book = LeaderBook(changes)
    assert [dict(book.at(at_ms).leaders) for at_ms, _ in polls] == [found for _, found in polls]
    assert dict(book.at(5).leaders) == polls[0][1]  # before the first poll
    assert dict(book.at(29).leaders) == polls[1][1]
    assert list(book.starts_ms) == [20, 30, 40]


JAVA, PYTHON = "com.example.Callback", "my.module:Callback"


@pytest.mark.parametrize(
    ("of_broker", "of_settings", "statuses"),
    [
        ("", "", []),
        (JAVA, "", [Status.FAIL]),
        ("", PYTHON, [Status.FAIL]),
        (JAVA, PYTHON, [Status.OK]),
    ],
)
def test_a_callback_has_to_be_on_both_sides(of_broker: str, of_settings: str, statuses: list[Status]) -> None:
    found = callback_checks(1, of_broker, of_settings)
    assert [check.status for check in found] == statuses
    for check in found:
        assert check.evidence.startswith(f"broker 1: client.quota.callback.class = {of_broker or 'not set'}")
