"""Raise: a step up for a client that is throttled much of its time while the brokers have headroom.

The step leads towards the estimated demand (`demand_of`) and never downwards. A client that takes clearly more than
its limit, averaged over the whole period, gets no raise: see `penalty_policy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kquota_spark.enforce.changes import Proposal
from kquota_spark.enforce.policies.context import (
    Case,
    Demand,
    PolicyContext,
    demand_of,
    evidence_of,
    minute_text,
    throttled_percent,
    value_text,
)
from kquota_spark.enforce.policies.observations import BrokerUse, BucketUse, Period
from kquota_spark.enforce.policies.policy import Raise
from kquota_spark.formats.text.person_units import counted
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket

_MOST_USED_PERCENT = 120.0
"""Maximum mean rate over the whole period for a raise, percent of the limit."""


def raises(policy: Raise, context: PolicyContext) -> Iterator[Proposal]:
    """Proposals in order of names; each takes its part of the brokers' headroom before the next."""
    left = _Headroom(policy, context)
    for case in context.cases(policy.within, _keys(policy)):
        worst = max(case.uses, key=throttled_percent)
        if not _is_throttled(policy, worst):
            continue
        if any(100 * use.mean_rate_per_s > _MOST_USED_PERCENT * case.limit_per_s for use in case.uses):
            continue
        demand = demand_of(worst, case.limit_per_s, context.observations.sizes.get(case.bucket))
        if demand.per_s <= case.limit_per_s:
            continue
        after = context.allowed(case, min(demand.per_s, case.limit_per_s * (1 + policy.step_percent / 100)))
        if after is not None and left.take(case, after):
            yield _proposal(policy, context, case, (worst, demand), after)


def throttled_buckets(policy: Raise, period: Period) -> Iterator[tuple[QuotaType, Bucket]]:
    """The buckets that are throttled enough for a raise, most throttle time first: those that need a right size."""
    keys = _keys(policy)
    found = (use for use in period.buckets if use.place.quota_type.key in keys and _is_throttled(policy, use))
    for use in sorted(found, key=_harm):
        yield use.place.quota_type, use.place.bucket


def _harm(use: BucketUse) -> tuple[int, str, str]:
    """The order of buckets: the most throttle time first, then by name."""
    return -use.throttle_ms, use.place.bucket.user, use.place.bucket.client_id


def _is_throttled(policy: Raise, use: BucketUse) -> bool:
    return use.seconds >= policy.least_seconds and throttled_percent(use) > policy.throttled_percent


def headroom_of(policy: Raise, brokers: Iterable[BrokerUse]) -> dict[tuple[int, QuotaKey], float]:
    """The rate per second that raises may add on each broker, by key; negative on a broker that uses more.

    Args:
        policy: with the capacity of a broker, and the percent of it that may be used.
        brokers: the rates of all clients together.
    """
    share = policy.headroom_percent / 100
    return {
        (broker.broker_id, key): policy.broker_capacity_per_s[key.value] * share - broker.p95_rate_per_s
        for key in _keys(policy)
        for broker in brokers
        if broker.quota_type.key is key
    }


def _keys(policy: Raise) -> list[QuotaKey]:
    return [QuotaKey(name) for name in policy.broker_capacity_per_s]


class _Headroom:
    """The headroom left on each broker, by key; a broker without a known rate has none."""

    def __init__(self, policy: Raise, context: PolicyContext) -> None:
        self._left = headroom_of(policy, context.observations.brokers)

    def take(self, case: Case, after: float) -> bool:
        """Take a raise from every broker of the bucket; False, and nothing taken, if one has too little headroom."""
        more = after - case.limit_per_s
        places = [(use.place.broker_id, case.quota.key) for use in case.uses]
        if any(self._left.get(place, 0.0) < more for place in places):
            return False
        for place in places:
            self._left[place] -= more
        return True


def _proposal(
    policy: Raise, context: PolicyContext, case: Case, why: tuple[BucketUse, Demand], after: float
) -> Proposal:
    worst, demand = why
    reason = (
        f"throttled {throttled_percent(worst):.0f} % of {worst.seconds:,} seconds on broker "
        f"{worst.place.broker_id} since {minute_text(case.period.from_ms)}, {counted(worst.episodes, 'episode')}, "
        f"and the brokers have headroom: from {value_text(case.quota.key, case.limit_per_s)} to "
        f"{value_text(case.quota.key, after)}; {demand.text(case.quota.key)}"
    )
    evidence = evidence_of(
        case.period,
        (worst,),
        limit_per_s=case.limit_per_s,
        **_numbers(demand),
        peak_rate_per_s=worst.peak_rate_per_s,
        throttled_percent=throttled_percent(worst),
        throttle_ms=worst.throttle_ms,
    )
    return context.proposal(case, after, policy.name, reason, evidence)


def _numbers(demand: Demand) -> dict[str, float]:
    """The figures of the estimate; their names are those of `kquota rightsize` if it is a right size."""
    size = demand.size
    if size is None:
        return {"demand_at_least_per_s": demand.per_s}
    found = {"target_per_s": demand.per_s, "demand_per_s": size.quantile, "lower_per_s": size.lower}
    found |= {} if size.upper is None else {"upper_per_s": size.upper}
    return {**found, "history_days": size.days}
