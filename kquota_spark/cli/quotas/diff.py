"""`kquota diff`: two sets of quotas held against each other, by text and by effect on whom they govern."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from kquota_spark.cli.chosen.cluster_choice import add_cluster_options
from kquota_spark.cli.options.options import add_output_options, limit_of, settings_of, time_argument
from kquota_spark.cli.quotas.diff_page import Found, print_diff
from kquota_spark.cli.quotas.quota_sides import chosen_side, has_cluster_option, named_side
from kquota_spark.cli.text.render import Report, Row, show
from kquota_spark.errors import UserError
from kquota_spark.findings.mangled_names import mangled_names
from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.model.compare.observed_clients import ANY_NAME
from kquota_spark.model.compare.quota_diff import (
    EffectChange,
    Governs,
    effect_changes,
    one_spelling,
    text_edits,
)
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.reports.clients.seen_clients import RecentUse, recent_use

_COLUMNS = (
    "by", "entity", "key", "quota_type", "user", "client_id", "ip", "before", "after", "rule_before", "rule_after",
    "level_before", "level_after", "bucket_before", "bucket_after", "is_other_bucket", "is_seen", "amount",
    "throttled_ms",
)  # fmt: skip
_ABOUT = (
    "two sets of quotas: which values differ, and who gets another limit or bucket by them. With one FILE the cluster "
    "is before and the file after"
)


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `diff`."""
    parser = subparsers.add_parser(
        "diff", description=f"{_ABOUT}. Exit codes: 0 no difference, 1 an error, 2 a difference."
    )
    parser.add_argument(
        "sides", nargs="+", metavar="FILE", help="a file of quotas in any format, or a saved context; two of them: "
        "before and after",
    )  # fmt: skip
    parser.add_argument("--by", choices=("text", "effect", "both"), default="both", help="default both")
    add_cluster_options(parser)
    add_tables_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run_diff)


def add_tables_options(parser: argparse.ArgumentParser) -> None:
    """Add --tables and --at: the quotas of the tables instead of a cluster, and the use by clients."""
    group = parser.add_argument_group("tables")
    group.add_argument(
        "--tables",
        metavar="PATH",
        help="root of the tables: use by clients, and without a cluster the quotas too",
    )
    group.add_argument(
        "--at", type=time_argument, metavar="T", help="the quotas of the tables as of then (default now)"
    )


def run_diff(options: argparse.Namespace) -> int:
    """Show what differs; 2 if anything does.

    Raises:
        UserError: a side cannot be read.
    """
    found = _found(options)
    if options.output == "table":
        print_diff(found, limit_of(options), by=options.by)
    else:
        rows = [*map(_edit_row, found.edits), *map(_change_row, found.changes)]
        show(
            Report("kquota diff", _COLUMNS, rows[: limit_of(options)], (), envelope=_envelope(found)),
            options.output,
        )
    return 2 if found.edits or found.changes else 0


def _found(options: argparse.Namespace) -> Found:
    if len(options.sides) > 2:
        raise UserError("more than two sides: expected before and after")
    if len(options.sides) == 2:
        if options.at is not None or options.command_config is not None or has_cluster_option(options):
            raise UserError("two sides are named already: leave --at and the cluster out")
        before, after = map(named_side, options.sides)
    else:
        after = named_side(options.sides[0])
        before = chosen_side(options)
    by_effect = options.by != "text"
    use = recent_use(settings_of(options)) if by_effect else RecentUse()
    return Found(
        before,
        after,
        text_edits(before.quotas, after.quotas) if options.by != "effect" else (),
        effect_changes(before.quotas, after.quotas, use.seen) if by_effect else (),
        list(mangled_names(one_spelling(before.quotas), one_spelling(after.quotas))),
        use,
    )


def _envelope(found: Found) -> dict[str, Any]:
    return {
        "before": found.before.origin,
        "after": found.after.origin,
        "used_through": None if found.use.to_ms is None else iso_time(found.use.to_ms),
        "mangled": [
            {"meant": str(one.meant), "stands": str(one.stands), "why": one.why} for one in found.mangled
        ],
    }


def _edit_row(edit: QuotaEdit) -> Row:
    own = {
        "by": "text",
        "entity": str(edit.entity),
        "key": edit.key.value,
        "before": edit.before,
        "after": edit.after,
    }
    return dict.fromkeys(_COLUMNS) | own


def _change_row(change: EffectChange) -> Row:
    return dict.fromkeys(_COLUMNS) | {
        "by": "effect",
        "quota_type": change.quota_type,
        **change.identity._asdict(),
        "before": change.before.limit,
        "after": change.after.limit,
        **dict(_side("before", change.before)),
        **dict(_side("after", change.after)),
        "is_other_bucket": change.is_other_bucket,
        "is_seen": change.is_seen,
        "amount": change.amount,
        "throttled_ms": change.throttled_ms,
    }


def _side(which: str, governs: Governs) -> Iterator[tuple[str, Any]]:
    yield f"rule_{which}", None if governs.rule is None else str(governs.rule)
    yield f"level_{which}", None if governs.rule is None else governs.rule.level
    bucket = governs.bucket
    if bucket is not None:
        # A name that no rule has stands for any: each of them has a bucket of its own.
        names = {"user": bucket.user, "client_id": bucket.client_id}
        yield f"bucket_{which}", {k: None if name == ANY_NAME else name for k, name in names.items()}
