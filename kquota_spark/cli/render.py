"""Rows as a table for people, JSON for programs, or CSV for spreadsheets.

Tables show human units and fit the terminal: texts are cut, numbers never. JSON and CSV carry raw numbers
and every column; `version` of the JSON envelope changes when a key changes its name or meaning.
"""

from __future__ import annotations

import csv
import io
import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal

from kquota_spark.cli.escape import csv_text, cut, encodable_json, json_text, terminal_text, width

Format = Literal["table", "json", "csv"]
Row = Mapping[str, Any]

_JSON_VERSION = 1
TABLE_COLUMNS = 100
"""Columns that a table fits into, whatever the terminal."""
_GAP = "  "
_SMALLEST_TEXT = 6
_RATE_UNITS = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")


class Colour(Enum):
    """Colours for a row that needs attention, on terminals only."""

    RED = "31"
    YELLOW = "33"


@dataclass(frozen=True, slots=True)
class Shown:
    """A column of the table form: its title, the text of a row, and whether that text may be cut.

    `keep` columns are left to a text as long as another text still has more than it keeps.
    """

    title: str
    text: Callable[[Row], str]
    is_text: bool = False
    keep: int = _SMALLEST_TEXT


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
    """What the JSON form says beside its rows."""


def show(report: Report, form: Format) -> None:
    """Print a report to standard output."""
    is_terminal = sys.stdout.isatty()
    if form == "json":
        _write_json(json_report(report))
        return
    if form == "csv":
        text = csv_report(report, is_for_terminal=is_terminal)
    else:
        columns = max(TABLE_COLUMNS, shutil.get_terminal_size().columns) if is_terminal else TABLE_COLUMNS
        has_colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        text = table_report(report, columns, has_colour=has_colour)
    # A terminal in an old encoding must not turn a name into a traceback.
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def print_json(value: Any) -> None:
    """Print one JSON value on a line of its own."""
    _write_json(json_text(value) + "\n")


def _write_json(text: str) -> None:
    sys.stdout.write(encodable_json(text, sys.stdout.encoding or "utf-8"))


def json_report(report: Report) -> str:
    """The versioned envelope, one row a line."""
    rows = [json_text({name: _plain(report, row, name) for name in report.columns}) for row in report.rows]
    body = "".join(f"\n{row}," for row in rows)[:-1]
    beside = "".join(f"{json_text(name)}: {json_text(value)}, " for name, value in report.envelope.items())
    head = f'{{"command": {json_text(report.command)}, "version": {_JSON_VERSION}, {beside}"rows": ['
    return f"{head}{body}\n]}}\n" if rows else f"{head}]}}\n"


def csv_report(report: Report, *, is_for_terminal: bool = False) -> str:
    """A header and one record a row; lists as JSON texts. On a terminal, controls are escaped as well."""
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
    cells = [[terminal_text(shown.text(row)) for shown in report.shown] for row in report.rows]
    titles = [shown.title for shown in report.shown]
    widths = _fitted_widths(report.shown, [titles, *cells], columns if report.is_cut else sys.maxsize)
    lines = [_line(report.shown, titles, widths)]
    for row, texts in zip(report.rows, cells, strict=True):
        colour = report.colour(row) if has_colour else None
        line = _line(report.shown, texts, widths)
        lines.append(f"\x1b[{colour.value}m{line}\x1b[0m" if colour else line)
    return "\n".join([*lines, *([report.footer] if report.footer else [])]) + "\n"


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
        fitting = cut(text, columns)
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
    return json_text(value) if isinstance(value, bool | list | tuple) else str(value)


def iso_time(time_ms: int) -> str:
    """`2026-11-21T05:40:48Z`; milliseconds only where there are some."""
    time = datetime.fromtimestamp(time_ms / 1_000, UTC)
    form = "%Y-%m-%dT%H:%M:%S" if time_ms % 1_000 == 0 else "%Y-%m-%dT%H:%M:%S.%f"
    text = time.strftime(form)
    return (text if time_ms % 1_000 == 0 else text[:-3]) + "Z"


def clock_time(time_ms: int, *, with_day: bool) -> str:
    """`05:40:48`, or `11-21 05:40:48` in a table of several days."""
    form = "%m-%d %H:%M:%S" if with_day else "%H:%M:%S"
    return datetime.fromtimestamp(time_ms // 1_000, UTC).strftime(form)


def _scaled(value: float, units: Sequence[str]) -> str:
    """Three or four characters and a unit: `950 B/s`, `1.2 MB/s`, `12.3 MB/s`, `123 MB/s`."""
    unit = 0
    # 999.5 would round to 1000 of the smaller unit.
    while abs(value) >= 999.5 and unit < len(units) - 1:
        value /= 1_000
        unit += 1
    is_whole = unit == 0 or abs(value) >= 99.95
    return f"{value:.0f} {units[unit]}" if is_whole else f"{value:.1f} {units[unit]}"


def person_rate(bytes_per_s: float | None) -> str:
    """`1.2 MB/s`, in powers of 1,000; `none` where there is no limit."""
    return "none" if bytes_per_s is None else _scaled(bytes_per_s, _RATE_UNITS)


def or_dash(value: float | None, text: Callable[[Any], str]) -> str:
    """The text of a value; `-` for one that the source does not tell."""
    return "-" if value is None else text(value)


def person_bytes(amount: int) -> str:
    """`1.2 MB`, in powers of 1,000."""
    return _scaled(amount, _BYTE_UNITS)


def person_ms(duration_ms: float) -> str:
    """`95 ms`, `12.3 s` or `5.0 min`."""
    if duration_ms < 10_000:
        return f"{duration_ms:.0f} ms"
    return f"{duration_ms / 1_000:.1f} s" if duration_ms < 600_000 else f"{duration_ms / 60_000:.1f} min"


def person_percent(percent: float | None) -> str:
    """`103.2 %`; `-` where there is no limit. Digits count near the limit only."""
    if percent is None:
        return "-"
    return f"{percent:.1f} %" if percent < 200 else f"{percent:.0f} %"


def person_name(name: str | None) -> str:
    """A user or client id; an empty one must not look like a missing column."""
    return "-" if name is None else name or '""'
