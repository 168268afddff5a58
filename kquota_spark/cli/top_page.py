"""The screen of `kquota top` as lines: what stands where, in which tone. Knows no terminal and no clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kquota_spark.cli.render import Row
from kquota_spark.cli.sparkline import bar, slots
from kquota_spark.cli.top_columns import GAP, SPARK_TITLE, Fitted, cell, fitted, padded
from kquota_spark.cli.top_feed import Answer, Question
from kquota_spark.cli.top_near import near_lines
from kquota_spark.formats.escape import cut, terminal_text, width
from kquota_spark.formats.person_units import broker_text, iso_time
from kquota_spark.reports.top_buckets import LIMIT_PERCENT, NEAR_PERCENT, SortBy

SORT_KEYS = {
    "u": SortBy.USED,
    "r": SortBy.RATE,
    "t": SortBy.THROTTLED,
    "n": SortBy.NAME,
    "b": SortBy.BROKER,
}
_SORTS = tuple((key, sort.value, 0) for key, sort in SORT_KEYS.items())
_KEYS = (
    ("R", "reverse", 3),
    ("T", "type", 4),
    ("/", "filter", 1),
    ("p", "pause", 5),
    ("Enter", "look", 2),
    ("?", "help", 0),
    ("q", "quit", 0),
)
"""Key, what it does, and the rank by which it is left out of a narrow footer."""
_HELP = (
    "u r t n b  sort by quota used, rate, throttle, name, broker; R reverses",
    "up, down   choose a bucket; page up, page down, home, end likewise",
    "Enter      the bucket from near: its clients and its last seconds; Esc comes back",
    "/          only buckets with this part of a name: of the bucket, of a user or client id inside",
    "T          only one quota type, one after the other",
    "p          pause: keep what is shown",
    "q          quit",
    "",
    "rate       as the broker measured it, in the newest second; 0 after 10 s without a request",
    "10 s mean  what was charged in the last 10 s, divided by 10",
    "used       rate in percent of the limit: yellow from 80 %, red over 100 %, where brokers throttle",
    "throttled  sum of the throttles that requests of the last 10 s got, by the replay;",
    "           from JMX the mean that the broker tells",
    "reqs       requests of the last 10 s",
    "clients    users or client ids inside in the last minute, whichever are more",
    "last 60 s  percent of the limit, oldest first; blank where nothing was asked of the bucket",
    "rule       u/ user, c/ client id, * the default",
)

_WIDE = 80


class Tone(Enum):
    """How a piece of a line looks."""

    PLAIN = "plain"
    STRONG = "strong"
    FAINT = "faint"
    NEAR = "near"
    OVER = "over"


class Piece(NamedTuple):
    """Escaped text in one tone."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Line:
    """A line; the chosen one is drawn reversed."""

    pieces: Sequence[Piece] = ()
    is_chosen: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """All that the screen shows.

    Attributes:
        cluster_id: of the settings.
        interval_ms: between two looks.
        stale_after_ms: the newest second may be so old.
        question: what is asked; `answer` may still be to an earlier one, and is shown under what that asked.
        answer: None before the first.
        error: why there was no newer answer; empty if there was.
        chosen: place of the chosen row.
        typed: the filter while it is typed.
    """

    cluster_id: str
    interval_ms: int
    stale_after_ms: int
    question: Question = field(default_factory=Question)
    answer: Answer | None = None
    error: str = ""
    chosen: int = 0
    typed: str | None = None
    is_paused: bool = False
    is_help: bool = False


def screen(view: View, now_ms: int, columns: int, rows: int) -> list[Line]:
    """The whole screen, at most so many rows."""
    head = [_title(view, now_ms, columns), _summary(view)]
    room = max(rows - len(head) - 1, 0)
    if view.is_help:
        body = [Line(), *(Line([Piece(text)]) for text in _HELP)]
    elif view.answer is None:
        body = [Line([Piece("reading ...")])]
    elif view.answer.question.near is not None and view.answer.near is not None:
        texts = near_lines(view.answer.question.near, view.answer.near, columns, room)
        body = [Line([Piece(text, _tone(percent))]) for text, percent in texts]
    else:
        body = _table(view, view.answer, columns, room)
    body = [*body[:room], *(Line() for _ in range(room - len(body)))]
    return [*head, *body, _footer(view, columns)][:rows]


def _tone(percent: float | None) -> Tone:
    if percent is None or percent < NEAR_PERCENT:
        return Tone.PLAIN
    return Tone.OVER if percent > LIMIT_PERCENT else Tone.NEAR


