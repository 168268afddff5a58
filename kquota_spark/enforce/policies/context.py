"""The common part of all policies: the quota that a change would apply to, its allowed value, and its texts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from kquota_spark.enforce.changes import Evidence, Proposal, Quota, name_of
from kquota_spark.enforce.guard_settings import Exempt, GuardSettings
from kquota_spark.enforce.policies.observations import BucketUse, ClientUse, Observations, Period, UsedSeconds
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket, Resolution, resolve
from kquota_spark.model.rightsize.target import RightSize

LEAST_CHANGE_PERCENT = 1.0
"""Minimum change, percent of the limit: a smaller one would only use up the changes that the guards allow."""
_LEFT_OUT_PERCENT = 5.0
_PAIR_DEFAULTS = (2, 4, 5)
_DEFAULT_USER, _DEFAULT_CLIENT = 6, 8
_TYPES = {quota_type.key: quota_type for quota_type in QuotaType}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One limited bucket on all brokers, in one period, and the quota that a change of its limit would apply to."""

    quota: Quota
    before: float | None
    """Value of `quota`; None if a default gives the limit."""
    limit_per_s: float
    uses: tuple[BucketUse, ...]
    """Uses of the bucket, by broker id."""
    period: Period

    @property
    def bucket(self) -> tuple[QuotaType, Bucket]:
        """The bucket on all brokers."""
        return self.uses[0].place.quota_type, self.uses[0].place.bucket


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """Observations, and the settings that apply to all policies."""

    guards: GuardSettings
    exempt: Exempt
    observations: Observations
    now_ms: int
    _values: Mapping[Entity, Mapping[QuotaKey, float]] = field(init=False, repr=False)
    _untouchable: Collection[tuple[QuotaType, Bucket]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Index the quotas, and the buckets that contain a client with an exempt name."""
        values: dict[Entity, dict[QuotaKey, float]] = {}
        for quota, in_force in self.observations.quotas.items():
            values.setdefault(quota.entity, {})[quota.key] = in_force.value
        object.__setattr__(self, "_values", values)
        exempt = {
            (client.quota_type, self.resolved(client).bucket)
            for client in self.observations.clients
            if self.is_exempt(client)
        }
        object.__setattr__(self, "_untouchable", exempt)

    def is_exempt(self, client: ClientUse) -> bool:
        """Whether the client has an exempt name."""
        return self.exempt.holds(Entity(client.user, client.client_id)) is not None

    def resolved(self, client: ClientUse) -> Resolution:
        """The bucket and limit of a client now."""
        return resolve(client.user, client.client_id, client.quota_type.key, self._values.get)

    def cases(self, within_ms: int, keys: Collection[QuotaKey]) -> Iterator[Case]:
        """Buckets with one settled limit in the whole period, by name of their entity; none with an exempt name.

        A limit is settled if the decisions have the value that is in force now, and it was in force when the period
        began. The limit of one of our temporary changes is not settled: a change based on it would conflict with the
        value to be restored.
        """
        period = self.observations.periods.get(within_ms)
        if period is None:
            return
        grouped: dict[tuple[QuotaType, Bucket], list[BucketUse]] = {}
        for use in period.buckets:
            if use.place.quota_type.key in keys:
                grouped.setdefault((use.place.quota_type, use.place.bucket), []).append(use)
        found = (
            self._case(of_bucket, uses, period)
            for of_bucket, uses in grouped.items()
            if of_bucket not in self._untouchable
        )
        yield from sorted((case for case in found if case is not None), key=lambda case: name_of(case.quota))

    def _case(self, of: tuple[QuotaType, Bucket], uses: list[BucketUse], period: Period) -> Case | None:
        key = of[0].key
        rule, limit = uses[0].rule, uses[0].limit_per_s
        if rule is None or limit is None:
            return None
        if any(not use.has_one_limit or (use.rule, use.limit_per_s) != (rule, limit) for use in uses):
            return None
        in_force = self.observations.quotas.get(Quota(rule, key))
        if in_force is None or in_force.value != limit or in_force.since_ms > period.from_ms:
            return None
        own = own_entity(rule, of[1], {entity.level for entity in self.observations.entities_with(key)})
        if own is None or self.exempt.holds(own) is not None:
            return None
        quota = Quota(own, key)
        if self.observations.temporary & {quota, Quota(rule, key)}:
            return None
        ordered = tuple(sorted(uses, key=lambda use: use.place.broker_id))
        before = self.observations.value_of(quota)
        return Case(quota=quota, before=before, limit_per_s=limit, uses=ordered, period=period)

    def allowed(self, case: Case, wanted: float) -> float | None:
        """The value nearest to the wanted one, in the same direction, that the guards will allow.

        None if the remaining change is below 1 % of the limit, or the key has no bounds.
        """
        limit, bounds = case.limit_per_s, self.guards.bounds_of(case.quota.key)
        if bounds is None:
            return None
        after = bounds.nearest(limit, wanted)
        if not bounds.floor <= after <= bounds.ceiling or (after > limit) != (wanted > limit):
            return None
        return after if abs(after - limit) >= limit * LEAST_CHANGE_PERCENT / 100 else None

    def proposal(self, case: Case, after: float, policy: str, reason: str, evidence: Evidence) -> Proposal:
        """A permanent proposal for a case, with its estimated effect in the last day.

        Args:
            case: the quota and its uses.
            after: the proposed limit, per second.
            policy: name of the policy.
            reason: a sentence for people.
            evidence: the figures behind the decision.
        """
        return Proposal(
            quota=case.quota,
            before=case.before,
            after=after,
            policy=policy,
            reason=reason,
            expires_at_ms=None,
            evidence=evidence,
            would_have=self._would_have(case, after),
        )

    def _would_have(self, case: Case, after: float) -> str:
        """A sentence with the seconds of the last day that had a rate above the new limit, on all brokers together."""
        rates = [one for use in case.uses for one in self.observations.rates.get(use.place, ())]
        total = sum(one.seconds for one in rates)
        if not total:
            return ""
        above = sum(one.seconds for one in rates if one.rate_per_s > after)
        return (
            f"in the last day it would have throttled about {above:,} of {total:,} seconds with traffic: an "
            "estimate from the rates of seconds, not the broker's ring"
        )


def own_entity(rule: Entity, bucket: Bucket, levels: Collection[int]) -> Entity | None:
    """The entity to change for the limit of one bucket; None if that would also change other traffic.

    A default is never changed because of one client: the client's own entity gets a quota instead.

    Args:
        rule: the entity that sets the limit now.
        bucket: the limited bucket.
        levels: levels of the entities that have a value for the key.
    """
    if rule.level in _PAIR_DEFAULTS:
        return Entity(bucket.user, bucket.client_id) if bucket.client_id else None
    if rule.level == _DEFAULT_USER:
        return None if {4, 5} & set(levels) else Entity(user=bucket.user)
    if rule.level == _DEFAULT_CLIENT:
        return Entity(client_id=bucket.client_id) if bucket.client_id else None
    return rule


def evidence_of(period: Period, uses: Collection[BucketUse], **numbers: float) -> Evidence:
    """The evidence from the uses of some brokers in a period; `numbers` are figures for people."""
    return Evidence(
        from_ms=period.from_ms,
        to_ms=period.to_ms,
        seconds=sum(use.seconds for use in uses),
        certain_seconds=sum(use.certain_seconds for use in uses),
        throttled_seconds=sum(use.throttled_seconds for use in uses),
        numbers=numbers,
    )


def type_of(key: QuotaKey) -> QuotaType:
    """The type of quota that a key limits."""
    return _TYPES[key]


def value_text(key: QuotaKey, value: float) -> str:
    """A value for people: `1,200,000 B/s` or `50.0 %`."""
    return f"{value:,.1f} %" if key is QuotaKey.REQUEST_PERCENTAGE else f"{value:,.0f} B/s"


def minute_text(time_ms: int) -> str:
    """A time to the minute: `2026-11-21 05:40 UTC`."""
    return datetime.fromtimestamp(time_ms // 1_000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def throttled_percent(use: UsedSeconds) -> float:
    """Percent of the seconds with traffic that were throttled."""
    return 100.0 * use.throttled_seconds / use.seconds if use.seconds else 0.0


def used_per_s(use: UsedSeconds) -> float:
    """The rate that a bucket used, without the busiest 5 % of its seconds."""
    return max(use.p95_rate_per_s, use.throttled_rate_per_s) if _is_throttled(use) else use.p95_rate_per_s


def demand_per_s(use: UsedSeconds, limit_per_s: float) -> float:
    """The estimated rate that a bucket wanted, without the busiest 5 % of its seconds.

    The data does not contain the rate that a throttled client wanted, because the quota limited it (censored). In its
    throttled seconds the client used at least the limit, and wanted more. So demand is estimated as that rate times
    (1 + the throttled part of its seconds). This is too low for a client far above its limit, and too high for one that
    is slightly throttled in every second. For a throttled client it is never below the limit.
    """
    if not _is_throttled(use):
        return use.p95_rate_per_s
    return max(limit_per_s, use.throttled_rate_per_s) * (1 + throttled_percent(use) / 100)


class Demand(NamedTuple):
    """The estimated rate that a bucket wants, and the estimate that it is from."""

    per_s: float
    size: RightSize | None
    """The right size that it is from; None if it is from the share of throttled seconds."""

    def text(self, key: QuotaKey) -> str:
        """A clause with the value, its estimate and its bounds."""
        value, size = value_text(key, self.per_s), self.size
        if size is None:
            return f"it wanted about {value} by the share of its time throttled"
        if size.upper is None:
            demand = f"of at least {value_text(key, size.quantile)}"
        else:
            demand = f"of {value_text(key, size.lower)} to {value_text(key, size.upper)}"
        return f"its right size of {size.days} days is {value}, for a demand {demand}"


def demand_of(use: UsedSeconds, limit_per_s: float, size: RightSize | None) -> Demand:
    """The demand of a bucket: its right size if there is one, else the estimate of `demand_per_s`.

    Args:
        use: its seconds on the worst broker.
        limit_per_s: the present limit.
        size: its right size, rounded to three digits here; None without two weeks of history.
    """
    per_s = demand_per_s(use, limit_per_s) if size is None else float(f"{size.target:.3g}")
    return Demand(per_s, size)


def _is_throttled(use: UsedSeconds) -> bool:
    return throttled_percent(use) > _LEFT_OUT_PERCENT
