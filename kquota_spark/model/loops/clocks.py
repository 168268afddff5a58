"""A client that has its next request ready when a throttle ends: it sends by the clock, or has always more to send."""

from __future__ import annotations

from typing import NamedTuple


class Clock(NamedTuple):
    """A client that sends by the clock, also during a throttle: its usual gap, and the gap after a throttle (ms)."""

    gap_ms: int
    after_throttle_ms: int


class Ticks:
    """One connection of such a client in a run.

    Some clients make up for lost time: after a long throttle the record has gaps far below the usual one. They depend
    on that throttle. So such a gap stays short only as far as the throttles of the run left something to make up for.

    Args:
        clock: None for a client that always has the next request ready.
    """

    __slots__ = ("_clock", "_late_ms")

    def __init__(self, clock: Clock | None) -> None:
        self._clock, self._late_ms = clock, 0

    def gap_ms(self, own_ms: int, was_ms: int, throttle_ms: int, *, is_moved: bool) -> int:
        """The new gap (ms) after a request.

        Args:
            own_ms: the recorded gap without the recorded throttle, ms.
            was_ms: the recorded throttle, ms.
            throttle_ms: the throttle under the tried quotas, ms.
            is_moved: whether the request was sent at another time than recorded.
        """
        gap_ms = own_ms + was_ms
        if self._clock is None:
            return gap_ms if throttle_ms == was_ms else max(own_ms, throttle_ms)
        usual_ms, after_ms = self._clock
        late_ms = self._late_ms
        if throttle_ms > usual_ms:
            self._late_ms = late_ms + throttle_ms - usual_ms
        if throttle_ms == was_ms and not is_moved:
            return gap_ms
        if was_ms >= usual_ms:
            return max(own_ms + throttle_ms, min(gap_ms, usual_ms))
        if 2 * gap_ms < usual_ms:
            made_up_ms = min(late_ms, usual_ms - gap_ms)
            self._late_ms -= made_up_ms
            gap_ms = usual_ms - made_up_ms
        # The gap is the client's own, also where a shorter throttle fell into it.
        return max(gap_ms, min(after_ms, gap_ms) + throttle_ms)
