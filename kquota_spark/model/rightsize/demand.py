"""The distribution of demand per window, also of windows in which a throttle hid a part of it.

Demand is kept in bins that grow by 5 %, as the histogram of Kubernetes' Vertical Pod Autoscaler (VPA) does. A window
without a throttle has one bin. A throttled one has an interval: at least what was served, at most what its connections
would have sent at their own pace. The distribution of such intervals is the estimate of Turnbull (1976). Without
intervals it is the usual empirical one, and with open intervals only it is that of Kaplan and Meier (1958).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

WINDOW_MS = 10_000
"""Length of a window of demand, ms: about what the default ring of a broker remembers."""
BIN_GROWTH = 1.05
"""Ratio of the two edges of a bin."""
_LOG_GROWTH = math.log(BIN_GROWTH)
NATURAL_RATIO = 1.2
"""A client does not catch up if its pace in the second window of a throttle is at most so many times the first."""
_MOST_ROUNDS, _SMALLEST_STEP = 300, 1e-7
_EPSILON = 1e-12


class Interval(NamedTuple):
    """The bins in which the demand of a window lies."""

    low: int
    high: int | None
    """The last bin; None if nothing bounds the demand."""


class Mass(NamedTuple):
    """The share of windows with their demand in these bins; where within them is not known."""

    low: int
    high: int | None
    share: float

    @property
    def width(self) -> float:
        """Number of bins after the first one; infinite without a bound."""
        return math.inf if self.high is None else self.high - self.low


def bin_of(value: float) -> int:
    """The bin of an amount per second; amounts below 1 are in bin 0."""
    return max(0, math.floor(math.log(max(value, 1.0)) / _LOG_GROWTH + _EPSILON))


def least_of(place: int) -> float:
    """The lower edge of a bin."""
    return math.exp(place * _LOG_GROWTH)


def most_of(place: int) -> float:
    """The upper edge of a bin."""
    return least_of(place + 1)


def distribution(found: Mapping[Interval, float]) -> list[Mass]:
    """The likeliest distribution of demand, in order of bins.

    Args:
        found: weights of windows by their interval.

    Source: Turnbull, "The Empirical Distribution Function with Arbitrarily Grouped, Censored and Truncated Data", 1976.
    """
    total = sum(found.values())
    if total <= 0:
        return []
    # An interval without weight, as of a day that is left out, must not attract the weight of wide ones.
    found = {one: weight for one, weight in found.items() if weight > 0}
    if all(one.low == one.high for one in found):
        return [Mass(one.low, one.high, weight / total) for one, weight in sorted(found.items())]
    places = _innermost(found)
    lows = [place.low for place in places]
    ends = [math.inf if place.high is None else place.high for place in places]
    members = [
        (
            bisect_left(lows, one.low),
            bisect_right(ends, math.inf if one.high is None else one.high),
            weight / total,
        )
        for one, weight in found.items()
    ]
    shares = _likeliest(members, len(places))
    return [Mass(place.low, place.high, share) for place, share in zip(places, shares, strict=True)]


def _innermost(found: Iterable[Interval]) -> list[Interval]:
    """The parts that can have mass: from a lower end to the next upper end, with no other end between."""
    ends = sorted(
        [(one.low, 0) for one in set(found)]
        + [(math.inf if one.high is None else one.high, 1) for one in set(found)]
    )
    places: list[Interval] = []
    low: float | None = None
    for place, is_end in ends:
        if not is_end:
            low = place
        elif low is not None:
            places.append(Interval(int(low), None if math.isinf(place) else int(place)))
            low = None
    return places


def _likeliest(members: Sequence[tuple[int, int, float]], count: int) -> list[float]:
    """The shares of the parts. Each round spreads the weight of an interval by the shares within it."""
    shares = [1 / count] * count
    sure = [0.0] * count
    wide = []
    for first, end, weight in members:
        if end - first == 1:
            sure[first] += weight
        else:
            wide.append((first, end, weight))
    if not wide:
        return sure
    for _ in range(_MOST_ROUNDS):
        before = list(accumulate(shares, initial=0.0))
        # The sum over all intervals that hold a part, by differences at their ends.
        steps = [0.0] * (count + 1)
        for first, end, weight in wide:
            each = weight / max(before[end] - before[first], _EPSILON)
            steps[first] += each
            steps[end] -= each
        factors = accumulate(steps[:count])
        after = [own + share * factor for own, share, factor in zip(sure, shares, factors, strict=True)]
        moved = max(abs(new - old) for new, old in zip(after, shares, strict=True))
        shares = after
        if moved < _SMALLEST_STEP:
            break
    return shares


def quantile(masses: Sequence[Mass], percent: float) -> Mass:
    """The bins that the quantile lies in.

    Args:
        masses: a distribution, not empty.
        percent: of the quantile, 0 to 100.
    """
    wanted = percent / 100 * sum(each.share for each in masses)
    below = 0.0
    for each in masses:
        below += each.share
        if below >= wanted - _EPSILON:
            return each
    return masses[-1]


def value_at(masses: Sequence[Mass], percent: float) -> float:
    """The quantile between the edges of its bin, by its rank there; its lower edge if it lies in several bins."""
    at = quantile(masses, percent)
    if at.width:
        return least_of(at.low)
    below = sum(each.share for each in masses if each.low < at.low)
    whole = sum(each.share for each in masses)
    part = (percent / 100 * whole - below) / at.share if at.share else 1.0
    return math.exp((at.low + min(max(part, 0.0), 1.0)) * _LOG_GROWTH)


def share_above(masses: Iterable[Mass], value: float) -> float:
    """The share of windows with more demand than a limit, by bins that are above the bin of the limit."""
    return math.fsum(each.share for each in masses if each.low > bin_of(value) or each.high is None)


def is_natural(ratio: float | None) -> bool:
    """Whether a client sends at its own pace while it is throttled, and does not catch up with what had to wait.

    Args:
        ratio: its pace in the second window of a throttle, as multiple of that in its first: the median; None if no
            throttle shows it.
    """
    return ratio is not None and ratio <= NATURAL_RATIO


def interval_of(low: int, pace: int | None, *, is_throttled: bool, is_natural: bool) -> Interval:
    """The bins of the demand of a window.

    Args:
        low: bin of what was served.
        pace: bin of the pace of its connections; None if it is not known.
        is_throttled: whether a throttle hid a part of the demand.
        is_natural: whether the pace is the demand, and not only a bound of it.
    """
    if not is_throttled:
        return Interval(low, low)
    if pace is None:
        return Interval(low, None)
    high = max(low, pace)
    return Interval(high if is_natural else low, high)
