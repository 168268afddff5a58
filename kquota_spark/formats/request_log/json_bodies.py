"""Parts of a line in the JSON form of the request log: the fields that are read from headers, requests and responses.

Fields are in Kafka's order, which is the fastest to decode.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from kquota_spark.formats.request_log import charged_bytes as charged
from kquota_spark.formats.request_log.request import INT32_MAX, Mutation
from kquota_spark.model.measure.apis import Api, is_strict_mutation
from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.quotas.entities import DEFAULT, Default, Entity, IpEntity

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=INT32_MAX)]
ThrottleMs = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
NO_THROTTLE = -1
"""Throttle time of a response without the field."""
MUTATION_KEYS = frozenset({int(Api.CREATE_TOPICS), int(Api.CREATE_PARTITIONS), int(Api.DELETE_TOPICS)})
MOST_EDITS = 100
"""Maximum edits of a request that are kept: a line may contain thousands."""
_Count = Annotated[int, msgspec.Meta(ge=-1, le=INT32_MAX)]
_CHARGED_ERRORS = (0, 7)
_REFUSED = 89
_KINDS = {
    Api.CREATE_TOPICS: (PointKind.CREATE_TOPIC, PointKind.PERMISSIVE_CREATE_TOPIC),
    Api.CREATE_PARTITIONS: (PointKind.CREATE_PARTITIONS, PointKind.PERMISSIVE_CREATE_PARTITIONS),
    Api.DELETE_TOPICS: (PointKind.DELETE_TOPIC, PointKind.PERMISSIVE_DELETE_TOPIC),
}


class Header(msgspec.Struct, rename="camel", gc=False):
    """The request's header."""

    request_api_key: Int32
    request_api_version: Int32
    correlation_id: Int32
    client_id: str | UnsetType | None = UNSET
    """May be null in the log of brokers before KAFKA-13385."""
    request_api_key_name: str = ""


