"""Rows as a table for people, JSON or YAML for programs, or CSV for spreadsheets.

Tables have human units and fit the terminal: columns are left out by rank, and texts are cut, but never numbers. The
other forms have raw numbers and every column. The `version` of JSON and YAML changes when a key changes its name or
meaning.
"""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
SMALLEST_TEXT = 6
"""Minimum columns of a text."""
_VERSION = 1
_YAML_COLUMNS = 100


class Colour(Enum):
    """Colours for a row that needs attention, or needs none; on terminals only."""

    RED = "31"
    YELLOW = "33"
    FAINT = "2"


@dataclass(frozen=True, slots=True)
class Shown:
    """A column of the table form: its title, the text of a row, and whether that text may be cut.

    A text keeps at least `keep` columns while another text has more than it keeps. Before a text gets less, columns
    with a `rank` are left out, the largest rank first.
    """

    title: str
    text: Callable[[Row], str]
    is_text: bool = False
    keep: int = SMALLEST_TEXT
    rank: int = 0
    note: str = ""
    """Printed below a table that shows this column."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a command; `columns` go into JSON, YAML and CSV, `shown` into the table."""

    command: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    shown: tuple[Shown, ...]
    times: frozenset[str] = frozenset()
    """Columns of epoch ms; JSON, YAML and CSV have them as ISO 8601."""
    head: str = ""
    """Lines above the table; for people only."""
    footer: str = ""
    when_empty: str = ""
    colour: Callable[[Row], Colour | None] = lambda _: None
    is_cut: bool = True
    """Whether texts are cut to fit. If not, the last column is wrapped on a terminal."""
    envelope: Mapping[str, Any] = field(default_factory=dict)
    """Values of JSON and YAML beside the rows."""


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
    # Every terminal shows the mark of a cut in one column. A terminal without `…` gets `~`.
    _write(table if Page().has("…") else table.replace("…", "~"))


def _encoding() -> str:
    return sys.stdout.encoding or "utf-8"


def _write(text: str) -> None:
    """Write a text with escapes: a terminal with an old encoding must not cause a traceback."""
    sys.stdout.write(encodable(text, _encoding()))


def _coloured(text: str, colour: Colour | None) -> str:
    return f"\x1b[{colour.value}m{text}\x1b[0m" if colour else text


def print_answer(command: str, answer: Mapping[str, Any], form: Format) -> None:
    """Print an answer that is not a list of rows, in the versioned envelope: JSON on one line, or YAML."""
    whole = {"command": command, "version": _VERSION, **answer}
    if form == "yaml":
        sys.stdout.write(yaml_text(whole))
    else:
        _write_json(json_text(whole) + "\n")


def yaml_text(value: Any) -> str:
    """YAML in ASCII, with control characters escaped as in JSON."""
    import yaml

    return yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, width=_YAML_COLUMNS)


def _write_json(text: str) -> None:
    sys.stdout.write(encodable_json(text, _encoding()))


def json_report(report: Report) -> str:
    """The versioned envelope as JSON, one row per line."""
    body = "".join(f"\n{json_text(row)}," for row in _plain_rows(report))[:-1]
    head = f'{json_text(_envelope(report))[:-1]}, "rows": ['
    return f"{head}{body}\n]}}\n" if body else f"{head}]}}\n"


def yaml_report(report: Report) -> str:
    """The same envelope as in JSON, as YAML."""
    return yaml_text(_envelope(report) | {"rows": list(_plain_rows(report))})


def _envelope(report: Report) -> dict[str, Any]:
    return {"command": report.command, "version": _VERSION, **report.envelope}


def _plain_rows(report: Report) -> Iterator[dict[str, Any]]:
    return ({name: _plain(report, row, name) for name in report.columns} for row in report.rows)


