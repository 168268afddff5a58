"""`kquota diff`: compares two sets of quotas, by text and by effect on clients."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kquota_spark.cli.chosen.cluster_choice import add_cluster_options, named_clusters
from kquota_spark.cli.exit_codes import DONE, ERROR, FOUND
from kquota_spark.cli.options import add_output_options, limit_of, rule_text, settings_of, time_argument
from kquota_spark.cli.quotas.quota_edits import exact_text
from kquota_spark.cli.quotas.quota_sides import chosen_side, named_side
from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.cli.text.render import Report, Row, Shown, show
from kquota_spark.enforce.ports import Image
from kquota_spark.errors import UserError
from kquota_spark.findings.idle_rules import Mangled, mangled_names
from kquota_spark.formats.text.escape import entity_text, terminal_text
from kquota_spark.formats.text.person_units import (
    amount_text,
    counted,
    iso_time,
    person_name,
    rate_text,
    type_text,
)
from kquota_spark.model.compare.observed_clients import ANY_NAME
from kquota_spark.model.compare.quota_diff import (
    EffectChange,
    Governs,
    Identity,
    effect_changes,
    one_spelling,
    text_edits,
)
from kquota_spark.model.quotas.entities import IpEntity
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.quotas.any_file import STDIN
from kquota_spark.reports.clients.seen_clients import RecentUse, recent_use

COMMANDS = {
    "diff": (
        "quotas",
        "what differs between two sets of quotas, by text and by effect",
        "kquota diff quotas.yaml --context prod",
        "kquota diff old.yaml new.yaml --by effect",
    ),
}
CODES = {
    "diff": {DONE: "no difference", ERROR: "an error, or a usage error", FOUND: "a difference"},
}

_COLUMNS = (
    "by", "entity", "key", "quota_type", "user", "client_id", "ip", "before", "after", "rule_before", "rule_after",
    "level_before", "level_after", "bucket_before", "bucket_after", "is_other_bucket", "is_seen", "amount",
    "delay_ms",
)  # fmt: skip
_ABOUT = (
    "two sets of quotas: which values differ, and who gets another limit or bucket by them. With one FILE the cluster "
    "is before and the file after"
)
_LEGEND = (
    "(any): one that no rule names; rule: u/ user, c/ client id, * the default; limits hold per broker; "
    "bucket: where it changes, whether a user, a client id or a pair shares the limit"
)


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `diff`."""
    parser = subparsers.add_parser("diff", description=f"{_ABOUT}.")
    parser.add_argument(
        "sides", nargs="+", metavar="FILE", help="a file of quotas in any format, - for standard input, or a saved "
        "context; two of them: before and after",
    )  # fmt: skip
    parser.add_argument("--by", choices=("text", "effect", "both"), default="both", help="default both")
    add_cluster_options(parser)
    add_tables_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run_diff)


def add_tables_options(parser: argparse.ArgumentParser) -> None:
    """Add --tables and --at: read the quotas from the tables instead of a cluster, and the use by clients."""
    group = parser.add_argument_group("tables")
    group.add_argument(
        "--tables",
        metavar="PATH",
        help="root of the tables: use by clients, and without a cluster the quotas too",
    )
    group.add_argument(
        "--at", type=time_argument, metavar="T", help="the quotas of the tables as of then (default now)"
    )


class _Found(NamedTuple):
    """The differences between two sides; with --by text or --by effect, the other kind is empty."""

    before: Image
    after: Image
    edits: Sequence[QuotaEdit]
    changes: Sequence[EffectChange]
    mangled: Sequence[Mangled]
    use: RecentUse


def run_diff(options: argparse.Namespace) -> int:
    """Show the differences; returns `FOUND` if there are any.

    Raises:
        UserError: a side cannot be read.
    """
    found = _found(options)
    if options.output == "table":
        _print(found, limit_of(options), by=options.by)
    else:
        rows = [*map(_edit_row, found.edits), *map(_change_row, found.changes)][: limit_of(options)]
        show(Report("kquota diff", _COLUMNS, rows, (), envelope=_envelope(found)), options.output)
    return FOUND if found.edits or found.changes else DONE


def _found(options: argparse.Namespace) -> _Found:
    if len(options.sides) > 2:
        raise UserError("more than two sides: expected before and after")
    if len(options.sides) == 2:
        if options.at is not None or options.command_config is not None or named_clusters(options):
            raise UserError("two sides are named already: leave --at and the cluster out")
        if options.sides == [STDIN, STDIN]:
            raise UserError("-: standard input is one side only; a file of this name is ./-")
        before, after = map(named_side, options.sides)
    else:
        after = named_side(options.sides[0])
        before = chosen_side(options)
    old, new = before.quotas, after.quotas
    by_effect = options.by != "text"
    use = recent_use(settings_of(options, "tables")) if by_effect else RecentUse()
    edits = text_edits(old, new) if options.by != "effect" else ()
    changes = effect_changes(old, new, use.seen) if by_effect else ()
    mangled = list(mangled_names(one_spelling(old), one_spelling(new)))
    return _Found(before, after, edits, changes, mangled, use)


def _envelope(found: _Found) -> dict[str, Any]:
    return {
        "before": found.before.origin,
        "after": found.after.origin,
        "used_through": None if found.use.to_ms is None else iso_time(found.use.to_ms),
        "mangled": [
            {"meant": str(one.meant), "stands": str(one.stands), "why": one.why} for one in found.mangled
        ],
    }


