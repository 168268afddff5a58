"""What changed: edits of quotas and steps of enforcement, on a line of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import iso_time, person_ms
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.reports.gathered.changes import changes
from kquota_spark.reports.parts.page_parts import Block, Cell, Chart, Column, Section, table_of
from kquota_spark.reports.parts.report_section import CsvFile, ReportSection, values_of
from kquota_spark.reports.parts.words import counted, entity_of, moment, rate_cell
from kquota_spark.reports.scope.audit_report import Change
from kquota_spark.reports.scope.report_scope import Scope

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

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
    return f"{moment(change.at_ms)}: {change.what}, {_step(change)}{_told(change)}"


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
            *_effect(change),
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


def _step(change: Change) -> str:
    kind = quota_type_of(change.key)
    return f"{change.key} {rate_cell(kind, change.before).text} → {rate_cell(kind, change.after).text}"


def _effect(change: Change) -> tuple[Cell, Cell]:
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


def _told(change: Change) -> str:
    if change.effect is None:
        return ""
    before, after = (cell.text for cell in _effect(change))
    return f"; total delay per minute {before} before, {after} after"


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each change."""
    columns = ("at", *_OF_FILE, *_OF_EFFECT)
    return {"changes.csv": CsvFile(columns, map(_file_row, report.changes))}


def _file_row(one: Change) -> tuple[Any, ...]:
    effect = values_of(one.effect, _OF_EFFECT) if one.effect else (None,) * len(_OF_EFFECT)
    return (iso_time(one.at_ms), *values_of(one, _OF_FILE), *effect)


SECTION = ReportSection(gather, changes_section, files)
