"""`kquota resolve`: the quotas in force for a user and client id; KIP-546 planned a command of this name for Kafka."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from itertools import chain
from typing import Any

from kquota_spark.cli.options import RULE_LEGEND, add_form_option, rule_text
from kquota_spark.cli.resolve.explanation import hole_notes
from kquota_spark.cli.resolve.question import (
    UNITS,
    Answer,
    Question,
    add_question_options,
    as_of_text,
    asked,
    bucket_text,
    identity_notes,
    limit_text,
    who_text,
)
from kquota_spark.cli.text.page import Page
from kquota_spark.cli.text.render import Colour, Report, Row, Shown, print_answer, show
from kquota_spark.formats.text.person_units import iso_time, type_text
from kquota_spark.model.govern.govern import STATIC_DEFAULT_RULES
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Standing, Step

COMMANDS = {
    "resolve": (
        "quotas",
        "which quotas govern a user and client id, from which rule, in which bucket",
        "kquota resolve --user alice --client-id etl --walk",
    ),
}

_MOST_OVERRIDES = 2


def add_commands(commands: Any) -> None:
    """Add `resolve`."""
    parser = commands.add_parser("resolve")
    parser.add_argument(
        "--type",
        choices=[quota_type.value for quota_type in QuotaType],
        help="only this quota type (all four)",
    )
    values = parser.add_mutually_exclusive_group()
    values.add_argument(
        "--walk", "--all", action="store_true", help="every value that was found, and what became of it"
    )
    values.add_argument(
        "--omit-overridden", action="store_true", help="leave out the values that a governing rule overrides"
    )
    add_form_option(parser, ("table", "json", "yaml"))
    add_question_options(parser)
    parser.set_defaults(run=run_resolve)


def run_resolve(options: argparse.Namespace) -> int:
    """Show the governing quotas."""
    types = [QuotaType(options.type)] if options.type else list(QuotaType)
    with asked(options) as question:
        answers = [question.answer(quota_type) for quota_type in types]
    if options.output != "table":
        head = question.as_dict()
        head["notes"] += chain.from_iterable(map(hole_notes, answers))
        rows = [
            _row(answer, with_overridden=not options.omit_overridden, with_walk=options.walk)
            for answer in answers
        ]
        print_answer("kquota resolve", {**head, "rows": rows}, options.output)
        return 0
    page = Page()
    page.paragraph("", f"{who_text(question)}, {as_of_text(question)}", indent=0)
    shown = (
        _walk_columns() if options.walk else _columns(question, with_overrides=not options.omit_overridden)
    )
    lines = list(_walk_rows(answers) if options.walk else _rows(answers))
    footer = f"{RULE_LEGEND}; limits hold per broker (mutations: at the controller)"
    has_overrides = not (options.walk or options.omit_overridden)
    if has_overrides and any(len(line["overrides"]) > _MOST_OVERRIDES for line in lines):
        footer += "\n+n: so many more values are overridden, see --walk"
    show(Report("kquota resolve", (), lines, shown, footer=footer, colour=_colour), "table")
    for note in [*identity_notes(question), *chain.from_iterable(map(hole_notes, answers))]:
        page.paragraph("note:", note, indent=6)
    return 0


def _row(answer: Answer, *, with_overridden: bool, with_walk: bool) -> dict[str, Any]:
    governed, governing = answer.governed, answer.governed.governing
    row: dict[str, Any] = {
        "quota_type": answer.quota_type.value,
        "key": answer.quota_type.key.value,
        "limit": finite(answer.limit),
        "unit": UNITS[answer.quota_type],
        "rule": governed.rule,
        "level": governed.level,
        "rule_version": governed.rule_version,
        "valid_from": iso_time(governing.valid_from_ms) if governing.valid_from_ms else None,
        "valid_to": None if governing.valid_to_ms is None else iso_time(governing.valid_to_ms),
        "bucket_user": governed.bucket.user,
        "bucket_client_id": governed.bucket.client_id,
        "bucket_tags": dict(governed.bucket.custom_tags),
    }
    if with_overridden:
        row["overridden"] = [
            {name: value for name, value in step_row(answer, step).items() if name != "standing"}
            for step in answer.walk
            if step.standing is Standing.OVERRIDDEN
        ]
    if with_walk:
        row["walk"] = [step_row(answer, step) for step in answer.walk]
    return row


def step_row(answer: Answer, step: Step) -> dict[str, Any]:
    """A candidate for JSON."""
    return {
        "level": step.level,
        "rule": step_rule(answer.quota_type, step),
        "limit": finite(step.limit),
        "standing": step.standing.name.lower(),
    }


def step_rule(quota_type: QuotaType, step: Step) -> str:
    """The rule of a candidate; level 9 is the broker's own property."""
    return STATIC_DEFAULT_RULES[quota_type] if step.entity is None else str(step.entity)


def finite(limit: float | None) -> float | None:
    """A limit for JSON, which has no NaN and no infinity; ZooKeeper may contain them."""
    return limit if limit is not None and math.isfinite(limit) else None


def _rows(answers: Iterable[Answer]) -> Iterable[Row]:
    for answer in answers:
        yield {
            "answer": answer,
            "rule": answer.governed.rule,
            "limit": answer.limit,
            "overrides": [step for step in answer.walk if step.standing is Standing.OVERRIDDEN],
        }


def _columns(question: Question, *, with_overrides: bool) -> tuple[Shown, ...]:
    shown = (
        Shown("type", lambda row: type_text(row["answer"].quota_type.value), is_text=True, keep=8),
        Shown("limit", lambda row: limit_text(row["answer"].quota_type, row["answer"].limit)),
        Shown("rule", rule_text, is_text=True, keep=16),
        Shown("level", lambda row: str(row["answer"].governed.level or "-"), rank=4),
        Shown(
            "bucket", lambda row: bucket_text(question, row["answer"].governed.bucket), is_text=True, keep=16
        ),
    )
    return (*shown, Shown("overrides", _overrides, rank=5)) if with_overrides else shown


def _overrides(row: Row) -> str:
    """The next values after the governing one; all eight levels would not fit."""
    quota_type, steps = row["answer"].quota_type, row["overrides"]
    texts = [limit_text(quota_type, step.limit) for step in steps[:_MOST_OVERRIDES]]
    if len(steps) > _MOST_OVERRIDES:
        texts.append(f"+{len(steps) - _MOST_OVERRIDES}")
    return ", ".join(texts) or "-"


def _walk_rows(answers: Iterable[Answer]) -> Iterable[Row]:
    for answer in answers:
        governs = {"answer": answer, "rule": answer.governed.rule, "level": None, "limit": answer.limit}
        found = [
            governs | {"rule": step_rule(answer.quota_type, step), "level": step.level, "limit": step.limit,
                       "became": step.standing.value}
            for step in answer.walk
            if step.limit is not None
        ]  # fmt: skip
        yield from found
        if answer.limit is None:
            yield governs | {"became": "nothing limits this type"}
        elif not found:
            yield governs | {"became": "the callback's answer"}


def _walk_columns() -> tuple[Shown, ...]:
    return (
        Shown("type", lambda row: type_text(row["answer"].quota_type.value), is_text=True, keep=8),
        Shown("level", lambda row: str(row["level"] or "-")),
        Shown("rule", rule_text, is_text=True, keep=16),
        Shown("limit", lambda row: limit_text(row["answer"].quota_type, row["limit"])),
        Shown("what became of it", lambda row: row["became"], is_text=True, keep=30),
    )


def _colour(row: Row) -> Colour | None:
    return Colour.YELLOW if row["limit"] is None else None
