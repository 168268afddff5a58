"""Cluster quota: one budget for an entity on all brokers together.

ZooKeeper and the Admin API have one value for all brokers (one value per broker needs a callback, KIP-257). The policy
finds the value under which the shares of the brokers add up to the budget at the present load. Each broker serves at
most its demand and at most the value (water-filling). The load may move between two checks: `worst_case_per_s` of the
evidence is the maximum that can pass then. `docs/policies.md` compares it with an even split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kquota_spark.enforce.changes import Evidence, Proposal, Quota
from kquota_spark.enforce.policies.context import (
    Case,
    PolicyContext,
    demand_per_s,
    evidence_of,
    minute_text,
    type_of,
    used_per_s,
    value_text,
)
from kquota_spark.enforce.policies.policy import ClusterQuota
from kquota_spark.model.measure.max_min_fair import value_under
from kquota_spark.model.quotas.entities import Entity


def cluster_quotas(policy: ClusterQuota, context: PolicyContext) -> Iterator[Proposal]:
    """One proposal for each budget that needs another value."""
    cases = {case.quota.entity: case for case in context.cases(policy.within, (policy.key,)) if case.before}
    for name, budget in sorted(policy.budgets.items()):
        entity = Entity.parse(name)
        if context.observations.value_of(Quota(entity, policy.key)) is None:
            proposal = _first(policy, context, entity, budget)
        else:
            proposal = _next(policy, context, cases[entity], budget) if entity in cases else None
        if proposal is not None:
            yield proposal


def served(demands: Iterable[float], value: float) -> float:
    """The rate that all brokers together serve under a value."""
    return sum(min(demand, value) for demand in demands)


def _brokers(policy: ClusterQuota, context: PolicyContext) -> list[int]:
    wanted = type_of(policy.key)
    return sorted({one.broker_id for one in context.observations.brokers if one.quota_type is wanted})


def _first(policy: ClusterQuota, context: PolicyContext, entity: Entity, budget: float) -> Proposal | None:
    """A proposal for an entity without a quota: the even split, because the skew between brokers is not known yet."""
    brokers = _brokers(policy, context)
    bounds = context.guards.bounds_of(policy.key)
    period = context.observations.periods.get(policy.within)
    if not brokers or bounds is None or period is None or context.exempt.holds(entity) is not None:
        return None
    even = budget / len(brokers)
    if bounds.nearest(None, even) != even or even < policy.floor_per_broker:
        return None
    names = entity.user or "", entity.client_id or ""
    of_key = (use for use in period.buckets if use.place.quota_type.key is policy.key)
    uses = [use for use in of_key if (use.place.bucket.user, use.place.bucket.client_id) == names]
    reason = (
        f"budget of {value_text(policy.key, budget)} for the cluster and no quota yet: "
        f"{value_text(policy.key, even)} on each of {len(brokers)} brokers"
    )
    return Proposal(
        quota=Quota(entity, policy.key),
        before=None,
        after=even,
        policy=policy.name,
        reason=reason,
        expires_at_ms=None,
        evidence=evidence_of(period, uses, budget_per_s=budget, brokers=len(brokers)),
    )


def _next(policy: ClusterQuota, context: PolicyContext, case: Case, budget: float) -> Proposal | None:
    demands = dict.fromkeys(_brokers(policy, context), 0.0)
    demands |= {use.place.broker_id: demand_per_s(use, case.limit_per_s) for use in case.uses}
    wanted = value_under(demands.values(), budget)
    if wanted < policy.floor_per_broker:
        return None
    after = context.allowed(case, wanted)
    if after is None or abs(after - case.limit_per_s) < case.limit_per_s * policy.change_percent / 100:
        return None
    if after > max(wanted, case.limit_per_s):
        return None  # the floor of the guards would raise it above the budget
    even = budget / len(demands)
    reason = (
        f"budget of {value_text(policy.key, budget)} for the cluster, and since {minute_text(case.period.from_ms)} "
        f"{len(demands)} brokers had a demand of {value_text(policy.key, sum(demands.values()))}, "
        f"{value_text(policy.key, max(demands.values()))} of it on one. One value holds on every broker: "
        f"{value_text(policy.key, after)} serves {value_text(policy.key, served(demands.values(), after))}; an even "
        f"split of {value_text(policy.key, even)} would serve {value_text(policy.key, served(demands.values(), even))}"
    )
    evidence = _evidence(case, demands, budget, after)
    return context.proposal(case, after, policy.name, reason, evidence)


def _evidence(case: Case, demands: Mapping[int, float], budget: float, after: float) -> Evidence:
    even = budget / len(demands)
    serves, even_serves = served(demands.values(), after), served(demands.values(), even)
    shares = {f"share_of_broker_{broker}_per_s": min(demand, after) for broker, demand in demands.items()}
    of_demand = {f"demand_of_broker_{broker}_per_s": demand for broker, demand in demands.items()}
    return evidence_of(
        case.period,
        case.uses,
        budget_per_s=budget,
        used_per_s=sum(used_per_s(use) for use in case.uses),
        serves_per_s=serves,
        even_split_per_s=even,
        even_split_serves_per_s=even_serves,
        even_split_loses_per_s=max(0.0, serves - even_serves),
        worst_case_per_s=after * len(demands),
        **shares,
        **of_demand,
    )
