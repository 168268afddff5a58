"""Gathers from the tables what the rules of `model` look at, and has them look.

Usage is read as a whole, or since --since: rules are judged by a day or more. Requests are read for the last day of
the table only unless --since says otherwise, since that table is the largest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.io.tables import Tables
from kquota_spark.model.client_id_findings import IdSeen, unstable_client_ids
from kquota_spark.model.findings import Finding, Kind, Severity
from kquota_spark.model.quota_edit_findings import EditRequest, QuotaEdit, quota_edits
from kquota_spark.model.rule_findings import rule_findings
from kquota_spark.model.throttle_findings import (
    BEFORE_END_MS,
    LEAST_STARVED_FETCHES,
    LONGEST_ESCAPE_MS,
    SHORTEST_THROTTLE_MS,
    SHORTEST_TIMEOUT_MS,
    EmptyRun,
    ThrottledClient,
    ThrottledEnd,
    starved_consumers,
    throttle_findings,
)
from kquota_spark.reports.seen_clients import clients_seen, observed

_DAY_MS = 86_400_000
_MOST_ENDS = 100
_ORDER = (Severity.HIGH, Severity.WARNING, Severity.INFO)
_DELIVERED_BYTES = 200
"""A fetch response with less, or without a topic, brought no record: its headers are as long."""

_HOST = r"regexp_extract(connection, '^.*?:\d+-(.+?):\d+-', 1)"
_OF_CLIENTS = """
with lines as (
  select broker_id, "user", client_id, connection, log_time_ms, record_time_ms, api_key,
         api_version, software_name || ' ' || software_version as software,
         coalesce(observed_throttle_ms, 0) as throttle_ms
  from requests
  where cluster_id = ? and kind = 'request' and record_time_ms >= ? and not coalesce(is_forwarded, false)
    and not coalesce(is_from_follower, false)
)
"""
_VERSIONS = f"""{_OF_CLIENTS}
, throttled as (
  select "user", client_id, {_HOST} as host, api_key, api_version, sum(requests)::bigint as throttled,
         sum(long_ones) as long_ones, max(software) as software
  from (
    select "user", client_id, connection, api_key, api_version, count(*) as requests,
           count(*) filter (throttle_ms >= {SHORTEST_THROTTLE_MS}) as long_ones,
           max(software) filter (throttle_ms >= {SHORTEST_THROTTLE_MS}) as software
    from lines where throttle_ms > 0 group by all
  ) group by all
)
select *, (sum(long_ones) over client)::bigint as throttles, max(software) over client as software_of_client
from throttled window client as (partition by "user", client_id, host) order by all
"""  # noqa: S608 - text and numbers of ours
# The mute runs from the moment the request was recorded; a response goes out at the time of its line.
_ENDS = f"""{_OF_CLIENTS}
, connections as (
  select *, {_HOST} as host from (
    select broker_id, "user", client_id, connection, min(record_time_ms) as started_ms,
           max(log_time_ms) as ended_ms, arg_max(record_time_ms, log_time_ms) as recorded_ms,
           arg_max(throttle_ms, log_time_ms) as throttle_ms
    from lines group by all
  )
)
, followed as (
select ended.*, min(next.started_ms) as next_ms, arg_min(next.connection, next.started_ms) as next_connection
from connections as ended left join connections as next
  on next.broker_id = ended.broker_id and next."user" = ended."user" and next.client_id = ended.client_id
  and next.host = ended.host and next.started_ms >= ended.ended_ms
  and next.started_ms <= ended.recorded_ms + ended.throttle_ms - {BEFORE_END_MS}
where ended.throttle_ms >= {SHORTEST_THROTTLE_MS}
group by all
)
, classed as (
select *, next_ms - ended_ms as gap_ms, next_ms - ended_ms < {LONGEST_ESCAPE_MS} as is_escape
from followed where gap_ms < {LONGEST_ESCAPE_MS} or gap_ms >= {SHORTEST_TIMEOUT_MS}
)
select *, count(*) over client as times from classed
window client as (partition by "user", client_id, host, is_escape)
qualify row_number() over (client order by ended_ms) <= {_MOST_ENDS} order by ended_ms
"""  # noqa: S608 - text and numbers of ours
_RUNS = f"""
with fetches as (
  select broker_id, "user", client_id, record_time_ms, observed_throttle_ms, point_kind,
         point_kind = 1 and charged_bytes > {_DELIVERED_BYTES} and len(topics) > 0 as is_delivery
  from requests
  where cluster_id = ? and kind = 'request' and record_time_ms >= ? and quota_type = 'fetch'
), starving as (select distinct broker_id, "user", client_id from fetches where point_kind = 2),
runs as (
  select *, count(*) filter (is_delivery) over (
    partition by broker_id, "user", client_id order by record_time_ms rows unbounded preceding) as deliveries
  from fetches semi join starving using (broker_id, "user", client_id)
)
select "user", client_id, broker_id, count(*) as fetches, min(record_time_ms) as first_ms,
       max(record_time_ms + observed_throttle_ms) as until_ms, max(observed_throttle_ms) as longest_throttle_ms
