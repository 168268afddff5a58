"""What one request adds to the buckets of the four quota types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from kquota_spark.formats.request import Request
from kquota_spark.model.points import CONTROLLER_ID, Point, PointKind
from kquota_spark.model.quota_types import QuotaType


class Charge(NamedTuple):
    """A point, and the broker and type whose bucket it goes to."""

    broker_id: int
    quota_type: QuotaType
    point: Point


_point, _charge = partial(tuple.__new__, Point), partial(tuple.__new__, Charge)
"""Half the time of the call by name: once a line."""


def charges_of(request: Request, broker_id: int, *, is_time_measured: bool) -> Sequence[Charge]:
    """Bytes, thread time, and one charge for each topic that was created, enlarged, deleted or refused.

    Args:
        request: as the broker logged it.
        broker_id: the broker.
        is_time_measured: some request quota could cover the client.
    """
    is_timed = is_time_measured and request.network_time_us is not None
    quota_type, mutations = request.quota_type, request.mutations
    if quota_type is None and not is_timed and mutations is None:
        return ()
    point = _point(
        (
            request.record_time_ms,
            request.log_time_ms,
            request.connection_hash,
            request.correlation_id,
            request.charged_bytes or 0,
            request.observed_throttle_ms,
            int(request.point_kind or 0),
            0,
        )
    )
    charges = [] if quota_type is None else [_charge((broker_id, quota_type, point))]
    if is_timed:
        charges.append(Charge(broker_id, QuotaType.REQUEST, _timed(request, point)))
    if mutations is not None:
        charges += _mutations(request, point)
    return charges


def _timed(request: Request, point: Point) -> Point:
    is_shared = request.quota_type is not None or request.mutations is not None
    return point._replace(
        amount=request.handler_time_us,
        kind=int(PointKind.SHARED_REQUEST if is_shared else PointKind.REQUEST),
        network_time_us=request.network_time_us or 0,
    )


def _mutations(request: Request, point: Point) -> Iterator[Charge]:
    for topic_hash, partitions, kind in request.mutations or ():
        # The throttle in the answer is that of the topics that were refused; the others were not held back.
        is_held = kind == PointKind.REFUSED_MUTATION or kind >= PointKind.PERMISSIVE_CREATE_TOPIC
        changed = point._replace(
            connection_hash=topic_hash,
            amount=partitions,
            observed_throttle_ms=request.observed_throttle_ms if is_held else 0,
            kind=int(kind),
        )
        yield Charge(CONTROLLER_ID, QuotaType.CONTROLLER_MUTATION, changed)
