"""Rate beside limit over time, of those who were held back and then of the hottest, each on its worst broker.

The limit is that of the last second of each slot. Where a bucket was silent it stands at what it last was: a limit is
told with the traffic that it limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kquota_spark.reports.audit_report import BucketName, Line
from kquota_spark.reports.report_scope import BUCKET, Scope, bucket_of

_WORST = f"""
with worst as (
  select {BUCKET}, arg_max(broker_id, (throttled_ms, throttled_rows, coalesce(quota_used_percent, 0), -broker_id))
           as broker_id,
         sum(throttled_ms) as throttled_ms, sum(throttled_rows) as throttled_rows, max(quota_used_percent) as hottest
  from places where least_limit_per_s is not null group by all
), shown as (
  select *, row_number() over (
    order by coalesce(list_position(?, {{'quota_type': quota_type, 'user': bucket_user,
                                         'client_id': bucket_client_id, 'tags': bucket_tags}}), 1000000),
             hottest desc nulls last, {BUCKET}) as place
  from worst qualify place <= ?
)
select {BUCKET}, broker_id, place,
       list({{'slot_ms': slot_ms, 'rate': peak_rate_per_s, 'limit': limit_per_s,
             'throttled_ms': slots.throttled_ms}}) as told
from shown join slots using ({BUCKET}, broker_id) where seconds > 0 group by all order by place
"""  # noqa: S608 - names of ours


def rate_lines(scope: Scope, first: Iterable[BucketName]) -> list[Line]:
    """Lines of at most `top` limited buckets, those named first in their order."""
    wanted = [
        {"quota_type": one.quota_type, "user": one.user, "client_id": one.client_id, "tags": one.tags}
        for one in first
    ]
    return [_line(scope, row) for row in scope.rows(_WORST, wanted, scope.top)]


def _line(scope: Scope, row: dict[str, Any]) -> Line:
    slots = scope.slots
    told = {cell["slot_ms"]: cell for cell in row["told"]}
    limits: list[float | None] = []
    for slot in slots:
        silent = limits[-1] if limits else None
        limits.append(told[slot]["limit"] if slot in told else silent)
    return Line(
        bucket=bucket_of(row),
        broker_id=row["broker_id"],
        slot_ms=scope.slot_ms,
        slots=slots,
        rate_per_s=tuple(told[slot]["rate"] if slot in told else None for slot in slots),
        limit_per_s=tuple(limits),
        throttled_ms=tuple(told[slot]["throttled_ms"] if slot in told else 0 for slot in slots),
    )
