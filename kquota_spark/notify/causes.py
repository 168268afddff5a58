"""The main cause of a violation, as one sentence of its event. It names no client, because routes may be of tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.notify.news.events import Event
from kquota_spark.notify.news.fold import Addressed
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.why.reasons import Bounds, reasons
from kquota_spark.reports.why.recorded import Wanted
from kquota_spark.reports.why.sentences import main_sentence

_MOST_EVENTS = 5
"""Maximum number of events with a cause in one read."""
_BOUNDS = Bounds(of_bucket=25_000, of_all=100_000, of_sharing=0)
"""What is replayed in one read: messages name no client, so nobody asks who slowed whom."""


def with_causes(settings: Settings, news: Sequence[Addressed], now_ms: int) -> list[Addressed]:
    """The news, with the cause as the fact `why` of the first violations that somebody receives.

    A violation without recorded requests has no such fact.

    Args:
        settings: where the tables are, and the cluster.
        news: events and the names of their routes.
        now_ms: epoch ms.
    """
    chosen = [event for event, routes in news if event.kind == "violation" and routes][:_MOST_EVENTS]
    found = _causes(settings, {event.event_id: _wanted(event, now_ms) for event in chosen})
    return [
        (replace(event, facts={**event.facts, "why": found[event.event_id]}), routes)
        if found.get(event.event_id)
        else (event, routes)
        for event, routes in news
    ]


def _causes(settings: Settings, wanted: Mapping[str, Wanted]) -> dict[str, str]:
    """The main cause of each event by its id; events without one are left out."""
    begun = {event_id: one for event_id, one in wanted.items() if one.to_ms > one.from_ms}
    try:
        found = reasons(settings, list(begun.values()), _BOUNDS).found
    except UserError:
        return {}
    return {
        event_id: main_sentence(found[one], with_names=False)
        for event_id, one in begun.items()
        if one in found
    }


def _wanted(event: Event, now_ms: int) -> Wanted:
    facts = event.facts
    bucket = BucketName(*(str(facts[name] or "") for name in ("quota_type", "user", "client_id", "tags")))
    return Wanted(bucket, event.since_ms, event.at_ms if event.status == "over" else now_ms)
