"""Default: a quota for traffic that has none.

`clients/<default>` is the last of the levels, so no client loses its quota to it. `users/<default>` has precedence over
`clients/...`: while any of those is set, the policy does not propose it. It proposes neither while the default would
apply to an exempt name: give that name a quota of its own first. `clients/<default>` does not apply to a client
without an id (KAFKA-13341). Traffic of clients with the names of our own clients is no reason for a default, and not
part of its evidence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kquota_spark.enforce.changes import Proposal, Quota
from kquota_spark.enforce.policies.context import PolicyContext, evidence_of, value_text
from kquota_spark.enforce.policies.observations import ClientUse
from kquota_spark.enforce.policies.policy import DAY_MS, DefaultQuota
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.resolve import CLIENT_ONLY_LEVELS

_LEAST_PERCENT = 1.0
"""Minimum share of unlimited traffic in all traffic of its type, percent: a default is for traffic that matters."""


def defaults(policy: DefaultQuota, context: PolicyContext) -> Iterator[Proposal]:
    """One proposal for each key that has unlimited traffic and no such default yet."""
    entity = Entity.parse(policy.entity)
    for key in map(QuotaKey, policy.values):
        quota, levels = Quota(entity, key), {other.level for other in context.observations.entities_with(key)}
        # Clients would lose their present quota.
        would_take_over = entity.user is not None and not levels.isdisjoint(CLIENT_ONLY_LEVELS)
        if context.observations.value_of(quota) is None and not would_take_over:
            proposal = _proposal(policy, context, quota)
            if proposal is not None:
                yield proposal


def _proposal(policy: DefaultQuota, context: PolicyContext, quota: Quota) -> Proposal | None:
    value, bounds = policy.values[quota.key.value], context.guards.bounds_of(quota.key)
    period = context.observations.periods.get(DAY_MS)
    reached = _unmetered(context, quota)
    unmetered = [client for client in reached if not client.is_ours]
    if period is None or bounds is None or bounds.nearest(None, value) != value or not unmetered:
        return None
    if any(context.is_exempt(client) for client in reached):
        return None
    of_type = [use for use in period.buckets if use.place.quota_type.key is quota.key and not use.is_ours]
    uses = [use for use in of_type if use.limit_per_s is None]
    share = sum(use.mean_rate_per_s for use in uses) / (sum(use.mean_rate_per_s for use in of_type) or 1.0)
    if 100 * share < _LEAST_PERCENT:
        return None
    of_users = quota.entity.user is not None
    peaks = _peaks(unmetered, of_users=of_users)
    names, over = {name for name, _ in peaks}, {name for (name, _), peak in peaks.items() if peak > value}
    peak_rate_per_s = max(peaks.values())
    who = "users" if of_users else "client ids"
    reason = (
        f"{len(names):,} {who} have no {quota.key.value}, and up to {value_text(quota.key, peak_rate_per_s)} "
        f"on a broker went through unlimited: {value_text(quota.key, value)} for each of them on each broker"
    )
    return Proposal(
        quota=quota,
        before=None,
        after=value,
        policy=policy.name,
        reason=reason,
        expires_at_ms=None,
        evidence=evidence_of(
            period,
            uses,
            names_without_quota=len(names),
            names_over_it=len(over),
            peak_rate_per_s=peak_rate_per_s,
        ),
        would_have=f"in the last day it would have throttled at most {len(over):,} of {len(names):,} {who}: "
        "an estimate from rates over ten seconds, not the broker's ring",
    )


def _unmetered(context: PolicyContext, quota: Quota) -> list[ClientUse]:
    return [
        client
        for client in context.observations.clients
        if client.quota_type.key is quota.key
        and client.peak_rate_per_s > 0
        and (client.client_id or quota.entity.user is not None)
        and context.resolved(client).limit is None
    ]


def _peaks(clients: Collection[ClientUse], *, of_users: bool) -> dict[tuple[str, int], float]:
    """Peak rate of each user or client id on each broker: the sum of its clients' peaks, as if they coincided."""
    peaks: dict[tuple[str, int], float] = {}
    for client in clients:
        place = (client.user if of_users else client.client_id, client.broker_id)
        peaks[place] = peaks.get(place, 0.0) + client.peak_rate_per_s
    return peaks
