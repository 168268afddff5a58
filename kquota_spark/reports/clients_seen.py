"""The clients of the stretch beside the rules at its end, as the findings and recommendations look at them."""

from __future__ import annotations

from kquota_spark.model.client_id_findings import IdSeen
from kquota_spark.model.entities import Entity
from kquota_spark.model.observed_clients import Observed, Rule, Seen
from kquota_spark.model.quota_types import QuotaKey, QuotaType
from kquota_spark.reports.report_scope import Scope

_SEEN = """
select "user", client_id, quota_type, coalesce(sum(amount), 0)::bigint as amount,
       coalesce(sum(observed_throttle_ms), 0)::bigint as throttled_ms, min(second_ms) as first_ms,
       max(second_ms) as last_ms
from used where quota_type in ('produce', 'fetch') and is_log
group by "user", client_id, quota_type order by amount desc, "user", client_id, quota_type
"""
_RULES = f"""
select entity, epoch_ms(valid_from) as valid_from_ms, {", ".join(key.value for key in QuotaKey)}
from quota_rules where cluster_id = ? and level > 0 and coalesce(valid_from < make_timestamptz(?), true)
  and coalesce(valid_to >= make_timestamptz(?), true)
order by level, entity
"""  # noqa: S608 - names of ours
_PROBLEMS = """
select entity, arg_max(problem, version) as problem from quota_changes where cluster_id = ?
group by entity having problem is not null order by entity
"""


def observed(scope: Scope) -> tuple[Observed, list[IdSeen]]:
    """Who used bandwidth, and the client ids with their first and last second; only the request log tells of all."""
    rows = scope.rows(_SEEN)
    seen = [
        Seen(row["user"], row["client_id"], QuotaType(row["quota_type"]), row["amount"], row["throttled_ms"])
        for row in rows
    ]
    ids = [
        IdSeen(row["user"], row["client_id"], row["first_ms"], row["last_ms"], row["amount"]) for row in rows
    ]
    problems = dict(scope.tables.query(_PROBLEMS, [scope.cluster_id]).rows)
    return Observed(seen, _rules(scope), scope.covered.from_ms, scope.covered.to_ms, problems), ids


def _rules(scope: Scope) -> list[Rule]:
    end_us = scope.asked.to_ms * 1_000
    found = []
    for row in scope.rows(_RULES, scope.cluster_id, end_us, end_us):
        quotas = {key: row[key.value] for key in QuotaKey if row[key.value] is not None}
        if quotas:
            found.append(Rule(Entity.parse(row["entity"]), quotas, row["valid_from_ms"] or 0))
    return found
