"""Penalty: a temporary lower limit for a client that repeatedly exceeds its limit and does not slow down.

Throttling alone is no offence: an obedient client may be throttled all day. An offender differs in both of these:

* It took clearly more than its limit, averaged over the whole period. The broker's throttle is just long enough to come
  down to the limit (KIP-13, `QuotaUtils.throttleTime`), but the broker forgets after its windows.
* The sum of its throttle times is longer than the period. A connection is not throttled again while it waits (KIP-219).
  So this sum, divided by the length of the period, is the least number of connections that waited at once, if they did.

`docs/policies.md` has examples, and the offenders that this does not find. A quota has one penalty at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kquota_spark.enforce.changes import Proposal
from kquota_spark.enforce.policies.context import (
    Case,
    PolicyContext,
    evidence_of,
    minute_text,
    throttled_percent,
    value_text,
)
from kquota_spark.enforce.policies.observations import BucketUse
from kquota_spark.enforce.policies.policy import Penalty
from kquota_spark.formats.text.person_units import counted


def penalties(policy: Penalty, context: PolicyContext) -> Iterator[Proposal]:
    """One proposal for each offender."""
    for case in context.cases(policy.within, policy.keys):
        worst = max(case.uses, key=lambda use: use.mean_rate_per_s)
        if not _offends(policy, case, worst):
            continue
        after = context.allowed(case, case.limit_per_s * policy.to_percent / 100)
        if after is not None:
            yield _proposal(policy, context, case, worst, after)


def _offends(policy: Penalty, case: Case, use: BucketUse) -> bool:
    is_over = use.episodes >= policy.episodes or throttled_percent(use) > policy.throttled_percent
    is_waiting_more = waiting_connections(case, use) > policy.connections
    return is_over and is_waiting_more and _used_percent(case, use) > policy.used_percent


def waiting_connections(case: Case, use: BucketUse) -> float:
    """The average number of connections that waited, if they waited for all throttle times."""
    return use.throttle_ms / (case.period.to_ms - case.period.from_ms)


def _used_percent(case: Case, use: BucketUse) -> float:
    return 100.0 * use.mean_rate_per_s / case.limit_per_s


def _proposal(
    policy: Penalty, context: PolicyContext, case: Case, worst: BucketUse, after: float
) -> Proposal:
    used_percent = _used_percent(case, worst)
    reason = (
        f"took {used_percent:.0f} % of its limit on broker {worst.place.broker_id} since "
        f"{minute_text(case.period.from_ms)}: {counted(worst.episodes, 'episode')}, throttled "
        f"{throttled_percent(worst):.0f} % of {worst.seconds:,} seconds, as long as "
        f"{waiting_connections(case, worst):,.0f} waiting connections; to {value_text(case.quota.key, after)} "
        f"until {minute_text(context.now_ms + policy.expires_after)}"
    )
    evidence = evidence_of(
        case.period,
        (worst,),
        limit_per_s=case.limit_per_s,
        mean_rate_per_s=worst.mean_rate_per_s,
        used_percent=used_percent,
        episodes=worst.episodes,
        peak_used_percent=worst.peak_used_percent,
        throttle_ms=worst.throttle_ms,
        waiting_connections=waiting_connections(case, worst),
    )
    proposal = context.proposal(case, after, policy.name, reason, evidence)
    return replace(proposal, expires_at_ms=context.now_ms + policy.expires_after, is_penalty=True)
