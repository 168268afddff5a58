"""Who lives at the ceiling: the highest percent of the quota of the hottest buckets, slot by slot of time.

Seconds whose verdicts are uncertain make no peak. They are shown, as such, where a slot has no others.
"""

from __future__ import annotations

from typing import Any

from kquota_spark.reports.scope.audit_report import BucketName, HeatMap
from kquota_spark.reports.scope.report_scope import BUCKET, Scope, bucket_of
from kquota_spark.reports.timeline.top_buckets import LIMIT_PERCENT, NEAR_PERCENT

_HOTTEST = f"""
with of_buckets as (
  select {BUCKET}, max(certain_used_percent) filter (not isnan(certain_used_percent)) as hottest,
         max(quota_used_percent) filter (not isnan(quota_used_percent)) as hottest_of_all,
         sum(quota_used_percent) as warmth, sum(throttled_rows) as throttled_rows
  from slots group by all having hottest_of_all is not null
), ranked as (
  select *, row_number() over (partition by quota_type
                               order by hottest desc nulls last, hottest_of_all desc, warmth desc, {BUCKET}) as place,
         count(*) over of_type as found,
         count(*) filter (hottest between {NEAR_PERCENT} and {LIMIT_PERCENT}) over of_type as near,
         count(*) filter (hottest > {LIMIT_PERCENT}) over of_type as over_limit,
         count(*) filter (hottest >= {NEAR_PERCENT} and throttled_rows = 0) over of_type as near_unthrottled
  from of_buckets window of_type as (partition by quota_type)
)
select {BUCKET}, place, found, near, over_limit, near_unthrottled,
       list({{'slot_ms': slot_ms, 'percent': percent, 'of_all': of_all}}) as percents
from (
  select {BUCKET}, slot_ms, max(certain_used_percent) as percent, max(quota_used_percent) as of_all
  from slots where quota_used_percent is not null group by all
) join ranked using ({BUCKET})
where place <= ? group by all order by quota_type, place
"""  # noqa: S608 - names of ours


_Row = tuple[float | None, ...]


def heat_maps(scope: Scope, heat_rows: int) -> tuple[HeatMap, ...]:
    """One map for each type of quota that limits anybody, the hottest buckets first."""
    slots = scope.slots
    rows_of: dict[str, list[tuple[BucketName, _Row, _Row]]] = {}
    counts_of: dict[str, dict[str, Any]] = {}
    for row in scope.rows(_HOTTEST, heat_rows):
        bucket = bucket_of(row)
        certain = {cell["slot_ms"]: cell["percent"] for cell in row["percents"]}
        uncertain = {cell["slot_ms"]: cell["of_all"] for cell in row["percents"] if cell["percent"] is None}
        found = bucket, tuple(map(certain.get, slots)), tuple(map(uncertain.get, slots))
        rows_of.setdefault(bucket.quota_type, []).append(found)
        counts_of[bucket.quota_type] = row
    return tuple(
        HeatMap(
            slot_ms=scope.slot_ms,
            slots=slots,
            buckets=tuple(bucket for bucket, _, _ in rows),
            quota_used_percent=tuple(certain for _, certain, _ in rows),
            uncertain_percent=tuple(uncertain for _, _, uncertain in rows),
            left_out=counts_of[quota_type]["found"] - len(rows),
            near=counts_of[quota_type]["near"],
            over=counts_of[quota_type]["over_limit"],
            near_unthrottled=counts_of[quota_type]["near_unthrottled"],
        )
        for quota_type, rows in rows_of.items()
    )
