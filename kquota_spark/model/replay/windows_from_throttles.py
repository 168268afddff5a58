"""What earlier throttles of a bucket show of the broker's own ring, and which verdicts are therefore uncertain.

A throttled request shows the broker's window to the millisecond: `throttle = total / limit - window`. The oldest sample
began that much earlier. As long as this sample is the oldest, the same difference holds for the requests that follow.
A broker that shares its cores writes its log late by 5 to 100 ms. Its samples then begin at other times than in the
log, and only its throttles show by how much.

The throttles decide which verdicts are certain, never the verdicts themselves. No throttle is used for its own request.

* A ring with another window than the broker's is left out of the comparison with the others.
* If the replay's own window is off, a verdict is certain only if the broker's window gives the same one.
* A ring that throttles a request that the broker did not throttle is wrong until its oldest sample has gone.
* While the last throttles are mostly off, a window that no throttle has shown yet may be off by as much. The same holds
  for the end of a sample that began at another time.

For measurements on nine logs, see `tests/unit/model/replay/test_busy_brokers.py`. Logs of calm brokers have a third
fewer uncertain verdicts and no more wrong ones. In logs of busy brokers a fifth to a quarter of the wrong ones is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig

MARGIN_MS = 2
_INFINITE = float("inf")
_OFF_MS = 3
"""Largest difference (ms) at which a window counts as the broker's: on calm machines the log is 1 or 2 ms off."""
_LAST, _LEAST = 8, 4
"""Throttles that show whether the log is late: how many of the last ones count, and the fewest that must exist."""
_AS_FAR = 3
"""Factor: a window that no throttle has shown yet may be off by this many times the largest difference seen."""
_NEAR_END = 0.7
"""Part of a sample's length, after its N windows, from which it may have ended if its start was off."""
_COMPARED = (int(PointKind.PRODUCE), int(PointKind.FETCH))

Measured = tuple[Sequence[int], Sequence[int]]
"""Results of a ring after each request: the amounts in the window, and the window's lengths in ms."""

Shown = tuple[int, float, int | None]
"""What the last throttle showed of a ring: the start of its oldest sample (epoch ms), the limit in bytes per ms, and
how much longer the broker's window is (ms). The last is None if it is only known that the ring is wrong."""
State = tuple[Sequence[Sequence[float | None] | None], Sequence[tuple[int, int]]]


class Sign(Enum):
    """What the rings and the earlier throttles show about a verdict."""

    CONFIRMED = 1
    """A throttle has shown this window, and it gives the same verdict."""
    RINGS_DIFFER = 2
    WINDOW_IS_OFF = 3


