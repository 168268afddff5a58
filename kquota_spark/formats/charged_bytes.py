"""The bytes that a bandwidth quota is charged, rebuilt from the sizes that the request log gives.

Produce is charged header plus body of the request, fetch 4 plus the body of the response (without header).
The log shows every variable-length part, so both are exact. Sources: Kafka's message definitions
(ProduceRequest, FetchResponse, RequestHeader), `ClientQuotaManager`, `FetchContext.getResponseSize`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

Size = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""Bytes of a record set: a 32-bit number on the wire; anything else is refused."""

_NOT_SET = msgspec.Raw(b"")


class ProducePartition(msgspec.Struct, rename="camel", gc=False):
    """One partition of a produce request; None is a null record set."""

    records_size_in_bytes: Size | None = None


class ProduceTopic(msgspec.Struct, rename="camel", gc=False):
    """One topic of a produce request: by name, or by id from v13 on."""

    partition_data: list[ProducePartition]
    name: str | None = None
    topic_id: str | None = None


class FetchPartition(msgspec.Struct, rename="camel", gc=False):
    """One partition of a fetch response. The last three are tagged fields, logged only when set."""

    records_size_in_bytes: Size | None = None
    aborted_transactions: list[msgspec.Raw] | None = None
    diverging_epoch: msgspec.Raw = _NOT_SET
    current_leader: msgspec.Raw = _NOT_SET
    snapshot_id: msgspec.Raw = _NOT_SET


class FetchTopic(msgspec.Struct, rename="camel", gc=False):
    """One topic of a fetch response: by name up to v12, by id from v13 on."""

    partitions: list[FetchPartition]
    topic: str | None = None
    topic_id: str | None = None


_UUID_BYTES = 16
_PRODUCE_FLEXIBLE, _FETCH_FLEXIBLE = 9, 12
PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(7, 19)
# Tagged field = tag 1 + size 1 + struct: (epoch, end offset), (leader, epoch), (end offset, epoch), each + 1.
_DIVERGING_EPOCH_BYTES, _CURRENT_LEADER_BYTES, _SNAPSHOT_ID_BYTES = 15, 11, 15


def _varint_bytes(value: int) -> int:
    """Length of an unsigned varint."""
    if value < 0x80:
        return 1
    if value < 0x4000:
        return 2
    if value < 0x200000:
        return 3
    return 4 if value < 0x10000000 else 5


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _compact_string_bytes(text: str) -> int:
    length = _utf8_bytes(text)
    return _varint_bytes(length + 1) + length


def produce_bytes(
    version: int, client_id: str, transactional_id: str | None, topics: Sequence[ProduceTopic]
) -> int:
    """Bytes charged for a produce request of v3 to v13."""
    if version >= _PRODUCE_FLEXIBLE:
        body = 1 if transactional_id is None else _compact_string_bytes(transactional_id)
        body += 6 + _varint_bytes(len(topics) + 1) + 1
        for topic in topics:
            body += _UUID_BYTES if topic.name is None else _compact_string_bytes(topic.name)
            body += _varint_bytes(len(topic.partition_data) + 1) + 1
            for partition in topic.partition_data:
                size = partition.records_size_in_bytes or 0
                body += 5 + _varint_bytes(size + 1) + size
        return 11 + _utf8_bytes(client_id) + body
    body = 2 + (0 if transactional_id is None else _utf8_bytes(transactional_id)) + 2 + 4 + 4
    for topic in topics:
        body += 2 + _utf8_bytes(topic.name or "") + 4
        for partition in topic.partition_data:
            body += 8 + (partition.records_size_in_bytes or 0)
    return 10 + _utf8_bytes(client_id) + body


def fetch_bytes(version: int, topics: Sequence[FetchTopic]) -> int:
    """Bytes charged for a fetch response of v7 to v18."""
    if version < _FETCH_FLEXIBLE:
        leader_epoch = 4 if version >= 11 else 0
        body = 10 + 4
        for topic in topics:
            body += 2 + _utf8_bytes(topic.topic or "") + 4
            for partition in topic.partitions:
                aborted = len(partition.aborted_transactions or ())
                body += 30 + 4 + 16 * aborted + leader_epoch + 4 + (partition.records_size_in_bytes or 0)
        return 4 + body
    body = 10 + _varint_bytes(len(topics) + 1) + 1
    for topic in topics:
        body += _UUID_BYTES if topic.topic is None else _compact_string_bytes(topic.topic)
        body += _varint_bytes(len(topic.partitions) + 1) + 1
        for partition in topic.partitions:
            body += _flexible_fetch_partition_bytes(partition)
    return 4 + body


def _flexible_fetch_partition_bytes(partition: FetchPartition) -> int:
    size = partition.records_size_in_bytes or 0
    aborted = partition.aborted_transactions
    total = 30 + 4 + 1 + _varint_bytes(size + 1) + size
    total += 1 if aborted is None else _varint_bytes(len(aborted) + 1) + 17 * len(aborted)
    if bytes(partition.diverging_epoch):
        total += _DIVERGING_EPOCH_BYTES
    if bytes(partition.current_leader):
        total += _CURRENT_LEADER_BYTES
    if bytes(partition.snapshot_id):
        total += _SNAPSHOT_ID_BYTES
    return total
