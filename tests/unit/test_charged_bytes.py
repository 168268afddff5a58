"""Sizes on the wire, part by part, for every version that the parser takes."""

from __future__ import annotations

import msgspec
import pytest

from kquota_spark.formats.charged_bytes import (
    FETCH_VERSIONS,
    PRODUCE_VERSIONS,
    FetchPartition,
    FetchTopic,
    ProducePartition,
    ProduceTopic,
    fetch_bytes,
    produce_bytes,
)

SET = msgspec.Raw(b"{}")


def produced(
    version: int, *sizes: int | None, transactional_id: str | None = None, name: str | None = "orders"
) -> int:
    topic = ProduceTopic([ProducePartition(size) for size in sizes], name, None if name else "id")
    return produce_bytes(version, "checkout-svc", transactional_id, [topic])


def fetched(version: int, *partitions: FetchPartition) -> int:
    by_name = version <= 12
    topic = FetchTopic(list(partitions), "orders" if by_name else None, None if by_name else "id")
    return fetch_bytes(version, [topic])


def test_the_versions() -> None:
    assert (min(PRODUCE_VERSIONS), max(PRODUCE_VERSIONS)) == (3, 13)
    assert (min(FETCH_VERSIONS), max(FETCH_VERSIONS)) == (7, 18)


@pytest.mark.parametrize(
    ("version", "size", "expected"),
    [
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
    assert fetched(12, FetchPartition(size)) == 61 + length_bytes + size


def test_a_null_record_set_is_as_long_as_an_empty_one() -> None:
    assert produced(9, None) == produced(9, 0) == 47
    assert produced(8, None) == produced(8, 0) == 54


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
    assert produced(13, 100, name=None) == 147 + 9


@pytest.mark.parametrize(
    ("version", "expected"),
    [(7, 16_452), (10, 16_452), (11, 16_456), (12, 16_448), (13, 16_457), (17, 16_457), (18, 16_457)],
)
def test_fetch(version: int, expected: int) -> None:
    # v7: 4 + 14 + (2 + 6 + 4 + (30 + 4 + 4 + 16,384)); 4 more from v11 on.
    assert fetched(version, FetchPartition(16_384)) == expected


def test_empty_fetches() -> None:
    # 4 + 10 + 4; 4 + 10 + 1 + 1.
    assert fetch_bytes(11, []) == 18
    assert [fetch_bytes(version, []) for version in (12, 13, 17)] == [16, 16, 16]


def test_aborted_transactions() -> None:
    two = [SET, SET]
    assert fetched(11, FetchPartition(16_384, two)) == 16_456 + 32
    assert fetched(12, FetchPartition(16_384, two)) == 16_448 + 34
    assert fetched(12, FetchPartition(16_384, [])) == 16_448
    assert fetched(17, FetchPartition(16_384, [SET] * 127)) == 16_457 + 127 * 17 + 1  # 128 needs two bytes


def test_tagged_fields() -> None:
    # tag 1 + size 1 + (4 + 8 + 1), (4 + 4 + 1), (8 + 4 + 1)
    assert fetched(12, FetchPartition(16_384, diverging_epoch=SET)) == 16_448 + 15
    assert fetched(12, FetchPartition(16_384, current_leader=SET)) == 16_448 + 11
    assert fetched(17, FetchPartition(16_384, snapshot_id=SET)) == 16_457 + 15
    everything = FetchPartition(16_384, None, SET, SET, SET)
    assert fetched(17, everything) == 16_457 + 15 + 11 + 15
