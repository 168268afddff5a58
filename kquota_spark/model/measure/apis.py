"""How the broker's quotas and its throttled clients treat each kind of request.

Source: Kafka's `ApiKeys`, the handlers in `KafkaApis`, and `shouldClientThrottle` of each response class.
"""

from __future__ import annotations

from enum import IntEnum


class Api(IntEnum):
    """Kinds of requests that quotas treat differently, by their number in the protocol (`ApiKeys`)."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    WRITE_TXN_MARKERS = 27
    CREATE_PARTITIONS = 37
    ALTER_PARTITION = 56


_EXEMPT = frozenset(
    {
        Api.LEADER_AND_ISR,
        Api.STOP_REPLICA,
        Api.UPDATE_METADATA,
        Api.CONTROLLED_SHUTDOWN,
        Api.WRITE_TXN_MARKERS,
        Api.ALTER_PARTITION,
    }
)
_STRICT_FROM = {Api.CREATE_TOPICS: 6, Api.DELETE_TOPICS: 5, Api.CREATE_PARTITIONS: 3}
CLIENT_HOLDS_BACK_FROM = {
    Api.PRODUCE: 6,
    Api.FETCH: 8,
    Api.LIST_OFFSETS: 3,
    Api.METADATA: 6,
    Api.OFFSET_COMMIT: 4,
    Api.OFFSET_FETCH: 4,
    Api.FIND_COORDINATOR: 2,
    Api.JOIN_GROUP: 3,
    Api.HEARTBEAT: 2,
    Api.LEAVE_GROUP: 2,
    Api.SYNC_GROUP: 2,
    Api.API_VERSIONS: 2,
    Api.CREATE_TOPICS: 3,
    Api.DELETE_TOPICS: 2,
    Api.CREATE_PARTITIONS: 1,
}
"""The first version of each API at which clients wait out a throttle by themselves (KIP-219)."""


def is_request_quota_exempt(api: int, *, acks: int = -1, is_follower: bool = False) -> bool:
    """Whether a request's thread time is charged to nobody.

    This holds for the brokers' own requests, fetches of followers, and produce requests without a response (acks 0).
    """
    return api in _EXEMPT or (api == Api.PRODUCE and acks == 0) or (api == Api.FETCH and is_follower)


def is_mutation(api: Api) -> bool:
    """Whether the request is charged to controller_mutation_rate (KIP-599)."""
    return api in _STRICT_FROM


def is_strict_mutation(api: Api, version: int) -> bool:
    """Whether an empty bucket refuses the request (error 89) instead of only throttling it (KIP-599)."""
    return is_mutation(api) and version >= _STRICT_FROM[api]


def does_client_hold_back(api: Api, version: int) -> bool:
    """Whether Kafka's own clients wait out the throttle time that a response of this version carries (KIP-219)."""
    return api in CLIENT_HOLDS_BACK_FROM and version >= CLIENT_HOLDS_BACK_FROM[api]
