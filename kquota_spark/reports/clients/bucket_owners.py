"""The owners of the clients that were throttled in each bucket.

Each client of a throttled second is mapped to its owner in that second. Only then are the owners of a bucket listed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from kquota_spark.model.owners import Owners
from kquota_spark.reports.scope.report_scope import BUCKET, Scope, bucket_of
from kquota_spark.reports.scope.shared_rows import BucketName

# Owners change only at the edges, so one second per client between two edges is enough.
_CLIENTS = f"""
select {BUCKET}, used."user", used.client_id, min(second_ms) as second_ms
from judged join used using (broker_id, quota_type, second_ms)
where judged.is_throttled and list_contains(judged.users, used."user")
  and list_contains(judged.client_ids, used.client_id)
group by {BUCKET}, used."user", used.client_id, len(list_filter(?::bigint[], lambda edge: edge <= second_ms))
"""  # noqa: S608 - names of ours


def owners_of_buckets(
    scope: Scope, owners: Owners, buckets: Iterable[BucketName]
) -> Mapping[BucketName, tuple[str, ...]]:
    """The names of the owners of each bucket, in alphabetical order.

    A bucket without a client of the log in the tables (from JMX) has the owner of its own names.

    Args:
        scope: the period.
        owners: the owners.
        buckets: the throttled buckets.
    """
    found: dict[BucketName, set[str]] = defaultdict(set)
    for row in scope.rows(_CLIENTS, owners.edges_ms):
        found[bucket_of(row)].add(owners.of(row["user"], row["client_id"], row["second_ms"]).name)
    return {
        bucket: tuple(sorted(found[bucket]))
        if bucket in found
        else (owners.of(bucket.user, bucket.client_id, scope.covered.to_ms - 1).name,)
        for bucket in buckets
    }
