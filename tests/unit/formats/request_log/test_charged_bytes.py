"""Sizes on the wire, part by part, for every version that the parser takes."""

from __future__ import annotations

import pytest
from msgspec import UNSET, UnsetType

from kquota_spark.formats.request_log.charged_bytes import (
    FETCH_VERSIONS,
    PRODUCE_VERSIONS,
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchTopic,
    LeaderIdAndEpoch,
    ProducePartition,
    ProduceTopic,
    fetch_bytes,
    produce_bytes,
)
from kquota_spark.formats.request_log.request import Unreadable

ABORTED, EPOCH, LEADER = AbortedTransaction(1, 2), EpochEndOffset(3, 4), LeaderIdAndEpoch(5, 6)
NULL = ProducePartition(records=None)


def produced(version: int, *sizes: int, transactional_id: str | UnsetType | None = None) -> int:
    partitions = [ProducePartition(size) for size in sizes]
    topic = ProduceTopic(partitions, topic_id="id") if version >= 13 else ProduceTopic(partitions, "orders")
    return produce_bytes(version, "checkout-svc", transactional_id, [topic])


def fetched(version: int, size: int, *aborted: AbortedTransaction) -> int:
    return fetched_partition(version, FetchPartition(list(aborted) or None, size))


def fetched_partition(version: int, partition: FetchPartition) -> int:
    topic = FetchTopic([partition], "orders") if version <= 12 else FetchTopic([partition], topic_id="id")
    return fetch_bytes(version, [topic])


def test_the_versions() -> None:
    assert (min(PRODUCE_VERSIONS), max(PRODUCE_VERSIONS)) == (0, 13)
    assert (min(FETCH_VERSIONS), max(FETCH_VERSIONS)) == (0, 18)


@pytest.mark.parametrize(
    ("version", "size", "expected"),
    [
        (0, 100, 152),  # header 10 + 12; 2 + 4 + 4 + (2 + 6 + 4 + (8 + 100)): no transactional id yet
        (2, 100, 152),
        (3, 100, 154),  # header 10 + 12; 2 + 2 + 4 + 4 + (2 + 6 + 4 + (8 + 100))
        (8, 100, 154),
        (8, 16_384, 16_438),
        (9, 100, 147),  # header 11 + 12; 1 + 6 + 1 + (1 + 6 + 1 + (4 + 1 + 100 + 1) + 1) + 1
        (9, 16_384, 16_433),
        (11, 100, 147),
        (11, 16_384, 16_433),
        (12, 100, 147),
    ],
)
def test_produce(version: int, size: int, expected: int) -> None:
    assert produced(version, size) == expected


@pytest.mark.parametrize(
    ("size", "length_bytes"),
    [(0, 1), (126, 1), (127, 2), (16_382, 2), (16_383, 3), (2_097_150, 3), (2_097_151, 4), (268_435_455, 5)],
)
def test_the_length_of_a_record_set_is_a_varint_of_one_more(size: int, length_bytes: int) -> None:
    # 147 = 46 + 1 + 100
    assert produced(9, size) == 46 + length_bytes + size
    # v12 with 16,384 bytes: 16,448 = 61 + 3 + 16,384
    assert fetched(12, size) == 61 + length_bytes + size


def test_a_null_record_set_is_as_long_as_an_empty_one() -> None:
    topic = ProduceTopic([NULL], "orders")
    assert produce_bytes(9, "checkout-svc", None, [topic]) == produced(9, 0) == 47
    assert produce_bytes(8, "checkout-svc", None, [topic]) == produced(8, 0) == 54
    assert fetched_partition(12, FetchPartition(None, records=None)) == fetched(12, 0) == 62
    assert fetched_partition(11, FetchPartition(None, records=None)) == fetched(11, 0) == 72


def test_the_id_of_a_transaction() -> None:
    # 2 + L instead of 2 (null is the length -1); compact 1 + L instead of 1.
    assert produced(8, 100, transactional_id="txn-1") == 154 + 5
    assert produced(9, 100, transactional_id="txn-1") == 147 + 5
    assert produced(9, 100, transactional_id="x" * 127) == 147 + 127 + 1  # 128 needs two bytes


def test_many_partitions_topics_and_names() -> None:
    # 8 + R, or 4 + 1 + R + 1 each further partition.
    assert produced(8, 100, 50) == 154 + 8 + 50
    assert produced(9, 100, 50) == 147 + 6 + 50
    two = [ProduceTopic([ProducePartition(100)], name) for name in ("orders", "größe")]
    # größe has seven bytes: 2 + 7 + 4 + 108 and 1 + 7 + 1 + 106 + 1.
    assert produce_bytes(8, "checkout-svc", None, two) == 154 + 121
    assert produce_bytes(9, "checkout-svc", None, two) == 147 + 116
    # 128 topics: their number needs two bytes.
    many = [ProduceTopic([ProducePartition(0)], "t")] * 127
    assert produce_bytes(9, "", None, many) == 11 + 1 + 6 + 2 + 127 * (2 + 1 + 6 + 1) + 1


