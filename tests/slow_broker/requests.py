"""The requests that clients of a run send again and again: cheap ones, and those that cost a broker much."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from tests.closed_loop_pairs.produces import packed_batch, record_batch, wire_text

_PRODUCE, _FETCH, _LIST_OFFSETS, _METADATA, _DESCRIBE_CONFIGS = 0, 1, 2, 3, 32
_TOPIC_RESOURCE = 2
_MOST_FETCHED = 64 << 20

PLAIN, TINY, PACKED, WIDE = "slow-plain", "slow-tiny", "slow-packed", "slow-wide"
"""Topics: what consumers read, small records, another compression than producers use, many partitions."""
SMALL_TOPICS = tuple(f"slow-small-{number}" for number in range(60))
"""Topics that only requests about all topics mention."""
PARTITIONS = 300


class Kind(Enum):
    """What a client sends."""

    PRODUCE = "produces"
    LARGE_PRODUCE = "large produces"
    CONSUME = "waiting fetches"
    ASK = "metadata of one topic"
    REPACK = "batches that the broker compresses anew"
    TINY_PRODUCE = "many small produces"
    ALL_METADATA = "metadata of all topics"
    WIDE_FETCH = "fetches of many partitions"
    WIDE_PRODUCE = "produces to many partitions"
    FIND_OFFSETS = "offsets by time of many partitions"
    ALL_CONFIGS = "configurations of all topics"


COSTLY = (
    Kind.REPACK, Kind.TINY_PRODUCE, Kind.ALL_METADATA, Kind.WIDE_FETCH, Kind.WIDE_PRODUCE, Kind.FIND_OFFSETS,
    Kind.ALL_CONFIGS,
)  # fmt: skip
"""Kinds with which a client can slow a broker."""


class Wire(NamedTuple):
    """One request without its header."""

    api_key: int
    version: int
    body: bytes
    depth: int = 1
    """How many an antagonist sends at once: a client in Python would be too slow for cheap ones."""


def wires() -> Mapping[Kind, Wire]:
    """One request of each kind; a consumer has no fixed one, because it follows its topic."""
    plain, tiny, large = record_batch(b"x" * 4_000), record_batch(b"x" * 20), record_batch(b"x" * 200_000)
    many = [*range(PARTITIONS)]
    names = (PLAIN, PACKED, WIDE, *SMALL_TOPICS)
    configs = b"".join(
        struct.pack(">b", _TOPIC_RESOURCE) + wire_text(name) + struct.pack(">i", -1) for name in names
    )
    offsets = b"".join(struct.pack(">iq", number, 1) for number in many)
    return {
        Kind.PRODUCE: _produce(PLAIN, [0], plain),
        Kind.LARGE_PRODUCE: _produce(PLAIN, [0], large),
        Kind.ASK: Wire(_METADATA, 1, struct.pack(">i", 1) + wire_text(PLAIN)),
        Kind.REPACK: _produce(PACKED, [0], packed_batch([b"y" * 60] * 12_000, _GZIP, _gzipped))._replace(depth=2),
        Kind.TINY_PRODUCE: _produce(TINY, [0], tiny)._replace(depth=40),
        Kind.ALL_METADATA: Wire(_METADATA, 1, struct.pack(">i", -1), 8),
        Kind.WIDE_FETCH: _fetch(WIDE, many, 2_000)._replace(depth=2),
        Kind.WIDE_PRODUCE: _produce(WIDE, many[:100], tiny)._replace(depth=4),
        Kind.FIND_OFFSETS: Wire(
            _LIST_OFFSETS, 1,
            struct.pack(">ii", -1, 1) + wire_text(WIDE) + struct.pack(">i", len(many)) + offsets, 4,
        ),
        Kind.ALL_CONFIGS: Wire(_DESCRIBE_CONFIGS, 0, struct.pack(">i", len(names)) + configs, 4),
    }  # fmt: skip


_GZIP = 1


def _gzipped(data: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def _produce(topic: str, partitions: Sequence[int], batch: bytes) -> Wire:
    parts = b"".join(struct.pack(">ii", number, len(batch)) + batch for number in partitions)
    head = struct.pack(">hhii", -1, 1, 30_000, 1) + wire_text(topic) + struct.pack(">i", len(partitions))
    return Wire(_PRODUCE, 8, head + parts)


def _fetch(topic: str, partitions: Sequence[int], most_bytes: int) -> Wire:
    parts = b"".join(struct.pack(">iqi", number, 0, most_bytes) for number in partitions)
    head = struct.pack(">iiiibi", -1, 0, 1, _MOST_FETCHED, 0, 1) + wire_text(topic)
    return Wire(_FETCH, 4, head + struct.pack(">i", len(partitions)) + parts)
