"""What policies may look at, as of one moment. Plain data: `enforcement.input` gathers it from the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kquota_spark.enforce.changes import Quota
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket


class Place(NamedTuple):
    """One bucket of one broker."""

    broker_id: int
    quota_type: QuotaType
    bucket: Bucket


class RateSeconds(NamedTuple):
    """So many seconds had about this rate (two digits of it)."""

    rate_per_s: float
    seconds: int


class InForce(NamedTuple):
    """The value of a quota now, and since when it is that one."""

    value: float
    since_ms: int


class UsedSeconds(Protocol):
    """What the estimate of demand looks at; see `BucketUse` for what is what."""

    @property
    def seconds(self) -> int:
        """With traffic."""

    @property
    def throttled_seconds(self) -> int:
        """Of these, throttled by the own limit."""

    @property
    def p95_rate_per_s(self) -> float:
        """Of those that were not throttled."""

    @property
    def throttled_rate_per_s(self) -> float:
        """Mean of those that were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketUse:
    """One bucket of one broker in one period, from its decisions and violations.

    Rates are those that the broker measured, in the unit of the limit (bytes per second, percent of one thread).
    Seconds are those with traffic.
    """

    place: Place
    limit_per_s: float | None
    """The newest; None where nothing limits."""
    rule: Entity | None
    """What set the limit; None if no entity did (a static default of the broker, a callback)."""
    has_one_limit: bool
    """All seconds had the same limit by the same rule."""
    seconds: int
    certain_seconds: int
    """Each second for the share of its verdicts that are certain, if the rules were known through it."""
    throttled_seconds: int
    """By this bucket's own limit."""
    observed_throttled_seconds: int
    """In which the broker logged a throttle, whichever quota it came from."""
    mean_rate_per_s: float
    """What was charged, over the whole length of the period."""
    peak_rate_per_s: float
    p95_rate_per_s: float
    """Of the seconds that were not throttled; 0 if there are none."""
    throttled_rate_per_s: float
    """Mean of the throttled seconds; 0 if there are none."""
    throttle_ms: int
    """Sum of all throttles, as far as they lie in the period."""
    episodes: int
    """Violations that touch the period."""
    peak_used_percent: float
    """Highest part of the limit in them."""
    is_ours: bool = False
    """Whether all of its clients are called as our own ones are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The stretch from `from_ms` to `to_ms`, exclusive."""

    from_ms: int
    to_ms: int
    buckets: tuple[BucketUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUse:
    """What all clients of one broker used in the last day: in 95 % of the stretches of ten seconds not more."""

    broker_id: int
    quota_type: QuotaType
    p95_rate_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientUse:
    """One client on one broker: whether or not a quota holds for it."""

    broker_id: int
    quota_type: QuotaType
    user: str
    client_id: str
    peak_rate_per_s: float
    """Over ten seconds, in the last day; 0 for a client that was only seen before."""
    is_ours: bool = False
    """Whether it is called as our own clients are. Anybody's may be: it is no reason to leave one alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """Everything, as of one moment."""

    decisions_from_ms: int | None
    """Epoch ms; a period that begins before this is not known as a whole. None where there are no decisions."""
    periods: Mapping[int, Period] = field(default_factory=dict)
    """By length, ms; all of them end at the same time."""
    rates: Mapping[Place, tuple[RateSeconds, ...]] = field(default_factory=dict)
    """Of the last day."""
    brokers: tuple[BrokerUse, ...] = ()
    clients: tuple[ClientUse, ...] = ()
    """Of the longest period, a day at least."""
    quotas: Mapping[Quota, InForce] = field(default_factory=dict)
    temporary: frozenset[Quota] = frozenset()
    """Quotas that a change of ours holds for a time, or may hold: a penalty, an override."""

    def value_of(self, quota: Quota) -> float | None:
        """The value in force; None where the key is not set."""
        found = self.quotas.get(quota)
        return None if found is None else found.value

    def entities_with(self, key: QuotaKey) -> list[Entity]:
        """Entities that carry a key."""
        return [quota.entity for quota in self.quotas if quota.key is key]
