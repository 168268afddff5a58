"""Reads one bucket of `kquota top` from near: its timeline, who is inside, its explanation, its episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kquota_spark.cli.options.options import SettingsPlace
from kquota_spark.cli.resolve import explain
from kquota_spark.cli.text.page import Tone
from kquota_spark.cli.text.timeline_chart import LABEL, MOST_SLOTS
from kquota_spark.cli.top.lines import Line, ScreenPage
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.timeline.timeline import Timeline, bucket_timeline
from kquota_spark.reports.timeline.top_buckets import (
    WINDOW_S,
    bucket_clients,
    bucket_episodes,
    bucket_seconds,
)
from kquota_spark.store.reading import Tables

_WINDOW_MS = WINDOW_S * 1_000
_CHART_MS = 15 * 60_000
_LEAST_SLOTS = 10
_MOST_CLIENTS = 20
_MOST_EPISODES = 100


class Look(Enum):
    """What is shown of a bucket; the value is what people call it."""

    CHART = "chart"
    EXPLAIN = "explain"
    VIOLATIONS = "violations"


@dataclass(frozen=True, slots=True)
class Near:
    """One bucket from near.

    Attributes:
        look: what was asked for; only its part is there.
        timeline: the last quarter of an hour.
        clients: who was inside in the last minute.
        seconds: of the last minute, newest first.
        explanation: laid out in the columns that were asked for.
        episodes: newest first.
        newest_ms: start of the newest second of the table.
    """

    look: Look
    newest_ms: int
    timeline: Timeline | None = None
    clients: Sequence[dict[str, Any]] = ()
    seconds: Sequence[dict[str, Any]] = ()
    explanation: Sequence[Line] = ()
    episodes: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """Where things are read.

    Attributes:
        tables: `decisions` of the last minute, followed.
        settings: for what is read anew each time.
        place: the --config and --tables, for `explain`.
    """

    tables: Tables
    settings: Settings
    place: SettingsPlace


def read_near(sources: Sources, key: BucketKey, look: Look, newest_ms: int, columns: int) -> Near:
    """One bucket from near.

    Args:
        sources: where to read.
        key: the bucket on one broker.
        look: what of it.
        newest_ms: start of the newest second of `decisions`.
        columns: width of the terminal.

    Raises:
        UserError: the tables cannot be read.
    """
    if look is Look.VIOLATIONS:
        with Tables(sources.settings) as tables:
            return Near(look, newest_ms, episodes=bucket_episodes(tables, key, _MOST_EPISODES))
    # `usage` is ahead of `decisions` by the time that judging takes.
    sources.tables.follow("usage", 2 * _WINDOW_MS)
    clients = bucket_clients(sources.tables, key, newest_ms, _MOST_CLIENTS)
    if look is Look.EXPLAIN:
        return Near(look, newest_ms, explanation=_explanation(sources.place, key, clients, columns))
    seconds = bucket_seconds(sources.tables, key, newest_ms)
    return Near(look, newest_ms, _timeline(sources.settings, key, newest_ms, columns), clients, seconds)


def _timeline(settings: Settings, key: BucketKey, newest_ms: int, columns: int) -> Timeline:
    stretch = Period(newest_ms + 1_000 - _CHART_MS, newest_ms + 1_000)
    most_slots = min(max(columns - LABEL - 1, _LEAST_SLOTS), MOST_SLOTS)
    with Tables(settings) as tables:
        tables.open("decisions", stretch.from_ms)
        return bucket_timeline(tables, key, stretch, most_slots)


def _explanation(
    place: SettingsPlace, key: BucketKey, clients: Sequence[dict[str, Any]], columns: int
) -> Sequence[Line]:
    """What `kquota explain` says of the bucket's own names; a name that it lacks is that of its largest client."""
    page = ScreenPage(columns)
    if key.quota_type not in {one.value for one in QuotaType}:
        page.paragraph(
            "", "kquota explain knows quotas of users and client ids. This one is of an address.", indent=0
        )
        return page.lines
    largest = clients[0] if clients else {"user": "", "client_id": ""}
    user, client_id = key.user or largest["user"], key.client_id or largest["client_id"]
    given = [f"--user={user}", f"--client-id={client_id}", f"--type={key.quota_type}"]
    given += [f"--broker={key.broker_id}"] if key.broker_id >= 0 else []
    try:
        explain.print_explanation(given, place, page)
    except UserError as error:
        page.paragraph("", terminal_text(str(error)), Tone.BAD, indent=0)
    return page.lines
