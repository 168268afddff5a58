"""Lower: reduce an unused limit in steps, one per period.

The policy lowers only limits of named entities, because a default is also for future clients. The tables must cover
the whole period. A bucket that any quota throttled in the period is left out, because its rate does not show the wanted
rate. A limit that changed within the period must first be in force for a whole one, so there is one step per period.
"""

from __future__ import annotations

from collections.abc import Iterator

from kquota_spark.enforce.changes import Proposal
from kquota_spark.enforce.policies.context import Case, PolicyContext, evidence_of, minute_text, value_text
from kquota_spark.enforce.policies.policy import Lower


def lowerings(policy: Lower, context: PolicyContext) -> Iterator[Proposal]:
    """One proposal for each limit that the traffic stays far below."""
    known_from_ms = context.observations.decisions_from_ms
    for case in context.cases(policy.within, policy.keys):
        if known_from_ms is None or known_from_ms > case.period.from_ms or case.before is None:
            continue
        if any(use.throttled_seconds or use.observed_throttled_seconds for use in case.uses):
            continue
        peak = max(use.peak_rate_per_s for use in case.uses)
        lowest = lowered(policy, case.limit_per_s, peak)
        after = None if lowest is None else context.allowed(case, lowest)
        if after is not None:
            yield _proposal(policy, context, case, peak, after)


def lowered(policy: Lower, limit_per_s: float, peak_rate_per_s: float) -> float | None:
    """The limit after one step down; None if the peak rate is too close to the limit."""
    if 100 * peak_rate_per_s >= policy.unused_percent * limit_per_s:
        return None
    lowest = max(limit_per_s * (1 - policy.step_percent / 100), peak_rate_per_s * policy.margin_percent / 100)
    return lowest if lowest < limit_per_s else None


def _proposal(policy: Lower, context: PolicyContext, case: Case, peak: float, after: float) -> Proposal:
    seconds = sum(use.seconds for use in case.uses)
    used_percent = 100 * peak / case.limit_per_s
    reason = (
        f"highest rate {value_text(case.quota.key, peak)}, {used_percent:.0f} % of the limit, in {seconds:,} seconds "
        f"since {minute_text(case.period.from_ms)}, none of them throttled: from "
        f"{value_text(case.quota.key, case.limit_per_s)} to {value_text(case.quota.key, after)}"
    )
    evidence = evidence_of(
        case.period,
        case.uses,
        limit_per_s=case.limit_per_s,
        peak_rate_per_s=peak,
        p95_rate_per_s=max(use.p95_rate_per_s for use in case.uses),
    )
    return context.proposal(case, after, policy.name, reason, evidence)