def _edit_row(edit: QuotaEdit) -> Row:
    return dict.fromkeys(_COLUMNS) | {
        "by": "text",
        "entity": str(edit.entity),
        "key": edit.key.value,
        "before": edit.before,
        "after": edit.after,
    }


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
        "delay_ms": change.throttled_ms,
    }


def _side(which: str, governs: Governs) -> Iterator[tuple[str, Any]]:
    yield f"rule_{which}", None if governs.rule is None else str(governs.rule)
    yield f"level_{which}", None if governs.rule is None else governs.rule.level
    bucket = governs.bucket
    if bucket is not None:
        # A name without a rule means any name; each such name has its own bucket.
        names = {"user": bucket.user, "client_id": bucket.client_id}
        yield f"bucket_{which}", {k: None if name == ANY_NAME else name for k, name in names.items()}


def _print(found: _Found, limit: int | None, *, by: str) -> None:
    """Print the edits, then clients with another limit or bucket, then names that a migration has mangled."""
    page = Page()
    page.paragraph("before: ", terminal_text(found.before.origin), indent=8)
    page.paragraph("after:", terminal_text(found.after.origin), indent=8)
    for side in (found.before, found.after):
        if side.known_through_ms is not None:
            missing = f"edits after {iso_time(side.known_through_ms)} are not in {terminal_text(side.origin)}"
            page.paragraph("note:", missing, indent=8)
    if by != "effect":
        page.line()
        count = len(found.edits)
        differing = (
            f"{counted(count, 'value')} {'differs' if count == 1 else 'differ'}"
            if count
            else "no value differs"
        )
        page.line(differing, Tone.TITLE)
        _show([_edit_row(edit) for edit in found.edits], _EDIT_SHOWN, limit)
    if by != "text":
        page.line()
        _print_effect(page, found, limit)
    for one in found.mangled:
        text = f"mangled: {one.meant} became {one.stands}: {one.why}"
        page.paragraph("", terminal_text(text), Tone.BAD, indent=0)


def _print_effect(page: Page, found: _Found, limit: int | None) -> None:
    if found.use.to_ms is None:
        of_whom = "no use by clients is known: only what the names of rules make possible"
    else:
        clients = len({(one.user, one.client_id) for one in found.use.seen})
        of_whom = f"of {counted(clients, 'client')} seen in the day to {iso_time(found.use.to_ms)}"
    if not found.changes:
        page.paragraph("", f"nobody gets another limit or bucket ({of_whom})", Tone.TITLE, indent=0)
        return
    page.line("who gets another limit or bucket", Tone.TITLE)
    _show([{"change": change} for change in found.changes], _CHANGE_SHOWN, limit)
    seen = sum(change.is_seen for change in found.changes)
    possible = len(found.changes) - seen
    counts = f"{seen:,} seen and {possible:,} possible, {of_whom}"
    page.paragraph("", terminal_text(counts), indent=0)
    page.paragraph("", _LEGEND, indent=0)


def _show(rows: Sequence[Row], shown: tuple[Shown, ...], limit: int | None) -> None:
    more = f"... and {len(rows) - limit:,} more: --limit 0 shows all" if limit and len(rows) > limit else ""
    show(Report("kquota diff", (), rows[:limit], shown, footer=more), "table")


_EDIT_SHOWN = (
    Shown("entity", lambda row: entity_text(row["entity"]), is_text=True, keep=24),
    Shown("key", lambda row: row["key"], is_text=True, keep=20),
    Shown("before", lambda row: exact_text(row["before"])),
    Shown("after", lambda row: exact_text(row["after"])),
)


_CHANGE_SHOWN = (
    Shown("who", lambda row: _who(row["change"].identity), is_text=True, keep=16),
    Shown("type", lambda row: type_text(row["change"].quota_type), is_text=True, keep=8),
    Shown("before", lambda row: _limit(row["change"], row["change"].before)),
    Shown("after", lambda row: _limit(row["change"], row["change"].after)),
    Shown("rule", lambda row: _rules(row["change"]), is_text=True, keep=16, rank=6),
    Shown("bucket", lambda row: _buckets(row["change"]), is_text=True, keep=17, rank=4),
    Shown("used", lambda row: _used(row["change"]), rank=5),
)


def _who(identity: Identity) -> str:
    if identity.user is None and identity.client_id is None:
        return f"ip {identity.ip}" if identity.ip is not None else "(any)"
    user, client_id = ("(any)" if name is None else person_name(name) for name in identity[:2])
    return f"{user} / {client_id}"


def _limit(change: EffectChange, governs: Governs) -> str:
    return rate_text(change.quota_type, governs.limit) if governs.limit is not None else "unlimited"


def _rule(governs: Governs) -> str:
    if isinstance(governs.rule, IpEntity):
        return str(governs.rule)
    return rule_text({"rule": None if governs.rule is None else str(governs.rule)})


def _rules(change: EffectChange) -> str:
    before, after = _rule(change.before), _rule(change.after)
    return before if before == after else f"{before} -> {after}"


def _buckets(change: EffectChange) -> str:
    if not change.is_other_bucket or change.before.bucket is None or change.after.bucket is None:
        return ""
    return f"{_bucket(change.before)} -> {_bucket(change.after)}"


def _bucket(governs: Governs) -> str:
    """The names that share the limit: a pair, a user or a client id; `none` without a bucket."""
    if governs.bucket is None:
        return "none"
    if governs.bucket.user and governs.bucket.client_id:
        return "pair"
    return "user" if governs.bucket.user else "client id"


def _used(change: EffectChange) -> str:
    return amount_text(change.quota_type, change.amount) if change.is_seen else "-"
