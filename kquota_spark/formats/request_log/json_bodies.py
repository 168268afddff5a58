"""Parts of a line in the JSON form of the request log: what is read of headers, requests and responses.

Fields stand in Kafka's order: that is the fastest to decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from kquota_spark.formats.request_log import charged_bytes as charged
from kquota_spark.formats.request_log.request import INT32_MAX

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=INT32_MAX)]
ThrottleMs = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
NO_THROTTLE = -1
"""Stands for a response without the field."""


class Header(msgspec.Struct, rename="camel", gc=False):
    """The request's header."""

    request_api_key: Int32
    request_api_version: Int32
    correlation_id: Int32
    client_id: str | UnsetType | None = UNSET
    """Null in the log of brokers before KAFKA-13385."""
    request_api_key_name: str = ""


class Software(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """The client's library."""

    software_name: str = "unknown"
    software_version: str = "unknown"


class Produce(msgspec.Struct, rename="camel", gc=False):
    """A produce request."""

    acks: Int32
    topic_data: list[charged.ProduceTopic]
    transactional_id: str | UnsetType | None = UNSET


class Throttled(msgspec.Struct, rename="camel", gc=False):
    """Any response."""

    throttle_time_ms: ThrottleMs = NO_THROTTLE


class ReplicaState(msgspec.Struct, rename="camel", gc=False):
    """Who fetches, from v15 on."""

    replica_id: Int32


class FetchRequest(msgspec.Struct, rename="camel", gc=False):
    """A fetch request."""

    replica_id: Int32 | UnsetType = UNSET
    replica_state: ReplicaState | UnsetType = UNSET


class FetchResponse(msgspec.Struct, rename="camel", gc=False):
    """Its response."""

    responses: Sequence[charged.FetchTopic]
    throttle_time_ms: ThrottleMs = NO_THROTTLE


class ShareTopic(msgspec.Struct, rename="camel", gc=False):
    """A topic of a share fetch's response."""

    topic_id: str


class ShareFetchResponse(msgspec.Struct, rename="camel", gc=False):
    """A share fetch's response: what it acquired is logged, the size of the records is not."""

    responses: Sequence[ShareTopic]
    throttle_time_ms: ThrottleMs


class FetchResponse28(FetchResponse, gc=False):
    """The same as Kafka 2.8 names it."""

    responses: Sequence[charged.FetchTopic28]