def _title(view: View, now_ms: int, columns: int) -> Line:
    newest_ms = None if view.answer is None else view.answer.newest_ms
    about = [f"every {view.interval_ms / 1_000:g} s"]
    if view.is_paused:
        about = ["PAUSED"]
    left = GAP.join(["kquota top", terminal_text(view.cluster_id), *about])
    if newest_ms is None:
        return Line([Piece(left, Tone.STRONG)])
    is_stale = now_ms - newest_ms > view.stale_after_ms
    right = _age(newest_ms, now_ms, is_stale=is_stale, is_short=columns < _WIDE)
    room = columns - width(right) - len(GAP)
    return Line(
        [
            Piece(padded(left, max(room, 0), is_text=True) + GAP, Tone.STRONG),
            Piece(right, Tone.OVER if is_stale else Tone.PLAIN),
        ]
    )


def _age(newest_ms: int, now_ms: int, *, is_stale: bool, is_short: bool) -> str:
    """How old the newest second is; of old tables with its day, since they are not live."""
    seconds = max(now_ms - newest_ms, 0) // 1_000
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            ago = f"{seconds // length} {unit} ago"
            break
    else:
        ago = f"{seconds} s ago"
    stale = "STALE: " if is_stale else ""
    time = iso_time(newest_ms)
    return f"{stale}newest second {'' if is_short else (time if is_stale else time[11:]) + ', '}{ago}"


def _summary(view: View) -> Line:
    if view.error:
        return Line([Piece(terminal_text(view.error), Tone.OVER)])
    if view.answer is None:
        return Line()
    top, question = view.answer.top, view.answer.question
    shown = len(top.rows)
    first = f", the first {shown:,} by {question.sort.value} shown" if shown < top.total else ""
    told = [f"{top.total:,} {'bucket' if top.total == 1 else 'buckets'}{first}"]
    if top.near:
        told.append(f"{top.near:,} at {NEAR_PERCENT:.0f} % or more, {top.over_limit:,} over the limit")
    return Line([Piece("; ".join(told)), *_filters(question)])


def _filters(question: Question) -> Iterator[Piece]:
    given = {
        "user": question.user,
        "client": question.client,
        "broker": None if question.broker is None else broker_text(question.broker),
        "type": question.type,
        "name with": question.text or None,
    }
    told = [f"{name} {terminal_text(value)}" for name, value in given.items() if value is not None]
    if told:
        yield Piece(f"{GAP}[{', '.join(told)}]", Tone.STRONG)


def _table(view: View, answer: Answer, columns: int, room: int) -> list[Line]:
    rows = answer.top.rows
    if answer.newest_ms is None:
        return [Line([Piece("the table decisions is empty: has the audit processed anything yet?")])]
    if not rows:
        return [Line([Piece("no bucket matches in the last 60 s of the table")])]
    shape = fitted(rows, columns)
    lines = [_titles(answer.question, shape)]
    space = max(room - 1, 1)
    # The chosen row stays in sight, in the middle where there is more above and below.
    start = max(0, min(view.chosen - space // 2, len(rows) - space))
    for place, row in enumerate(rows[start : start + space], start):
        lines.append(Line(list(_pieces(row, shape)), is_chosen=place == view.chosen))
    return lines


def _titles(question: Question, shape: Fitted) -> Line:
    titles = []
    for column, columns in shape.columns:
        mark = ("▲" if question.is_reversed else "▼") if column.sort is question.sort else ""
        titles.append(padded(column.title[: columns - len(mark)] + mark, columns, is_text=column.is_text))
    if shape.spark_cells:
        titles.append(SPARK_TITLE)
    return Line([Piece(GAP.join(titles), Tone.STRONG)])


def _pieces(row: Row, shape: Fitted) -> Iterator[Piece]:
    tone = _tone(row["quota_used_percent"])
    for number, (column, columns) in enumerate(shape.columns):
        text = cell(column, row, columns)
        yield Piece(GAP + text if number else text, tone if column.sort is SortBy.USED else Tone.PLAIN)
    if shape.spark_cells:
        yield Piece(GAP)
        for percent in slots(row["used_percents"], shape.spark_cells):
            yield Piece(bar(percent), _tone(percent))


def _footer(view: View, columns: int) -> Line:
    if view.typed is not None:
        typed = cut(terminal_text(view.typed), max(columns - 45, 8))
        return Line([Piece(f"filter: {typed}_"), Piece(f"{GAP}Enter keeps it, Esc drops it", Tone.FAINT)])
    if view.is_help or (view.answer is not None and view.answer.question.near is not None):
        return Line([Piece("Esc", Tone.STRONG), Piece(" back  "), Piece("q", Tone.STRONG), Piece(" quit")])
    keys = [(key, does) for key, does, _ in (*_SORTS, *_KEYS)]
    rank = 5
    while rank >= 0 and sum(len(key) + len(does) + 2 for key, does in keys) - 1 > columns:
        short = (("".join(SORT_KEYS), "sort", 1), *_KEYS)
        keys = [(key, does) for key, does, of_key in short if of_key <= rank]
        rank -= 1
    pieces = []
    for key, does in keys:
        pieces += [Piece(key, Tone.STRONG), Piece(f":{does} ")]
    return Line(pieces)
