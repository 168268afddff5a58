"""All policies over the same observations: at most one proposal for each quota."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kquota_spark.enforce.changes import Mode, Proposal, Quota
from kquota_spark.enforce.policies.cluster_quota_policy import cluster_quotas
from kquota_spark.enforce.policies.context import PolicyContext, value_text
from kquota_spark.enforce.policies.default_policy import defaults
from kquota_spark.enforce.policies.lower_policy import lowerings
from kquota_spark.enforce.policies.observations import Observations
from kquota_spark.enforce.policies.penalty_policy import penalties
from kquota_spark.enforce.policies.policy import (
    ClusterQuota,
    DefaultQuota,
    Lower,
    Penalty,
    Policies,
    Policy,
    Raise,
)
from kquota_spark.enforce.policies.raise_policy import raises


def proposals(policies: Policies, observations: Observations, now_ms: int) -> list[Proposal]:
    """The proposals of all policies, in the order of the policies, those of one policy by entity and key.

    The first policy that wants to change a quota wins; its reason also names the values that others wanted. A policy
    that is off proposes nothing. The same arguments give the same list.
    """
    context = PolicyContext(policies.guards, policies.exempt, observations, now_ms)
    chosen: dict[Quota, Proposal] = {}
    for policy in policies.policies:
        if policies.mode_of(policy.name) is Mode.OFF:
            continue
        for proposal in _wanted(policy, context):
            first = chosen.get(proposal.quota)
            chosen[proposal.quota] = proposal if first is None else _with_other(first, proposal)
    return list(chosen.values())


def _wanted(policy: Policy, context: PolicyContext) -> Iterator[Proposal]:
    match policy:
        case Penalty():
            return penalties(policy, context)
        case Raise():
            return raises(policy, context)
        case ClusterQuota():
            return cluster_quotas(policy, context)
        case Lower():
            return lowerings(policy, context)
        case DefaultQuota():
            return defaults(policy, context)


def _with_other(first: Proposal, other: Proposal) -> Proposal:
    wanted = "no quota" if other.after is None else value_text(other.quota.key, other.after)
    return replace(first, reason=f"{first.reason}; {other.policy} wanted {wanted}")
