"""What to do, the most urgent first: what holds clients back, what nothing holds, what does nothing, what is spare."""

from __future__ import annotations

from collections.abc import Collection

from kquota_spark.model.compare.observed_clients import Observed
from kquota_spark.reports.advice.recommended_defaults import defaults, first_values
from kquota_spark.reports.advice.recommended_raises import raises
from kquota_spark.reports.advice.recommended_removals import idle_rules, unused_limits
from kquota_spark.reports.advice.tenant_advice import tenant_advice
from kquota_spark.reports.scope.audit_report import Change, HurtBucket, Recommendation
from kquota_spark.reports.scope.report_scope import Scope


def recommendations(
    scope: Scope,
    observed: Observed,
    hurt: Collection[HurtBucket],
    changes: Collection[Change],
    *,
    is_first_look: bool,
) -> tuple[list[Recommendation], int]:
    """What to do, and how much more there would be; on a tenant's page what clients can do, then what to ask for.

    What holds clients back comes first, the most total delay before all others. A quota has one card.
    """
    found = list(raises(scope, hurt, observed.rules, changes))
    if scope.tenant is not None:
        found = [*tenant_advice(scope, hurt), *found]
    elif is_first_look:
        found += first_values(scope)
    else:
        found += defaults(scope, observed.rules)
        found += idle_rules(observed)
        found += unused_limits(scope, observed)
    cards = {(one.title or one.entity, one.key): one for one in reversed(found)}
    kept = [one for one in found if cards[one.title or one.entity, one.key] is one]
    return kept[: scope.top], max(0, len(kept) - scope.top)
