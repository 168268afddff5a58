"""Times of the request log: broker-local text to epoch ms, and the time when the quota was recorded."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS

_CACHED_SECONDS = 4_096
_SECOND = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
MILLISECONDS = {b"%c%03d" % (mark, ms): ms for mark in b",." for ms in range(1_000)}
"""Milliseconds by the text that follows the second of a log time."""
_TO_SECOND, _MILLISECOND = slice(19), slice(19, None)  # constants: creating them per line takes 0.05 us
# Floats, because they are compared with a float: 0.1 us less than a comparison with two ints.
EARLIEST_MS, LATEST_MS = float(BEGINNING_MS), float(END_MS)
_MOST_AHEAD_MS = 60_000
_WAITED_PRODUCE_MS = 5.0
FETCH_WAITS_FROM_MS = 50.0
"""Least `remoteTimeMs`, ms, of a fetch that waited for data before its quota was checked."""
NEVER_WAITS_MS = float("nan")  # no number is greater than or equal to it, not even infinity


class SkippedTime(ValueError):
    """A time that clocks of the zone never showed, because they were put forward past it."""


class LogClock:
    """Reads `2026-11-21 05:40:48,390` in the time zone of the broker's log.

    The zone is resolved once per second of log time, so a small cache serves almost every line. When clocks are put
    back, an hour occurs twice. The time at which the line was seen then decides which of the two is meant.
    """

    def __init__(self, zone: str = "UTC") -> None:
        self._zone = ZoneInfo(zone)
        self._seconds: dict[bytes, int] = {}
        self._shown_twice: dict[bytes, tuple[int, int]] = {}

    def epoch_ms(self, text: bytes, seen_ms: int | None = None) -> int:
        """Epoch ms of a 23-byte log time.

        Args:
            text: the time.
            seen_ms: a time by which the line had certainly been written, epoch ms, e.g. the timestamp of its
                message. It decides which is meant of a time that occurs twice: the later one, if that is at most
                a minute ahead of it. Without it the first is used. For a line that took an hour to arrive, the
                choice is wrong.

        Raises:
            SkippedTime: clocks of the zone never showed it, so the zone is wrong.
            ValueError: the text is not such a time.
        """
        try:
            return self._seconds[text[_TO_SECOND]] + MILLISECONDS[text[_MILLISECOND]]
        except KeyError:
            return self._new_second_ms(text, seen_ms)

    def second_ms(self, second: bytes) -> int | None:
        """Epoch ms of a log time's first 19 bytes; None if they are not a time, or one that occurs twice or never."""
        if second not in self._seconds:
            try:
                self._resolve(second)
            except ValueError:
                return None
        return self._seconds.get(second)

    def is_shown_twice(self, text: bytes) -> bool:
        """Whether a log time is in the hour that occurs twice because clocks are put back."""
        second = text[_TO_SECOND]
        if second in self._seconds:
            return False
        try:
            self._resolve(second)
        except ValueError:
            return False
        return second in self._shown_twice

    def _new_second_ms(self, text: bytes, seen_ms: int | None) -> int:
        milli = MILLISECONDS.get(text[_MILLISECOND])
        second = text[_TO_SECOND]
        if milli is None:
            raise ValueError(text)
        self._resolve(second)
        if second in self._seconds:
            return self._seconds[second] + milli
        first_ms, later_ms = self._shown_twice[second]
        is_later = seen_ms is not None and later_ms + milli <= seen_ms + _MOST_AHEAD_MS
        return (later_ms if is_later else first_ms) + milli

    def _resolve(self, second: bytes) -> None:
        """Put a second into one of the two caches: for those that occur once, or for those that occur twice."""
        if second in self._shown_twice:
            return
        if _SECOND.fullmatch(second) is None:
            raise ValueError(second)  # strptime would accept numbers of one digit and any blank
        local = datetime.strptime(second.decode("ascii"), "%Y-%m-%d %H:%M:%S").replace(tzinfo=self._zone)
        first_ms, later_ms = (round(local.replace(fold=fold).timestamp()) * 1_000 for fold in (0, 1))
        if later_ms < first_ms:  # PEP 495: in a gap fold=0 is the offset before it, fold=1 the one after
            raise SkippedTime(second)
        for cache in (self._seconds, self._shown_twice):
            if len(cache) >= _CACHED_SECONDS:
                cache.clear()
        if later_ms == first_ms:
            self._seconds[second] = first_ms
        else:
            self._shown_twice[second] = first_ms, later_ms


def record_time_ms(
    log_time_ms: int, send_ms: float, response_queue_ms: float, remote_ms: float, has_waited: bool
) -> int:
    """The time when the broker recorded the request in its quota, epoch ms: the best estimate that the log allows.

    The line is written after the response is sent, so the time spent after the quota check is subtracted. A short
    `remoteTimeMs` is only the way to the response queue (the broker stamps "local complete" inside the check) and
    is subtracted too. After a real wait, the check came last. This is the best of 18 estimates over captures of
    3.9.1.

    Args:
        log_time_ms: log time of the line, epoch ms.
        send_ms: `sendTimeMs` of the line.
        response_queue_ms: `responseQueueTimeMs` of the line.
        remote_ms: `remoteTimeMs` of the line.
        has_waited: whether the request waited for replicas or data before its quota was checked.

    Raises:
        OverflowError: the result is before 1970 or after 9999. No broker writes such a line, but nothing bounds its
            floats. A time that does not fit into the column would stop the batch and every retry of it.
    """
    before = log_time_ms - send_ms - response_queue_ms - (0.0 if has_waited else remote_ms)
    if not EARLIEST_MS <= before <= LATEST_MS:
        raise OverflowError
    return int(before + 0.5)


def produce_waits_from_ms(acks: int) -> float:
    """Least `remoteTimeMs` of a produce that waited for replicas before its quota was checked; only acks=all can."""
    return _WAITED_PRODUCE_MS if acks == -1 else NEVER_WAITS_MS


def has_produce_waited(acks: int, remote_ms: float) -> bool:
    """Whether a produce waited for replicas before its quota was checked (only acks=all can)."""
    return remote_ms >= produce_waits_from_ms(acks)


def has_fetch_waited(remote_ms: float) -> bool:
    """Whether a fetch waited for data before its quota was checked."""
    return remote_ms >= FETCH_WAITS_FROM_MS
