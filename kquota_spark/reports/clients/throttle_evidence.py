"""What `requests` shows of throttled clients: how their connections end, which versions they use, which ones starve.

One pass over the table creates one row per connection, API and version, and the queries read these rows. To extract
the host from a connection's name costs 25 us, as much as to read a hundred rows. So it is done only for clients that
may have a finding, which are usually few.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from kquota_spark.findings.throttle_findings import (
    BEFORE_END_MS,
    LEAST_OLD_THROTTLES,
    LEAST_STARVED_FETCHES,
    LONGEST_ESCAPE_MS,
    SHORTEST_THROTTLE_MS,
    SHORTEST_TIMEOUT_MS,
    EmptyRun,
    ThrottledClient,
    ThrottledEnd,
)
from kquota_spark.model.measure.apis import CLIENT_HOLDS_BACK_FROM, Api
from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.quotas.rules import END_MS
from kquota_spark.store.reading import Tables

_MOST_ENDS = 100
_DELIVERED_BYTES = 200
"""Size (bytes) of a fetch response up to which it contains no record, because its headers are as long.

A response without a topic contains no record either.
"""

_HOST = r"regexp_extract(connection, '^.*?:\d+-(.+?):\d+-', 1)"
_IS_OLD = " or ".join(
    f"api_key = {api.value} and api_version < {CLIENT_HOLDS_BACK_FROM[api]}"
    for api in (Api.PRODUCE, Api.FETCH)
)
# Lines of one millisecond are ordered by their correlation ids, which a client counts up. The last year that a line can
# have, 9999, leaves four digits for them. A connection has one software.
_TURN = "log_time_ms * 10000 + coalesce(correlation_id, 0) % 10000"
_SPOKEN = f"""
create or replace temp table spoken as
select broker_id, "user", client_id, connection, api_key, api_version, min(record_time_ms) as started_ms,
       max(log_time_ms) as ended_ms,
       max({_TURN}) as turn,
       arg_max({{'recorded_ms': record_time_ms, 'throttle_ms': coalesce(observed_throttle_ms, 0)}}, {_TURN}) as last,
       count(*) filter (observed_throttle_ms > 0) as throttled,
       count(*) filter (observed_throttle_ms >= {SHORTEST_THROTTLE_MS}) as long_ones,
       any_value(software_name) filter (observed_throttle_ms >= {SHORTEST_THROTTLE_MS}) as software_name,
       any_value(software_version) filter (observed_throttle_ms >= {SHORTEST_THROTTLE_MS}) as software_version
from requests
where cluster_id = ? and kind = 'request' and record_time_ms >= ? and not coalesce(is_forwarded, false)
  and not coalesce(is_from_follower, false)
group by all
"""  # noqa: S608 - numbers of ours
# Only the nearest start: all pairs of connections of a client would be far too many. Within one millisecond it may be
# the connection's own start. Then another start of that millisecond counts, or the nearest later one.
_NEXT = f"""
select ended.*, next_ms, if(one = connection, other, one) as next_connection
from placed as ended asof join starts
  on starts.broker_id = ended.broker_id and starts."user" = ended."user" and starts.client_id = ended.client_id
  and starts.host = ended.host and ended.ended_ms {{after}} starts.next_ms
where throttle_ms >= {SHORTEST_THROTTLE_MS}
"""  # noqa: S608 - numbers of ours
# The mute begins when the request is recorded; a response is sent at the time of its line.
_ENDS = f"""
create or replace temp table ends as
with connections as (
  select * exclude (last), unnest(last) from (
    select broker_id, "user", client_id, connection, min(started_ms) as started_ms, max(ended_ms) as ended_ms,
           arg_max(last, turn) as last
    from spoken group by all
  )
)
, throttled as (
  select *, recorded_ms + throttle_ms - {BEFORE_END_MS} as within_ms from connections
  where throttle_ms >= {SHORTEST_THROTTLE_MS}
)
, back as (
  select distinct throttled.broker_id, throttled."user", throttled.client_id
  from throttled asof join connections as next
    on next.broker_id = throttled.broker_id and next."user" = throttled."user"
    and next.client_id = throttled.client_id and throttled.ended_ms <= next.started_ms
  where next.started_ms <= throttled.within_ms
)
, placed as materialized (
  select *, {_HOST} as host from connections semi join back using (broker_id, "user", client_id)
)
, starts as (
  select broker_id, "user", client_id, host, started_ms as next_ms, min(connection) as one,
         max(connection) as other
  from placed group by all
)
, followed as (
  select * from ({_NEXT.format(after="<=")} union all {_NEXT.format(after="<")})
  where next_connection <> connection and next_ms <= recorded_ms + throttle_ms - {BEFORE_END_MS}
  qualify row_number() over (partition by broker_id, "user", client_id, connection order by next_ms) = 1
)
, classed as (
  select *, next_ms - ended_ms as gap_ms, next_ms - ended_ms < {LONGEST_ESCAPE_MS} as is_escape
  from followed where gap_ms < {LONGEST_ESCAPE_MS} or gap_ms >= {SHORTEST_TIMEOUT_MS}
)
select *, count(*) over client as times from classed
window client as (partition by "user", client_id, host, is_escape)
qualify row_number() over (client order by ended_ms) <= {_MOST_ENDS} order by ended_ms
"""  # noqa: S608 - text and numbers of ours
_VERSIONS = f"""
with asked as (
  select "user", client_id from ends
  union
  select "user", client_id from spoken where throttled > 0 and ({_IS_OLD})
  group by all having sum(throttled) >= {LEAST_OLD_THROTTLES}
)
, throttled as (
  select "user", client_id, {_HOST} as host, api_key, api_version, sum(throttled)::bigint as throttled,
         sum(long_ones) as long_ones, max(software_name || ' ' || software_version) as software
  from spoken semi join asked using ("user", client_id) where throttled > 0 group by all
)
select *, (sum(long_ones) over client)::bigint as throttles, max(software) over client as software_of_client
from throttled window client as (partition by "user", client_id, host) order by all
"""  # noqa: S608 - text and numbers of ours
_ANY_LEFT_OUT = """
select 1 from requests where cluster_id = ? and record_time_ms between ? and ? and kind = 'left_out' limit 1
"""
_EMPTY = f"({PointKind.THROTTLED_FETCH.value}, {PointKind.THROTTLED_SHARE_FETCH.value})"
_ANY_EMPTY = f"""
select 1 from requests
where cluster_id = ? and record_time_ms >= ? and kind = 'request' and quota_type = 'fetch'
  and point_kind in {_EMPTY} limit 1
