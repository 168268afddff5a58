"""The report as Markdown for a ticket or a chat: the same sections and tables, without pictures.

Names are only text there: every character with a meaning in Markdown is escaped. So a name can neither end a cell nor
become a link or a tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.reports.pages.page import page_of
from kquota_spark.reports.parts.page_parts import Advice, Cell, Page, Section, Table, Tile, Tone
from kquota_spark.reports.sections import AuditReport

MOST_ROWS = 25
"""Maximum rows of one table: a ticket is read, not searched."""
_SPECIAL = re.compile(
    r"[\\`*{}\[\]#~$@]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|\.(?<=www\.)|^[-+=](?=\s|[-=+]|$)|(?<=^[0-9])[.)](?=\s|$)"
)
"""Characters to escape: inline marks, those that make a bare address a link, list and heading marks at the start."""
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"})
_SIGNS = {Tone.NEAR: " (!)", Tone.OVER: " (▲)"}


def markdown_page(report: AuditReport) -> str:
    """The whole Markdown text."""
    page = page_of(report)
    lines = [
        f"# Kafka quota report: {escaped(page.subject)}",
        "",
        escaped(page.period),
        "",
        f"**{escaped(page.opening.sentence)}**",
        "",
        *_opening(page),
    ]
    for number, section in enumerate(page.sections, 1):
        lines += ["", *_section(number, section)]
    return "\n".join([*lines, "", f"Made {escaped(page.made)}. Times are UTC.", ""])


def escaped(text: str) -> str:
    """The text on one line, escaped so that Markdown shows it unchanged; invisible characters become escapes."""
    return _SPECIAL.sub(r"\\\g<0>", terminal_text(text)).translate(_ENTITIES)


def _opening(page: Page) -> Iterator[str]:
    """The worst buckets, one line on the other sections, and the grade of the page."""
    for number, one in enumerate(page.opening.worst, 1):
        parts = (one.bucket.text, f"{one.delay} of delay" if one.delay != "-" else "", one.time, one.cause)
        action = f" → {escaped(one.action)}" if one.action else ""
        yield f"{number}. {escaped(', '.join(filter(None, parts)))}{action}"
    if page.opening.worst:
        yield ""
    others = [f"{name}: {answer.text}" for name, answer in page.opening.others]
    yield f"{escaped('; '.join([*others, page.badge.text]))}."


def _section(number: int, section: Section) -> Iterator[str]:
    yield f"## {number}. {escaped(section.title)}"
    yield ""
    yield escaped(section.lead)
    if section.tiles:
        yield ""
        yield from (_tile(one) for one in section.tiles)
    if section.reasons:
        yield ""
        yield from (f"- {escaped(reason)}" for reason in section.reasons)
    for block in section.blocks:
        if block.title:
            yield from ("", f"### {escaped(block.title)}")
        if block.note:
            yield from ("", escaped(block.note))
        if block.table is not None:
            yield ""
            yield from _table(block.table)
    for one in section.advice:
        yield ""
        yield from _advice(one)
    if section.definitions:
        yield ""
        yield from (f"- **{escaped(word)}**: {escaped(meaning)}" for word, meaning in section.definitions)


def _tile(one: Tile) -> str:
    return (
        f"- {escaped(one.title)}: **{escaped(one.value)}**{_SIGNS.get(one.tone, '')}, {escaped(one.detail)}"
    )


def _table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(escaped(column.title) for column in table.columns)} |"
    yield f"| {' | '.join('---:' if column.is_number else '---' for column in table.columns)} |"
    for row in table.rows[:MOST_ROWS]:
        yield f"| {' | '.join(_cell(cell) for cell in row)} |"
    cut = len(table.rows) - MOST_ROWS
    if cut > 0:
        yield from ("", f"and {cut:,} more of {escaped(table.caption)}")
    if table.left_out:
        yield from ("", escaped(table.left_out))


def _cell(cell: Cell) -> str:
    return f"{escaped(cell.text)}{_SIGNS.get(cell.tone, '')}"


def _advice(one: Advice) -> Iterator[str]:
    change = f" {escaped(one.change)}" if one.change else ""
    yield f"**{escaped(one.title)}**{change}"
    yield ""
    yield escaped(one.reason)
    if one.facts:
        yield ""
        yield from (f"- {escaped(name)}: {escaped(text)}" for name, text in one.facts)
    yield from _command(one.command)
    for text, command in one.instead:
        yield from ("", f"Or: {escaped(text)}")
        yield from _command(command)


def _command(command: str) -> Iterator[str]:
    if command:
        shown = terminal_text(command)
        # A fence is longer than any row of backticks inside, so that no name ends it.
        fence = "`" * max([3, *(len(found) + 1 for found in re.findall(r"`+", shown))])
        yield from ("", f"{fence}sh", shown, fence)
