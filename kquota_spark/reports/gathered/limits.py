"""Which buckets are near their limits: percent of the quota by slots of time, and rates beside their limits.

Seconds with uncertain verdicts are no peaks. They are shown as uncertain where a slot has no other seconds.

A line shows a bucket on its worst broker: first the throttled buckets, then the hottest. Its limit is that of the last
second of each slot. In a slot without requests, it is the value of the last rule at the end of the slot, from the
history of the quotas: when a quota is lowered, its bucket is muted first, and therefore silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kquota_spark.model.quotas.quota_types import CONNECTION, IP_QUOTA_KEY, QuotaType
from kquota_spark.reports.scope.audit_report import BucketName, HeatMap, Line
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
       list({{'slot_ms': slot_ms, 'rate': peak_rate_per_s, 'is_certain': is_peak_certain,
             'limit': limit_per_s, 'rule': rule,
             'throttled_ms': slots.throttled_ms}}) as told
from shown join slots using ({BUCKET}, broker_id) where seconds > 0 group by all order by place
"""  # noqa: S608 - names of ours
_KEYS = {each.value: each.key.value for each in QuotaType} | {CONNECTION: IP_QUOTA_KEY}
_HELD = f"""
select entity, epoch_ms(valid_from) as from_ms, {", ".join(_KEYS.values())} from rules
where cluster_id = ? and list_contains(?::varchar[], entity) order by entity, valid_from
"""  # noqa: S608 - names of ours

_Percents = tuple[float | None, ...]


def heat_maps(scope: Scope) -> tuple[HeatMap, ...]:
    """One heat map per quota type that limits anybody, the hottest buckets first."""
    slots = scope.slots
    rows_of: dict[str, list[tuple[BucketName, _Percents, _Percents]]] = {}
    counts_of: dict[str, dict[str, Any]] = {}
    for row in scope.rows(_HOTTEST, scope.heat_rows):
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


def rate_lines(scope: Scope, first: Iterable[BucketName]) -> list[Line]:
    """Lines of at most `top` limited buckets, beginning with the given ones in their order."""
    rows = scope.rows(_WORST, [asdict(bucket) for bucket in first], scope.top)
    rules = {cell["rule"] for row in rows for cell in row["told"] if cell["rule"] is not None}
    held: dict[str, list[dict[str, Any]]] = {}
    for stretch in scope.tables.query(_HELD, [scope.cluster_id, sorted(rules)]).dicts():
        held.setdefault(stretch["entity"], []).append(stretch)
    return [_line(scope, row, held) for row in rows]


def _line(scope: Scope, row: dict[str, Any], held: Mapping[str, Sequence[Mapping[str, Any]]]) -> Line:
    slots = scope.slots
    told = {cell["slot_ms"]: cell for cell in row["told"]}
    limits: list[float | None] = []
    stretches: Sequence[Mapping[str, Any]] = ()
    for slot in slots:
        if slot in told:
            limits.append(told[slot]["limit"])
            stretches = held.get(told[slot]["rule"], ())
        else:
            begun = [each for each in stretches if (each["from_ms"] or 0) < slot + scope.slot_ms]
            of_rule = begun[-1][_KEYS[row["quota_type"]]] if begun else None
            silent = limits[-1] if limits else None
            # Without a value the rule no longer holds. The next request shows which other rule does.
            limits.append(silent if of_rule is None else of_rule)
    return Line(
        bucket=bucket_of(row),
        broker_id=row["broker_id"],
        slot_ms=scope.slot_ms,
        slots=slots,
        rate_per_s=tuple(told[slot]["rate"] if slot in told else None for slot in slots),
        is_certain=tuple(slot not in told or told[slot]["is_certain"] for slot in slots),
        limit_per_s=tuple(limits),
        throttled_ms=tuple(told[slot]["throttled_ms"] if slot in told else 0 for slot in slots),
        rules=tuple(sorted({cell["rule"] for cell in row["told"] if cell["rule"] is not None})),
    )
