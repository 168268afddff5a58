"""The request in one line of the request log, and the exception for a line that cannot be read with certainty."""

from __future__ import annotations

from typing import NamedTuple

from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.quotas.quota_types import QuotaType

PRODUCE_KEY, FETCH_KEY = 0, 1
ALTER_CLIENT_QUOTAS_KEY = 49
SHARE_FETCH_KEY = 78
MAX_TOPICS = 32
"""Maximum topics of a request that are named; all of them are counted."""
INT32_MAX = 2**31 - 1
"""The largest length, throttle time and correlation id that the wire can carry."""
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
"""Error of a produce that was refused before its quota was checked (`KafkaApis.handleProduceRequest`)."""


class Unreadable(Exception):
    """A line that is kept with a reason; `str()` is the reason."""

    request: Request | None = None
    """Its request without the size, if both ends of the line can be read; else None."""
    cut_ms: int | None = None
    """Its log time, epoch ms, if a quota may have charged the request and its client is not known; else None."""


class Mutation(NamedTuple):
    """One topic of a request; see `Point` for `partitions` and `point_kind`."""

    topic_hash: int
    partitions: int
    point_kind: int


class Request(NamedTuple):
    """The content of one line. Bytes and times are exact or the best estimate; see the requests table.

    A tuple in the order of that table's columns, because half a million per second are converted to Arrow.
    """

    log_time_ms: int
    record_time_ms: int
    principal_type: str
    user: str
    client_id: str
    api_key: int
    api_version: int
    api_name: str
    quota_type: QuotaType | None
    point_kind: PointKind | None
    charged_bytes: int | None
    request_time_percent: float
    observed_throttle_ms: int
    is_from_follower: bool
    is_forwarded: bool
    connection: str
    correlation_id: int
    software_name: str
    software_version: str
    topics: list[str]
    network_time_us: int | None
    mutations: list[Mutation] | None
    altered_quotas: str | None = None