def csv_report(report: Report, *, is_for_terminal: bool = False) -> str:
    """A header and one record per row; lists and mappings are JSON texts. For a terminal, controls are escaped."""
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
    """A table with its footer and notes, at most `columns` wide unless its numbers need more.

    Args:
        report: the content.
        columns: available width; None for no limit.
        has_colour: add the escape sequences of a terminal.
        encoding: of the terminal; characters that it lacks become escapes.
    """
    room = sys.maxsize if columns is None else columns
    lines = list(_wrapped(report.head, room))
    if not report.rows:
        return "".join(f"{text}\n" for text in [*lines, *_wrapped(report.when_empty, room)])
    layout = layout_of(report, room, encoding)
    lines += layout.header()
    for row, of_row in zip(report.rows, layout.rows(), strict=True):
        colour = report.colour(row) if has_colour else None
        lines += (_coloured(text, colour) for text in of_row)
    notes = [report.shown[index].note for index in layout.chosen if report.shown[index].note]
    left_out = [column.title for index, column in enumerate(report.shown) if index not in layout.chosen]
    if left_out:
        names = ", ".join(left_out)
        notes.append(f"not shown: {names} (a wider terminal shows more, --output csv everything)")
    lines += _wrapped(report.footer, room)
    lines += _joined(_merged(notes), room)
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Layout:
    """A table that fits: the shown columns with their widths, and its texts row by row."""

    chosen: Sequence[int]
    """Indexes of the shown columns among all columns."""
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
            # Short titles are on the lowest line, just above their values.
            at = [index - height + len(title) for title in titles]
            texts = [title[place] if place >= 0 else "" for title, place in zip(titles, at, strict=True)]
            yield _line(self.columns, texts, self.widths)

    def rows(self) -> Iterator[list[str]]:
        """The lines of each row; a single line if texts are cut."""
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
    """The columns that fit: first long titles are broken, then columns left out by rank, then texts cut.

    Args:
        report: with at least one row. If its texts are not cut, the last column gets the remaining width.
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
        widths[-1] = max(min(widths[-1], room - others), SMALLEST_TEXT)
    whole = [max(wide, width(column.title)) for column, wide in zip(shown, widths, strict=True)]
    # Titles are on one line if there is room for all of them.
    return Layout(chosen, shown, whole if _total(whole) <= room else widths, texts, report.is_cut)


def _line(columns: Sequence[Shown], texts: Sequence[str], widths: Sequence[int]) -> str:
    """A line of texts padded to their widths, numbers right-aligned."""
    padded = []
    for column, text, wide in zip(columns, texts, widths, strict=True):
        blanks = " " * (wide - width(text))
        padded.append(text + blanks if column.is_text else blanks + text)
    return _GAP.join(padded).rstrip()


def _row_lines(
    columns: Sequence[Shown], texts: Sequence[str], widths: Sequence[int], parts: Iterable[str]
) -> Iterator[str]:
    """The lines of a row; the parts of its last text are below each other."""
    for number, part in enumerate(parts):
        before = [""] * (len(texts) - 1) if number else texts[:-1]
        yield _line(columns, [*before, part], widths)


def _chosen(columns: Sequence[Shown], cells: Sequence[Sequence[str]], room: int) -> list[int]:
    """Indexes of the columns to show, so that each text gets its `keep`."""
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
    """Shrink the widest text that has more than it keeps, until the line fits."""
    for is_last_resort in (False, True):
        floors = [SMALLEST_TEXT if is_last_resort else max(SMALLEST_TEXT, column.keep) for column in columns]
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
    """The lines of a text, each wrapped; none for an empty text."""
    return (part for whole in text.splitlines() for part in folded(whole, columns))


def _merged(notes: Iterable[str]) -> Iterator[str]:
    """The notes; those of columns that mean the same are one, `mean, peak: by brokers`."""
    found: dict[str, list[str]] = {}
    for note in notes:
        columns, colon, text = note.partition(": ")
        found.setdefault(colon + text if colon else "", []).append(columns)
    plain = found.pop("", [])
    yield from (f"{', '.join(columns)}{text}" for text, columns in found.items())
    yield from plain


def _joined(notes: Iterable[str], columns: int) -> Iterator[str]:
    """The notes joined into as few lines as possible."""
    lines: list[str] = []
    for note in notes:
        if lines and width(lines[-1]) + 2 + width(note) <= columns:
            lines[-1] += f"; {note}"
        else:
            lines.append(note)
    return _wrapped("\n".join(lines), columns)


def _plain(report: Report, row: Row, name: str) -> Any:
    """A value for JSON, YAML and CSV: times in ISO 8601; NaN and infinity, which JSON lacks, are null."""
    value = row[name]
    if value is not None and name in report.times:
        return iso_time(value)
    return finite(value) if isinstance(value, float) else value


def finite(value: float | None) -> float | None:
    """A number for JSON, which has no NaN and no infinity; ZooKeeper may contain them."""
    return value if value is not None and math.isfinite(value) else None


def _csv_cell(value: Any) -> str:
    if isinstance(value, str):
        return csv_text(value)
    if value is None:
        return ""
    return json_text(value) if isinstance(value, bool | list | tuple | dict) else str(value)
