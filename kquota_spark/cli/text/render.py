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

from kquota_spark.cli.text.page import (
    PIPE_COLUMNS,
    Page,
    columns_of,
    encodable,
    folded,
    has_colour,
    is_width_asked,
)
from kquota_spark.formats.text.escape import (
    csv_text,
    distinct_cuts,
    encodable_json,
    json_text,
    terminal_text,
    width,
)
from kquota_spark.formats.text.person_units import iso_time

Format = Literal["table", "json", "yaml", "csv"]
FORMATS: tuple[Format, ...] = ("table", "json", "yaml", "csv")
Row = Mapping[str, Any]

_GAP = "  "
_SMALLEST_TEXT = 6
"""Columns that a text has at the least."""
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
    keep: int = _SMALLEST_TEXT
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
    room = columns_of() if is_terminal or is_width_asked() else None
    table = table_report(report, room, has_colour=has_colour(sys.stdout), encoding=_encoding())
    # Cuts are shown in one column by every terminal; texts with characters that it lacks have none.
    _write(table if Page().has("…") else table.replace("…", "~"))


def _encoding() -> str:
    return sys.stdout.encoding or "utf-8"


def _write(text: str) -> None:
    """Write it; a terminal in an old encoding must not turn a name into a traceback."""
    sys.stdout.write(encodable(text, _encoding()))


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
    widths = [max(column.keep, width(text)) for column, text in zip(report.shown, texts, strict=True)]
    before = _total(widths) - widths[-1]
    parts: Iterable[str] = [texts[-1]]
    if room is not None and before + width(texts[-1]) > room:
        parts = folded(texts[-1], max(room - before, _SMALLEST_TEXT))
    yield from _row_lines(report.shown, texts, widths, parts)


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
    sys.stdout.write(encodable_json(text, _encoding()))


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
        names = ", ".join(left_out)
        notes.append(f"not shown: {names} (a wider terminal shows more, --output csv everything)")
    lines += _wrapped(report.footer, room)
    lines += _joined(notes, room)
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Layout:
    """A table that fits: the columns that are shown with the width of each, and its texts row by row."""

    chosen: Sequence[int]
    """The places of these columns among all of them."""
    columns: Sequence[Shown]
    widths: Sequence[int]
    cells: Sequence[Sequence[str]]
    is_cut: bool

    def header(self) -> Iterator[str]:
        """The titles, in as many lines as the longest needs."""
        pairs = zip(self.columns, self.widths, strict=True)
        titles = [list(folded(column.title, columns)) for column, columns in pairs]
        height = max(map(len, titles))
        for index in range(height):
            # Short titles stand on the lowest line, just above their values.
            at = [index - height + len(title) for title in titles]
            texts = [title[place] if place >= 0 else "" for title, place in zip(titles, at, strict=True)]
            yield _line(self.columns, texts, self.widths)

    def rows(self) -> Iterator[list[str]]:
        """The lines of each row: one, where texts are cut."""
        for texts in zip(*map(self._fitting, range(len(self.columns))), strict=True):
            parts = [texts[-1]] if self.is_cut else folded(texts[-1], self.widths[-1])
            yield list(_row_lines(self.columns, texts, self.widths, parts))

    def _fitting(self, index: int) -> Sequence[str]:
        texts = self.cells[index]
        if not (self.is_cut and self.columns[index].is_text):
            return texts
        forms = distinct_cuts(texts, self.widths[index])
        return [forms[text] for text in texts]


def layout_of(report: Report, room: int, encoding: str = "utf-8") -> Layout:
    """The columns that fit: long titles are broken first, then columns left out by rank, then texts cut.

    Args:
        report: has a row at least. Where its texts are not cut, the last column gets what is left.
        room: columns of the terminal.
        encoding: of the terminal.
    """
    cells = [[_cell(column, row, encoding) for row in report.rows] for column in report.shown]
    chosen = _chosen(report.shown, cells, room)
    shown = [report.shown[index] for index in chosen]
    texts = [cells[index] for index in chosen]
    values = [max(map(width, of_column), default=0) for of_column in texts]
    widths = [max(value, _longest_word(column.title)) for column, value in zip(shown, values, strict=True)]
    if report.is_cut:
        _shrink(shown, widths, room)
    else:
        others = _total(widths) - widths[-1]
        widths[-1] = max(min(widths[-1], room - others), _SMALLEST_TEXT)
    whole = [max(wide, width(column.title)) for column, wide in zip(shown, widths, strict=True)]
    # Titles are on one line where there is room for all of them.
    return Layout(chosen, shown, whole if _total(whole) <= room else widths, texts, report.is_cut)


def _line(columns: Sequence[Shown], texts: Sequence[str], widths: Sequence[int]) -> str:
    """Texts filled up to their widths, numbers at the right."""
    padded = []
    for column, text, wide in zip(columns, texts, widths, strict=True):
        blanks = " " * (wide - width(text))
        padded.append(text + blanks if column.is_text else blanks + text)
    return _GAP.join(padded).rstrip()


def _row_lines(
    columns: Sequence[Shown], texts: Sequence[str], widths: Sequence[int], parts: Iterable[str]
) -> Iterator[str]:
    """The lines of a row whose last text is in so many parts."""
    for number, part in enumerate(parts):
        before = [""] * (len(texts) - 1) if number else texts[:-1]
        yield _line(columns, [*before, part], widths)


def _chosen(columns: Sequence[Shown], cells: Sequence[Sequence[str]], room: int) -> list[int]:
    """Which columns are shown, so that texts keep what they should."""
    least = []
    for column, texts in zip(columns, cells, strict=True):
        natural = max(map(width, texts), default=0)
        value = min(natural, column.keep) if column.is_text else natural
        least.append(max(value, _longest_word(column.title)))
    chosen = list(range(len(columns)))
    while _total([least[index] for index in chosen]) > room:
        last = max(chosen, key=lambda index: columns[index].rank)
        if columns[last].rank == 0:
            break
        chosen.remove(last)
    return chosen


def _shrink(columns: Sequence[Shown], widths: list[int], room: int) -> None:
    """The widest text that has more than it keeps is shrunk until the line fits."""
    for is_last_resort in (False, True):
        floors = [
            _SMALLEST_TEXT if is_last_resort else max(_SMALLEST_TEXT, column.keep) for column in columns
        ]
        while _total(widths) > room:
            spare = [i for i, column in enumerate(columns) if column.is_text and widths[i] > floors[i]]
            if not spare:
                break
            widths[max(spare, key=lambda i: widths[i])] -= 1


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _longest_word(title: str) -> int:
    return max(map(width, title.split(" ")))


def _cell(column: Shown, row: Row, encoding: str) -> str:
    return encodable(terminal_text(column.text(row)), encoding)


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
