"""The screen of `kquota top` as lines with their tones. Independent of the terminal and the clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kquota_spark.cli.text.page import Tone
from kquota_spark.cli.text.render import Row
from kquota_spark.cli.top.age import Age, age_of
from kquota_spark.cli.top.details import detail_lines
from kquota_spark.cli.top.feed import Answer, Question
from kquota_spark.cli.top.lines import (
    GAP,
    ORDERS,
    SPARK_TITLE,
    Fitted,
    Line,
    Piece,
    bar,
    cell,
    fitted,
    line_of,
    padded,
    slots,
    tone_of,
)
from kquota_spark.formats.text.escape import cut, terminal_text, width
from kquota_spark.formats.text.person_units import broker_text, iso_time
from kquota_spark.reports.timeline.top_buckets import NEAR_PERCENT, SortBy

_AROUND = 3
"""Lines of the screen around its body: two above, one below."""
_WIDE = 80
SORT_KEYS = {"u": SortBy.USED, "r": SortBy.RATE, "t": SortBy.DELAY, "n": SortBy.NAME, "b": SortBy.BROKER}
KEYS = (
    ("".join(SORT_KEYS), "sort", 1),
    ("R", "reverse", 6),
    ("B", "brokers", 5),
    ("T", "type", 6),
    ("/", "filter", 1),
    ("Enter", "chart", 2),
    ("e", "explain", 3),
    ("v", "violations", 4),
    ("p", "pause", 7),
    ("?", "help", 0),
    ("q", "quit", 0),
)
"""Key, its action, and its rank: a narrow footer leaves out the largest rank first."""
HELP = (
    "j k, arrows  next and previous row, or scroll",
    "g G          first and last row; page up and down",
    "u r t n b    sort by used, rate, total delay, name, broker",
    "R            reverse the order",
    "/            filter by part of a name; Esc clears it",
    "T            only one quota type, one after the other",
    "B            one row per bucket, with its worst broker,",
    "             or one row per bucket and broker",
    "Enter        the bucket: chart, clients, last seconds",
    "e            explain: which rule sets the limit, and why",
    "v            violations of the bucket",
    "Esc          back",
    "p            pause: keep what is shown",
    "?            this help; Esc closes it",
    "q            quit",
    "",
    "broker       the worst; 2 of 3: it uses three brokers.",
    "             Worst by the sorted figure, else by used",
    "rate         the broker's own, in the newest second;",
    "             0 after 10 s of silence",
    "10 s mean    charged in the last 10 s, divided by 10",
    "used         rate in percent of the limit: yellow from",
    "             80 %, red over 100 %, where brokers throttle",
    "total delay  sum of the throttle times of the requests of",
    "             the last 10 s; from JMX the broker's mean",
    "time         clock time of the last 10 s in which the",
    " throttled   bucket was throttled",
    "throttled    requests of the last 10 s that were",
    " requests    throttled, of all requests",
    "clients      users or client ids in the last minute,",
    "             whichever are more",
    "last 60 s    percent of the limit, oldest first; blank:",
    "             no request",
    "rule         u/ user, c/ client id, * the default",
)
"""The help on keys and columns, in 60 columns."""


@dataclass(frozen=True, slots=True)
class View:
    """The complete state of the screen."""

    cluster_id: str
    interval_ms: int
    stale_after_ms: int
    """Maximum age of the newest second before it is stale, ms."""
    question: Question = field(default_factory=Question)
    """The present question. `answer` may still belong to an earlier one, and is shown with that."""
    answer: Answer | None = None
    error: str = ""
    """Why there is no newer answer; empty if there is one."""
    chosen: int = 0
    """Index of the chosen row."""
    scroll: int = 0
    """Lines scrolled past, in the help or the view of one bucket."""
    typed: str | None = None
    """The filter while the user types it; None otherwise."""
    is_paused: bool = False
    is_help: bool = False


def screen(view: View, now_ms: int, columns: int, rows: int) -> list[Line]:
    """The lines of the whole screen.

    Args:
        view: the state to show.
        now_ms: epoch ms, for the age of the newest second.
        columns: width of the screen.
        rows: height of the screen; at most so many lines are returned.
    """
    newest_ms = None if view.answer is None else view.answer.newest_ms
    age = None if newest_ms is None else age_of(newest_ms, now_ms, view.stale_after_ms)
    head = [_title(view, age, columns), _summary(view)]
    room = max(rows - _AROUND, 0)
    text = _text(view, columns)
    if text is not None:
        start = min(view.scroll, max(len(text) - room, 0))
        body, below = text[start : start + room], max(len(text) - room - start, 0)
    elif view.answer is None:
        body, below = [line_of("reading ...")], 0
    else:
        is_stale = age is not None and age.is_stale
        body, below = _table(view, view.answer, columns, room, is_stale=is_stale)[:room], 0
    blanks = [Line() for _ in range(room - len(body))]
    return [*head, *body, *blanks, _footer(view, columns, below)][:rows]


def most_scroll(view: View, columns: int, rows: int) -> int:
    """How far the text on the screen can be scrolled, lines; 0 if there is no text."""
    return max(len(_text(view, columns) or ()) - max(rows - _AROUND, 0), 0)


def _text(view: View, columns: int) -> list[Line] | None:
    """The lines of the help or of one bucket; None for the list of buckets."""
    if view.is_help:
        return [line_of(text) for text in HELP]
    if view.answer is None or view.answer.details is None or view.answer.question.selected is None:
        return None
    return detail_lines(view.answer.question.selected, view.answer.details, columns)


def _title(view: View, age: Age | None, columns: int) -> Line:
    about = "PAUSED" if view.is_paused else f"every {view.interval_ms / 1_000:g} s"
    left = GAP.join(["kquota top", terminal_text(view.cluster_id), about])
    if age is None:
        return line_of(left, Tone.TITLE)
    right = _age_text(age, is_short=columns < _WIDE)
    room = columns - width(right) - len(GAP)
    if width(left) > room and not view.is_paused:
        left = left.removesuffix(GAP + about)
    named = Piece(padded(left, max(room, 0), is_text=True) + GAP, Tone.TITLE)
    return Line([named, Piece(right, Tone.OVER if age.is_stale else None)])


def _age_text(age: Age, *, is_short: bool) -> str:
    """The age of the newest second. Stale tables show the day as well, because they are not live."""
    if age.is_stale:
        return age.stale_text.partition(" (")[0] if is_short else age.stale_text
    time = "" if is_short else f"{iso_time(age.newest_ms)[11:]}, "
    return f"newest second {time}{age.ago_text}"


def _summary(view: View) -> Line:
    if view.error:
        return line_of(terminal_text(view.error), Tone.OVER)
    if view.answer is None:
        return Line()
    top, question = view.answer.top, view.answer.question
    shown = len(top.rows)
    first = f", the first {shown:,} by {question.sort.value} shown" if shown < top.total else ""
    noun = "bucket" if top.total == 1 else "buckets"
    each = "rows per broker" if question.is_per_broker else noun
    parts = [f"{top.total:,} {each}{first}"]
    if top.near:
        parts.append(f"{top.near:,} at {NEAR_PERCENT:.0f} % or more, {top.over_limit:,} over the limit")
    return Line([Piece("; ".join(parts)), *_filters(question)])


def _filters(question: Question) -> Iterator[Piece]:
    given = {
        "user": question.user,
        "client": question.client,
        "broker": None if question.broker is None else broker_text(question.broker),
        "type": question.type,
        "name with": question.text or None,
    }
    parts = [f"{name} {terminal_text(value)}" for name, value in given.items() if value is not None]
    if parts:
        yield Piece(f"{GAP}[{', '.join(parts)}]", Tone.TITLE)


def _table(view: View, answer: Answer, columns: int, room: int, *, is_stale: bool) -> list[Line]:
    rows = answer.top.rows
    if answer.newest_ms is None:
        return [line_of("the table decisions is empty: has the audit processed anything yet?")]
    if not rows:
        return [line_of("no bucket matches in the last 60 s of the table")]
    shape = fitted(rows, columns)
    lines = [_titles(answer.question, shape)]
    space = max(room - 1, 1)
    # The chosen row stays visible, in the middle if there are rows above and below.
    start = max(0, min(view.chosen - space // 2, len(rows) - space))
    for place, row in enumerate(rows[start : start + space], start):
        pieces = list(_pieces(row, shape, is_stale=is_stale))
        lines.append(Line(pieces, is_chosen=place == view.chosen))
    return lines


def _titles(question: Question, shape: Fitted) -> Line:
    titles = []
    for column, columns in shape.columns:
        mark = ("▲" if question.is_reversed else "▼") if ORDERS.get(column.title) is question.sort else ""
        titles.append(padded(column.title[: columns - len(mark)] + mark, columns, is_text=column.is_text))
    if shape.spark_cells:
        titles.append(SPARK_TITLE)
    return line_of(GAP.join(titles), Tone.TITLE)


def _pieces(row: Row, shape: Fitted, *, is_stale: bool) -> Iterator[Piece]:
    """The cells of a row. Without colours if it is stale: nobody is over a limit now."""
    tone = None if is_stale else tone_of(row["quota_used_percent"])
    for number, (column, columns) in enumerate(shape.columns):
        text = cell(column, row, columns)
        yield Piece(GAP + text if number else text, tone if column.title == "used" else None)
    if shape.spark_cells:
        yield Piece(GAP)
        for percent in slots(row["used_percents"], shape.spark_cells):
            yield Piece(bar(percent), None if is_stale else tone_of(percent))


def _footer(view: View, columns: int, below: int) -> Line:
    if view.typed is not None:
        typed = cut(terminal_text(view.typed), max(columns - 45, 8))
        return Line([Piece(f"filter: {typed}_"), Piece(f"{GAP}Enter keeps it, Esc drops it", Tone.FAINT)])
    is_text = view.is_help or (view.answer is not None and view.answer.question.selected is not None)
    keys = _text_keys(view, below) if is_text else KEYS
    rank = max(of_key for _, _, of_key in keys)
    while rank > 0 and sum(len(key) + len(does) + 2 for key, does, _ in keys) - 1 > columns:
        rank -= 1
        keys = tuple(key for key in keys if key[2] <= rank)
    pieces = []
    for key, does, _ in keys:
        pieces += [Piece(key, Tone.TITLE), Piece(f":{does} ")]
    return Line(pieces)


def _text_keys(view: View, below: int) -> tuple[tuple[str, str, int], ...]:
    """The keys for scrollable text, in the form of `KEYS`."""
    scroll = (("j/k", f"{below} below" if below else "scroll", 1),) if below or view.scroll else ()
    bucket_views = (("Enter", "chart", 2), ("e", "explain", 2), ("v", "violations", 2))
    return (("Esc", "back", 0), *scroll, *(() if view.is_help else bucket_views), ("q", "quit", 3))
