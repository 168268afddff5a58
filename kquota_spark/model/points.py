"""One request as the replay needs it."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class PointKind(IntEnum):
    """How the replay treats a request; the number is what tables carry."""

    PRODUCE = 0
    FETCH = 1
    THROTTLED_FETCH = 2
    """Its bytes were un-recorded and are not in the log: it touches the ring, its verdict is inferred."""


class Point(NamedTuple):
    """A request; the field order is the order in which the replay takes requests of a bucket.

    `amount` in bytes, times in epoch ms. `observed_throttle_ms` is what the broker logged: it is compared
    with the verdict afterwards and never read to make it.
    """

    record_time_ms: int
    log_time_ms: int
    connection_hash: int
    correlation_id: int
    amount: int
    observed_throttle_ms: int
    kind: int
