"""The connections of clients, from the table `requests`: their requests, bytes and delay."""

from __future__ import annotations

from collections.abc import Sequence

from kquota_spark.schema.tables import LEFT_OUT
from kquota_spark.store.reading import Tables

TIME = "make_timestamptz(record_time_ms * 1000)"
"""The time of a row, a timestamp."""
# Requests of followers and forwarded copies are not of clients.
_OF_CLIENTS = (
    "kind = 'request' and not is_out_of_time",
    "not coalesce(is_from_follower, false) and not coalesce(is_forwarded, false)",
)
# A line that was delivered twice is one request. Both rows have these values in common.
_ONCE = """
select cluster_id, broker_id, "user", client_id, connection, record_time_ms,
       any_value(charged_bytes) as charged_bytes, any_value(observed_throttle_ms) as throttle_ms
from requests{where}
group by cluster_id, broker_id, "user", client_id, connection, record_time_ms, correlation_id, api_key, log_time_ms
"""
_CONNECTIONS = f"""
with once as ({_ONCE}),
     found as (
  select cluster_id, "user", client_id, connection, broker_id, count(*) as requests,
         sum(charged_bytes)::bigint as charged_bytes,
         count(*) filter (throttle_ms > 0) as throttled_requests,
         coalesce(sum(throttle_ms), 0)::bigint as delay_ms,
         min(record_time_ms) as first_ms, max(record_time_ms) as last_ms
  from once group by all
)
select *, count(*) over () as of_all, sum(delay_ms) over ()::bigint as delay_of_all_ms,
       min(first_ms) over () as from_ms, max(last_ms) over () as to_ms
from found order by delay_ms desc, requests desc, cluster_id, "user", client_id, broker_id, connection
"""  # noqa: S608 - names of ours; {where} has ? for each value
OF_ALL = ("of_all", "delay_of_all_ms", "from_ms", "to_ms")
"""Columns at the end of each row that are about all rows, whatever the limit."""
_WITHOUT_ROW = f"select coalesce(sum(lines), 0)::bigint from requests where kind = '{LEFT_OUT}'"  # noqa: S608 - ours


def connections_sql(conditions: Sequence[str]) -> str:
    """The query for one row per user, client id and connection, most total delay first.

    Args:
        conditions: on rows of `requests`, with a `?` for each value.
    """
    return _CONNECTIONS.format(where=f" where {' and '.join((*conditions, *_OF_CLIENTS))} ")


def requests_without_row(tables: Tables) -> int:
    """Number of requests of which `requests` keeps no row (`tables.requests`), so that no sum has them."""
    count: int = tables.query(_WITHOUT_ROW).rows[0][0]
    return count
