"""Offsets of a fetch and the ends of its partitions, from a line in the JSON form.

The job does not read these fields, because only few questions need them. They are read from single lines again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kquota_spark.formats.request_log.line import MARKER
from kquota_spark.model.attribution.backlogs import Position
from kquota_spark.model.measure.apis import Api

MOST_PARTITIONS = 1_000
"""Maximum number of partitions of a fetch that are kept."""


class _Header(msgspec.Struct, rename="camel", gc=False):
    request_api_key: int
    correlation_id: int


class _Asked(msgspec.Struct, rename="camel", gc=False):
    partition: int
    fetch_offset: int


class _AskedTopic(msgspec.Struct, rename="camel", gc=False):
    partitions: Sequence[_Asked] = ()
    topic: str = ""
    topic_id: str = ""


class _Request(msgspec.Struct, rename="camel", gc=False):
    topics: Sequence[_AskedTopic] = ()


class _Sent(msgspec.Struct, rename="camel", gc=False):
    partition_index: int
    high_watermark: int


class _SentTopic(msgspec.Struct, rename="camel", gc=False):
    partitions: Sequence[_Sent] = ()
    topic: str = ""
    topic_id: str = ""


class _Response(msgspec.Struct, rename="camel", gc=False):
    responses: Sequence[_SentTopic] = ()


class _Line(msgspec.Struct, rename="camel", gc=False):
    request_header: _Header
    request: msgspec.Raw
    response: msgspec.Raw
    connection: str


class Fetch(NamedTuple):
    """The positions of one fetch, and what identifies it in the log of a broker."""

    connection: str
    correlation_id: int
    positions: tuple[Position, ...]


_LINE = msgspec.json.Decoder(_Line)
_REQUEST = msgspec.json.Decoder(_Request)
_RESPONSE = msgspec.json.Decoder(_Response)


def fetch_positions(line: bytes) -> Fetch | None:
    """The positions of a fetch; None for any other line, and for one that cannot be read.

    Args:
        line: of the request log, in the JSON form of Kafka 3.0 or later.
    """
    start, end = line.find(b"{", max(line.find(MARKER), 0)), line.rfind(b"}") + 1
    try:
        whole = _LINE.decode(line[start:end])
        if whole.request_header.request_api_key != Api.FETCH:
            return None
        request, response = _REQUEST.decode(whole.request), _RESPONSE.decode(whole.response)
    except msgspec.MsgspecError:
        return None
    ends = {
        (topic.topic or topic.topic_id, part.partition_index): part.high_watermark
        for topic in response.responses
        for part in topic.partitions
    }
    positions = [
        Position(
            name := topic.topic or topic.topic_id, part.partition, part.fetch_offset, _end(ends, name, part)
        )
        for topic in request.topics
        for part in topic.partitions
    ]
    return Fetch(whole.connection, whole.request_header.correlation_id, tuple(positions[:MOST_PARTITIONS]))


def _end(ends: dict[tuple[str, int], int], topic: str, part: _Asked) -> int | None:
    found = ends.get((topic, part.partition))
    return found if found is not None and found >= 0 else None
