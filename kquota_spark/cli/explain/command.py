"""`kquota explain` and `kquota resolve`: the quotas in force for a user and client id.

`explain` has one quota type with its details, `resolve` a row per type. KIP-546 planned a `resolve` for Kafka.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from kquota_spark.cli.explain.bucket_use import BucketUse, bucket_use
from kquota_spark.cli.explain.explanation import (
    NO_CLIENT_ID,
    Answer,
    ClientQuotas,
    add_question_options,
    as_of_text,
    asked,
    bucket_words,
    example_lines,
    hole_note,
    hole_notes,
    identity_notes,
    limit_text,
    limit_words,
    measure_words,
    notes,
    validity_words,
    who_text,
)
from kquota_spark.cli.options import RULE_LEGEND, SettingsPlace, add_form_option, rule_text
from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.cli.text.render import Colour, Report, Row, Shown, finite, print_answer, show
from kquota_spark.config.governor import rate_config
from kquota_spark.formats.text.escape import distinct_cuts, terminal_text, width
from kquota_spark.formats.text.person_units import iso_time, person_name, type_text
from kquota_spark.model.govern.govern import STATIC_DEFAULT_RULES
from kquota_spark.model.measure.worked_example import Example, worked_example
from kquota_spark.model.quotas.quota_types import COUNTED, Counted, QuotaType
from kquota_spark.model.quotas.resolve import Bucket, Standing, Step
from kquota_spark.store.reading import utc_text

COMMANDS = {
    "resolve": (
        "answers",
        "which quotas govern a user and client id, from which rule, in which bucket",
        "kquota resolve --user alice --client-id etl --walk",
    ),
    "explain": (
        "answers",
        "why a client has its limit: the walk over all levels, who shares the bucket, what the limit means",
        "kquota explain --user alice --client-id etl",
        "kquota explain --user alice --client-id etl --type fetch --at 2h",
    ),
}

_UNITS = {
    Counted.BYTES: "bytes/s",
    Counted.THREAD_TIME: "percent of a thread",
    Counted.PARTITIONS: "mutations/s",
}
_TYPES = [quota_type.value for quota_type in QuotaType]
_MOST_OVERRIDES = 2
_LEAST_RULE_COLUMNS = 12
_STROKE_COLUMNS = len("├─ 1  ") + 2 * len("  ")
"""Columns of a line of the walk besides rule, limit and standing."""
_TONES = {Standing.GOVERNS: Tone.GOOD, Standing.NOT_REACHED: Tone.BAD}


def add_commands(commands: Any) -> None:
    """Add `resolve` and `explain`."""
    resolve = commands.add_parser("resolve")
    resolve.add_argument("--type", choices=_TYPES, help="only this quota type (all four)")
    values = resolve.add_mutually_exclusive_group()
    values.add_argument(
        "--walk", "--all", action="store_true", help="every value that was found, and what became of it"
    )
    values.add_argument(
        "--omit-overridden", action="store_true", help="leave out the values that a governing rule overrides"
    )
    explain = commands.add_parser("explain")
    explain.add_argument(
        "--type", choices=_TYPES, default=QuotaType.PRODUCE.value, help="quota type (default produce)"
    )
    for parser, run in ((resolve, run_resolve), (explain, run_explain)):
        add_form_option(parser, ("table", "json", "yaml"))
        add_question_options(parser)
        parser.set_defaults(run=run)


def run_explain(options: argparse.Namespace) -> int:
    """Explain the limit of one client."""
    found = _found(options)
    if options.output == "table":
        _print(found, Page())
    else:
        print_answer("kquota explain", _as_json(found), options.output)
    return 0


def print_explanation(given: Sequence[str], place: SettingsPlace, page: Page) -> None:
    """Explain the limit of one client on a page, for another command.

    Args:
        given: options of `explain`.
        place: the settings of the other command.
        page: the page to write on.

    Raises:
        UserError: the quotas cannot be read.
    """
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    parsed = parser.parse_args(["explain", *given])
    parsed.config, parsed.tables = place
    _print(_found(parsed), page)


class _Found(NamedTuple):
    """The answer with all details that are printed."""

    question: ClientQuotas
    answer: Answer
    use: BucketUse
    example: Example | None


def _found(options: argparse.Namespace) -> _Found:
    with asked(options) as question:
        answer = question.answer(QuotaType(options.type))
        use = bucket_use(question, answer)
    config = rate_config(question.settings)
    example = None if answer.limit is None else worked_example(answer.quota_type, answer.limit, config)
    return _Found(question, answer, use, example)


def _print(found: _Found, page: Page) -> None:
    question, answer, use, example = found
    config = rate_config(question.settings)
    page.paragraph("", f"{answer.quota_type.value} quota of {who_text(question)}", Tone.TITLE, indent=0)
    if question.has_no_client_id:
        page.paragraph("", NO_CLIENT_ID, Tone.BAD, indent=0)
    page.paragraph("", as_of_text(question, utc_text), Tone.FAINT, indent=0)
    page.line()
    _print_walk(page, answer)
    page.paragraph("limit", limit_words(answer), Tone.GOOD if answer.limit is not None else Tone.BAD)
    if validity := validity_words(question, answer):
        page.paragraph("holds", validity)
    page.paragraph("bucket", bucket_words(question, answer))
    for label, line in use.lines():
        page.paragraph(label, line)
    if answer.limit is not None:
        page.paragraph("measure", measure_words(answer.quota_type, answer.limit, config))
    if example is not None:
        label = "example"
        for line in example_lines(answer.quota_type, example, config):
            page.paragraph(label, line)
            label = ""
    of_question = [note for note in identity_notes(question) if note != NO_CLIENT_ID]
    of_answer = [*hole_note(answer), *notes(answer, example), *use.notes()]
    for note in [*of_question, *of_answer]:
        page.paragraph("note", note, Tone.BAD)


def _print_walk(page: Page, answer: Answer) -> None:
    """Print the candidates as a tree; nothing if a callback decides."""
    names = [terminal_text(step_rule(answer.quota_type, step)) for step in answer.walk]
    limits = ["" if step.limit is None else limit_text(answer.quota_type, step.limit) for step in answer.walk]
    limit_columns = max(map(len, limits), default=0)
    standing_columns = max((len(step.standing.value) for step in answer.walk), default=0)
    room = page.columns - _STROKE_COLUMNS - limit_columns - standing_columns
    cuts = distinct_cuts(names, max(room, _LEAST_RULE_COLUMNS))
    rules = [cuts[name] for name in names]
    columns = max(map(width, rules), default=0)
    for index, (step, rule, limit) in enumerate(zip(answer.walk, rules, limits, strict=True)):
        stroke = "└─" if index == len(rules) - 1 else "├─"
        padded = rule + " " * (columns - width(rule))
        tone = _TONES.get(step.standing, Tone.FAINT)
        page.line(f"{stroke} {step.level}  {padded}  {limit:>{limit_columns}}  {step.standing.value}", tone)
    if answer.walk:
        page.line()


def _as_json(found: _Found) -> dict[str, Any]:
    question, answer, use, example = found
    head, row = question.as_dict(), _row(answer)
    head["notes"] = [
        *head["notes"], *hole_notes(answer), *notes(answer, example), *use.notes()
    ]  # fmt: skip
    return {
        **head,
        **row,
        "walk": [step_row(answer, step) for step in answer.walk],
        "window": rate_config(question.settings).name,
        "example": None if example is None else _example_row(example),
        **use.as_dict(),
    }


def _example_row(example: Example) -> dict[str, Any]:
    """The example for JSON: amounts in bytes, or in ms of handler time."""
    return {
        "limit_per_s": example.limit_per_s,
        "free_amount": example.free,
        "burst_amount": example.burst.total,
        "window_ms": example.burst.window_ms,
        "rate_per_s": example.burst.rate_per_s,
        "throttle_ms": example.burst.throttle_ms,
    }


def _row(answer: Answer) -> dict[str, Any]:
    """What governs a type, for JSON."""
    governed, governing = answer.governed, answer.governed.governing
    return {
        "quota_type": answer.quota_type.value,
        "key": answer.quota_type.key.value,
        "limit": finite(answer.limit),
        "unit": _UNITS[COUNTED[answer.quota_type]],
        "rule": governed.rule,
        "level": governed.level,
        "rule_version": governed.rule_version,
        "valid_from": iso_time(governing.valid_from_ms) if governing.valid_from_ms else None,
        "valid_to": None if governing.valid_to_ms is None else iso_time(governing.valid_to_ms),
        "bucket_user": governed.bucket.user,
        "bucket_client_id": governed.bucket.client_id,
        "bucket_tags": dict(governed.bucket.custom_tags),
    }


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


def run_resolve(options: argparse.Namespace) -> int:
    """Show the governing quotas."""
    types = [QuotaType(options.type)] if options.type else list(QuotaType)
    with asked(options) as question:
        answers = [question.answer(quota_type) for quota_type in types]
    if options.output != "table":
        head = question.as_dict()
        head["notes"] += chain.from_iterable(map(hole_notes, answers))
        rows = [
            _row_of_resolve(answer, with_overridden=not options.omit_overridden, with_walk=options.walk)
            for answer in answers
        ]
        print_answer("kquota resolve", {**head, "rows": rows}, options.output)
        return 0
    page = Page()
    page.paragraph("", f"{who_text(question)}, {as_of_text(question, utc_text)}", indent=0)
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


def _row_of_resolve(answer: Answer, *, with_overridden: bool, with_walk: bool) -> dict[str, Any]:
    row, walk = _row(answer), [step_row(answer, step) for step in answer.walk]
    if with_overridden:
        row["overridden"] = [
            {name: step[name] for name in ("level", "rule", "limit")}
            for step in walk
            if step["standing"] == "overridden"
        ]
    return row | ({"walk": walk} if with_walk else {})


def _rows(answers: Iterable[Answer]) -> Iterable[Row]:
    for answer in answers:
        yield {
            "answer": answer,
            "rule": answer.governed.rule,
            "limit": answer.limit,
            "overrides": [step for step in answer.walk if step.standing is Standing.OVERRIDDEN],
        }


def _columns(question: ClientQuotas, *, with_overrides: bool) -> tuple[Shown, ...]:
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


def bucket_text(question: ClientQuotas, bucket: Bucket) -> str:
    """The names of a bucket for a table: `alice / etl`, `user alice`, `client etl`, `group=pay`."""
    if question.has_callback:
        return ", ".join(f"{name}={value}" for name, value in bucket.custom_tags) or "no tags"
    if bucket.user and bucket.client_id:
        return f"{bucket.user} / {bucket.client_id}"
    return f"user {bucket.user}" if bucket.user else f"client {person_name(bucket.client_id)}"
