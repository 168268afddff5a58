"""`kquota review`: a change of quotas as a comment for its pull request, and as an exit code for its check."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

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
from kquota_spark.cli.text.render import Row, print_answer
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.model.compare.quota_diff import EffectChange
from kquota_spark.quotas.any_file import STDIN

if TYPE_CHECKING:
    from kquota_spark.reports.review.review import Review

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
_CLOSED = {
    "throttled_requests_after_closed": "throttled_requests",
    "delay_ms_after_closed": "delay_ms",
    "delay_ms_after_closed_low": "low_ms",
    "delay_ms_after_closed_high": "high_ms",
    "deferred_bytes": "deferred",
    "is_censored": "is_censored",
}
"""Columns of a group in the closed loop, which decides; those without the ending are of the open loop."""
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
    parser.add_argument(
        "--since", type=_since, default=_WEEK_MS, metavar="T",
        help="traffic from then on (default 7d). A length counts back from the newest second of the tables; a time is "
        f"one of {TIME_FORMS}",
    )  # fmt: skip
    parser.add_argument(
        "--budget-delay", type=_budget, default=_BUDGET_MS, metavar="LENGTH",
        help="more total delay than this is harm: 0, 30s, 10min, 1h (default 10min)",
    )  # fmt: skip
    add_settings_options(parser)
    parser.add_argument(
        "--output", choices=("markdown", "json", "yaml"), default="markdown",
        help="form of the output (default markdown)",
    )  # fmt: skip
    parser.set_defaults(run=run_review)


def _since(text: str) -> int | Since:
    try:
        return length_argument(text)
    except argparse.ArgumentTypeError:
        return time_argument(text)


def _budget(text: str) -> int:
    return 0 if text.strip() == "0" else length_argument(text)


def run_review(options: argparse.Namespace) -> int:
    """Print the review; returns the verdict.

    Raises:
        UserError: a file or a table cannot be read.
    """
    from kquota_spark.reports.review.comment import comment_of
    from kquota_spark.reports.review.gathering import Asked, review
    from kquota_spark.store.reading import Tables

    if options.base == options.head == STDIN:
        raise UserError("-: standard input is one side only; a file of this name is ./-")
    before, after = named_side(options.base), named_side(options.head)
    since: int | Since = options.since
    asked = (
        Asked(since.time_ms, 0, options.budget_delay)
        if isinstance(since, Since)
        else Asked(None, since, options.budget_delay)
    )
    settings = settings_of(options, "tables")
    if options.tables is not None:
        with Tables(settings) as tables:
            tables.require_root()
    found = review(settings, before.quotas, after.quotas, asked)
    code = _code(found)
    if options.output == "markdown":
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # that of a comment, whatever the terminal has
        sys.stdout.write(comment_of(found, code))
    else:
        print_answer("kquota review", _answer(found, code), options.output)
    return code


def _code(found: Review | None) -> int:
    if found is None or not found.reasons:
        return DONE
    return HARM if any(reason.is_harm for reason in found.reasons) else PERSON


def _answer(found: Review | None, code: int) -> dict[str, Any]:
    """Everything, for programs: times in ISO 8601, delays in ms, limits per second and broker."""
    verdicts = {DONE: "harmless", PERSON: "person", HARM: "harm"}
    if found is None:
        return {"verdict": verdicts[code], "is_changed": False}
    period = found.period
    return {
        "verdict": verdicts[code],
        "is_changed": True,
        "from": None if period is None else iso_time(period.from_ms),
        "to": None if period is None else iso_time(period.to_ms),
        "clients": None if period is None else period.clients,
        "budget_delay_ms": found.budget_ms,
        "reasons": [{"text": one.text, "is_harm": one.is_harm} for one in found.reasons],
        "edits": [
            {"entity": str(one.entity), "key": one.key.value, "before": one.before, "after": one.after}
            for one in found.edits
        ],
        "affected": [dict(_group(one)) for one in found.affected],
        "possible": [_possible(one) for one in found.possible],
        "oversubscription": [
            {"key": one.key.value, "sum_before_per_s": one.before, "sum_after_per_s": one.after,
             "capacity_per_s": one.capacity, "unlimited_before": one.unlimited_before,
             "unlimited_after": one.unlimited_after}
            for one in found.capacity
        ],
        "mangled": [
            {"meant": str(one.meant), "stands": str(one.stands), "why": one.why} for one in found.mangled
        ],
        "names": [{"entity": str(one.entity), "why": one.why} for one in found.names],
        "not_judged": [*found.not_judged],
    }  # fmt: skip


def _group(one: Any) -> Iterator[tuple[str, Any]]:
    yield "quota_type", one.quota_type
    yield "buckets", [{"user": each.user, "client_id": each.client_id} for each in one.buckets]
    yield "clients", [{"user": user, "client_id": client_id} for user, client_id in one.clients]
    yield "limits", [{"before_per_s": before, "after_per_s": after} for before, after in one.limits]
    yield "rules_after", [*one.rules_after]
    yield "is_shared_anew", one.is_shared_anew
    yield "amount", one.amount
    replay = one.replay
    for name, side in (("throttled_requests", "throttled"), ("delay_ms", "delay")):
        for when in ("before", "after"):
            key = f"{side}_{when}" if side == "throttled" else f"{side}_{when}_ms"
            yield f"{name}_{when}", None if replay is None else getattr(replay, key)
    yield "unknown_requests", None if replay is None else replay.unknown
    for name, key in _CLOSED.items():
        yield name, None if replay is None else getattr(replay.closed, key)
    yield "is_delay_after_at_most", None if replay is None else replay.is_at_most
    yield "why_not_replayed", one.why or None


def _possible(one: EffectChange) -> Row:
    return {
        "quota_type": one.quota_type,
        **one.identity._asdict(),
        "before_per_s": one.before.limit,
        "after_per_s": one.after.limit,
        "rule_after": None if one.after.rule is None else str(one.after.rule),
    }
