"""How long the broker makes a client wait for a measured rate: Java's doubles, rounding and casts included.

Source: Kafka's `QuotaUtils.throttleTime`, `QuotaUtils.boundedThrottleTime`, `ClientRequestQuotaManager`.
A result that is not above 0 means that the broker does not throttle, whatever the rate is.
"""

from __future__ import annotations

import math

LONG_MAX = 2**63 - 1
_LONG_MIN = -(2**63)
_INT_BITS = 32
_SURELY_INT32 = 2.0**31 - 2
_PERCENT_PER_NS = 100.0 / 1_000_000_000
"""One thread busy for a whole second is 100; the broker multiplies by this double too."""


def rate_per_s(total: float, window_ms: int) -> float:
    """Amount per second over the measured window, in the broker's own floating-point steps."""
    return total / (window_ms / 1000.0)


def request_percent(thread_time_ns: int) -> float:
    """What a request adds to a request_percentage sensor for its time on the broker's threads (KIP-124)."""
    return thread_time_ns * _PERCENT_PER_NS


def throttle_time_ms(total: float, window_ms: int, limit_per_s: float | None) -> int:
    """Throttle time of a bandwidth quota: (rate - limit) / limit * window, rounded and narrowed as in Java.

    Returns:
        0 when the rate is not above the limit or there is none; may be negative, where the limit is or after
        the broker's narrowing of a long to 32 bits (a limit of 0 gives -1).
    """
    if limit_per_s is None:
        return 0
    rate = rate_per_s(total, window_ms)
    if not rate > limit_per_s:
        return 0
    if limit_per_s > 0:  # as nearly all are; the rest goes Java's way in full
        raw = (rate - limit_per_s) / limit_per_s * window_ms
        if raw < _SURELY_INT32:
            whole = int(raw)
            return whole + (raw - whole >= 0.5)
    return to_int32(java_round(java_divide(rate - limit_per_s, limit_per_s) * window_ms))


def bounded_throttle_time_ms(total: float, window_ms: int, limit_per_s: float | None, cap_ms: int) -> int:
    """Throttle time of the request and connection quotas: that of bandwidth, but at most `cap_ms`.

    The cap is one sample's length (quota.window.size.seconds). It comes before the narrowing to 32 bits, so
    a limit of 0, which switches a bandwidth quota off, holds a client here for `cap_ms` every time.

    Args:
        total: in the windows, in the unit of the quota: percent-seconds or connections.
        window_ms: time that the windows span.
        limit_per_s: None for no limit.
        cap_ms: longest throttle time, the length of a sample.
    """
    if limit_per_s is None:
        return 0
    rate = rate_per_s(total, window_ms)
    if not rate > limit_per_s:
        return 0
    raw = java_divide(rate - limit_per_s, limit_per_s) * window_ms
    return to_int32(min(java_round(raw), cap_ms))


def java_divide(dividend: float, divisor: float) -> float:
    """A quotient of doubles where Python would raise: by 0 it is an infinity of the right sign, or NaN for 0/0."""
    if divisor:
        return dividend / divisor
    return dividend * math.copysign(math.inf, divisor)


def java_min(one: float, other: float) -> float:
    """`Math.min(double, double)`: NaN if either is, where Python gives the first."""
    return math.nan if math.isnan(one) or math.isnan(other) else min(one, other)


def java_round(value: float) -> int:
    """`Math.round(double)`: halves go up, saturating at the ends of a long, NaN to 0."""
    if math.isnan(value):
        return 0
    if abs(value) >= LONG_MAX:
        return LONG_MAX if value > 0 else _LONG_MIN
    floor = math.floor(value)
    # Not floor(value + 0.5): that sum is rounded itself, and makes 1 of 0.49999999999999994.
    return floor + (value - floor >= 0.5)


def to_int32(value: int) -> int:
    """Java's cast from long to int: the low 32 bits, signed."""
    low: int = value & (2**_INT_BITS - 1)
    return low - 2**_INT_BITS if low >= 2 ** (_INT_BITS - 1) else low
