"""`kquota explain`: why a client has its limit: the walk over the levels, the bucket, and the meaning of the limit."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kquota_spark.cli.options import SettingsPlace, add_form_option
from kquota_spark.cli.resolve.explanation import (
    Example,
    bucket_words,
    example_lines,
    limit_words,
    measure_words,
    notes,
    validity_words,
    worked_example,
)
from kquota_spark.cli.resolve.question import (
    UNITS,
    Answer,
    Question,
    add_question_options,
    as_of_text,
    asked,
    identity_notes,
    limit_text,
    shown_name,
    who_text,
)
from kquota_spark.cli.resolve.resolve import finite, step_row, step_rule
from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.cli.text.render import print_answer
from kquota_spark.config.windows import rate_config
from kquota_spark.formats.text.escape import distinct_cuts, terminal_text, width
from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.model.quotas.resolve import Standing

COMMANDS = {
    "explain": (
        "quotas",
        "why a client has its limit: the walk over all levels, who shares the bucket, what the limit means",
        "kquota explain --user alice --client-id etl",
        "kquota explain --user alice --client-id etl --type fetch --at 2h",
    ),
}

_MOST_SHARERS = 10
_LEAST_RULE_COLUMNS = 12
_STROKE_COLUMNS = len("├─ 1  ") + 2 * len("  ")
"""Columns of a line of the walk besides rule, limit and standing."""
_TONES = {Standing.GOVERNS: Tone.GOOD, Standing.NOT_REACHED: Tone.BAD}


@dataclass(frozen=True, slots=True)
class Sharers:
    """Clients seen in the bucket: the first few, their count, the hour, and their number of share fetches."""

    identities: list[tuple[str, str]]
    count: int
    from_ms: int
    to_ms: int
    share_fetches: int = 0


def add_commands(commands: Any) -> None:
    """Add `explain`."""
    parser = commands.add_parser("explain")
    parser.add_argument(
        "--type",
        choices=[quota_type.value for quota_type in QuotaType],
        default=QuotaType.PRODUCE.value,
        help="quota type (default produce)",
    )
    add_form_option(parser, ("table", "json", "yaml"))
    add_question_options(parser)
    parser.set_defaults(run=run_explain)


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

    question: Question
    answer: Answer
    sharers: Sharers | None
    example: Example | None


def _found(options: argparse.Namespace) -> _Found:
    with asked(options) as question:
        answer = question.answer(QuotaType(options.type))
        sharers = _sharers(question, answer)
    config = rate_config(question.settings)
    example = None if answer.limit is None else worked_example(answer.quota_type, answer.limit, config)
    return _Found(question, answer, sharers, example)


def _print(found: _Found, page: Page) -> None:
    question, answer, sharers, example = found
    config = rate_config(question.settings)
    page.paragraph("", f"{answer.quota_type.value} quota of {who_text(question)}", Tone.TITLE, indent=0)
    page.paragraph("", as_of_text(question), Tone.FAINT, indent=0)
    page.line()
    _print_walk(page, answer)
    page.paragraph("limit", limit_words(answer), Tone.GOOD if answer.limit is not None else Tone.BAD)
    if validity := validity_words(answer):
        page.paragraph("holds", validity)
    page.paragraph("bucket", bucket_words(question, answer))
    if sharers is not None:
        page.paragraph("seen", _seen_words(sharers))
    if answer.limit is not None:
        page.paragraph("measure", measure_words(answer.quota_type, answer.limit, config))
    if example is not None:
        label = "example"
        for line in example_lines(answer.quota_type, example, config):
            page.paragraph(label, line)
            label = ""
    for note in [*identity_notes(question), *notes(answer, example), *_share_notes(sharers)]:
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


def _seen_words(sharers: Sharers) -> str:
    span = f"from {iso_time(sharers.from_ms)} to {iso_time(sharers.to_ms)}"
    if not sharers.identities:
        return f"nobody in this bucket {span}"
    names = ", ".join(f"{shown_name(user)} / {shown_name(client)}" for user, client in sharers.identities)
    more = sharers.count - len(sharers.identities)
    return f"{names}{f' and {more:,} more' if more else ''} (user / client id, most bytes first) {span}"


def _share_notes(sharers: Sharers | None) -> list[str]:
    """Notes on requests without a logged size, e.g. from share consumers, which the bytes of the bucket lack."""
    if sharers is None or not sharers.share_fetches:
        return []
    note = (
        f"the log does not have the size of {sharers.share_fetches:,} requests in that hour (share consumers, old "
        "formats, or lines that could not be read); the bytes seen are without them; the verdicts around them are "
        "uncertain; the throttles are the broker's"
    )
    return [note]


def _sharers(question: Question, answer: Answer) -> Sharers | None:
    """Clients seen in the bucket in the hour before the time of the question; None if no table contains this."""
    cluster_id = question.history.cluster_id
    if cluster_id is None or answer.quota_type is QuotaType.CONTROLLER_MUTATION:
        return None
    from kquota_spark.reports.clients.seen_clients import seen_in_hour

    bucket = answer.governed.bucket
    is_clients = not (question.has_callback or bucket.user) or bool(bucket.client_id)
    seen = seen_in_hour(
        question.settings,
        cluster_id,
        quota_type=answer.quota_type.value if answer.quota_type in BANDWIDTH else None,
        user="" if question.has_callback else bucket.user,
        client_id=bucket.client_id if is_clients else None,
        before_ms=None if question.is_of_now else question.at_ms,
    )
    if seen is None:
        return None
    inside = [
        (user, client_id, share_fetches)
        for user, client_id, share_fetches in seen.identities
        if question.governed(answer.quota_type, user, client_id).bucket == bucket
    ]
    names = [(user, client_id) for user, client_id, _ in inside[:_MOST_SHARERS]]
    share_fetches = sum(of_client for _, _, of_client in inside)
    return Sharers(names, len(inside), seen.from_ms, seen.to_ms, share_fetches)


def _as_json(found: _Found) -> dict[str, Any]:
    question, answer, sharers, example = found
    head = question.as_dict()
    head["notes"] = [*head["notes"], *notes(answer, example), *_share_notes(sharers)]
    bucket = answer.governed.bucket
    return {
        **head,
        "quota_type": answer.quota_type.value,
        "limit": finite(answer.limit),
        "unit": UNITS[answer.quota_type],
        "rule": answer.governed.rule,
        "level": answer.governed.level,
        "bucket_user": bucket.user,
        "bucket_client_id": bucket.client_id,
        "bucket_tags": dict(bucket.custom_tags),
        "walk": [step_row(answer, step) for step in answer.walk],
        "window": rate_config(question.settings).name,
        "example": None if example is None else _example_row(example),
        "seen": None if sharers is None else _sharers_row(sharers),
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


def _sharers_row(sharers: Sharers) -> dict[str, Any]:
    return {
        "from": iso_time(sharers.from_ms),
        "to": iso_time(sharers.to_ms),
        "count": sharers.count,
        "share_fetches": sharers.share_fetches,
        "identities": [{"user": user, "client_id": client_id} for user, client_id in sharers.identities],
    }