def test_produce_by_topic_id() -> None:
    # 16 bytes of id instead of 1 + 6 of name.
    assert produced(13, 100) == 147 + 9


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, 16_422),  # 4 + 4 + (2 + 6 + 4 + (4 + 2 + 8 + 4 + 16,384))
        (1, 16_426),  # and a throttle time
        (3, 16_426),
        (4, 16_438),  # and the last stable offset, the number of aborted transactions
        (5, 16_446),  # and the start of the log
        (6, 16_446),
        (7, 16_452),  # and an error code, the session
        (10, 16_452),
        (11, 16_456),  # and the preferred replica
        (12, 16_448),
        (13, 16_457),
        (18, 16_457),
    ],
)
def test_fetch(version: int, expected: int) -> None:
    assert fetched(version, 16_384) == expected


def test_empty_fetches() -> None:
    # 4 + 4; 4 + 4 + 4; 4 + 10 + 4; 4 + 10 + 1 + 1.
    assert [fetch_bytes(version, []) for version in (0, 6, 11)] == [8, 12, 18]
    assert [fetch_bytes(version, []) for version in (12, 13, 18)] == [16, 16, 16]


def test_aborted_transactions() -> None:
    assert fetched(4, 16_384, ABORTED, ABORTED) == 16_438 + 32
    assert fetched(11, 16_384, ABORTED, ABORTED) == 16_456 + 32
    assert fetched(12, 16_384, ABORTED, ABORTED) == 16_448 + 34
    assert fetched_partition(12, FetchPartition([], 16_384)) == 16_448
    assert fetched(17, 16_384, *[ABORTED] * 127) == 16_457 + 127 * 17 + 1  # 128 needs two bytes


def test_tagged_fields() -> None:
    # tag 1 + size 1 + (4 + 8 + 1), (4 + 4 + 1), (8 + 4 + 1)
    assert fetched_partition(12, FetchPartition(None, 0, diverging_epoch=EPOCH)) == 62 + 15
    assert fetched_partition(12, FetchPartition(None, 0, current_leader=LEADER)) == 62 + 11
    assert fetched_partition(12, FetchPartition(None, 0, snapshot_id=EPOCH)) == 62 + 15
    everything = FetchPartition(None, 0, diverging_epoch=EPOCH, current_leader=LEADER, snapshot_id=EPOCH)
    assert fetched_partition(17, everything) == 62 + 9 + 15 + 11 + 15


NAMELESS = "JSON: the name of a topic is missing, so the bytes are not known"
WITHOUT_ID = "JSON: the id of a topic is missing, so the bytes are not known"
WITHOUT_SIZE = "JSON: the size of a record set is missing, so the bytes are not known"
WITHOUT_ABORTED = "JSON: abortedTransactions is missing, so the bytes are not known"


@pytest.mark.parametrize(
    ("version", "topic", "expected"),
    [
        (8, ProduceTopic([NULL], topic_id="id"), NAMELESS),
        (12, ProduceTopic([NULL], topic_id="id"), NAMELESS),
        (13, ProduceTopic([NULL], name="orders"), WITHOUT_ID),
        (8, ProduceTopic([ProducePartition()], name="orders"), WITHOUT_SIZE),
        (9, ProduceTopic([ProducePartition()], name="orders"), WITHOUT_SIZE),
    ],
)
def test_a_produce_with_something_missing(version: int, topic: ProduceTopic, expected: str) -> None:
    with pytest.raises(Unreadable) as raised:
        produce_bytes(version, "c", None, [topic])
    assert str(raised.value) == expected


def test_a_produce_without_a_transactional_id_null_or_not() -> None:
    assert produced(2, 100, transactional_id=UNSET) == 152
    for version in (3, 13):
        with pytest.raises(Unreadable) as raised:
            produced(version, 100, transactional_id=UNSET)
        assert str(raised.value) == "JSON: transactionalId is missing, so the bytes are not known"


@pytest.mark.parametrize(
    ("version", "topic", "expected"),
    [
        (11, FetchTopic([], topic_id="id"), NAMELESS),
        (12, FetchTopic([], topic_id="id"), NAMELESS),
        (13, FetchTopic([], topic="orders"), WITHOUT_ID),
        (11, FetchTopic([FetchPartition(None)], "orders"), WITHOUT_SIZE),
        (12, FetchTopic([FetchPartition(None)], "orders"), WITHOUT_SIZE),
        (4, FetchTopic([FetchPartition(UNSET, 5)], "orders"), WITHOUT_ABORTED),
        (12, FetchTopic([FetchPartition(UNSET, 5)], "orders"), WITHOUT_ABORTED),
    ],
)
def test_a_fetch_with_something_missing(version: int, topic: FetchTopic, expected: str) -> None:
    with pytest.raises(Unreadable) as raised:
        fetch_bytes(version, [topic])
    assert str(raised.value) == expected
