"""Rows as a table for people, JSON or YAML for programs, or CSV for spreadsheets.

Tables show human units and fit the terminal: columns are left out by rank, texts are cut, numbers never. The other
forms carry raw numbers and every column; `version` of the envelope of JSON and YAML changes when a key changes its name
or meaning.
"""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal

from kquota_spark.cli.text.page import Page, has_colour
from kquota_spark.cli.text.table_layout import GAP, SMALLEST_TEXT, Layout, fitted, line
from kquota_spark.cli.text.terminal_width import PIPE_COLUMNS, columns_of
from kquota_spark.cli.text.wrapping import folded
from kquota_spark.formats.text.escape import csv_text, encodable_json, json_text, terminal_text, width
from kquota_spark.formats.text.person_units import iso_time

Format = Literal["table", "json", "yaml", "csv"]
FORMATS: tuple[Format, ...] = ("table", "json", "yaml", "csv")
Row = Mapping[str, Any]

_VERSION = 1
_YAML_COLUMNS = 100


class Colour(Enum):
    """Colours for a row that needs attention, or none of it, on terminals only."""

    RED = "31"
    YELLOW = "33"
    FAINT = "2"


@dataclass(frozen=True, slots=True)
class Shown:
    """A column of the table form: its title, the text of a row, and whether that text may be cut.

    `keep` columns are left to a text as long as another text still has more than it keeps. Before one has less,
    columns with a `rank` are left out, the largest first.
    """

    title: str
    text: Callable[[Row], str]
    is_text: bool = False
    keep: int = SMALLEST_TEXT
    rank: int = 0
    note: str = ""
    """What is said below a table that shows this column."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a command found; `columns` go into JSON and CSV, `shown` into the table."""

    command: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    shown: tuple[Shown, ...]
    times: frozenset[str] = frozenset()
    """Columns that hold epoch milliseconds, and go out as ISO 8601."""
    footer: str = ""
    when_empty: str = ""
    colour: Callable[[Row], Colour | None] = lambda _: None
    is_cut: bool = True
    """Whether texts are cut to fit. Where the text is the point, the last column is wrapped on a terminal instead."""
    envelope: Mapping[str, Any] = field(default_factory=dict)
    """What JSON and YAML say beside the rows."""


def show(report: Report, form: Format) -> None:
    """Print a report to standard output."""
    is_terminal = sys.stdout.isatty()
    if form == "json":
        _write_json(json_report(report))
        return
    if form == "yaml":
        sys.stdout.write(yaml_report(report))
        return
    if form == "csv":
        _write(csv_report(report, is_for_terminal=is_terminal))
        return
    room = None if not (report.is_cut or is_terminal) else table_width()
    _write(
        _with_ellipsis(table_report(report, room, has_colour=has_colour(sys.stdout), encoding=_encoding()))
    )


def table_width() -> int:
    """Columns that a table may fill."""
    return columns_of()


def _encoding() -> str:
    return sys.stdout.encoding or "utf-8"


def _with_ellipsis(text: str) -> str:
    """A table whose cuts are shown in one column by every terminal; texts with characters that it lacks have none."""
    return text if Page().has("…") else text.replace("…", "~")


def _write(text: str) -> None:
    """Write it; a terminal in an old encoding must not turn a name into a traceback."""
    sys.stdout.write(text.encode(_encoding(), "backslashreplace").decode(_encoding()))


def show_as_found(report: Report, rows: Iterable[Row], form: Format) -> Sequence[Row]:
    """`show` for rows that take a while to find: a table shows each at once, in columns as wide as they `keep`."""
    if form != "table":
        report = replace(report, rows=list(rows))
        show(report, form)
        return report.rows
    found: list[Row] = []
    room = columns_of() if sys.stdout.isatty() else None
    _write_now(_uncut_lines(report, [column.title for column in report.shown], room))
    for row in rows:
        found.append(row)
        texts = [_cell(column, row, _encoding()) for column in report.shown]
        colour = report.colour(row) if has_colour(sys.stdout) else None
        _write_now(_coloured(text, colour) for text in _uncut_lines(report, texts, room))
    return found


def _uncut_lines(report: Report, texts: Sequence[str], room: int | None) -> Iterator[str]:
    """A row whose columns are as wide as they `keep`; its last text is wrapped in what is left of the room."""
    pairs = zip(report.shown, texts, strict=True)
    widths = [max(column.keep, width(text)) for column, text in pairs]
    yield from _wrapped_line(report.shown, texts, widths, room)


def _wrapped_line(
    shown: Sequence[Shown], texts: Sequence[str], widths: Sequence[int], room: int | None
) -> Iterator[str]:
    before = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    if room is None or before + width(texts[-1]) <= room:
        yield line(shown, texts, widths)
        return
    parts = list(folded(texts[-1], max(room - before, SMALLEST_TEXT)))
    for index, part in enumerate(parts):
        yield line(shown, [*(texts[:-1] if index == 0 else [""] * (len(texts) - 1)), part], widths)


