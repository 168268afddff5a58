"""The clients of the stretch beside the rules at its end, as the findings and recommendations look at them."""

from __future__ import annotations

from kquota_spark.findings.client_findings import IdSeen
from kquota_spark.model.compare.observed_clients import Observed
from kquota_spark.reports.clients.seen_clients import clients_seen, is_sampled, problems_of, rules_at
from kquota_spark.reports.scope.report_scope import Scope


def clients_beside_rules(scope: Scope) -> tuple[Observed, list[IdSeen]]:
    """Who used bandwidth, and the client ids with their first and last second; only the request log tells of all."""
    during = scope.asked
    clients = clients_seen(
        scope.tables, scope.cluster_id, during.from_ms, until_ms=during.to_ms, user=scope.tenant
    )
    observed = Observed(
        [one.seen for one in clients],
        rules_at(scope.tables, scope.cluster_id, during.to_ms),
        scope.covered.from_ms,
        scope.covered.to_ms,
        problems_of(scope.tables, scope.cluster_id),
        is_sampled(scope.tables, scope.cluster_id, during.from_ms, during.to_ms),
    )
    ids = [
        IdSeen(one.seen.user, one.seen.client_id, one.first_ms, one.last_ms, one.seen.amount)
        for one in clients
    ]
    return observed, ids
