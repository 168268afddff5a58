"""Tenants with known demand, and how brokers would serve them: five weeks in windows of ten seconds.

A simulation of single requests would take hours for five weeks of 200 tenants. So this one has one step per window. A
client that waits sends at its own pace while it is not muted, and what it could not send is not sent later. A client
with a buffer sends the rest later, as fast as its line allows; what the buffer does not hold is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tests.support.chance import Chance

WINDOW_S = 10
DAY = 86_400 // WINDOW_S
HISTORY_DAYS, HELD_BACK_DAYS = 28, 7
DAYS = HISTORY_DAYS + HELD_BACK_DAYS
_KNOTS = 30
"""Windows between two values of slow noise: five minutes."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Tenant:
    """What a tenant wants, and how it behaves. Rates in bytes per second."""

    name: str
    base: float
    swing: float
    peak_hour: float
    weekend: float
    slow_noise: float
    fast_noise: float
    day_noise: float
    bursts_per_day: float
    burst_height: float
    growth: float
    """Per day."""
    hours: float
    """Hours of a day in which it is active."""
    odd_day: int
    """The day of the history on which it wants several times as much."""
    odd_factor: float
    limit_ratio: float
    """The limit as multiple of the 99th percentile of the last week of the history."""
    is_buffered: bool
    line_ratio: float
    """How fast it sends what waited, as multiple of its base."""
    buffer_s: float
    """How much its buffer holds, in seconds of its base."""

    @property
    def is_flat(self) -> bool:
        """Whether its demand does not grow."""
        return self.growth == 0


def draw(seed: int, number: int) -> Tenant:
    """The tenant of a number under a seed."""
    chance = Chance(f"tenant {seed}/{number}")
    return Tenant(
        name=f"{seed}/{number}",
        base=10 ** chance.uniform(4.3, 6.7),
        swing=chance.uniform(0.1, 0.8),
        peak_hour=chance.uniform(0, 24),
        weekend=chance.choice([1.0, chance.uniform(0.3, 0.9)]),
        slow_noise=chance.uniform(0.05, 0.25),
        fast_noise=chance.uniform(0.02, 0.2),
        day_noise=chance.uniform(0.0, 0.05),
        bursts_per_day=chance.choice([0.0, chance.uniform(2, 60)]),
        burst_height=chance.uniform(1.5, 4),
        growth=chance.choice([0.0, 0.0, 0.0, chance.uniform(0.003, 0.012), chance.uniform(0.003, 0.012)]),
        hours=chance.choice([24.0, 24.0, 24.0, chance.uniform(2, 12)]),
        odd_day=chance.randrange(HISTORY_DAYS),
        odd_factor=chance.uniform(2, 4),
        limit_ratio=10 ** chance.uniform(-0.4, 0.4),
        is_buffered=chance.random() < 0.5,
        line_ratio=chance.uniform(4, 12),
        buffer_s=chance.uniform(5, 120),
    )


def demand_of(tenant: Tenant) -> Array:
    """The rate that it wants in each window, without the odd day; 0 while it is not active."""
    random = np.random.default_rng([int(part) for part in tenant.name.split("/")])
    windows = np.arange(DAYS * DAY)
    hour, day = windows % DAY * WINDOW_S / 3_600, windows // DAY
    level = 1 + tenant.swing * np.cos((hour - tenant.peak_hour) / 24 * 2 * np.pi)
    level *= np.where(day % 7 >= 5, tenant.weekend, 1.0)
    level *= (1 + tenant.growth) ** (windows / DAY)
    knots = random.normal(0, tenant.slow_noise, len(windows) // _KNOTS + 2)
    level *= np.exp(np.interp(windows / _KNOTS, np.arange(len(knots)), knots))
    level *= np.exp(random.normal(0, tenant.fast_noise, len(windows)))
    level *= np.exp(random.normal(0, tenant.day_noise, DAYS))[day]
    level *= _bursts(tenant, random, len(windows))
    away = np.abs((hour - tenant.peak_hour + 12) % 24 - 12)
    return (tenant.base * np.where(away <= tenant.hours / 2, level, 0.0)).astype(np.float32)


def _bursts(tenant: Tenant, random: np.random.Generator, count: int) -> Array:
    factor = np.ones(count)
    for begin in np.flatnonzero(random.random(count) < tenant.bursts_per_day / DAY):
        length = random.integers(1, 13)
        factor[begin : begin + length] = random.uniform(1.2, tenant.burst_height)
    return factor


def with_odd_day(tenant: Tenant, demand: Array) -> Array:
    """The same demand with the odd day."""
    found = demand.copy()
    found[tenant.odd_day * DAY : (tenant.odd_day + 1) * DAY] *= tenant.odd_factor
    return found


class Served(NamedTuple):
    """What brokers served of several tenants; one column per tenant, one row per window."""

    rate: Array
    """Served bytes per second."""
    pace: Array
    """What un-muted connections would have sent per second; infinite if they had less than two seconds."""
    is_throttled: Array


def serve(tenants: list[Tenant], demand: Array, limits: Array) -> Served:
    """Serve the demand of all tenants under their limits.

    Args:
        tenants: by column.
        demand: bytes per second, a row per window and a column per tenant.
        limits: bytes per second by tenant.
    """
    buffered = np.array([tenant.is_buffered for tenant in tenants])
    line = np.array([tenant.line_ratio * tenant.base for tenant in tenants])
    most = np.where(buffered, [tenant.buffer_s * tenant.base / WINDOW_S for tenant in tenants], 0.0)
    waiting = np.zeros(len(tenants))
    rate, pace = demand.copy(), demand.copy()
    throttled = np.zeros(demand.shape, bool)
    over: Array = np.any(demand > limits, axis=1)
    is_busy = False
    for window, wanted in enumerate(demand):
        if not (over[window] or is_busy):  # all is served at once
            continue
        offered = np.minimum(wanted + waiting, np.maximum(line, wanted))
        served = np.minimum(offered, limits)
        own = np.where(waiting > 0, np.maximum(line, wanted), wanted)
        rate[window], pace[window], throttled[window] = served, own, offered > limits
        waiting = np.minimum(wanted + waiting - served, most)
        is_busy = bool(waiting.any())
    unmuted_s = WINDOW_S * rate / np.maximum(pace, 1e-9)
    random = np.random.default_rng(len(tenants))
    # Few requests make a pace: it is not exact.
    pace *= np.exp(random.normal(0, 0.05, pace.shape)).astype(np.float32)
    return Served(rate, np.where(unmuted_s >= 2, np.maximum(pace, rate), np.inf), throttled)