class Software(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """Name and version of the client's library."""

    software_name: str = "unknown"
    software_version: str = "unknown"


class Produce(msgspec.Struct, rename="camel", gc=False):
    """A produce request."""

    acks: Int32
    topic_data: list[charged.ProduceTopic]
    transactional_id: str | UnsetType | None = UNSET


class Throttled(msgspec.Struct, rename="camel", gc=False):
    """Any response, with its throttle time only."""

    throttle_time_ms: ThrottleMs = NO_THROTTLE


class _Appended(msgspec.Struct, rename="camel", gc=False):
    error_code: Int32


class _AppendedTopic(msgspec.Struct, rename="camel", gc=False):
    partition_responses: list[_Appended]


class ProduceResponse(msgspec.Struct, rename="camel", gc=False):
    """The response to a produce, with its error codes; most often only the throttle time is read instead."""

    responses: list[_AppendedTopic]

    @property
    def error_codes(self) -> set[int]:
        """The error codes of all partitions."""
        return {part.error_code for topic in self.responses for part in topic.partition_responses}


class ReplicaState(msgspec.Struct, rename="camel", gc=False):
    """The broker that fetches, from v15 on."""

    replica_id: Int32


class FetchRequest(msgspec.Struct, rename="camel", gc=False):
    """A fetch request."""

    replica_id: Int32 | UnsetType = UNSET
    replica_state: ReplicaState | UnsetType = UNSET


class FetchResponse(msgspec.Struct, rename="camel", gc=False):
    """The response to a fetch."""

    responses: Sequence[charged.FetchTopic]
    throttle_time_ms: ThrottleMs = NO_THROTTLE


class ShareTopic(msgspec.Struct, rename="camel", gc=False):
    """A topic in the response to a share fetch."""

    topic_id: str


class ShareFetchResponse(msgspec.Struct, rename="camel", gc=False):
    """The response to a share fetch: the acquired records are logged, but not their size."""

    responses: Sequence[ShareTopic]
    throttle_time_ms: ThrottleMs


class FetchResponse28(FetchResponse, gc=False):
    """A `FetchResponse` with the field names of Kafka 2.8."""

    responses: Sequence[charged.FetchTopic28]


class _Topic(msgspec.Struct, rename="camel", gc=False):
    name: str | None = None
    num_partitions: _Count = -1
    assignments: list[msgspec.Raw] | None = None
    count: _Count = 0

    @property
    def partitions(self) -> int:
        """The number of partitions in the request; 0 if the broker's default decides."""
        return self.count or max(self.num_partitions, len(self.assignments or ()))


class MutationRequest(msgspec.Struct, rename="camel", gc=False):
    """The body of one of the three requests in `MUTATION_KEYS`; nothing in it is needed for DELETE_TOPICS."""

    topics: list[_Topic] | None = None
    validate_only: bool = False


class _Result(msgspec.Struct, rename="camel", gc=False):
    error_code: int
    name: str | None = None
    topic_id: str | None = None
    num_partitions: _Count = -1


class MutationResponse(msgspec.Struct, rename="camel", gc=False):
    """The response to a `MutationRequest`; the list has a different name in each of the three."""

    throttle_time_ms: _Count = -1
    topics: list[_Result] = []
    results: list[_Result] = []
    responses: list[_Result] = []


def mutations_of(
    api_key: int, version: int, request: MutationRequest, response: MutationResponse
) -> list[Mutation] | None:
    """The topics for which the mutation quota was checked; None if there are none, or if the request only validates.

    The broker charges one topic after the other with the partitions to create or delete, before it makes the change.
    Error 89 (THROTTLING_QUOTA_EXCEEDED) is the quota's refusal. After any other error the quota was not checked, except
    REQUEST_TIMED_OUT, which comes after the check.

    Args:
        api_key: CREATE_TOPICS, CREATE_PARTITIONS or DELETE_TOPICS.
        version: API version of the request.
        request: body of the request.
        response: body of the response.
    """
    if request.validate_only:
        return None
    results = response.topics or response.results or response.responses
    asked = {topic.name: topic.partitions for topic in request.topics or ()}
    found = [
        _mutation(Api(api_key), version, result, asked)
        for result in results
        if result.error_code in (_REFUSED, *_CHARGED_ERRORS)
    ]
    return found or None


def _mutation(api: Api, version: int, result: _Result, asked: dict[str | None, int]) -> Mutation:
    topic = (result.name or result.topic_id or "").encode("utf-8", "surrogatepass")
    # A hash of 63 bits: the same topic has the same number everywhere.
    topic_hash = int.from_bytes(hashlib.blake2b(topic, digest_size=8).digest()) >> 1
    if result.error_code == _REFUSED:
        return Mutation(topic_hash, 0, int(PointKind.REFUSED_MUTATION))
    strict, permissive = _KINDS[api]
    kind = strict if is_strict_mutation(api, version) else permissive
    if api is Api.DELETE_TOPICS:
        return Mutation(topic_hash, 0, int(kind))
    # From v5 on the response has the number that the broker's default puts in place of -1.
    return Mutation(topic_hash, max(result.num_partitions, asked.get(result.name, 0)), int(kind))


class _Part(msgspec.Struct, rename="camel"):
    entity_type: str
    entity_name: str | None = None


class _Op(msgspec.Struct):
    key: str
    value: float = 0.0
    remove: bool = False


class _Entry(msgspec.Struct):
    entity: list[_Part]
    ops: list[_Op]


class QuotaEdits(msgspec.Struct, rename="camel"):
    """The body of an AlterClientQuotas request (KIP-546); none of it is secret."""

    entries: list[_Entry]
    validate_only: bool = False


def altered_quotas(request: QuotaEdits) -> str | None:
    """JSON list of `[entity, key, value]`, value null for a removal; None if the request only validates."""
    if request.validate_only:
        return None
    edits = [
        (_entity(entry.entity), op.key, None if op.remove else op.value)
        for entry in request.entries
        for op in entry.ops
    ]
    return json.dumps(edits[:MOST_EDITS], ensure_ascii=False, separators=(",", ":"))


def _entity(parts: list[_Part]) -> str:
    """The canonical name of an entity; parts that Kafka would refuse are written as in the request."""
    names: dict[str, str | Default] = {
        part.entity_type: DEFAULT if part.entity_name is None else part.entity_name for part in parts
    }
    try:
        if names.keys() == {"ip"}:
            return str(IpEntity(names["ip"]))
        if names.keys() <= {"user", "client-id"}:
            return str(Entity(names.get("user"), names.get("client-id")))
    except ValueError:
        pass
    return ",".join(f"{part.entity_type}={part.entity_name}" for part in parts)