from runs where point_kind = 2 group by broker_id, "user", client_id, deliveries
having count(*) >= {LEAST_STARVED_FETCHES} order by first_ms
"""  # noqa: S608 - numbers of ours
_EDITS = """
select record_time_ms as time_ms, broker_id, "user", client_id, altered_quotas from requests
where cluster_id = ? and record_time_ms >= ? and api_key = 49 and altered_quotas is not null
  and not coalesce(is_forwarded, false)
order by record_time_ms, kafka_offset
"""


def findings(
    settings: Settings,
    *,
    kinds: Collection[Kind] = tuple(Kind),
    since_ms: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Finding]:
    """All findings of the kinds asked for, the most severe first, those of a kind by subject.

    Args:
        settings: where the tables are, and which cluster.
        kinds: leave out all others.
        since_ms: look at nothing older.
        progress: told what is looked at next.

    Raises:
        UserError: usage or the requests cannot be read.
    """
    with Tables(settings) as tables:
        tables.open("usage", since_ms)
        tables.open("requests")
        for name in ("quota_rules", "quota_changes"):
            tables.open_if_there(name)
        newest_ms = tables.newest_ms("usage")
        cluster = settings.cluster_id
        since_requests_ms = since_ms if since_ms is not None else (newest_ms or 0) - _DAY_MS
        recent = (cluster, since_requests_ms)
        looks: tuple[tuple[str, set[Kind], Callable[[], list[Finding]]], ...] = (
            ("throttled connections", _OF_THROTTLES, lambda: throttle_findings(_clients(tables, recent))),
            ("throttled fetches", {Kind.STARVED}, lambda: starved_consumers(_runs(tables, recent))),
            ("rules and usage", _OF_USAGE, lambda: _of_usage(tables, cluster, since_ms or 0)),
            ("quota edits", {Kind.QUOTA_EDIT}, lambda: quota_edits(_edits(tables, recent))),
        )
        found: list[Finding] = []
        for at_what, of_kinds, look in looks:
            if of_kinds & set(kinds):
                progress(at_what)
                found += look()
    order = list(Kind)
    return sorted(
        (finding for finding in found if finding.kind in kinds),
        key=lambda finding: (_ORDER.index(finding.severity), order.index(finding.kind), finding.subject),
    )


_OF_THROTTLES = {Kind.IGNORES_THROTTLE, Kind.THROTTLE_BEYOND_TIMEOUT}
_OF_USAGE = set(Kind) - _OF_THROTTLES - {Kind.STARVED, Kind.QUOTA_EDIT}


def _clients(tables: Tables, recent: tuple[str, int]) -> list[ThrottledClient]:
    names = ("user", "client_id", "host")
    versions = _grouped(tables.query(_VERSIONS, recent).dicts(), names)
    ends = _grouped(tables.query(_ENDS, recent).dicts(), (*names, "is_escape"))
    found = []
    for key, of_client in versions.items():
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


def _end(row: dict[str, Any]) -> ThrottledEnd:
    names = ("broker_id", "connection", "ended_ms", "throttle_ms", "gap_ms", "next_connection")
    return ThrottledEnd(*(row[name] for name in names))


def _key(row: dict[str, Any], names: Iterable[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _grouped(
    rows: Iterable[dict[str, Any]], names: Collection[str]
) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(_key(row, names), []).append(row)
    return found


def _runs(tables: Tables, recent: tuple[str, int]) -> list[EmptyRun]:
    return [EmptyRun(**row) for row in tables.query(_RUNS, recent).dicts()]


def _of_usage(tables: Tables, cluster: str, since_ms: int) -> list[Finding]:
    clients = clients_seen(tables, cluster, since_ms)
    if not clients:
        return []
    beside = observed(tables, cluster, clients)
    ids = [
        IdSeen(one.seen.user, one.seen.client_id, one.first_ms, one.last_ms, one.seen.amount)
        for one in clients
    ]
    return [*rule_findings(beside), *unstable_client_ids(ids, beside.from_ms, beside.to_ms)]


def _edits(tables: Tables, recent: tuple[str, int]) -> list[EditRequest]:
    return [
        EditRequest(
            row["time_ms"],
            row["broker_id"],
            row["user"],
            row["client_id"],
            tuple(QuotaEdit(*edit) for edit in json.loads(row["altered_quotas"])),
        )
        for row in tables.query(_EDITS, recent).dicts()
    ]
