"""The data that policies may use, as of one time. `enforcement.input` gathers it from the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kquota_spark.enforce.changes import Quota
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.rightsize.target import RightSize


class Place(NamedTuple):
    """One bucket of one broker."""

    broker_id: int
    quota_type: QuotaType
    bucket: Bucket


class RateSeconds(NamedTuple):
    """The number of seconds with about this rate (rounded to two digits)."""

    rate_per_s: float
    seconds: int


class InForce(NamedTuple):
    """The present value of a quota, and since when it has that value."""

    value: float
    since_ms: int


class UsedSeconds(Protocol):
    """The data for the estimate of demand; `BucketUse` describes it."""

    @property
    def seconds(self) -> int:
        """Seconds with traffic."""

    @property
    def throttled_seconds(self) -> int:
        """Seconds with traffic that were throttled by the bucket's own limit."""

    @property
    def p95_rate_per_s(self) -> float:
        """95th percentile of the seconds that were not throttled."""

    @property
    def throttled_rate_per_s(self) -> float:
        """Mean of the throttled seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketUse:
    """One bucket of one broker in one period, from its decisions and violations.

    Rates are measured by the broker, in the unit of the limit (bytes per second, percent of one thread).
    Only seconds with traffic count.
    """

    place: Place
    limit_per_s: float | None
    """The newest limit; None if there is none."""
    rule: Entity | None
    """The entity that set the limit; None if no entity did (a static default of the broker, a callback)."""
    has_one_limit: bool
    """Whether all seconds had the same limit from the same rule."""
    seconds: int
    certain_seconds: int
    """Each second counts by the share of its verdicts that are certain, if the rules were known through it."""
    throttled_seconds: int
    """Seconds throttled by this bucket's own limit."""
    observed_throttled_seconds: int
    """Seconds in which the broker logged a throttle, from any quota."""
    mean_rate_per_s: float
    """The charged amount, divided by the whole length of the period."""
    peak_rate_per_s: float
    p95_rate_per_s: float
    """95th percentile of the seconds that were not throttled; 0 if there are none."""
    throttled_rate_per_s: float
    """Mean of the throttled seconds; 0 if there are none."""
    throttle_ms: int
    """Sum of all throttle times, as far as they are in the period."""
    episodes: int
    """Violations that overlap the period."""
    peak_used_percent: float
    """Highest part of the limit in these violations, percent."""
    is_ours: bool = False
    """Whether all of its clients have the names of our own clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The period from `from_ms` to `to_ms`, exclusive, and the buckets with traffic in it."""

    from_ms: int
    to_ms: int
    buckets: tuple[BucketUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUse:
    """Rate of all clients of one broker in the last day: 95th percentile of its periods of ten seconds."""

    broker_id: int
    quota_type: QuotaType
    p95_rate_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientUse:
    """One client on one broker, with or without a quota."""

    broker_id: int
    quota_type: QuotaType
    user: str
    client_id: str
    peak_rate_per_s: float
    """Highest rate over ten seconds in the last day; 0 for a client that was only seen earlier."""
    is_ours: bool = False
    """Whether it has the name of one of our own clients. Any client may use it, so such a client is not exempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """All observations, as of one time."""

    decisions_from_ms: int | None
    """Epoch ms; the tables do not cover a period that begins before this. None if there are no decisions."""
    periods: Mapping[int, Period] = field(default_factory=dict)
    """Periods by length, ms; all of them end at the same time."""
    rates: Mapping[Place, tuple[RateSeconds, ...]] = field(default_factory=dict)
    """Rates of the last day."""
    brokers: tuple[BrokerUse, ...] = ()
    clients: tuple[ClientUse, ...] = ()
    """Clients of the longest period, which is at least a day."""
    quotas: Mapping[Quota, InForce] = field(default_factory=dict)
    sizes: Mapping[tuple[QuotaType, Bucket], RightSize] = field(default_factory=dict)
    """Right sizes of buckets that a raise is about, as of the last midnight; not of all, and none before two weeks."""
    temporary: frozenset[Quota] = frozenset()
    """Quotas that one of our temporary changes sets or may set: a penalty, an override."""

    def value_of(self, quota: Quota) -> float | None:
        """The value in force; None if the key is not set."""
        found = self.quotas.get(quota)
        return None if found is None else found.value

    def entities_with(self, key: QuotaKey) -> list[Entity]:
        """Entities with a value for a key."""
        return [quota.entity for quota in self.quotas if quota.key is key]
