"""The settings of `conf/policy.yaml`: the policies, the guards over all of them, and the exempt names.

A policy has its own name, kind and mode; its rule is in `enforce.policies.<kind>_policy`. Durations are in
milliseconds, values in the unit of their key, per broker. `within` is the length of the period that a policy uses; the
period ends with the newest decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from kquota_spark.config.rules import AtLeast, Duration, Percent, PerSecond, Positive, PositiveDuration
from kquota_spark.enforce.changes import Mode
from kquota_spark.enforce.guard_settings import Exempt, GuardSettings
from kquota_spark.model.quotas.quota_types import BYTE_RATES, QuotaKey

DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
Period = Annotated[Duration, AtLeast(60_000, "1 min")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Penalty:
    """Temporarily lowers the limit of a client that repeatedly exceeds it."""

    name: str
    kind: Literal["penalty"]
    mode: Mode = Mode.OBSERVE
    keys: tuple[QuotaKey, ...] = BYTE_RATES
    within: Period = Duration(_HOUR_MS)
    episodes: Positive = 5
    """Minimum number of violations; or ..."""
    throttled_percent: Percent = 50.0
    """... it was throttled in more than this percentage of its seconds."""
    used_percent: Annotated[float, AtLeast(100)] = 120.0
    """And it took more than this percentage of its limit, averaged over the whole of `within`, ..."""
    connections: Positive = 10
    """... and its total delay is longer than this number of connections could wait within the period."""
    to_percent: Percent = 50.0
    """The lowered limit, percent of the present one."""
    expires_after: PositiveDuration = Duration(DAY_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """Raises the limit of a client that is often throttled while its brokers have headroom."""

    name: str
    kind: Literal["raise"]
    mode: Mode = Mode.OBSERVE
    broker_capacity_per_s: dict[str, PerSecond]
    """The capacity of one broker, by quota key; the policy applies to these keys."""
    within: Period = Duration(DAY_MS)
    throttled_percent: Percent = 20.0
    least_seconds: Positive = 600
    """Minimum seconds with traffic: a percentage of fewer seconds has no meaning."""
    headroom_percent: Percent = 70.0
    """Percent of the capacity; on each broker, used rates and the raise together stay below it."""
    step_percent: Percent = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQuota:
    """Keeps the total rate of an entity on all brokers within a budget."""

    name: str
    kind: Literal["cluster_quota"]
    mode: Mode = Mode.OBSERVE
    key: QuotaKey
    budgets: dict[str, PerSecond]
    """Budget for the whole cluster, by entity, e.g. users/alice: 30000000."""
    within: Period = Duration(_HOUR_MS)
    floor_per_broker: Annotated[float, AtLeast(0)] = 0.0
    """Lowest value that is proposed."""
    change_percent: Percent = 10.0
    """Minimum difference from the present value, percent; a smaller change is not proposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lower:
    """Lowers a limit that the traffic stays far below, one step per `within`."""

    name: str
    kind: Literal["lower"]
    mode: Mode = Mode.OBSERVE
    keys: tuple[QuotaKey, ...] = BYTE_RATES
    within: Period = Duration(7 * DAY_MS)
    unused_percent: Percent = 50.0
    """The highest rate of the whole period is below this percentage of the limit."""
    step_percent: Percent = 20.0
    margin_percent: Annotated[float, AtLeast(100)] = 150.0
    """Minimum of the new limit, percent of the highest rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultQuota:
    """Sets a default for traffic that has no quota."""

    name: str
    kind: Literal["default"]
    mode: Mode = Mode.OBSERVE
    entity: Literal["clients/<default>", "users/<default>"] = "clients/<default>"
    values: dict[str, float] = field(
        default_factory=lambda: {"producer_byte_rate": 5_000_000.0, "consumer_byte_rate": 15_000_000.0}
    )
    """Value of the default, by quota key."""


Policy = Penalty | Raise | ClusterQuota | Lower | DefaultQuota


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The whole file. Policies are in order of precedence: the first that wants to change a quota wins."""

    mode: Mode = Mode.OBSERVE
    guards: GuardSettings = field(default_factory=GuardSettings)
    exempt: Exempt = field(default_factory=Exempt)
    policies: tuple[Policy, ...] = ()

    def mode_of(self, policy_name: str) -> Mode:
        """How far a policy may go; for a name that is not in the file (an override by a person), the mode for all."""
        own = next((policy.mode for policy in self.policies if policy.name == policy_name), self.mode)
        return min(own, self.mode)


def period_of(policy: Policy) -> int:
    """Length of the period that a policy uses, ms."""
    return DAY_MS if isinstance(policy, DefaultQuota) else policy.within
