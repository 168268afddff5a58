"""`kquota tree`: the quota tree: each rule with what it governed, and the rules that limit nobody."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from kquota_spark.cli.chosen.cluster_choice import add_cluster_options, named_clusters
from kquota_spark.cli.options import (
    add_output_options,
    add_tables_option,
    limit_of,
    settings_of,
    time_argument,
)
from kquota_spark.cli.quotas.quota_sides import Side, chosen_side, named_side
from kquota_spark.cli.text.page import Page
from kquota_spark.cli.text.render import Colour, Report, Row, Shown, show
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import entity_text, terminal_text
from kquota_spark.formats.text.person_units import (
    amount_text,
    iso_time,
    or_dash,
    person_count,
    person_name,
    rate_text,
    type_text,
)
from kquota_spark.model.compare.quota_tree import Hits, KeyUse, Line, Mark, Node, lines, quota_type_of
from kquota_spark.model.quotas.entities import Default, Entity, IpEntity
from kquota_spark.process.clock import now_ms
from kquota_spark.reports.clients.quota_tree import TreeFound, tree_of, tree_of_tables

COMMANDS = {
    "tree": (
        "quotas",
        "the quota tree: each rule with what it governed, and those that limit nobody",
        "kquota tree --since 7d",
        "kquota tree quotas.yaml",
    ),
}

_COLUMNS = (
    "entity", "level", "user", "client_id", "ip", "key", "quota_type", "limit", "requests", "amount",
    "bucket_seconds", "throttled_seconds", "throttled_ms", "marks", "shadowed_by",
)  # fmt: skip
_PAIR_LEVELS = (1, 2, 4, 5)
_LEGEND = (
    "dead: nobody that it names was seen; shadowed: others come before it (both from a day of usage on); "
    "no hit: it governed nothing"
)
_COLOURS = {
    Mark.DEAD: Colour.YELLOW,
    Mark.SHADOWED: Colour.YELLOW,
    Mark.REMOVED: Colour.YELLOW,
    Mark.NO_HIT: Colour.FAINT,
}


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tree`."""
    parser = subparsers.add_parser(
        "tree", description="{about}. A table shows the rules of the most requests, up to --limit."
    )
    parser.add_argument(
        "side", nargs="?", metavar="FILE", help="the quotas of a file in any format, or of a saved context, with what "
        "rules of these names governed by the tables (default: the quotas of the tables)",
    )  # fmt: skip
    add_cluster_options(parser)
    add_tables_option(parser)
    parser.add_argument(
        "--since",
        type=time_argument,
        metavar="T",
        help="count from then on: 10m, 2h, 1d ago, an ISO time in UTC, or epoch milliseconds "
        "(default the last two days that the tables hold)",
    )
    add_output_options(parser)
    parser.set_defaults(run=run_tree, at=None)


def run_tree(options: argparse.Namespace) -> int:
    """Show the tree."""
    since_ms = None if options.since is None else options.since.time_ms
    settings, side = settings_of(options, "tables"), _side(options)
    if side is None:
        found = tree_of_tables(settings, since_ms, now_ms())
    else:
        found = tree_of(settings, side.origin, side.quotas, since_ms)
    if options.output == "table":
        _print(found, limit_of(options))
        return 0
    stretch = {"from": found.from_ms, "to": found.to_ms}
    envelope: dict[str, Any] = {
        "source": found.origin,
        **{name: None if time_ms is None else iso_time(time_ms) for name, time_ms in stretch.items()},
        "without_rule": [
            {"rule": rule, "quota_type": kind, **asdict(hits)} for (rule, kind), hits in found.others.items()
        ],
    }
    nodes = [line.node for line in lines(found.tree, limit_of(options)) if line.node is not None]
    rows = [row for node in nodes for row in _rows(node, found)]
    show(Report("kquota tree", _COLUMNS, rows, (), envelope=envelope), options.output)
    return 0


def _side(options: argparse.Namespace) -> Side | None:
    """The quotas that the options name; None for the quotas of the tables."""
    clusters = named_clusters(options)
    if options.side is None:
        return chosen_side(options) if clusters else None
    if clusters:
        raise UserError(f"{options.side}: the quotas are named already: leave the cluster out")
    return named_side(options.side)


