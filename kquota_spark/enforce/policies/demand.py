"""What a bucket used, and what it wanted, in the busiest 5 % of its seconds left out.

What a throttled client wanted is not in the data: the quota held it back (censored). It had what it used in its
throttled seconds, the limit at least, and wanted more in those, so demand is taken as that rate times (1 + the part
of its seconds that was throttled). That is an estimate: too low for one that is far over its limit, too high for one
that is held back a little in every second. It never leads below the limit, and a change goes one step at a time.
"""

from __future__ import annotations

from kquota_spark.enforce.policies.observations import UsedSeconds
from kquota_spark.enforce.policies.scene import throttled_percent

_LEFT_OUT_PERCENT = 5.0


def used_per_s(use: UsedSeconds) -> float:
    """The rate that it reached."""
    return max(use.p95_rate_per_s, use.throttled_rate_per_s) if _is_held_back(use) else use.p95_rate_per_s


def demand_per_s(use: UsedSeconds, limit_per_s: float) -> float:
    """What it wanted, as an estimate."""
    if not _is_held_back(use):
        return use.p95_rate_per_s
    return max(limit_per_s, use.throttled_rate_per_s) * (1 + throttled_percent(use) / 100)


def _is_held_back(use: UsedSeconds) -> bool:
    return throttled_percent(use) > _LEFT_OUT_PERCENT