"""  # noqa: S608 - numbers of ours
# A converted fetch has topics and no size. An unreadable line may have delivered records.
_RUNS = f"""
with fetches as (
  select broker_id, "user", client_id, record_time_ms, observed_throttle_ms, point_kind,
         (point_kind = {PointKind.FETCH.value} and charged_bytes > {_DELIVERED_BYTES} and len(topics) > 0)
         or point_kind = {PointKind.SHARE_FETCH.value}
         or (point_kind = {PointKind.UNSIZED.value} and (kind = 'unreadable' or len(topics) > 0)) as is_delivery
  from requests
  where cluster_id = ? and kind in ('request', 'unreadable') and record_time_ms >= ? and quota_type = 'fetch'
), starving as (select distinct broker_id, "user", client_id from fetches where point_kind in {_EMPTY}),
runs as (
  select *, count(*) filter (is_delivery) over (
    partition by broker_id, "user", client_id order by record_time_ms rows unbounded preceding) as deliveries
  from fetches semi join starving using (broker_id, "user", client_id)
)
select "user", client_id, broker_id, count(*) as fetches, min(record_time_ms) as first_ms,
       max(record_time_ms + observed_throttle_ms) as until_ms, max(observed_throttle_ms) as longest_throttle_ms
from runs where point_kind in {_EMPTY} group by broker_id, "user", client_id, deliveries
having count(*) >= {LEAST_STARVED_FETCHES} order by first_ms
"""  # noqa: S608 - numbers of ours


def throttled_clients(tables: Tables, cluster: str, since_ms: int) -> list[ThrottledClient]:
    """Throttled clients that left a throttled connection for a new one, or use a version from before KIP-219.

    Args:
        tables: with `requests` opened.
        cluster: its id.
        since_ms: first record time, epoch ms.
    """
    names = ("user", "client_id", "host")
    tables.query(_SPOKEN, (cluster, since_ms))
    ends: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    # Where lines were left out, a connection seems to begin with its first kept line.
    if not has_left_out(tables, cluster, since_ms):
        tables.query(_ENDS)
        ends = _grouped(tables.query("select * from ends order by ended_ms").dicts(), (*names, "is_escape"))
    found = []
    for key, of_client in _grouped(tables.query(_VERSIONS).dicts(), names).items():
        escapes, timeouts = (ends.get((*key, is_escape), ()) for is_escape in (True, False))
        found.append(
            ThrottledClient(
                user=key[0],
                client_id=key[1],
                host=key[2],
                software=of_client[0]["software_of_client"] or "unknown",
                throttles=of_client[0]["throttles"],
                escapes=escapes[0]["times"] if escapes else 0,
                escape_ends=list(map(_end, escapes)),
                timeouts=timeouts[0]["times"] if timeouts else 0,
                timeout_ends=list(map(_end, timeouts)),
                versions=[(row["api_key"], row["api_version"], row["throttled"]) for row in of_client],
            )
        )
    return found


def empty_runs(tables: Tables, cluster: str, since_ms: int) -> list[EmptyRun]:
    """Runs of throttled fetches that came back empty, each between two deliveries.

    Args:
        tables: with `requests` opened.
        cluster: its id.
        since_ms: first record time, epoch ms.
    """
    # The statistics of the files usually show that there is none. Where lines were left out, deliveries are missing.
    if has_left_out(tables, cluster, since_ms) or not tables.query(_ANY_EMPTY, (cluster, since_ms)).rows:
        return []
    return [EmptyRun(**row) for row in tables.query(_RUNS, (cluster, since_ms)).dicts()]


def has_left_out(tables: Tables, cluster: str, from_ms: int, through_ms: int = END_MS) -> bool:
    """Whether `requests` has no row for some lines of these record times (`tables.requests`).

    Args:
        tables: with `requests` opened.
        cluster: its id.
        from_ms: first record time, epoch ms.
        through_ms: last record time, epoch ms.
    """
    return bool(tables.query(_ANY_LEFT_OUT, (cluster, from_ms, through_ms)).rows)


def _end(row: dict[str, Any]) -> ThrottledEnd:
    names = ("broker_id", "connection", "ended_ms", "throttle_ms", "gap_ms", "next_connection")
    return ThrottledEnd(*(row[name] for name in names))


def _grouped(
    rows: Iterable[dict[str, Any]], names: Collection[str]
) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found
