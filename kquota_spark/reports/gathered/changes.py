"""Changes of quotas: edits that the watcher saw, what enforcement applied and restored, and the effect of each.

An edit that is the echo of an enforcement step is left out, because the step contains more. The effect is measured as
throttling by brokers, in two periods of one length before and after the change. Each period reaches to the nearest
other change of the same quota, to the edge of the covered time, or for ten minutes. The shorter period sets the length
for both. The buckets are those that the entity governed in either period.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kquota_spark.enforce.changes import Event
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.reports.scope.audit_report import Change, Effect
from kquota_spark.reports.scope.echoes import QuotaSet, is_echo
from kquota_spark.reports.scope.report_scope import BUCKET, Scope
from kquota_spark.reports.timeline.timeline_events import EDIT_MS, EDIT_REQUESTS, editor_of

OVERRIDE = "override"
"""Name in `enforcement_log` for the policy of a change that a person asked for."""

_EDITS = """
select epoch_ms(changed_at) as at_ms, entity, key, previous_value as before, value as after, "user",
       epoch_ms(coalesce(changed_before, changed_at)) as seen_ms
from quota_changes where cluster_id = ? and key is not null and problem is null
  and changed_at >= make_timestamptz(?) and changed_at < make_timestamptz(?)
order by changed_at, version, entity, key
"""
_STEPS = f"""
select epoch_ms("at") as at_ms, entity, key, value_before as before, value_after as after, "user", event, policy,
       reason, actor
from enforcement_log
where cluster_id = ? and event in ('{Event.APPLIED}', '{Event.RESTORED}') and "at" >= make_timestamptz(?)
  and "at" < make_timestamptz(?)
order by sequence
"""  # noqa: S608 - names of ours
LONGEST_MS = 600_000
SHORTEST_MS = 1_000
"""Shortest period of an effect (ms), because decisions are of whole seconds."""

# The second of the change belongs to the period after it, because brokers apply a change at once.
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


def changes(scope: Scope) -> tuple[list[Change], int]:
    """The newest changes of the period in the order of time, and how many older ones there are."""
    found = changes_without_effect(scope)
    shown = found[-scope.top :]
    shown = [replace(change, effect=_effect(scope, change, shown)) for change in shown]
    return shown, max(0, len(found) - scope.top)


def changes_without_effect(scope: Scope) -> list[Change]:
    """All changes of the period in the order of time; to measure an effect takes a query for each.

    A tenant's page has only changes of entities with the tenant's name, without their authors.
    """
    during = scope.cluster_id, scope.asked.from_ms * 1_000, scope.asked.to_ms * 1_000
    steps, edits = scope.rows(_STEPS, *during), scope.rows(_EDITS, *during)
    found = [_step(step, is_for_tenant=scope.tenant is not None) for step in steps if _is_shown(scope, step)]
    shown = [edit for edit in edits if _is_shown(scope, edit) and not _is_echo(edit, steps)]
    requests = _requests(scope) if shown and scope.tenant is None else []
    found += [_edit(edit, requests) for edit in shown]
    return sorted(found, key=lambda change: (change.at_ms, change.entity, change.key))


def _is_shown(scope: Scope, row: dict[str, Any]) -> bool:
    return scope.tenant is None or row["user"] == scope.tenant


def _is_echo(edit: dict[str, Any], steps: Collection[dict[str, Any]]) -> bool:
    seen = QuotaSet(edit["at_ms"], edit["entity"], edit["key"], edit["after"])
    return any(
        is_echo(seen, QuotaSet(step["at_ms"], step["entity"], step["key"], _set_by(step))) for step in steps
    )


def _set_by(step: dict[str, Any]) -> float | None:
    value: float | None = step["before"] if step["event"] == Event.RESTORED else step["after"]
    return value


def _requests(scope: Scope) -> list[dict[str, Any]]:
    """The requests that asked a broker for edits at about the time of the period."""
    during = scope.cluster_id, scope.asked.from_ms - EDIT_MS, scope.asked.to_ms + EDIT_MS
    return scope.tables.query(EDIT_REQUESTS, during).dicts()


def _edit(edit: dict[str, Any], requests: Sequence[Mapping[str, Any]]) -> Change:
    by = editor_of(requests, [edit["entity"], edit["key"], edit["after"]], edit["seen_ms"]) or ""
    return Change(edit["at_ms"], edit["entity"], edit["key"], edit["before"], edit["after"], "edit", by)


def _step(step: dict[str, Any], *, is_for_tenant: bool) -> Change:
    before, after = step["before"], step["after"]
    is_override = step["policy"] == OVERRIDE
    if step["event"] == Event.RESTORED:
        before, after = after, before
        what = f"{OVERRIDE} restored" if is_override else "restored"
    else:
        what = f"{OVERRIDE if is_override else 'enforcement'} applied"
    who = step["actor"] if is_override else step["policy"]
    by = "" if is_for_tenant else f"{who}: {step['reason']}"
    return Change(step["at_ms"], step["entity"], step["key"], before, after, what, by)


def length_ms(change: Change, changes: Sequence[Change], from_ms: int, to_ms: int) -> int:
    """Length of each of the two periods around a change (ms), within the covered time.

    Args:
        change: the change of one quota.
        changes: all in the covered time; only those of the same quota count.
        from_ms: start of the covered time, epoch ms.
        to_ms: its end, epoch ms, exclusive.
    """
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
