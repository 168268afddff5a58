"""The period of a report, as people write it. Days are UTC days, as in the tables."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import NamedTuple

from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS

EXPECTED = (
    "expected day (yesterday), week (the last 7 whole days), today, last:2h (s, m, h or d), or FROM..TO with dates "
    "(both days included) or times in UTC, such as 2026-11-20..2026-11-21 or 2026-11-21T05:00..2026-11-21T06:00"
)
_DAY_MS = 86_400_000
_LAST = re.compile(r"last:(\d+)(s|m|h|d)")
_LENGTH_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": _DAY_MS}


class Period(NamedTuple):
    """From `from_ms` until `to_ms`, exclusive, epoch ms."""

    from_ms: int
    to_ms: int


def parse_period(text: str, now_ms: int) -> Period:
    """The period that a text describes.

    Args:
        text: `day` is yesterday, `week` the last seven whole days before today, `today` all until now, `last:2h` the
            two hours before now. `FROM..TO` is between two ISO dates, both days as a whole, or times in UTC.
        now_ms: the present time, to which the words are relative, epoch ms.

    Raises:
        ValueError: the text is no such period, or an empty one; the message contains what is expected.
    """
    try:
        found = _parsed(text.strip(), now_ms)
    except (ValueError, OverflowError) as error:
        msg = f"{text!r}: {EXPECTED}"
        raise ValueError(msg) from error
    if not BEGINNING_MS <= found.from_ms < found.to_ms <= END_MS:
        msg = f"{text!r} is an empty period, or outside the years 1970 to 9999: {EXPECTED}"
        raise ValueError(msg)
    return found


def _parsed(text: str, now_ms: int) -> Period:
    midnight_ms = now_ms - now_ms % _DAY_MS
    if text == "day":
        return Period(midnight_ms - _DAY_MS, midnight_ms)
    if text == "week":
        return Period(midnight_ms - 7 * _DAY_MS, midnight_ms)
    if text == "today":
        return Period(midnight_ms, now_ms)
    if (last := _LAST.fullmatch(text)) is not None:
        return Period(now_ms - int(last[1]) * _LENGTH_MS[last[2]], now_ms)
    start, _, end = text.partition("..")
    return Period(_time_ms(start, is_end=False), _time_ms(end, is_end=True))


def _time_ms(text: str, *, is_end: bool) -> int:
    moment = datetime.fromisoformat(text)
    time = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    time_ms = round(time.timestamp() * 1_000)
    return time_ms + _DAY_MS if is_end and _is_date(text) else time_ms


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
