"""Rows as a table for people, JSON or YAML for programs, or CSV for spreadsheets.

Tables show human units and fit the terminal: texts are cut, numbers never. The other forms carry raw numbers and every
column; `version` of the envelope of JSON and YAML changes when a key changes its name or meaning.
"""

from __future__ import annotations

import csv
import io
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal

from kquota_spark.formats.escape import csv_text, cut_inside, encodable_json, json_text, terminal_text, width
from kquota_spark.formats.person_units import iso_time

Format = Literal["table", "json", "yaml", "csv"]
FORMATS: tuple[Format, ...] = ("table", "json", "yaml", "csv")
Row = Mapping[str, Any]

_VERSION = 1
TABLE_COLUMNS = 100
"""Columns that a table fits into, whatever the terminal."""
_GAP = "  "
_SMALLEST_TEXT = 6


class Colour(Enum):
    """Colours for a row that needs attention, on terminals only."""

    RED = "31"
    YELLOW = "33"


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
    """Whether texts are cut to fit; not where the text is the point."""
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
        text = csv_report(report, is_for_terminal=is_terminal)
    else:
        text = table_report(report, table_width(), has_colour=_has_colour())
    # A terminal in an old encoding must not turn a name into a traceback.
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def table_width() -> int:
    """Columns that a table may fill: those of a wide terminal, else 100."""
    return max(TABLE_COLUMNS, shutil.get_terminal_size().columns) if sys.stdout.isatty() else TABLE_COLUMNS


def show_as_found(report: Report, rows: Iterable[Row], form: Format) -> Sequence[Row]:
    """`show` for rows that take a while to find: a table shows each at once, in columns as wide as they `keep`."""
    if form != "table":
        report = replace(report, rows=list(rows))
        show(report, form)
        return report.rows
    found: list[Row] = []
    _write_now(_uncut_line(report, [column.title for column in report.shown]))
    for row in rows:
        found.append(row)
        line = _uncut_line(report, [terminal_text(column.text(row)) for column in report.shown])
        _write_now(_coloured(line, report.colour(row) if _has_colour() else None))
    return found


def _uncut_line(report: Report, texts: Sequence[str]) -> str:
    pairs = zip(report.shown, texts, strict=True)
    return _line(report.shown, texts, [max(column.keep, width(text)) for column, text in pairs])


def _write_now(line: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()


def _coloured(line: str, colour: Colour | None) -> str:
    return f"\x1b[{colour.value}m{line}\x1b[0m" if colour else line


def _has_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


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

    return yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, width=TABLE_COLUMNS)


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


def table_report(report: Report, columns: int = TABLE_COLUMNS, *, has_colour: bool = False) -> str:
    """A table that fits so many columns as long as its numbers do."""
    if not report.rows:
        return report.when_empty + "\n" if report.when_empty else ""
    room = columns if report.is_cut else sys.maxsize
    by_column = [
        [column.title, *(terminal_text(column.text(row)) for row in report.rows)] for column in report.shown
    ]
    chosen = _chosen(report.shown, by_column, room)
    shown = [report.shown[index] for index in chosen]
    titles, *cells = zip(*(by_column[index] for index in chosen), strict=True)
    widths = _fitted_widths(shown, [titles, *cells], room)
    lines = [_line(shown, titles, widths)]
    for row, texts in zip(report.rows, cells, strict=True):
        lines.append(_coloured(_line(shown, texts, widths), report.colour(row) if has_colour else None))
    left_out = [column.title for column in report.shown if column not in shown]
    notes = [column.note for column in shown if column.note]
    if left_out:
        notes.append(
            f"not shown: {', '.join(left_out)} (a wider terminal shows more, --output csv everything)"
        )
    return "\n".join([*lines, *([report.footer] if report.footer else []), *_joined(notes)]) + "\n"


def _joined(notes: Iterable[str]) -> list[str]:
    """As few lines as they fit into."""
    lines: list[str] = []
    for note in notes:
        if lines and width(lines[-1]) + 2 + width(note) <= TABLE_COLUMNS:
            lines[-1] += f"; {note}"
        else:
            lines.append(note)
    return lines


def _chosen(shown: Sequence[Shown], by_column: Sequence[Sequence[str]], columns: int) -> list[int]:
    """Which columns are shown, so that texts keep what they should."""
    least = []
    for column, (title, *texts) in zip(shown, by_column, strict=True):
        natural = max(width(text) for text in texts)
        least.append(max(width(title), min(natural, column.keep) if column.is_text else natural))
    chosen = list(range(len(shown)))
    while sum(least[index] for index in chosen) + len(_GAP) * (len(chosen) - 1) > columns:
        last = max(chosen, key=lambda index: shown[index].rank)
        if shown[last].rank == 0:
            break
        chosen.remove(last)
    return chosen


def _fitted_widths(shown: Sequence[Shown], lines: Sequence[Sequence[str]], columns: int) -> list[int]:
    """Natural widths; then the widest text that has more than it keeps is shrunk until the line fits."""
    widths = [max(width(line[index]) for line in lines) for index in range(len(shown))]
    for is_last_resort in (False, True):
        floors = [_SMALLEST_TEXT if is_last_resort else max(_SMALLEST_TEXT, column.keep) for column in shown]
        while sum(widths) + len(_GAP) * (len(widths) - 1) > columns:
            spare = [i for i, column in enumerate(shown) if column.is_text and widths[i] > floors[i]]
            if not spare:
                break
            widths[max(spare, key=lambda i: widths[i])] -= 1
    return widths


def _line(shown: Sequence[Shown], texts: Sequence[str], widths: Sequence[int]) -> str:
    padded = []
    for column, text, columns in zip(shown, texts, widths, strict=True):
        fitting = cut_inside(text, columns)
        blanks = " " * (columns - width(fitting))
        padded.append(fitting + blanks if column.is_text else blanks + fitting)
    return _GAP.join(padded).rstrip()


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