def _rows(node: Node, found: TreeFound) -> Iterator[Row]:
    """One row per key; hits are null if the tables contain none."""
    entity = node.entity
    if entity is None:
        return
    is_ip = isinstance(entity, IpEntity)
    parts = {"ip": entity.ip} if is_ip else {"user": entity.user, "client_id": entity.client_id}  # type: ignore[union-attr]
    names = {name: None if isinstance(part, Default) else part for name, part in parts.items()}
    for use in node.keys:
        hits = asdict(use.hits)
        yield {
            "user": None,
            "client_id": None,
            "ip": None,
            **names,
            "entity": str(entity),
            "level": entity.level,
            "key": use.key.value,
            "quota_type": quota_type_of(use.key),
            "limit": use.value,
            **(hits if found.from_ms is not None else dict.fromkeys(hits)),
            "marks": [mark.value for mark in use.marks],
            "shadowed_by": list(use.shadowed_by),
        }


def _print(found: TreeFound, limit: int | None) -> None:
    page = Page()
    if not found.tree:
        page.paragraph("", f"no quotas are set, by {terminal_text(found.origin)}", indent=0)
        return
    shown = list(lines(found.tree, limit))
    rows = [row for line in shown for row in _table_rows(line)]
    rows += [_other_row(rule, kind, hits) for (rule, kind), hits in found.others.items()]
    shown_columns = _shown(page, has_hits=found.from_ms is not None)
    show(Report("kquota tree", (), rows, shown_columns, colour=lambda row: row.get("colour")), "table")
    for note in _notes(found):
        page.paragraph("", note, indent=0)


def _table_rows(line: Line) -> Iterator[Row]:
    """One row per key; only the first has the name."""
    stem, below = _stems(line)
    if line.node is None:
        yield _row(f"{stem}... and {line.more:,} more: --limit 0", None)
        return
    name = line.node.name
    text = terminal_text(name.value if isinstance(name, Default) else person_name(name))
    if isinstance(line.node.entity, Entity) and line.node.entity.level in _PAIR_LEVELS:
        text = f"client {text}"
    first, *others = line.node.keys or (None,)
    yield _row(f"{stem}{text}", first)
    for use in others:
        yield _row(below + ("│" if line.node.children else ""), use)


def _row(name: str, use: KeyUse | None) -> Row:
    """One text per column, by title; a heading has only a name."""
    if use is None:
        return {"rule": name}
    quota_type = quota_type_of(use.key)
    return {
        "rule": name,
        "limit": or_dash(use.value, partial(rate_text, quota_type)),
        "marks": _marks_text(use),
        "colour": next((colour for mark, colour in _COLOURS.items() if mark in use.marks), None),
        **_hits_texts(quota_type, use.hits),
    }


def _other_row(rule: str | None, quota_type: str, hits: Hits) -> Row:
    name, marks = ("(no rule)", "no limit") if rule is None else (entity_text(rule), "")
    return {"rule": name, "marks": marks, **_hits_texts(quota_type, hits)}


def _hits_texts(quota_type: str, hits: Hits) -> Row:
    return {
        "type": type_text(quota_type),
        "requests": or_dash(hits.requests, person_count),
        "used": or_dash(hits.amount, partial(amount_text, quota_type)),
        "throttled seconds": person_count(hits.throttled_seconds),
    }


def _marks_text(use: KeyUse) -> str:
    return ", ".join(
        f"shadowed by {use.shadowed_by[0]}" if mark is Mark.SHADOWED else mark.value for mark in use.marks
    )


def _stems(line: Line) -> tuple[str, str]:
    """The strokes before a name, and those before the lines below it."""
    if not line.is_last:
        return "", ""
    before = "".join("   " if is_last else "│  " for is_last in line.is_last[:-1])
    return before + ("└─ " if line.is_last[-1] else "├─ "), before + ("   " if line.is_last[-1] else "│  ")


def _shown(page: Page, *, has_hits: bool) -> tuple[Shown, ...]:
    def column(title: str, **layout: Any) -> Shown:
        return Shown(title, lambda row: row.get(title, ""), **layout)

    hits = (column("requests", rank=5), column("used", rank=6), column("throttled seconds"))
    return (
        Shown("rule", lambda row: page.possible(row["rule"]), is_text=True, keep=24),
        column("type", is_text=True, keep=8),
        column("limit"),
        *(hits if has_hits else ()),
        column("marks", is_text=True, keep=8),
    )


def _notes(found: TreeFound) -> Sequence[str]:
    origin = terminal_text(found.origin)
    if found.from_ms is None or found.to_ms is None:
        return [f"by {origin}; nothing is known of what the rules governed: the tables hold no decisions"]
    stretch = f"{iso_time(found.from_ms // 1_000 * 1_000)} to {iso_time(found.to_ms)}"
    return [
        f"by {origin}; hits from {stretch}; throttled seconds: those of a bucket of a broker with a throttle",
        _LEGEND,
    ]
