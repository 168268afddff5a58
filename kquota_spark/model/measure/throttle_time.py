"""How long the broker throttles a client for a measured rate, with Java's doubles, rounding and casts.

Source: Kafka's `QuotaUtils.throttleTime`, `QuotaUtils.boundedThrottleTime`, `ClientRequestQuotaManager`.
If a result is not above 0, the broker does not throttle, whatever the rate is.
"""

from __future__ import annotations

import math

LONG_MAX = 2**63 - 1
_LONG_MIN = -(2**63)
_INT_BITS = 32
_SURELY_INT32 = 2.0**31 - 2
_PERCENT_PER_NS = 100.0 / 1_000_000_000
"""Percent per ns of thread time: a thread busy for a whole second is 100. The broker multiplies by this double too."""


def rate_per_s(total: float, window_ms: int) -> float:
    """Amount per second over the measured window, in the broker's own floating-point steps."""
    return total / (window_ms / 1000.0)


def request_percent(thread_time_ns: int) -> float:
    """The percent that a request adds to a request_percentage sensor for its time on broker threads (KIP-124)."""
    return thread_time_ns * _PERCENT_PER_NS


def throttle_time_ms(total: float, window_ms: int, limit_per_s: float | None) -> int:
    """Throttle time of a bandwidth quota: (rate - limit) / limit * window, rounded and narrowed as in Java.

    Returns:
        Milliseconds; 0 if the rate is not above the limit, or there is no limit. The result is negative if the limit
        is. It may also be negative after the broker's narrowing of a long to 32 bits (a limit of 0 gives -1).
    """
    if limit_per_s is None:
        return 0
    rate = rate_per_s(total, window_ms)
    if not rate > limit_per_s:
        return 0
    if limit_per_s > 0:  # as nearly all are; the other cases take all of Java's steps
        raw = (rate - limit_per_s) / limit_per_s * window_ms
        if raw < _SURELY_INT32:
            whole = int(raw)
            return whole + (raw - whole >= 0.5)
    return to_int32(java_round(java_divide(rate - limit_per_s, limit_per_s) * window_ms))


def bounded_throttle_time_ms(total: float, window_ms: int, limit_per_s: float | None, cap_ms: int) -> int:
    """Throttle time (ms) of the request and connection quotas: that of bandwidth, but at most `cap_ms`.

    The cap is the length of one sample (quota.window.size.seconds). It comes before the narrowing to 32 bits. So a
    limit of 0, which switches a bandwidth quota off, throttles a client for `cap_ms` every time here.

    Args:
        total: amount in the windows, in the unit of the quota: percent-seconds or connections.
        window_ms: time that the windows span (ms).
        limit_per_s: the limit, None for no limit.
        cap_ms: longest throttle time, the length of a sample (ms).
    """
    if limit_per_s is None:
        return 0
    rate = rate_per_s(total, window_ms)
    if not rate > limit_per_s:
        return 0
    raw = java_divide(rate - limit_per_s, limit_per_s) * window_ms
    return to_int32(min(java_round(raw), cap_ms))


def java_divide(dividend: float, divisor: float) -> float:
    """Divide doubles as Java does: by 0 the result is an infinity of the right sign, or NaN for 0/0."""
    if divisor:
        return dividend / divisor
    return dividend * math.copysign(math.inf, divisor)


def java_min(one: float, other: float) -> float:
    """`Math.min(double, double)`: NaN if either is NaN. Python's `min` may give the other one."""
    return math.nan if math.isnan(one) or math.isnan(other) else min(one, other)


def java_round(value: float) -> int:
    """`Math.round(double)`: halves are rounded up, the result saturates at the ends of a long, NaN gives 0."""
    if math.isnan(value):
        return 0
    if abs(value) >= LONG_MAX:
        return LONG_MAX if value > 0 else _LONG_MIN
    floor = math.floor(value)
    # Not floor(value + 0.5): that sum is rounded itself, and would turn 0.49999999999999994 into 1.
    return floor + (value - floor >= 0.5)


def to_int32(value: int) -> int:
    """Java's cast from long to int: the low 32 bits, signed."""
    low: int = value & (2**_INT_BITS - 1)
    return low - 2**_INT_BITS if low >= 2 ** (_INT_BITS - 1) else low
