"""The main cause of a violation, as one sentence of its event. It names no client, because routes may be of tenants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.notify.news.events import Event
from kquota_spark.notify.news.fold import Addressed
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.why.reasons import is_covered, reasons
from kquota_spark.reports.why.recorded import Wanted
from kquota_spark.reports.why.sentences import main_sentence

_MOST_EVENTS = 5
"""Maximum number of events with a cause in one read: each takes a replay, and messages must not wait for it."""
_MOST_REQUESTS = 50_000
"""Maximum number of requests of one violation that are replayed."""


def with_causes(settings: Settings, news: Sequence[Addressed], now_ms: int) -> list[Addressed]:
    """The news, with the cause as the fact `why` of the first violations that somebody receives.

    A violation without recorded requests has no such fact.

    Args:
        settings: where the tables are, and the cluster.
        news: events and the names of their routes.
        now_ms: epoch ms.
    """
    chosen = [event for event, routes in news if event.kind == "violation" and routes][:_MOST_EVENTS]
    found = {event.event_id: _why(settings, event, now_ms) for event in chosen}
    return [
        (replace(event, facts={**event.facts, "why": found[event.event_id]}), routes)
        if found.get(event.event_id)
        else (event, routes)
        for event, routes in news
    ]


def _why(settings: Settings, event: Event, now_ms: int) -> str:
    facts = event.facts
    bucket = BucketName(*(str(facts[name] or "") for name in ("quota_type", "user", "client_id", "tags")))
    end_ms = event.at_ms if event.status == "over" else now_ms
    if not is_covered(bucket) or end_ms <= event.since_ms:
        return ""
    try:
        found = reasons(settings, [Wanted(bucket, event.since_ms, end_ms)], _MOST_REQUESTS)
    except UserError:
        return ""
    return main_sentence(found[0], with_names=False) if found else ""
