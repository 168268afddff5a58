"""What one request adds to the buckets of the four quota types: the offline side of `pipeline.charges`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kquota_spark.formats.request import Request
from kquota_spark.model.points import CONTROLLER_ID, Point, PointKind
from kquota_spark.model.quota_types import QuotaType


class Charge(NamedTuple):
    """A point, and the broker and type whose bucket it goes to."""

    broker_id: int
    quota_type: QuotaType
    point: Point


def charges_of(request: Request, broker_id: int, *, is_time_measured: bool) -> Iterator[Charge]:
    """Bytes, thread time, and one charge for each topic that was created, enlarged, deleted or refused.

    Args:
        request: as the broker logged it.
        broker_id: the broker.
        is_time_measured: some request quota could cover the client.
    """
    common = Point(
        request.record_time_ms,
        request.log_time_ms,
        request.connection_hash,
        request.correlation_id,
        request.charged_bytes or 0,
        request.observed_throttle_ms,
        int(request.point_kind or 0),
    )
    if request.quota_type is not None:
        yield Charge(broker_id, request.quota_type, common)
    if is_time_measured and request.network_time_us is not None:
        is_shared = request.quota_type is not None or request.mutations is not None
        kind = PointKind.SHARED_REQUEST if is_shared else PointKind.REQUEST
        timed = common._replace(
            amount=request.handler_time_us, kind=int(kind), network_time_us=request.network_time_us
        )
        yield Charge(broker_id, QuotaType.REQUEST, timed)
    for mutation in request.mutations or ():
        # The throttle in the answer is that of the topics that were refused; the others were not held back.
        is_held = mutation.point_kind == PointKind.REFUSED_MUTATION
        is_held |= mutation.point_kind >= PointKind.PERMISSIVE_CREATE_TOPIC
        changed = common._replace(
            connection_hash=mutation.topic_hash,
            amount=mutation.partitions,
            observed_throttle_ms=request.observed_throttle_ms if is_held else 0,
            kind=mutation.point_kind,
        )
        yield Charge(CONTROLLER_ID, QuotaType.CONTROLLER_MUTATION, changed)
