"""Finds in the tables when quotas were edited, and by which user."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.model.compare.drift import REQUEST_SLACK_MS, Drift, Editor, drifts, with_editors
from kquota_spark.model.quotas.entities import AnyEntity, parse_entity
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.model.quotas.quota_types import AnyKey, parse_key
from kquota_spark.model.quotas.rules import QuotaChange
from kquota_spark.quotas.stored import held_cluster
from kquota_spark.store.reading import Tables

_CHANGES = """
select entity, key, value, previous_value, epoch_ms(changed_at) as at_ms, epoch_ms(changed_before) as before_ms,
       version
from quota_changes where cluster_id = ? and key is not null and list_contains(?, entity)
"""
_PLANS = """
select entity, key, case event when 'restored' then value_before else value_after end as value,
       epoch_ms("at") as time_ms, actor, policy
from enforcement_log where cluster_id = ? and event in ('applied', 'restored') and list_contains(?, entity)
"""
_REQUESTS = """
select record_time_ms as time_ms, "user", client_id, altered_quotas from requests
where cluster_id = ? and record_time_ms between ? and ? and api_key = 49 and altered_quotas is not null
  and not coalesce(is_forwarded, false)
"""
_MOST_SPANS = 50
"""Maximum number of periods of the request log that are searched, the newest ones: each costs a scan of its files."""


class DriftFound(NamedTuple):
    """The drifts. Without `has_history`, the tables do not contain times and authors of edits."""

    drifts: list[Drift]
    has_history: bool


def drift_of(settings: Settings, edits: Sequence[QuotaEdit], at_ms: int) -> DriftFound:
    """The differences between the declared quotas and those at a moment (epoch ms), with time and author if known."""
    if not edits:
        return DriftFound([], has_history=True)
    with Tables(settings) as tables:
        if not tables.open_if_there("quota_changes"):
            return DriftFound(drifts(edits, ()), has_history=False)
        cluster_id = held_cluster(tables, settings)
        entities = sorted({str(edit.entity) for edit in edits})
        changes = (one for one in _changes(tables, cluster_id, entities) if one.changed_at_ms <= at_ms)
        found = drifts(edits, changes)
        editors = [*_planned(tables, cluster_id, entities), *_asked(tables, cluster_id, found)]
    return DriftFound(with_editors(found, editors), has_history=True)


def _changes(tables: Tables, cluster_id: str, entities: Sequence[str]) -> Iterator[QuotaChange]:
    for row in tables.query(_CHANGES, [cluster_id, entities]).dicts():
        quota = _quota(row["entity"], row["key"])
        if quota is not None:
            values = row["value"], row["previous_value"]
            yield QuotaChange(*quota, *values, row["at_ms"], row["version"], row["before_ms"])


def _planned(tables: Tables, cluster_id: str, entities: Sequence[str]) -> Iterator[Editor]:
    tables.open_if_there("enforcement_log")
    for row in tables.query(_PLANS, [cluster_id, entities]).dicts():
        quota = _quota(row["entity"], row["key"])
        if quota is not None:
            yield Editor(*quota, row["value"], row["time_ms"], row["actor"], policy=row["policy"])


def _asked(tables: Tables, cluster_id: str, found: Iterable[Drift]) -> Iterator[Editor]:
    """The authors of AlterClientQuotas requests at about the time of one of these drifts."""
    spans = _spans([drift.last for drift in found if drift.last is not None])
    if not spans or tables.location("requests") is None:
        return
    tables.open("requests", min(from_ms for from_ms, _ in spans))
    for from_ms, to_ms in spans:
        for row in tables.query(_REQUESTS, [cluster_id, from_ms, to_ms]).dicts():
            for entity, key, value in json.loads(row["altered_quotas"]):
                quota = _quota(entity, key)
                if quota is not None:
                    yield Editor(*quota, value, row["time_ms"], row["user"], row["client_id"])


def _spans(changes: Iterable[QuotaChange]) -> list[tuple[int, int]]:
    """The newest periods around edits, with overlapping ones merged; a polled edit may have come between two polls."""
    spans: list[tuple[int, int]] = []
    for change in sorted(changes, key=lambda change: change.changed_at_ms):
        from_ms, to_ms = change.changed_at_ms - REQUEST_SLACK_MS, change.latest_ms + REQUEST_SLACK_MS
        if spans and from_ms <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(to_ms, spans[-1][1]))
        else:
            spans.append((from_ms, to_ms))
    return spans[-_MOST_SPANS:]


def _quota(entity: Any, key: Any) -> tuple[AnyEntity, AnyKey] | None:
    """The entity and key of names in a table; None if no cluster has such a quota: a request may contain any names."""
    try:
        return parse_entity(entity), parse_key(key)
    except (ValueError, TypeError, AttributeError):
        return None
