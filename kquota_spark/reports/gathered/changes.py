"""What happened to the quotas: edits that the watch saw, and what enforcement applied and took back.

An edit that is the echo of our own step is left out: the step says more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kquota_spark.enforce.changes import Event
from kquota_spark.reports.scope.audit_report import Change
from kquota_spark.reports.scope.report_scope import Scope

OVERRIDE = "override"
"""What `enforcement_log` calls the policy of a change that a person asked for."""
_ECHO_MS = 60_000
"""A cluster that takes longer to show what was sent is not believed to echo it."""

_EDITS = """
select epoch_ms(changed_at) as at_ms, entity, key, previous_value as before, value as after, "user"
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


def changes(scope: Scope) -> tuple[list[Change], int]:
    """The newest changes of the stretch in the order of time, and how many older ones there are.

    On a tenant's page only those of entities with the tenant's name, without who made them.
    """
    during = scope.cluster_id, scope.asked.from_ms * 1_000, scope.asked.to_ms * 1_000
    steps, edits = scope.rows(_STEPS, *during), scope.rows(_EDITS, *during)
    found = [_step(step, is_for_tenant=scope.tenant is not None) for step in steps if _is_shown(scope, step)]
    found += [_edit(edit) for edit in edits if _is_shown(scope, edit) and not _is_echo(edit, steps)]
    found.sort(key=lambda change: (change.at_ms, change.entity, change.key))
    return found[-scope.top :], max(0, len(found) - scope.top)


def _is_shown(scope: Scope, row: dict[str, Any]) -> bool:
    return scope.tenant is None or row["user"] == scope.tenant


def _is_echo(edit: dict[str, Any], steps: Collection[dict[str, Any]]) -> bool:
    return any(
        (step["entity"], step["key"], _set_by(step)) == (edit["entity"], edit["key"], edit["after"])
        and abs(step["at_ms"] - edit["at_ms"]) <= _ECHO_MS
        for step in steps
    )


def _set_by(step: dict[str, Any]) -> float | None:
    value: float | None = step["before"] if step["event"] == Event.RESTORED else step["after"]
    return value


def _edit(edit: dict[str, Any]) -> Change:
    return Change(edit["at_ms"], edit["entity"], edit["key"], edit["before"], edit["after"], "edit", "")


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
