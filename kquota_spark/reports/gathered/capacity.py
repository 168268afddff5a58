"""Request time that brokers have, (io + network threads) x 100 % of one thread, and what was charged of it.

Only requests of clients that some request_percentage covers are charged, so the use is a lower bound.
"""

from __future__ import annotations

from kquota_spark.model.replay.request_replay import US_PER_PERCENT
from kquota_spark.reports.scope.audit_report import Capacity
from kquota_spark.reports.scope.report_scope import Scope

_BROKERS = """
select broker_id, arg_max(num_io_threads, coalesce(valid_from, make_timestamptz(0))) as io_threads,
       arg_max(num_network_threads, coalesce(valid_from, make_timestamptz(0))) as network_threads
from broker_configs where cluster_id = ? and broker_id is not null and num_io_threads is not null
  and num_network_threads is not null and coalesce(valid_from < make_timestamptz(?), true)
group by broker_id order by broker_id
"""
_USED = f"""
select broker_id, sum(percent) as used_percent from (
  select broker_id, coalesce(sum(amount) / {US_PER_PERCENT} / ?, avg(rate_per_s)) as percent
  from used where quota_type = 'request' group by broker_id, "user", client_id
) group by broker_id
"""  # noqa: S608 - a number of ours


def capacities(scope: Scope) -> list[Capacity]:
    """The brokers whose threads are known; none on a tenant's page, where the use would tell of others."""
    if scope.tenant is not None:
        return []
    used = {row["broker_id"]: row["used_percent"] for row in scope.rows(_USED, scope.covered_seconds)}
    return [
        Capacity(
            broker_id=row["broker_id"],
            io_threads=row["io_threads"],
            network_threads=row["network_threads"],
            percent=100.0 * (row["io_threads"] + row["network_threads"]),
            used_percent=used.get(row["broker_id"]),
        )
        for row in scope.rows(_BROKERS, scope.cluster_id, scope.asked.to_ms * 1_000)
    ]
