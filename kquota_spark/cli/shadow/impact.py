"""`kquota impact`: after real edits of quotas, the predicted total delay beside the measured one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from kquota_spark.cli.options import TIME_FORMS, PeriodOptions, counted
from kquota_spark.cli.question import Asked, Found, Question, moment
from kquota_spark.cli.text.render import Colour, Row, Shown
from kquota_spark.formats.text.escape import entity_text
from kquota_spark.formats.text.person_units import person_ms, person_span, quota_text
from kquota_spark.model.quotas.quota_types import QuotaKey

if TYPE_CHECKING:
    from kquota_spark.reports.impact.edit_impact import Impact

COMMANDS = {
    "impact": (
        "answers",
        "after real edits of quotas: the predicted total delay beside the measured one",
        "kquota impact --since 7d",
        "kquota impact --since 1d --output json",
    ),
}
_COLUMNS = (
    "cluster_id", "at", "entity", "key", "value_before", "value_after", "window_s", "buckets", "before_ms",
    "predicted_ms", "low_ms", "high_ms", "measured_ms", "error_percent", "is_within", "is_complete", "method",
)  # fmt: skip


def _options(_: argparse.ArgumentParser) -> None:
    """The command has only the options of all reading commands."""


def _find(asked: Asked) -> Found:
    """One row per edit with traffic before and after it, newest first.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    from kquota_spark.reports.impact.edit_impact import Impacts

    impacts, wanted = Impacts(asked.settings), asked.wanted.span
    rows: list[Row] = []
    skipped = 0
    for edit in reversed(impacts.edits):
        if (wanted.from_ms is not None and edit.at_ms < wanted.from_ms) or (
            wanted.to_ms is not None and edit.at_ms >= wanted.to_ms
        ):
            continue
        if asked.limit is not None and len(rows) == asked.limit:
            break
        impact = impacts.of(edit)
        if impact is None:
            skipped += 1
        else:
            rows.append(_row(impacts.cluster_id, impact))
    return Found(
        _COLUMNS,
        rows,
        (moment(rows, "at", "edit"), *_SHOWN),
        _footer(rows, skipped),
        when_empty=f"no edit with traffic before and after it; {counted(skipped, 'edit')} without",
        times=frozenset({"at"}),
        is_limited=True,
    )


def _row(cluster_id: str, one: Impact) -> dict[str, Any]:
    return {
        "cluster_id": cluster_id,
        "at": one.edit.at_ms,
        "entity": str(one.edit.entity),
        "key": one.edit.key.value,
        "value_before": one.edit.before,
        "value_after": one.edit.after,
        **{name: getattr(one, name) for name in _COLUMNS[6:]},
    }


def _footer(rows: Sequence[Row], skipped: int) -> str:
    errors = [abs(row["error_percent"]) for row in rows if row["error_percent"] is not None]
    parts = [counted(len(rows), "edit")]
    if errors:
        parts.append(f"median error {median(errors):.1f} %")
    parts.append(f"measured within the bound: {sum(row['is_within'] for row in rows):,} of {len(rows):,}")
    lines = [", ".join(parts)]
    if skipped:
        lines.append(f"{counted(skipped, 'edit')} without traffic before and after")
    if open_rows := [row for row in rows if not row["is_complete"]]:
        lines.append(f"{counted(len(open_rows), 'edit')} not complete: the time after it has not ended")
    return "\n".join(lines)


def _change(row: Row) -> str:
    key = QuotaKey(row["key"])
    return f"{quota_text(key, row['value_before'])} -> {quota_text(key, row['value_after'])}"


def _bound(row: Row) -> str:
    if row["high_ms"] is None:
        return f">= {person_ms(row['low_ms'])}"
    return f"{person_ms(row['low_ms'])} to {person_ms(row['high_ms'])}"


def _error(row: Row) -> str:
    return "-" if row["error_percent"] is None else f"{row['error_percent']:+.0f} %"


_SHOWN = (
    Shown("entity", lambda row: entity_text(row["entity"]), is_text=True, keep=16),
    Shown("change", _change, is_text=True, keep=22, rank=2),
    Shown("each side", lambda row: person_span(row["window_s"] * 1_000), rank=4),
    Shown("before", lambda row: person_ms(row["before_ms"]), rank=3),
    Shown("predicted", lambda row: person_ms(row["predicted_ms"])),
    Shown("bound", _bound, rank=1),
    Shown(
        "measured", lambda row: person_ms(row["measured_ms"]), note="before, measured: total delay by brokers"
    ),
    Shown("error", _error),
)
QUESTION = Question(
    command="impact",
    table=None,
    find=_find,
    options=_options,
    period=PeriodOptions(f"edits from then on: {TIME_FORMS}", "edits until then"),
    colour=lambda row: None if row["is_within"] else Colour.YELLOW,
    has_agreement=False,
)
add_commands = QUESTION.add_to