class WindowsFromThrottles:
    """The windows that throttles have shown of one bucket's rings, the replay's own first; continued from a `state`."""

    __slots__ = ("_config", "_late_ms", "_offs", "_shown")

    def __init__(self, config: RateConfig, state: State | None = None) -> None:
        shown, offs = state or ((), ())
        self._config = config
        self._shown: list[Shown | None] = [each and tuple(each) for each in shown]  # type: ignore[misc]
        self._offs: list[tuple[int, int]] = [(time_ms, off_ms) for time_ms, off_ms in offs]
        self._late_ms: int | None = None

    @property
    def state(self) -> State:
        """The state from which another `WindowsFromThrottles` can continue."""
        return self._shown, self._offs

    def __bool__(self) -> bool:
        return bool(self._shown or self._offs)

    def forget(self, before_ms: int) -> None:
        """Drop everything that cannot matter for requests from `before_ms` on (epoch ms)."""
        oldest_ms = before_ms - self._config.horizon_ms
        self._shown = [shown if shown and shown[0] >= oldest_ms else None for shown in self._shown]
        while self._shown and self._shown[-1] is None:
            self._shown.pop()
        self._offs = [each for each in self._offs if each[0] >= oldest_ms]
        self._late_ms = None

    def signs(
        self,
        points: Sequence[Point],
        allowed: Sequence[float],
        are_judged: Sequence[bool],
        rings: Sequence[Measured],
    ) -> list[Sign | None]:
        """The sign for or against each verdict, from the throttles before it; learns from each request.

        Args:
            points: requests in order.
            allowed: the limit of each request, in bytes per ms; infinite if there is none.
            are_judged: for each request, whether no other quota can have throttled it.
            rings: results of the rings, the replay's own first.

        Returns:
            For each request a sign; None if there is none.
        """
        shown = self._shown
        shown += [None] * (len(rings) - len(shown))
        own_totals, own_windows_ms = rings[0]
        # Most rings measure the same as the replay's own, most of the time.
        others = [
            (ring, totals, windows_ms)
            for ring, (totals, windows_ms) in enumerate(rings)
            if totals != own_totals or windows_ms != own_windows_ms
        ]
        found: list[Sign | None] = [None] * len(points)
        for place, (time_ms, _, _, _, _, throttle_ms, kind, _) in enumerate(points):
            per_ms = allowed[place]
            if not are_judged[place] or kind not in _COMPARED or per_ms == _INFINITE:
                continue
            total, window_ms = own_totals[place], own_windows_ms[place]
            above, start_ms = total / per_ms - window_ms, time_ms - window_ms
            sign = self._own_sign(above, time_ms, start_ms, per_ms)
            for ring, totals, windows_ms in others:
                other = totals[place], windows_ms[place]
                if other != (total, window_ms):
                    above_other, start_other_ms = other[0] / per_ms - other[1], time_ms - other[1]
                    if self._differs(ring, above_other, start_other_ms, per_ms, above > 0):
                        sign = sign if sign is Sign.WINDOW_IS_OFF else Sign.RINGS_DIFFER
                    self._learn(ring, above_other, start_other_ms, per_ms, throttle_ms)
            found[place] = sign
            self._learn(0, above, start_ms, per_ms, throttle_ms)
            if throttle_ms > 0:
                self._note(time_ms, abs(round(above) - throttle_ms))
        return found

    def _own_sign(self, above: float, time_ms: int, start_ms: int, per_ms: float) -> Sign | None:
        shown = self._shown[0]
        if shown is None or shown[0] != start_ms or shown[1] != per_ms:
            is_off = abs(above) <= _AS_FAR * self._late_by_ms(time_ms)
            return Sign.WINDOW_IS_OFF if is_off else None
        off_ms = shown[2]
        if off_ms is None:
            return Sign.WINDOW_IS_OFF
        by_broker = above - off_ms
        if -MARGIN_MS <= by_broker <= MARGIN_MS or (by_broker > 0) is not (above > 0):
            return Sign.WINDOW_IS_OFF
        if not -_OFF_MS <= off_ms <= _OFF_MS:
            end_ms = (self._config.num_samples + _NEAR_END) * self._config.window_ms
            if time_ms - start_ms > end_ms and self._late_by_ms(time_ms):
                return Sign.WINDOW_IS_OFF
        return Sign.CONFIRMED

    def _differs(self, ring: int, above: float, start_ms: int, per_ms: float, is_over: bool) -> bool:
        """Whether another ring gives the other verdict and is not known to be wrong."""
        shown = self._shown[ring]
        if shown is None or shown[0] != start_ms or shown[1] != per_ms:
            return (above > 0) is not is_over
        off_ms = shown[2]
        return off_ms is not None and abs(off_ms) <= _OFF_MS and (above - off_ms > 0) is not is_over

    def _late_by_ms(self, time_ms: int) -> int:
        """The most (ms) that the last windows were off, if most of them were; otherwise 0."""
        oldest_ms = time_ms - self._config.horizon_ms
        if self._late_ms is None or (self._offs and self._offs[0][0] < oldest_ms):
            self._offs = [each for each in self._offs if each[0] >= oldest_ms]
            offs = sorted(off_ms for _, off_ms in self._offs)
            is_late = len(offs) >= _LEAST and offs[(len(offs) - 1) // 2] > _OFF_MS
            self._late_ms = offs[-1] if is_late else 0
        return self._late_ms

    def _note(self, time_ms: int, off_ms: int) -> None:
        self._offs.append((time_ms, off_ms))
        del self._offs[:-_LAST]
        self._late_ms = None

    def _learn(self, ring: int, above: float, start_ms: int, per_ms: float, throttle_ms: int) -> None:
        if throttle_ms > 0:
            self._shown[ring] = start_ms, per_ms, round(above) - throttle_ms
        elif above > MARGIN_MS:
            self._shown[ring] = start_ms, per_ms, None
