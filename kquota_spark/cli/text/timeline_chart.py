"""A rate over time in characters: bars, the limit as a line of steps, and marks for events below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from kquota_spark.reports.scope.timeline_slots import Slot
from kquota_spark.reports.timeline.events import Event

LABEL = 10
"""Columns at the left of the axis."""
MOST_SLOTS = 88
"""Maximum slots in the forms for programs, which have no width."""
_ROWS = 10
_HEADROOM = 10 / 8
"""Axis height as a multiple of the highest limit: the limit is the upper edge of a row, with room above it."""
_EIGHTHS = 8
_FAR = 4.0
"""A limit that is this many times the highest rate is left out: the bars would be too small to see."""
_TICK = 14
_MOST_LETTER_ROWS = 3
_DAY_MS = 86_400_000
_BLANK = (" ", 0)


class Strokes(NamedTuple):
    """Characters to draw with."""

    bars: str
    """From an eighth of a row to a whole row."""
    unjudged: str
    """A bar from `usage`, where no quota governed."""
    limit: str
    exceeded: str
    """The line of the limit where the rate is above it."""
    edge: str
    throttled: str


BLOCKS = Strokes("▁▂▃▄▅▆▇█", "░", "─", "━", "│", "▀")
ASCII = Strokes("....####", ":", "-", "=", "|", "t")


def slots_in(columns: int) -> int:
    """The number of slots of the axis in so many columns; the last column stays free."""
    return max(columns - LABEL - 2, _TICK)


def chart(slots: Sequence[Slot], strokes: Strokes, rate: Callable[[float], str]) -> Iterator[str]:
    """The lines of the bars with their limit, top row first; the slots must fit, see `slots_in`."""
    limits = {slot.limit_per_s for slot in slots if slot.limit_per_s is not None}
    near = [limit * _HEADROOM for limit in limits - far_limits(slots)]
    top = max([_peak(slots), *near]) or 1.0
    labels = {_ROWS - 1: rate(top), 0: "0"}
    # If two limits are in one row, the later one labels it.
    labels |= {_row_of(slot.limit_per_s, top): rate(slot.limit_per_s)
               for slot in slots if slot.limit_per_s is not None and slot.limit_per_s <= top}  # fmt: skip
    for row in reversed(range(_ROWS)):
        cells = "".join(_cell(slot, row, top, strokes) for slot in slots)
        yield f"{labels.get(row, ''):>{LABEL}}{strokes.edge}{cells}".rstrip()


def far_limits(slots: Sequence[Slot]) -> set[float]:
    """Limits that are too high for the chart."""
    peak = _peak(slots)
    return {
        slot.limit_per_s
        for slot in slots
        if slot.limit_per_s is not None and slot.limit_per_s > _FAR * peak > 0
    }


def _peak(slots: Sequence[Slot]) -> float:
    return max((slot.rate_per_s or 0.0 for slot in slots), default=0.0)


def _row_of(value: float, top: float) -> int:
    """The row that has this value in its upper part or at its edge."""
    return min(max(-int(-value * _ROWS // top) - 1, 0), _ROWS - 1)


def _cell(slot: Slot, row: int, top: float, strokes: Strokes) -> str:
    """A character of the chart. The line of the limit crosses the bars, so a bar above it is over the limit."""
    rate, limit = slot.rate_per_s, slot.limit_per_s
    if rate is None:
        return " "
    is_over = limit is not None and rate > limit
    line = -1 if limit is None or limit > top else _row_of(limit, top)
    if row == line:
        return strokes.exceeded if is_over else strokes.limit
    eighths = rate / top * _ROWS * _EIGHTHS - row * _EIGHTHS
    if rate > 0 and (row == 0 or (is_over and row == line + 1)):
        eighths = max(eighths, 1.0)
    if eighths < 1.0:
        return " "
    if slot.source == "usage":
        return strokes.unjudged
    return strokes.bars[min(int(eighths), _EIGHTHS) - 1]


def marks(slots: Sequence[Slot], gaps: Sequence[Event], length_ms: int, strokes: Strokes) -> Iterator[str]:
    """The rows of marks that are not empty: throttled, muted, uncertain, no log.

    Args:
        slots: in order, without a break.
        gaps: periods without a log.
        length_ms: length of a slot, ms.
        strokes: characters to draw with.
    """
    rows: Mapping[str, list[str]] = {
        "throttled": [
            strokes.throttled
            if slot.throttled_requests or (slot.source == "jmx" and slot.throttled_ms)
            else " "
            for slot in slots
        ],
        "muted": [strokes.unjudged if slot.is_muted else " " for slot in slots],
        "uncertain": ["~" if slot.is_certain is False and slot.source == "log" else " " for slot in slots],
        "no log": ["?" if any(_overlaps(gap, slot, length_ms) for gap in gaps) else " " for slot in slots],
    }
    for name, cells in rows.items():
        if any(cell != " " for cell in cells):
            yield f"{name:>{LABEL}}{strokes.edge}{''.join(cells)}".rstrip()


def _overlaps(gap: Event, slot: Slot, length_ms: int) -> bool:
    return gap.time_ms < slot.from_ms + length_ms and (gap.until_ms or gap.time_ms + 1) > slot.from_ms


def letter_of(number: int) -> str:
    """The label of an event by its place: A to Z, then AA to AZ, BA and so on."""
    label = ""
    while number >= 0:
        label = chr(ord("A") + number % 26) + label
        number = number // 26 - 1
    return label


def letters(
    lettered: Sequence[tuple[str, Event]], from_ms: int, length_ms: int, count: int, edge: str
) -> Iterator[str]:
    """Rows with the label of each event at its time; `+` where not all events have room.

    Args:
        lettered: events with one label each, see `letter_of`.
        from_ms: start of the first slot, epoch ms.
        length_ms: length of a slot, ms.
        count: number of slots.
        edge: character between the label and the first slot.
    """
    # A cell of a label has the whole label, and the cell's place in it.
    rows = [[_BLANK] * count for _ in range(_MOST_LETTER_ROWS)]
    for label, event in lettered:
        place = min(max((event.time_ms - from_ms) // length_ms, 0), max(count - len(label), 0))
        row = next((row for row in rows if _has_room(row, place, label)), None)
        if row is not None:
            row[place : place + len(label)] = [(label, index) for index in range(len(label))]
            continue
        in_the_way, index = rows[-1][place]
        first = place - index
        rows[-1][first : first + len(in_the_way)] = [_BLANK] * len(in_the_way)
        rows[-1][place] = ("+", 0)
    for number, row in enumerate(rows):
        if any(cell != _BLANK for cell in row):
            name = "events" if number == 0 else ""
            cells = "".join(label[index] for label, index in row)
            yield f"{name:>{LABEL}}{edge}{cells}".rstrip()


def _has_room(row: Sequence[tuple[str, int]], place: int, label: str) -> bool:
    """Whether a label fits; one of several letters needs a blank beside it, to differ from its neighbours."""
    margin = len(label) > 1
    return all(cell == _BLANK for cell in row[max(place - margin, 0) : place + len(label) + margin])


def time_axis(from_ms: int, length_ms: int, count: int) -> str:
    """The times of day below their slots, with the day if the chart covers several days."""
    has_days = from_ms // _DAY_MS != (from_ms + length_ms * count - 1) // _DAY_MS
    form = "%m-%d %H:%M" if has_days else "%H:%M:%S" if length_ms < 60_000 else "%H:%M"
    line = " " * (LABEL + 1)
    for slot in range(0, max(count - len(form), 1), _TICK):
        moment = datetime.fromtimestamp((from_ms + slot * length_ms) / 1_000, UTC)
        line = line.ljust(LABEL + 1 + slot) + moment.strftime(form)
    return line