def _write_now(lines: Iterable[str]) -> None:
    for text in lines:
        _write(f"{text}\n")
    sys.stdout.flush()


def _coloured(text: str, colour: Colour | None) -> str:
    return f"\x1b[{colour.value}m{text}\x1b[0m" if colour else text


def print_answer(command: str, answer: Mapping[str, Any], form: Format) -> None:
    """Print an answer that is no list of rows, in the versioned envelope: JSON on one line, or YAML."""
    whole = {"command": command, "version": _VERSION, **answer}
    if form == "yaml":
        sys.stdout.write(yaml_text(whole))
    else:
        _write_json(json_text(whole) + "\n")


def yaml_text(value: Any) -> str:
    """YAML in ASCII: what a terminal would act on is an escape, as in JSON."""
    import yaml

    return yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, width=_YAML_COLUMNS)


def _write_json(text: str) -> None:
    sys.stdout.write(encodable_json(text, sys.stdout.encoding or "utf-8"))


def json_report(report: Report) -> str:
    """The versioned envelope, one row a line."""
    body = "".join(f"\n{json_text(row)}," for row in _plain_rows(report))[:-1]
    head = f'{json_text(_envelope(report))[:-1]}, "rows": ['
    return f"{head}{body}\n]}}\n" if body else f"{head}]}}\n"


def yaml_report(report: Report) -> str:
    """The same envelope as that of JSON."""
    return yaml_text(_envelope(report) | {"rows": list(_plain_rows(report))})


def _envelope(report: Report) -> dict[str, Any]:
    return {"command": report.command, "version": _VERSION, **report.envelope}


def _plain_rows(report: Report) -> Iterator[dict[str, Any]]:
    return ({name: _plain(report, row, name) for name in report.columns} for row in report.rows)


def csv_report(report: Report, *, is_for_terminal: bool = False) -> str:
    """A header and one record a row; lists and mappings as JSON texts. On a terminal, controls are escaped as well."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(report.columns)
    for row in report.rows:
        cells = [_csv_cell(_plain(report, row, name)) for name in report.columns]
        writer.writerow([terminal_text(cell) for cell in cells] if is_for_terminal else cells)
    return out.getvalue()


def layout_of(report: Report, room: int, encoding: str = "utf-8") -> Layout:
    """Titles and rows as they fit; there is a row at least."""
    cells = [[_cell(column, row, encoding) for row in report.rows] for column in report.shown]
    return fitted(report.shown, cells, room, is_cut=report.is_cut)


def table_report(
    report: Report, columns: int | None = PIPE_COLUMNS, *, has_colour: bool = False, encoding: str = "utf-8"
) -> str:
    """A table, and what is said below it, that fits so many columns as long as its numbers do.

    Args:
        report: what to show.
        columns: the room; None for no limit.
        has_colour: with the escape sequences of a terminal.
        encoding: of the terminal, which shows characters that it lacks as escapes.
    """
    room = sys.maxsize if columns is None else columns
    if not report.rows:
        return "".join(f"{text}\n" for text in _wrapped(report.when_empty, room))
    layout = layout_of(report, room, encoding)
    lines = list(layout.header())
    for row, of_row in zip(report.rows, layout.rows(), strict=True):
        colour = report.colour(row) if has_colour else None
        lines += (_coloured(text, colour) for text in of_row)
    notes = [report.shown[index].note for index in layout.chosen if report.shown[index].note]
    left_out = [column.title for index, column in enumerate(report.shown) if index not in layout.chosen]
    if left_out:
        notes.append(
            f"not shown: {', '.join(left_out)} (a wider terminal shows more, --output csv everything)"
        )
    lines += _wrapped(report.footer, room)
    lines += _joined(notes, room)
    return "\n".join(lines) + "\n"


def _cell(column: Shown, row: Row, encoding: str) -> str:
    return terminal_text(column.text(row)).encode(encoding, "backslashreplace").decode(encoding)


def _wrapped(text: str, columns: int) -> Iterator[str]:
    """The lines of a text, each in as many as it needs; none for an empty text."""
    return (part for whole in text.splitlines() for part in folded(whole, columns))


def _joined(notes: Iterable[str], columns: int) -> Iterator[str]:
    """As few lines as they fit into."""
    lines: list[str] = []
    for note in notes:
        if lines and width(lines[-1]) + 2 + width(note) <= columns:
            lines[-1] += f"; {note}"
        else:
            lines.append(note)
    return _wrapped("\n".join(lines), columns)


def _plain(report: Report, row: Row, name: str) -> Any:
    """A value for JSON and CSV: times in ISO 8601, what JSON has no number for as null."""
    value = row[name]
    if value is not None and name in report.times:
        return iso_time(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv_cell(value: Any) -> str:
    if isinstance(value, str):
        return csv_text(value)
    if value is None:
        return ""
    return json_text(value) if isinstance(value, bool | list | tuple | dict) else str(value)
