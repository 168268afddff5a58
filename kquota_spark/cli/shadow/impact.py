"""`kquota impact`: after real edits of quotas, the predicted total delay beside the measured one."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from kquota_spark.cli.answers import attributes
from kquota_spark.cli.options import TIME_FORMS, PeriodOptions, lines
from kquota_spark.cli.question import Asked, Found, Question, column, moment
from kquota_spark.cli.text.render import Colour, Row, Shown
from kquota_spark.formats.text.escape import entity_text
from kquota_spark.formats.text.person_units import counted, or_dash, person_ms, person_span, quota_text
from kquota_spark.model.quotas.quota_types import QuotaKey

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


def _find(asked: Asked) -> Found:
    """One row per edit with traffic before and after it, newest first.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    from kquota_spark.reports.impact.edit_impact import Impacts, impact_rows

    impacts, span = Impacts(asked.settings), asked.wanted.span
    found, skipped = impacts.newest(span.from_ms, span.to_ms, asked.limit)
    own = ("is_within", "is_complete")  # not in the table of the same name
    rows = [
        row | attributes(one, own)
        for one, row in zip(found, impact_rows(impacts.cluster_id, found), strict=True)
    ]
    return Found(
        _COLUMNS,
        rows,
        (moment(rows, "at", "edit"), *_SHOWN),
        _footer(rows, skipped),
        when_empty=f"no edit with traffic before and after it; {counted(skipped, 'edit')} without",
        times=frozenset({"at"}),
        is_limited=True,
    )


def _footer(rows: Sequence[Row], skipped: int) -> str:
    errors = [abs(row["error_percent"]) for row in rows if row["error_percent"] is not None]
    error = f", median error {median(errors):.1f} %" if errors else ""
    within, open_ = sum(row["is_within"] for row in rows), sum(not row["is_complete"] for row in rows)
    return lines(
        f"{counted(len(rows), 'edit')}{error}, measured within the bound: {within:,} of {len(rows):,}",
        f"{counted(skipped, 'edit')} without traffic before and after" if skipped else "",
        f"{counted(open_, 'edit')} not complete: the time after it has not ended" if open_ else "",
    )


def _change(row: Row) -> str:
    key = QuotaKey(row["key"])
    return f"{quota_text(key, row['value_before'])} -> {quota_text(key, row['value_after'])}"


def _bound(row: Row) -> str:
    low = person_ms(row["low_ms"])
    return f">= {low}" if row["high_ms"] is None else f"{low} to {person_ms(row['high_ms'])}"


_SHOWN = (
    Shown("entity", lambda row: entity_text(row["entity"]), is_text=True, keep=16),
    Shown("change", _change, is_text=True, keep=22, rank=2),
    Shown("each side", lambda row: person_span(row["window_s"] * 1_000), rank=4),
    column("before_ms", "before", rank=3, about="total delay by brokers"),
    column("predicted_ms", "predicted"),
    Shown("bound", _bound, rank=1),
    column("measured_ms", "measured", about="total delay by brokers"),
    Shown("error", lambda row: or_dash(row["error_percent"], "{:+.0f} %".format)),
)
QUESTION = Question(
    command="impact",
    table=None,
    find=_find,
    options=None,
    period=PeriodOptions(f"edits from then on: {TIME_FORMS}", "edits until then"),
    colour=lambda row: None if row["is_within"] else Colour.YELLOW,
    has_agreement=False,
)
add_commands = QUESTION.add_to
