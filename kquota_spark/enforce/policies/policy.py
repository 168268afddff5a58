"""What `conf/policy.yaml` sets: the policies, the guards over all of them, and who is never touched.

A policy has a name, a kind and a mode of its own; how it decides is in `enforce.<kind>_policy`. Lengths of time are
in milliseconds, values in the unit of their key, per broker. A stretch of time that a policy looks at is called
`within`: it ends with the newest decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kquota_spark.config.settings import Duration
from kquota_spark.enforce.changes import Mode
from kquota_spark.enforce.guard_settings import Exempt, GuardSettings
from kquota_spark.model.quotas.quota_types import QuotaKey

DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_BANDWIDTH = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Penalty:
    """Lowers, for a time, the limit of who is over it again and again and takes more than it all the same."""

    name: str
    kind: Literal["penalty"]
    mode: Mode = Mode.OBSERVE
    keys: tuple[QuotaKey, ...] = _BANDWIDTH
    within: Duration = Duration(_HOUR_MS)
    episodes: int = 5
    """So many violations at least; or ..."""
    throttled_percent: float = 50.0
    """... throttled in more than this part of its seconds."""
    used_percent: float = 120.0
    """And it took more than this of what its limit allows, averaged over the whole of `within`, ..."""
    connections: int = 10
    """... and it would take more connections than these, all waiting at once, to wait as long as it was told to."""
    to_percent: float = 50.0
    """Of the present limit."""
    expires_after: Duration = Duration(DAY_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """Raises the limit of who is throttled much while its brokers have headroom."""

    name: str
    kind: Literal["raise"]
    mode: Mode = Mode.OBSERVE
    broker_capacity_per_s: dict[str, float]
    """What one broker can do, by quota key; the policy looks at these keys."""
    within: Duration = Duration(DAY_MS)
    throttled_percent: float = 20.0
    least_seconds: int = 600
    """With less traffic a share of seconds says nothing."""
    headroom_percent: float = 70.0
    """Of the capacity: used rates and the raise together stay under it on each broker."""
    step_percent: float = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQuota:
    """Keeps what an entity may do on all brokers together at a budget."""

    name: str
    kind: Literal["cluster_quota"]
    mode: Mode = Mode.OBSERVE
    key: QuotaKey
    budgets: dict[str, float]
    """For the whole cluster, by entity, e.g. users/alice: 30000000."""
    within: Duration = Duration(_HOUR_MS)
    floor_per_broker: float = 0.0
    """A value under this is not proposed."""
    change_percent: float = 10.0
    """A value nearer than this to the present one is not proposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lower:
    """Lowers a limit that nobody comes near to, one step per `within`."""

    name: str
    kind: Literal["lower"]
    mode: Mode = Mode.OBSERVE
    keys: tuple[QuotaKey, ...] = _BANDWIDTH
    within: Duration = Duration(7 * DAY_MS)
    unused_percent: float = 50.0
    """The highest rate of the whole stretch is under this part of the limit."""
    step_percent: float = 20.0
    margin_percent: float = 150.0
    """Not lower than this part of the highest rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultQuota:
    """Gives a default to traffic that no quota holds for."""

    name: str
    kind: Literal["default"]
    mode: Mode = Mode.OBSERVE
    entity: Literal["clients/<default>", "users/<default>"] = "clients/<default>"
    values: dict[str, float] = field(
        default_factory=lambda: {"producer_byte_rate": 5_000_000.0, "consumer_byte_rate": 15_000_000.0}
    )
    """By quota key."""


Policy = Penalty | Raise | ClusterQuota | Lower | DefaultQuota


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The whole file. Policies stand in order of precedence: the first that wants to change a quota wins."""

    mode: Mode = Mode.OBSERVE
    guards: GuardSettings = field(default_factory=GuardSettings)
    exempt: Exempt = field(default_factory=Exempt)
    policies: tuple[Policy, ...] = ()

    def mode_of(self, policy_name: str) -> Mode:
        """How far a policy may go; what is not of the file (an override by a person), as far as all may."""
        own = next((policy.mode for policy in self.policies if policy.name == policy_name), self.mode)
        return min(own, self.mode)


def period_of(policy: Policy) -> int:
    """How far back a policy looks, ms."""
    return DAY_MS if isinstance(policy, DefaultQuota) else policy.within
