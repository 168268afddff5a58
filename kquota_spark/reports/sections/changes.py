"""What changed: edits of quotas, what enforcement applied and restored, and the effect of each, on a line of time.

An edit that is the echo of an enforcement step is left out, because the step contains more. The effect is measured as
throttling by brokers, in two periods of one length before and after the change. Each period reaches to the nearest
other change of the same quota, to the edge of the covered time, or for ten minutes. The shorter period sets the length
for both. The buckets are those that the entity governed in either period.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kquota_spark.enforce.changes import Event
from kquota_spark.formats.text.person_units import counted, iso_time, person_ms
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.reports.parts.page_parts import Block, Cell, Chart, Column, Section, table_of
from kquota_spark.reports.parts.report_section import CsvFile, ReportSection, values_of
from kquota_spark.reports.parts.words import entity_of, moment, rate_cell
from kquota_spark.reports.scope.echoes import QuotaSet, is_echo
from kquota_spark.reports.scope.report_scope import BUCKET, Scope
from kquota_spark.reports.scope.shared_rows import Change, Effect
from kquota_spark.reports.timeline.timeline_events import EDIT_MS, EDIT_REQUESTS, editor_of

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

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
_MOST_ROWS_OF_TIMELINE = 14
_TYPES = {kind.key.value: kind.value for kind in QuotaType}
_COLUMNS = (
    Column("time (UTC)", is_short=True),
    Column("entity"),
    Column("quota", is_short=True),
    *Column.numbers("before", "after", "total delay per minute before", "after it"),
    Column("what"),
    Column("by"),
)
_OF_FILE = ("entity", "key", "before", "after", "what", "by")
_OF_EFFECT = ("length_ms", "delay_before_ms", "delay_after_ms", "requests_before", "requests_after")


def gather(scope: Scope) -> dict[str, Any]:
    """The newest changes with their effect, and how many older ones there are."""
    found, left_out = scope.once(changes)
    return {"changes": found, "changes_left_out": left_out}


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


def changes_section(report: AuditReport) -> Section:
    """A timeline with one row per entity, and the table of changes."""
    is_own = report.head.tenant is not None
    count = len(report.changes) + report.changes_left_out
    lead = (
        f"{counted(count, 'change')} of quotas."
        if count
        else "Nothing: no quota was edited and none enforced."
    )
    return Section(
        anchor="changes",
        short="Changes",
        title="What changed for you?" if is_own else "What changed?",
        lead=lead,
        blocks=(_timeline(report),) if report.changes else (),
    )


def quota_type_of(key: str) -> str:
    """The quota type that a key limits; the key itself if it limits none."""
    return _TYPES.get(key, key)


def direction(change: Change) -> str:
    """The kind of a change: `set`, `removed`, `raised`, `lowered` or `kept`."""
    if change.before is None or change.after is None:
        return "set" if change.after is not None else "removed"
    return "raised" if change.after > change.before else "lowered" if change.after < change.before else "kept"


def change_text(change: Change) -> str:
    """A change in words: its time and kind, the values before and after, and the total delay before and after."""
    return f"{moment(change.at_ms)}: {change.what}, {_step_text(change)}{_effect_text(change)}"


def _timeline(report: AuditReport) -> Block:
    ordered = sorted(report.changes, key=lambda change: change.at_ms)
    entities = list(dict.fromkeys(change.entity for change in ordered))[:_MOST_ROWS_OF_TIMELINE]
    drawn = [change for change in ordered if change.entity in entities]
    from_ms, to_ms = _extent(report)
    data = {
        "from_ms": from_ms,
        "to_ms": to_ms,
        "labels": [entity_of(entity) for entity in entities],
        "points": [
            {
                "row": entities.index(change.entity),
                "at_ms": change.at_ms,
                "direction": direction(change),
                "is_edit": change.what == "edit",
                "text": change_text(change),
            }
            for change in drawn
        ],
    }
    # A tenant's page does not show the author of a change.
    columns = _COLUMNS if report.head.tenant is None else _COLUMNS[:-1]
    rows = (
        (
            Cell(moment(change.at_ms)),
            Cell(entity_of(change.entity), change.entity),
            Cell(change.key),
            rate_cell(quota_type_of(change.key), change.before),
            rate_cell(quota_type_of(change.key), change.after),
            *_effect_cells(change),
            Cell(change.what),
            Cell(change.by or "not known"),
        )[: len(columns)]
        for change in ordered
    )
    return Block(
        "Edits and enforcement over time",
        chart=Chart(
            "chart-changes", "timeline", f"When quotas changed: {counted(len(drawn), 'change')}", data
        ),
        table=table_of("Changes of quotas", columns, rows, len(ordered) + report.changes_left_out, "changes"),
        is_table_open=True,
    )


def _extent(report: AuditReport) -> tuple[int, int]:
    """Start and end of the time axis (epoch ms): that of the heat maps, so that both align, and every change."""
    times = [change.at_ms for change in report.changes]
    slots = [slot for heat in report.heat for slot in (heat.slots[0], heat.slots[-1] + heat.slot_ms)]
    if not slots:
        return report.head.from_ms, report.head.to_ms
    return min(*times, *slots), max(*times, *slots)


def _step_text(change: Change) -> str:
    kind = quota_type_of(change.key)
    return f"{change.key} {rate_cell(kind, change.before).text} → {rate_cell(kind, change.after).text}"


def _effect_cells(change: Change) -> tuple[Cell, Cell]:
    found = change.effect
    if found is None:
        return Cell("-"), Cell("-")
    return (
        _per_minute(found.delay_before_ms, found.requests_before, found.length_ms),
        _per_minute(found.delay_after_ms, found.requests_after, found.length_ms),
    )


def _per_minute(delay_ms: int, requests: int, length_ms: int) -> Cell:
    exact = f"{counted(requests, 'throttled request')} in {person_ms(length_ms)}, by brokers"
    return Cell(person_ms(round(delay_ms * 60_000 / length_ms)), exact)


def _effect_text(change: Change) -> str:
    if change.effect is None:
        return ""
    before, after = (cell.text for cell in _effect_cells(change))
    return f"; total delay per minute {before} before, {after} after"


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each change."""
    columns = ("at", *_OF_FILE, *_OF_EFFECT)
    return {"changes.csv": CsvFile(columns, map(_file_row, report.changes))}


def _file_row(one: Change) -> tuple[Any, ...]:
    effect = values_of(one.effect, _OF_EFFECT) if one.effect else (None,) * len(_OF_EFFECT)
    return (iso_time(one.at_ms), *values_of(one, _OF_FILE), *effect)


SECTION = ReportSection(gather, changes_section, files)
