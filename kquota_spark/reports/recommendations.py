"""What to do, the most urgent first: what holds clients back, what nothing holds, what does nothing, what is spare."""

from __future__ import annotations

from collections.abc import Collection

from kquota_spark.model.observed_clients import Observed
from kquota_spark.reports.audit_report import HurtBucket, Recommendation
from kquota_spark.reports.recommended_defaults import defaults, first_values
from kquota_spark.reports.recommended_raises import raises
from kquota_spark.reports.recommended_removals import idle_rules, unused_limits
from kquota_spark.reports.report_scope import Scope


def recommendations(
    scope: Scope, observed: Observed, hurt: Collection[HurtBucket], *, is_first_look: bool
) -> tuple[list[Recommendation], int]:
    """What to do, and how much more there would be; on a tenant's page only what to ask for."""
    found = list(raises(scope, hurt, observed.rules))
    if scope.tenant is None:
        if is_first_look:
            found += first_values(scope)
        else:
            found += defaults(scope, observed.rules)
            found += idle_rules(observed)
            found += unused_limits(scope, observed)
    return found[: scope.top], max(0, len(found) - scope.top)
