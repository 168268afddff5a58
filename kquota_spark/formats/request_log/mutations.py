"""What CREATE_TOPICS, CREATE_PARTITIONS and DELETE_TOPICS say about controller mutations, in the JSON form.

The broker charges one topic after the other, before it makes the change: the partitions created or deleted. Error
89 (THROTTLING_QUOTA_EXCEEDED) is the quota's refusal; with any other error the topic did not get so far, except
REQUEST_TIMED_OUT, which comes afterwards. A request that only validates is left out.

A request that was forwarded stands in the log twice, with the same response. The one that the client sent counts:
every cluster's log has it, also where nobody ships the log of the controllers.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, NamedTuple

import msgspec

from kquota_spark.model.measure.apis import Api, is_strict_mutation
from kquota_spark.model.measure.points import PointKind

MUTATION_KEYS = frozenset({int(Api.CREATE_TOPICS), int(Api.CREATE_PARTITIONS), int(Api.DELETE_TOPICS)})

_Count = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
_CHARGED_ERRORS = (0, 7)
_REFUSED = 89
_KINDS = {
    Api.CREATE_TOPICS: (PointKind.CREATE_TOPIC, PointKind.PERMISSIVE_CREATE_TOPIC),
    Api.CREATE_PARTITIONS: (PointKind.CREATE_PARTITIONS, PointKind.PERMISSIVE_CREATE_PARTITIONS),
    Api.DELETE_TOPICS: (PointKind.DELETE_TOPIC, PointKind.PERMISSIVE_DELETE_TOPIC),
}


class Mutation(NamedTuple):
    """One topic of a request; see `Point` for `partitions` and `point_kind`."""

    topic_hash: int
    partitions: int
    point_kind: int


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
    """The topics that the quota was asked about; None if there are none."""
    if request.validate_only:
        return None
    results = response.topics or response.results or response.responses
    asked = {topic.name: topic.partitions for topic in request.topics or ()}
    found = [
        _mutation(Api(api_key), version, result, asked)
        for result in results
        if result.error_code == _REFUSED or result.error_code in _CHARGED_ERRORS
    ]
    return found or None


def _mutation(api: Api, version: int, result: _Result, asked: dict[str | None, int]) -> Mutation:
    topic_hash = _hash(result.name or result.topic_id or "")
    if result.error_code == _REFUSED:
        return Mutation(topic_hash, 0, int(PointKind.REFUSED_MUTATION))
    strict, permissive = _KINDS[api]
    kind = strict if is_strict_mutation(api, version) else permissive
    if api is Api.DELETE_TOPICS:
        return Mutation(topic_hash, 0, int(kind))
    # From v5 on the answer has the number that the broker's default made of -1.
    return Mutation(topic_hash, max(result.num_partitions, asked.get(result.name, 0)), int(kind))


def _hash(topic: str) -> int:
    """63 bits: the same topic gives the same number everywhere."""
    return (
        int.from_bytes(hashlib.blake2b(topic.encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> 1
    )
