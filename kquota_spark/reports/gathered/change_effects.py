"""What a change of a quota did to throttling: by brokers, in two stretches of one length before and after it.

Each reaches from the change to the next one of the same entity, to the edge of what the tables cover, or for ten
minutes; the shorter side counts for both. The buckets are those that the entity governed on either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.reports.scope.audit_report import Change, Effect
from kquota_spark.reports.scope.report_scope import BUCKET, Scope

LONGEST_MS = 600_000
SHORTEST_MS = 1_000
"""Nothing is told by less: decisions are of whole seconds."""

# The second of the change belongs to what comes after it: brokers act on it at once.
_EFFECT = f"""
with near as (
  select *, second_ms + 1000 > ? as is_after from judged
  where quota_type = ? and second_ms + 1000 > ? and second_ms < ? and is_log
), affected as (select distinct broker_id, {BUCKET} from near where rule = ?)
select coalesce(sum(delay_ms) filter (not is_after), 0)::bigint as delay_before_ms,
       coalesce(sum(delay_ms) filter (is_after), 0)::bigint as delay_after_ms,
       coalesce(sum(delayed_requests) filter (not is_after), 0)::bigint as requests_before,
       coalesce(sum(delayed_requests) filter (is_after), 0)::bigint as requests_after,
       (select count(*) from affected) as buckets
from near semi join affected using (broker_id, {BUCKET})
"""  # noqa: S608 - names of ours
_TYPES = {each.key.value: each.value for each in QuotaType}


def with_effects(scope: Scope, changes: Sequence[Change]) -> list[Change]:
    """The changes, each with its effect where decisions tell it."""
    return [replace(change, effect=_effect(scope, change, changes)) for change in changes]


def length_ms(change: Change, changes: Sequence[Change], from_ms: int, to_ms: int) -> int:
    """Of each of the two stretches; the covered time is given."""
    times = [other.at_ms for other in changes if (other.entity, other.key) == (change.entity, change.key)]
    before = max([from_ms, *(at_ms for at_ms in times if at_ms < change.at_ms)])
    after = min([to_ms, *(at_ms for at_ms in times if at_ms > change.at_ms)])
    return max(0, min(LONGEST_MS, change.at_ms - before, after - change.at_ms))


def _effect(scope: Scope, change: Change, changes: Sequence[Change]) -> Effect | None:
    quota_type = _TYPES.get(change.key)
    length = length_ms(change, changes, scope.covered.from_ms, scope.covered.to_ms)
    if quota_type is None or length < SHORTEST_MS:
        return None
    at_ms = change.at_ms
    [row] = scope.rows(_EFFECT, at_ms, quota_type, at_ms - length, at_ms + length, change.entity)
    if not row.pop("buckets"):
        return None
    return Effect(length, **row)
