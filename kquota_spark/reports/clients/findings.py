"""Reads from the tables what the checks of `findings` need, and runs these checks.

Usage is read as a whole, or from --since on, because rules are judged by a day or more. Without --since, only the last
day of `requests` is read, because that table is the largest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

from kquota_spark.config.settings import Settings
from kquota_spark.findings.client_findings import (
    EditRequest,
    QuotaEdit,
    ShareConsumer,
    quota_edits,
    share_consumers,
    unstable_client_ids,
)
from kquota_spark.findings.findings import Finding, Kind, Severity
from kquota_spark.findings.rule_findings import rule_findings
from kquota_spark.findings.throttle_findings import starved_consumers, throttle_findings
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS
from kquota_spark.reports.clients.seen_clients import clients_seen, ids_of, observed
from kquota_spark.reports.clients.throttle_evidence import empty_runs, throttled_clients
from kquota_spark.reports.scope.cluster_command import on_cluster
from kquota_spark.store.reading import Tables

_DAY_MS = 86_400_000
_ORDER = (Severity.HIGH, Severity.WARNING, Severity.INFO)
_EDITS = """
select record_time_ms as time_ms, broker_id, "user", client_id, altered_quotas from requests
where cluster_id = ? and record_time_ms >= ? and api_key = 49 and altered_quotas is not null
  and not coalesce(is_forwarded, false)
order by record_time_ms, kafka_offset
"""

_SHARE_CONSUMERS = """
select "user", client_id, sum(unsized_requests)::bigint as share_fetches,
       sum(observed_throttle_ms)::bigint as total_delay_ms, min(epoch_ms(usage.second)) as first_ms,
       max(epoch_ms(usage.second)) as last_ms
from usage
where cluster_id = ? and usage.second >= make_timestamptz(?) and quota_type = 'fetch'
group by all having sum(unsized_requests) > 0 order by share_fetches desc, "user", client_id
"""


def findings(
    settings: Settings,
    *,
    kinds: Collection[Kind] = tuple(Kind),
    since_ms: int | None = None,
    until_ms: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Finding]:
    """All findings of the requested kinds, the most severe first, then by kind and subject.

    Args:
        settings: where the tables are.
        kinds: the requested kinds.
        since_ms: nothing older is read, epoch ms; None for all usage and the last day of requests.
        until_ms: nothing from then on is read, and the rules are those of that time, epoch ms; None for the present.
        progress: takes the name of each check before it runs.

    Raises:
        UserError: usage or the requests cannot be read.
    """
    with Tables(settings) as tables:
        tables.open("usage", since_ms, until_ms)
        newest_ms = min(tables.newest_ms("usage") or 0, END_MS if until_ms is None else until_ms)
        since_requests_ms = since_ms if since_ms is not None else newest_ms - _DAY_MS
        tables.open("requests", since_requests_ms, until_ms)
        for name in ("quota_rules", "quota_changes"):
            tables.open_if_there(name)
        cluster = settings.cluster_id
        recent = (cluster, since_requests_ms)
        checks: tuple[tuple[str, set[Kind], Callable[[], list[Finding]]], ...] = (
            (
                "throttled connections",
                _OF_THROTTLES,
                lambda: throttle_findings(throttled_clients(tables, *recent)),
            ),
            ("throttled fetches", {Kind.STARVED}, lambda: starved_consumers(empty_runs(tables, *recent))),
            ("share consumers", {Kind.SHARE_FETCH}, lambda: _of_shares(tables, settings, since_ms)),
            ("rules and usage", _OF_USAGE, lambda: _of_usage(tables, cluster, since_ms or 0, until_ms)),
            ("quota edits", {Kind.QUOTA_EDIT}, lambda: quota_edits(_edits(tables, recent))),
        )
        found: list[Finding] = []
        for at_what, of_kinds, check in checks:
            if of_kinds & set(kinds):
                progress(at_what)
                found += check()
    order = list(Kind)
    return sorted(
        (finding for finding in found if finding.kind in kinds),
        key=lambda finding: (_ORDER.index(finding.severity), order.index(finding.kind), finding.subject),
    )


_OF_THROTTLES = {Kind.IGNORES_THROTTLE, Kind.THROTTLE_BEYOND_TIMEOUT}
_OF_USAGE = set(Kind) - _OF_THROTTLES - {Kind.STARVED, Kind.SHARE_FETCH, Kind.QUOTA_EDIT}


def _of_usage(tables: Tables, cluster: str, since_ms: int, until_ms: int | None) -> list[Finding]:
    clients = clients_seen(tables, cluster, since_ms)
    if not clients:
        return []
    beside = observed(tables, cluster, clients, END_MS if until_ms is None else until_ms)
    unstable = unstable_client_ids(ids_of(clients), beside.from_ms, beside.to_ms)
    return [*rule_findings(beside), *unstable]


def _of_shares(tables: Tables, settings: Settings, since_ms: int | None) -> list[Finding]:
    found = tables.query(_SHARE_CONSUMERS, (settings.cluster_id, (since_ms or BEGINNING_MS) * 1_000)).dicts()
    collect = on_cluster("kquota collect jmx", settings.file)
    return share_consumers((ShareConsumer(**row) for row in found), collect)


def _edits(tables: Tables, recent: tuple[str, int]) -> list[EditRequest]:
    return [
        EditRequest(
            time_ms, broker_id, user, client_id, tuple(QuotaEdit(*edit) for edit in json.loads(altered))
        )
        for time_ms, broker_id, user, client_id, altered in tables.query(_EDITS, recent).rows
    ]
