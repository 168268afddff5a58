"""`kquota review`: a change of quotas as a comment for its pull request, and as an exit code for its check."""

from __future__ import annotations

import argparse
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Literal

from kquota_spark.cli.exit_codes import DONE, ERROR
from kquota_spark.cli.options import (
    TIME_FORMS,
    Since,
    add_settings_options,
    length_argument,
    settings_of,
    time_argument,
)
from kquota_spark.cli.quotas.quota_sides import named_side
from kquota_spark.cli.text.render import print_answer
from kquota_spark.errors import UserError
from kquota_spark.quotas.any_file import STDIN

if TYPE_CHECKING:
    from kquota_spark.reports.review.gathering import Asked
    from kquota_spark.reports.review.review import Review
    from kquota_spark.reports.review.wording import Wording

PERSON, HARM = 2, 3
COMMANDS = {
    "review": (
        "quotas",
        "a change of quotas for its pull request: who gets another limit, with which delay",
        "kquota review --base old.yaml --head new.yaml --tables exported",
        "kquota review --base old.yaml --head new.yaml --since 7d --budget-delay 10m",
    ),
}
CODES = {
    "review": {
        DONE: "no change, or no harm",
        ERROR: "an error, or a usage error",
        PERSON: "a person must decide",
        HARM: "harm above the budget",
    },
}
_WEEK_MS, _BUDGET_MS = 7 * 86_400_000, 600_000


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `review`."""
    parser = subparsers.add_parser(
        "review",
        description="Prints a Markdown comment about a change of quotas: who gets another limit, with the delay before "
        "and after in the recorded traffic. It prints nothing if both files have the same quotas. It needs no cluster: "
        "a copy of the tables is enough.",
    )
    about = "a file of quotas in any format, - for standard input, or a saved context"
    parser.add_argument("--base", required=True, metavar="FILE", help=f"before the change: {about}")
    parser.add_argument("--head", required=True, metavar="FILE", help="after the change, likewise")
    add_traffic_options(parser)
    parser.set_defaults(run=run_review)


def add_traffic_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the period, the budget, the settings and the form of the output."""
    parser.add_argument(
        "--since", type=_since, default=_WEEK_MS, metavar="T",
        help="traffic from then on (default 7d). A length counts back from the newest second of the tables; a time is "
        f"one of {TIME_FORMS}",
    )  # fmt: skip
    parser.add_argument(
        "--budget-delay", type=budget_argument, default=_BUDGET_MS, metavar="LENGTH",
        help="more total delay than this is harm: 0, 30s, 10min, 1h (default 10min)",
    )  # fmt: skip
    add_settings_options(parser)
    parser.add_argument(
        "--output", choices=("markdown", "json", "yaml"), default="markdown",
        help="form of the output (default markdown)",
    )  # fmt: skip


def _since(text: str) -> int | Since:
    try:
        return length_argument(text)
    except argparse.ArgumentTypeError:
        return time_argument(text)


def budget_argument(text: str) -> int:
    """Milliseconds of a length of time, or 0, as a type of argparse."""
    return 0 if text.strip() == "0" else length_argument(text)


def run_review(options: argparse.Namespace) -> int:
    """Print the review; returns the verdict.

    Raises:
        UserError: a file or a table cannot be read.
    """
    from kquota_spark.reports.review.gathering import review
    from kquota_spark.reports.review.wording import REVIEW
    from kquota_spark.store.reading import Tables

    if options.base == options.head == STDIN:
        raise UserError("-: standard input is one side only; a file of this name is ./-")
    before, after = named_side(options.base), named_side(options.head)
    settings = settings_of(options, "tables")
    if options.tables is not None:
        with Tables(settings) as tables:
            tables.require_root()
    asked = asked_of(options.since, options.budget_delay)
    found = review(settings, before.quotas, after.quotas, asked)
    code = code_of(found)
    print_review(found, code, options.output, REVIEW)
    return code


def asked_of(since: int | Since, budget_ms: int) -> Asked:
    """The period and the budget.

    Args:
        since: the first moment of the traffic, or its length (ms) back from the newest second.
        budget_ms: increase of the total delay that is no harm yet.
    """
    from kquota_spark.reports.review.gathering import Asked

    if isinstance(since, Since):
        return Asked(since.time_ms, 0, budget_ms)
    return Asked(None, since, budget_ms)


def print_review(
    found: Review | None, code: int, form: Literal["markdown", "json", "yaml"], wording: Wording
) -> None:
    """Print a review.

    Args:
        found: None prints nothing as Markdown.
        code: the verdict.
        form: markdown, json or yaml.
        wording: the texts of the command.
    """
    from kquota_spark.reports.review.answer import answer_of
    from kquota_spark.reports.review.comment import comment_of

    if form != "markdown":
        print_answer(wording.command, answer_of(found, code, wording), form)
        return
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # that of a comment, whatever the terminal has
    sys.stdout.write(comment_of(found, code, wording))


def code_of(found: Review | None) -> int:
    """The exit code of a review, which is its verdict."""
    if found is None or not found.reasons:
        return DONE
    return HARM if any(reason.is_harm for reason in found.reasons) else PERSON
