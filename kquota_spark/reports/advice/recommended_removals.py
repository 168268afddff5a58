"""Rules that do nothing, and limits that nobody comes near to. Both need a day or more of usage to be told."""

from __future__ import annotations

from collections.abc import Iterator

from kquota_spark.enforce.policies.lower_policy import lowered
from kquota_spark.enforce.policies.policy import Lower
from kquota_spark.enforce.policies.scene import value_text
from kquota_spark.findings.idle_rules import LEAST_OBSERVED_MS, dead, shadowed
from kquota_spark.model.compare.observed_clients import Observed, Rule
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import BANDWIDTH, AnyKey, QuotaKey, QuotaType
from kquota_spark.reports.advice.quota_command import alter_command
from kquota_spark.reports.scope.audit_report import Recommendation
from kquota_spark.reports.scope.report_scope import BUCKET, Scope

_STEP = Lower(name="lower-unused", kind="lower")
"""The policy's own arithmetic, as it is where the policy file says nothing else."""
_DAY_MS = 86_400_000

_UNUSED = f"""
select quota_type, max(rule) as rule, max(most_limit_per_s) as limit_per_s, max(peak_rate_per_s) as peak_rate_per_s,
       sum(seconds)::bigint as seconds
from places group by {BUCKET}
having bucket_tags = '' and sum(held_back_rows) = 0 and min(least_limit_per_s) = max(most_limit_per_s)
  and bool_and(least_limit_per_s is not null) and min(rule) = max(rule)
  and 100 * max(peak_rate_per_s) < ? * max(most_limit_per_s)
order by max(peak_rate_per_s) / max(most_limit_per_s), rule
"""  # noqa: S608 - names of ours


def idle_rules(observed: Observed) -> Iterator[Recommendation]:
    """Keys of rules that never decide, and rules whose clients are gone."""
    for shadow in shadowed(observed):
        by = ", ".join(shadow.by[:3]) + (", ..." if len(shadow.by) > 3 else "")
        yield _removal(shadow.rule, (shadow.key,), f"it limits nobody: {by} comes before it")
    for rule, keys in dead(observed):
        days = (observed.to_ms - observed.from_ms) / _DAY_MS
        why = f"nobody that it names was seen in {days:.1f} days of usage: remove it if the client is gone"
        yield _removal(rule, keys, why)


def _removal(rule: Rule, keys: tuple[QuotaKey, ...], reason: str) -> Recommendation:
    present = rule.quotas[keys[0]] if len(keys) == 1 else None
    names = ", ".join(key.value for key in keys)
    return Recommendation(
        str(rule.entity), names, present, None, reason, alter_command(rule.entity, delete=keys)
    )


def unused_limits(scope: Scope, observed: Observed) -> Iterator[Recommendation]:
    """Limits of named entities of which less than half was ever used, the least used first: one step down."""
    if scope.covered.to_ms - scope.covered.from_ms < LEAST_OBSERVED_MS:
        return
    in_force = {str(rule.entity): rule for rule in observed.rules}
    for row in scope.rows(_UNUSED, _STEP.unused_percent):
        rule, limit, peak = in_force.get(row["rule"]), row["limit_per_s"], row["peak_rate_per_s"]
        key = QuotaType(row["quota_type"]).key if row["quota_type"] in BANDWIDTH else None
        if key is None or rule is None or not _is_named(rule.entity) or rule.quotas.get(key) != limit:
            continue
        after = lowered(_STEP, limit, peak)
        if after is not None:
            yield _lowering(rule.entity, key, limit, peak, float(round(after)), row["seconds"])


def _is_named(entity: Entity) -> bool:
    return all(part is None or isinstance(part, str) for part in (entity.user, entity.client_id))


def _lowering(
    entity: Entity, key: QuotaKey, limit: float, peak: float, after: float, seconds: int
) -> Recommendation:
    reason = (
        f"highest rate {value_text(key, peak)}, {100 * peak / limit:.0f} % of the limit, in {seconds:,} seconds with "
        "traffic, none of them throttled: one step down, and the next one after another such stretch"
    )
    quotas: dict[AnyKey, float] = {key: after}
    return Recommendation(str(entity), key.value, limit, after, reason, alter_command(entity, quotas))
