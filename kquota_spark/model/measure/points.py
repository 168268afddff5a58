"""One request as the replay needs it."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

CONTROLLER_ID = -1
"""Broker id of a mutation bucket: the cluster has one, at the active controller, which no log line names."""


class PointKind(IntEnum):
    """How the replay treats a request; tables contain the number."""

    PRODUCE = 0
    FETCH = 1
    THROTTLED_FETCH = 2
    """Its bytes were un-recorded and are not in the log. It still touches the ring, and its verdict is inferred."""
    REQUEST = 3
    """Thread time of a request that only request_percentage can throttle."""
    SHARED_REQUEST = 4
    """Thread time of a produce, fetch or mutation: the throttle in the log is the larger one of two quotas."""
    REFUSED_MUTATION = 5
    """A topic refused by the mutation quota (error 89): nothing was charged."""
    CREATE_TOPIC = 6
    CREATE_PARTITIONS = 7
    DELETE_TOPIC = 8
    """Accepted, in a version of the request that is refused while the bucket is empty (KIP-599, strict)."""
    PERMISSIVE_CREATE_TOPIC = 9
    PERMISSIVE_CREATE_PARTITIONS = 10
    PERMISSIVE_DELETE_TOPIC = 11
    """Accepted, in an older version of the request, which is only throttled."""
    SHARE_FETCH = 12
    """A share consumer's fetch (KIP-932). The fetch quota charges it, but the log does not contain its size."""
    THROTTLED_SHARE_FETCH = 13
    """Its bytes were un-recorded, as those of a throttled fetch."""
    UNSIZED = 14
    """A produce or a fetch that its quota charges, but the log does not contain its size."""
    UNSIZED_MUTATION = 15
    """A change of topics in an unreadable log line: the charge is unknown, and so is whether it was refused."""


UNSIZED_KINDS = (PointKind.SHARE_FETCH, PointKind.UNSIZED, PointKind.UNSIZED_MUTATION)
"""Kinds of requests that are charged by a size that is not in the log."""


class Point(NamedTuple):
    """A request; the field order is the order in which the replay takes requests of a bucket.

    `amount` is in bytes (produce, fetch), in microseconds of handler threads (request), or in partitions. Partitions
    are those created, the topic's total after some were added, and 0 for a topic deleted or refused. Times are in epoch
    ms. `observed_throttle_ms` is the throttle in the broker's log. It is compared with the verdict afterwards and never
    read to decide it. For a mutation the record time is the start of its handling, the log time its end, and
    `connection_hash` identifies the topic. `network_time_us` is the most that the network thread can have spent on the
    request (microseconds), 0 for other types.
    """

    record_time_ms: int
    log_time_ms: int
    connection_hash: int
    correlation_id: int
    amount: int
    observed_throttle_ms: int
    kind: int
    network_time_us: int = 0
