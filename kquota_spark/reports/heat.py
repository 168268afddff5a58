"""Who lives at the ceiling: the highest percent of the quota of the hottest buckets, slot by slot of time."""

from __future__ import annotations

from typing import Any

from kquota_spark.reports.audit_report import BucketName, HeatMap
from kquota_spark.reports.report_scope import BUCKET, Scope, bucket_of
from kquota_spark.reports.top_buckets import LIMIT_PERCENT, NEAR_PERCENT

_HOTTEST = f"""
with of_buckets as (
  select {BUCKET}, max(quota_used_percent) filter (not isnan(quota_used_percent)) as hottest,
         sum(quota_used_percent) as warmth, sum(throttled_rows) as throttled_rows
  from slots group by all having hottest is not null
), ranked as (
  select *, row_number() over (partition by quota_type order by hottest desc, warmth desc, {BUCKET}) as place,
         count(*) over of_type as found,
         count(*) filter (hottest between {NEAR_PERCENT} and {LIMIT_PERCENT}) over of_type as near,
         count(*) filter (hottest > {LIMIT_PERCENT}) over of_type as over_limit,
         count(*) filter (hottest >= {NEAR_PERCENT} and throttled_rows = 0) over of_type as near_unthrottled
  from of_buckets window of_type as (partition by quota_type)
)
select {BUCKET}, place, found, near, over_limit, near_unthrottled,
       list({{'slot_ms': slot_ms, 'percent': percent}}) as percents
from (
  select {BUCKET}, slot_ms, max(quota_used_percent) as percent
  from slots where quota_used_percent is not null group by all
) join ranked using ({BUCKET})
where place <= ? group by all order by quota_type, place
"""  # noqa: S608 - names of ours


def heat_maps(scope: Scope, heat_rows: int) -> tuple[HeatMap, ...]:
    """One map for each type of quota that limits anybody, the hottest buckets first."""
    slots = scope.slots
    rows_of: dict[str, list[tuple[BucketName, tuple[float | None, ...]]]] = {}
    counts_of: dict[str, dict[str, Any]] = {}
    for row in scope.rows(_HOTTEST, heat_rows):
        bucket = bucket_of(row)
        percents = {cell["slot_ms"]: cell["percent"] for cell in row["percents"]}
        rows_of.setdefault(bucket.quota_type, []).append((bucket, tuple(map(percents.get, slots))))
        counts_of[bucket.quota_type] = row
    return tuple(
        HeatMap(
            slot_ms=scope.slot_ms,
            slots=slots,
            buckets=tuple(bucket for bucket, _ in rows),
            quota_used_percent=tuple(percents for _, percents in rows),
            left_out=counts_of[quota_type]["found"] - len(rows),
            near=counts_of[quota_type]["near"],
            over=counts_of[quota_type]["over_limit"],
            near_unthrottled=counts_of[quota_type]["near_unthrottled"],
        )
        for quota_type, rows in rows_of.items()
    )
