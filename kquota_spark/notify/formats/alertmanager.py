"""Alerts for the API v2 of an Alertmanager: a condition is one alert, and its end resolves it.

Labels contain names of clients in the form of Kafka's ZooKeeper nodes. Routes may match them, and no receiver of the
Alertmanager can read them as markup.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.model.quotas.names import sanitise
from kquota_spark.notify.formats.text import markup_text, sentence
from kquota_spark.notify.news.events import Event

PATH = "/api/v2/alerts"
_ONCE_MS = 600_000
"""Time for which an event that happened once is an active alert, ms."""
_LABELS = ("broker_id", "quota_type", "user", "client_id", "tags", "plan_id", "step", "part", "route")
"""Facts that identify an alert, without those that measure it."""


def body(cluster_id: str, events: Iterable[Event], now_ms: int) -> bytes:
    """The alerts as JSON in ASCII; `now_ms` is when the events are sent, or were sealed (epoch ms)."""
    return json.dumps([_alert(cluster_id, event, now_ms) for event in events]).encode("ascii")


def _alert(cluster_id: str, event: Event, now_ms: int) -> dict[str, Any]:
    name = "Kquota" + "".join(part.capitalize() for part in event.kind.split("_"))
    facts = {label: event.facts.get(label) for label in _LABELS}
    alert: dict[str, Any] = {
        "labels": {
            "alertname": name,
            "cluster_id": sanitise(cluster_id),
            **{label: sanitise(str(value)) for label, value in facts.items() if value not in (None, "")},
        },
        "annotations": {
            "summary": sentence(event, markup_text),
            "event_id": markup_text(event.event_id),
        },
        "startsAt": iso_time(event.since_ms),
    }
    # Without an end, the alert is active until nobody repeats it.
    if event.status == "over":
        alert["endsAt"] = iso_time(event.at_ms)
    elif event.status == "once":
        alert["endsAt"] = iso_time(now_ms + _ONCE_MS)
    return alert
