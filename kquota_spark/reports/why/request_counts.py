"""How many requests a bucket has in a period, and where a maximum of them is reached: one query for all periods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kquota_spark.reports.why.recorded import Wanted
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables

# Few rows have a name that is asked for: the exact condition is checked on these only.
_COUNTS = f"""
with asked as (
  select unnest(?::int[]) as place, unnest(?::varchar[]) as asked_type, unnest(?::varchar[]) as asked_user,
         unnest(?::varchar[]) as asked_client_id, unnest(?::bigint[]) as from_ms, unnest(?::bigint[]) as to_ms
), own as (
  select quota_type, "user", client_id, epoch_ms(second) as second_ms, sum(requests) as requests from usage
  where cluster_id = ? and {FROM_LOG}
    and second >= make_timestamptz(?::bigint) and second < make_timestamptz(?::bigint)
    and (list_contains(?::varchar[], "user") or list_contains(?::varchar[], client_id) or ?::boolean)
  group by all
), passed as (
  select place, second_ms, sum(sum(requests)) over (partition by place order by second_ms) as reached
  from asked join own on quota_type = asked_type and asked_user in ('', "user") and asked_client_id in ('', client_id)
    and second_ms >= from_ms and second_ms < to_ms
  group by place, second_ms
)
select place, min(second_ms) filter (reached > ?),
       coalesce(max(reached) filter (reached <= ?), min(reached), 0)::bigint
from passed group by place
"""  # noqa: S608 - names of ours


class RequestCount(NamedTuple):
    """The requests of a bucket in a period."""

    end_ms: int | None
    """The second in which the maximum is passed, epoch ms; None if it is not."""
    requests: int
    """The number of requests until then; at least that of the first second."""


def request_counts(
    tables: Tables, cluster_id: str, wanted: Sequence[Wanted], most: int
) -> list[RequestCount]:
    """The requests of each bucket in its period.

    Args:
        tables: open tables with `usage`.
        cluster_id: the cluster of the buckets.
        wanted: buckets and periods.
        most: maximum number of requests of one.

    Raises:
        UserError: the table cannot be read.
    """
    if not wanted:
        return []
    buckets = [one.bucket for one in wanted]
    users = [bucket.user for bucket in buckets]
    client_ids = [bucket.client_id for bucket in buckets]
    columns = [
        list(range(len(wanted))),
        [bucket.quota_type for bucket in buckets],
        users,
        client_ids,
        [one.from_ms for one in wanted],
        [one.to_ms for one in wanted],
    ]
    during = min(one.from_ms for one in wanted) * 1_000, max(one.to_ms for one in wanted) * 1_000
    names = [name for name in users if name], [name for name in client_ids if name]
    is_any = any(not bucket.user and not bucket.client_id for bucket in buckets)
    found = tables.query(_COUNTS, [*columns, cluster_id, *during, *names, is_any, most, most]).rows
    counts = {place: RequestCount(end_ms, requests) for place, end_ms, requests in found}
    return [counts.get(place, RequestCount(None, 0)) for place in range(len(wanted))]
