"""`kquota tree`: the quota tree: each rule with what it governed, and the rules that limit nobody."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from kquota_spark.cli.chosen.cluster_choice import add_cluster_options, named_clusters
from kquota_spark.cli.options import TIME_FORMS, add_tables_option, add_time_option
from kquota_spark.cli.question import Asked, Found, Question
from kquota_spark.cli.quotas.quota_sides import chosen_side, named_side
from kquota_spark.cli.text.page import Page
from kquota_spark.cli.text.render import Colour, Report, Row, Shown, show
from kquota_spark.enforce.ports import Image
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import entity_text, terminal_text
from kquota_spark.formats.text.person_units import (
    amount_text,
    iso_time,
    or_dash,
    person_count,
    person_ms,
    person_name,
    person_span,
    rate_text,
    type_text,
)
from kquota_spark.model.compare.quota_tree import Hits, KeyUse, Line, Mark, Node, lines, quota_type_of
from kquota_spark.model.quotas.entities import Default, Entity, IpEntity
from kquota_spark.process.clock import now_ms
from kquota_spark.reports.clients.quota_tree import TreeFound, tree_of, tree_of_tables
from kquota_spark.store.reading import utc_text

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
    "bucket_seconds", "delay_ms", "time_throttled_s", "marks", "shadowed_by",
)  # fmt: skip
_PAIR_LEVELS = (1, 2, 4, 5)
_LEGEND = {
    Mark.DEAD: "dead: in a day or more of usage, nobody that it names was seen",
    Mark.SHADOWED: "shadowed: in a day or more of usage, other rules came before it",
    Mark.NO_HIT: "no hit: it governed nothing",
    Mark.REMOVED: "removed: it governed, and is no longer set",
}
_COLOURS = {
    Mark.DEAD: Colour.YELLOW,
    Mark.SHADOWED: Colour.YELLOW,
    Mark.REMOVED: Colour.YELLOW,
    Mark.NO_HIT: Colour.FAINT,
}


def _place(parser: argparse.ArgumentParser) -> None:
    parser.description = f"{parser.description}. A table shows the rules of the most requests, up to --limit."
    parser.add_argument(
        "side", nargs="?", metavar="FILE", help="the quotas of a file in any format, or of a saved context, with what "
        "rules of these names governed by the tables (default: the quotas of the tables)",
    )  # fmt: skip
    add_cluster_options(parser)
    add_tables_option(parser)


def _options(parser: argparse.ArgumentParser) -> None:
    add_time_option(
        parser, "--since", about=f"count from then on: {TIME_FORMS} (default the last two days of the tables)"
    )
    parser.set_defaults(at=None)


def _find(asked: Asked) -> Found:
    """The tree, as a row per key.

    Raises:
        UserError: the quotas cannot be read.
    """
    side, since_ms = asked.own, asked.wanted.newer_than_ms
    if side is None:
        found = tree_of_tables(asked.settings, since_ms, now_ms())
    else:
        found = tree_of(asked.settings, side.origin, side.quotas, since_ms)
    period = {"from": found.from_ms, "to": found.to_ms}
    envelope: dict[str, Any] = {
        "source": found.origin,
        **{name: None if time_ms is None else iso_time(time_ms) for name, time_ms in period.items()},
        "without_rule": [
            {"rule": rule, "quota_type": kind, **_hits_row(hits, found.throttled_s.get((rule, kind), 0))}
            for (rule, kind), hits in found.others.items()
        ],
    }
    nodes = [line.node for line in lines(found.tree, asked.limit) if line.node is not None]
    rows = [row for node in nodes for row in _rows(node, found)]
    return Found(
        _COLUMNS, rows, envelope=envelope, is_limited=True, page=lambda page: _print(found, asked.limit, page)
    )


def _side(options: argparse.Namespace) -> Image | None:
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
        hits = _hits_row(use.hits, found.throttled_s.get((str(entity), quota_type_of(use.key)), 0))
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


def _hits_row(hits: Hits, throttled_s: int) -> dict[str, Any]:
    return {**asdict(hits), "time_throttled_s": throttled_s}


def _print(found: TreeFound, limit: int | None, page: Page) -> None:
    if not found.tree:
        page.paragraph("", f"no quotas are set, by {terminal_text(found.origin)}", indent=0)
        return
    shown = list(lines(found.tree, limit))
    rows = [row for line in shown for row in _table_rows(line, found)]
    rows += [_other_row(rule, kind, hits, found) for (rule, kind), hits in found.others.items()]
    shown_columns = _shown(page, has_hits=found.from_ms is not None)
    show(Report("kquota tree", (), rows, shown_columns, colour=lambda row: row.get("colour")), "table")
    marks = {mark for line in shown if line.node is not None for use in line.node.keys for mark in use.marks}
    for note in _notes(found, marks):
        page.paragraph("", note, indent=0)


def _table_rows(line: Line, found: TreeFound) -> Iterator[Row]:
    """One row per key; only the first has the name."""
    stem, below = _stems(line)
    if line.node is None:
        yield {"rule": f"{stem}... and {line.more:,} more: --limit 0"}
        return
    name = line.node.name
    text = terminal_text(name.value if isinstance(name, Default) else person_name(name))
    if isinstance(line.node.entity, Entity) and line.node.entity.level in _PAIR_LEVELS:
        text = f"client {text}"
    if not line.node.keys:
        yield {"rule": f"{stem}{text}"}
    throttled_s = {
        use.key: found.throttled_s.get((str(line.node.entity), quota_type_of(use.key)), 0)
        for use in line.node.keys
    }
    for index, use in enumerate(line.node.keys):
        name = below + ("│" if line.node.children else "") if index else f"{stem}{text}"
        yield _row(name, use, throttled_s[use.key])


def _row(name: str, use: KeyUse, throttled_s: int) -> Row:
    """One text per column, by title."""
    quota_type = quota_type_of(use.key)
    return {
        "rule": name,
        "limit": or_dash(use.value, partial(rate_text, quota_type)),
        "marks": _marks_text(use),
        "colour": next((colour for mark, colour in _COLOURS.items() if mark in use.marks), None),
        **_hits_texts(quota_type, use.hits, throttled_s),
    }


def _other_row(rule: str | None, quota_type: str, hits: Hits, found: TreeFound) -> Row:
    name, marks = ("(no rule)", "no limit") if rule is None else (entity_text(rule), "")
    return {
        "rule": name,
        "marks": marks,
        **_hits_texts(quota_type, hits, found.throttled_s.get((rule, quota_type), 0)),
    }


def _hits_texts(quota_type: str, hits: Hits, throttled_s: int) -> Row:
    return {
        "type": type_text(quota_type),
        "requests": or_dash(hits.requests, person_count),
        "used": or_dash(hits.amount, partial(amount_text, quota_type)),
        "total delay": or_dash(hits.delay_ms or None, person_ms),
        "time throttled": or_dash(throttled_s or None, lambda seconds: person_span(1_000 * seconds)),
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

    hits = (
        column("requests", rank=5),
        column("used", rank=6),
        column("total delay"),
        column("time throttled", rank=4),
    )
    return (
        Shown("rule", lambda row: page.possible(row["rule"]), is_text=True, keep=24),
        column("type", is_text=True, keep=8),
        column("limit"),
        *(hits if has_hits else ()),
        column("marks", is_text=True, keep=8),
    )


def _notes(found: TreeFound, marks: Collection[Mark]) -> Iterator[str]:
    origin = terminal_text(found.origin)
    if found.from_ms is None or found.to_ms is None:
        yield f"by {origin}; nothing is known of what the rules governed: the tables hold no decisions"
        return
    yield f"by {origin}; from {utc_text(found.from_ms)} to {utc_text(found.to_ms)}"
    yield "total delay: by brokers; time throttled: while a bucket of the rule was throttled"
    if legend := [text for mark, text in _LEGEND.items() if mark in marks]:
        yield "; ".join(legend)


QUESTION = Question(
    command="tree",
    table=None,
    find=_find,
    options=_options,
    period=None,
    own=_side,
    has_agreement=False,
    place=_place,
)
add_commands = QUESTION.add_to
