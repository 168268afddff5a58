"""Parts of a line in the JSON form of the request log: what is read of headers, requests and responses.

Fields stand in Kafka's order: that is the fastest to decode.
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
"""Stands for a response without the field."""
MUTATION_KEYS = frozenset({int(Api.CREATE_TOPICS), int(Api.CREATE_PARTITIONS), int(Api.DELETE_TOPICS)})
MOST_EDITS = 100
"""So many edits of a request are kept: a line may hold thousands."""
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


class _Appended(msgspec.Struct, rename="camel", gc=False):
    error_code: Int32


class _AppendedTopic(msgspec.Struct, rename="camel", gc=False):
    partition_responses: list[_Appended]


class ProduceResponse(msgspec.Struct, rename="camel", gc=False):
    """A produce's response, of which most often only the throttle is read."""

    responses: list[_AppendedTopic]

    @property
    def error_codes(self) -> set[int]:
        """Those of all partitions."""
        return {part.error_code for topic in self.responses for part in topic.partition_responses}


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


class _Topic(msgspec.Struct, rename="camel", gc=False):
    name: str | None = None
    num_partitions: _Count = -1
    assignments: list[msgspec.Raw] | None = None
    count: _Count = 0

    @property
    def partitions(self) -> int:
        """As asked for; 0 where the broker's default decides."""
        return self.count or max(self.num_partitions, len(self.assignments or ()))


class MutationRequest(msgspec.Struct, rename="camel", gc=False):
    """The body of one of the three requests; a DELETE_TOPICS names nothing that is needed."""

    topics: list[_Topic] | None = None
    validate_only: bool = False


class _Result(msgspec.Struct, rename="camel", gc=False):
    error_code: int
    name: str | None = None
    topic_id: str | None = None
    num_partitions: _Count = -1


class MutationResponse(msgspec.Struct, rename="camel", gc=False):
    """Its answer; the list has another name in each of the three."""

    throttle_time_ms: _Count = -1
    topics: list[_Result] = []
    results: list[_Result] = []
    responses: list[_Result] = []


def mutations_of(
    api_key: int, version: int, request: MutationRequest, response: MutationResponse
) -> list[Mutation] | None:
    """The topics that the quota was asked about; None if there are none.

    The broker charges one topic after the other, before it makes the change: the partitions created or deleted. Error
    89 (THROTTLING_QUOTA_EXCEEDED) is the quota's refusal; with any other error the topic did not get so far, except
    REQUEST_TIMED_OUT, which comes afterwards. A request that only validates is left out.
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
    # 63 bits: the same topic gives the same number everywhere.
    topic_hash = int.from_bytes(hashlib.blake2b(topic, digest_size=8).digest()) >> 1
    if result.error_code == _REFUSED:
        return Mutation(topic_hash, 0, int(PointKind.REFUSED_MUTATION))
    strict, permissive = _KINDS[api]
    kind = strict if is_strict_mutation(api, version) else permissive
    if api is Api.DELETE_TOPICS:
        return Mutation(topic_hash, 0, int(kind))
    # From v5 on the answer has the number that the broker's default made of -1.
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
    """JSON list of `[entity, key, value]`, value null for a removal; None if it only asks whether it could."""
    if request.validate_only:
        return None
    edits = [
        (_entity(entry.entity), op.key, None if op.remove else op.value)
        for entry in request.entries
        for op in entry.ops
    ]
    return json.dumps(edits[:MOST_EDITS], ensure_ascii=False, separators=(",", ":"))


def _entity(parts: list[_Part]) -> str:
    """The canonical name; what Kafka would refuse is written down as it was asked for."""
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
