"""Repeated reads for `kquota top`: each reads only new commits, and reading continues after an error."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kquota_spark.cli.explain.command import print_explanation
from kquota_spark.cli.filters import Filter, bucket_conditions
from kquota_spark.cli.options import SettingsPlace
from kquota_spark.cli.text.page import Tone
from kquota_spark.cli.text.timeline_chart import LABEL, MOST_SLOTS
from kquota_spark.cli.top.lines import Line, ScreenPage
from kquota_spark.config.own_clients import own_clients, own_lines
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.timeline.timeline import Timeline, bucket_timeline
from kquota_spark.reports.timeline.top_buckets import (
    NEAR_PERCENT,
    WINDOW_S,
    SortBy,
    TopBuckets,
    Where,
    bucket_clients,
    bucket_episodes,
    bucket_seconds,
    top_buckets,
    with_shadow,
)
from kquota_spark.schema.shadow_tables import SHADOW_DECISIONS
from kquota_spark.store.reading import Tables

_WINDOW_MS = WINDOW_S * 1_000
_REOPEN_AFTER_S = 30.0
_CHART_MS = 15 * 60_000
_LEAST_SLOTS = 10
_MOST_CLIENTS = 20
_MOST_EPISODES = 100
_SMALL = "if(quota_type in ('produce', 'fetch'), 1e6, 10)"
"""Rate above which an unlimited bucket of kquota's clients is shown: 1 MB/s, 10 % of a thread, 10 mutations per s."""
_NAMES = "lower(concat_ws(chr(10), {}))".format(
    "bucket_user, bucket_client_id, bucket_tags, array_to_string(users, chr(10)), array_to_string(client_ids, chr(10))"
)


class BucketView(Enum):
    """The views of a bucket; the value is their name for people."""

    CHART = "chart"
    EXPLAIN = "explain"
    VIOLATIONS = "violations"


@dataclass(frozen=True, slots=True)
class Details:
    """Details of the selected bucket; only the fields of the chosen view are set."""

    bucket_view: BucketView
    newest_ms: int
    """Start of the newest second of the table, epoch ms."""
    timeline: Timeline | None = None
    """The last quarter of an hour."""
    clients: Sequence[dict[str, Any]] = ()
    """Clients in the bucket in the last minute."""
    seconds: Sequence[dict[str, Any]] = ()
    """Seconds of the last minute, newest first."""
    explanation: Sequence[Line] = ()
    """Laid out for the requested width."""
    episodes: Sequence[dict[str, Any]] = ()
    """Newest first."""


@dataclass(frozen=True, slots=True)
class Question:
    """What to show; user, client, broker and type are the values of the options."""

    owner: str | None = None
    """Only buckets that this user does not share with others: those that a tenant may see."""
    user: str | None = None
    client: str | None = None
    broker: int | None = None
    type: str | None = None
    text: str = ""
    """Part of a name of the bucket, or of a user or client id in it."""
    sort: SortBy = SortBy.USED
    is_reversed: bool = False
    is_per_broker: bool = False
    """One row per bucket and broker; otherwise only that of the worst broker."""
    selected: BucketKey | None = None
    bucket_view: BucketView = BucketView.CHART
    columns: int = 100
    """Width of the terminal, for the view of one bucket."""
    limit: int | None = 200
    """Maximum rows; None for all."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a read, and its question; `newest_ms` is None for an empty table."""

    question: Question
    newest_ms: int | None = None
    top: TopBuckets = field(default_factory=lambda: TopBuckets([]))
    details: Details | None = None


class Feed:
    """Keeps the tables open between questions; takes one question at a time."""

    def __init__(self, settings: Settings, place: SettingsPlace) -> None:
        self._settings, self._place = settings, place
        self._tables: Tables | None = None
        self._opened_s = 0.0
        self._last: Answer | None = None

    def read(self, question: Question, *, is_frozen: bool = False) -> Answer:
        """The answer as of now.

        Args:
            question: what to show.
            is_frozen: use the tables as they were read before, if they were.

        Raises:
            UserError: the tables cannot be read; the next call opens them again.
        """
        try:
            is_same = (is_frozen and self._tables is not None) or not self._is_newer()
            if self._last is None or not is_same or self._last.question != question:
                assert self._tables is not None
                self._last = self._answer(self._tables, question)
            return self._last
        except UserError:
            self.close()
            raise

    def close(self) -> None:
        """Free memory and temporary files."""
        if self._tables is not None:
            self._tables.close()
            self._tables = None

    def _is_newer(self) -> bool:
        """Follow the table; returns whether it has a new version."""
        if self._tables is not None and time.monotonic() - self._opened_s > _REOPEN_AFTER_S:
            # A recreated table has lower versions, which following would never find.
            self.close()
        if self._tables is None:
            self._tables, self._opened_s = Tables(self._settings), time.monotonic()
        is_newer = self._tables.follow("decisions", _WINDOW_MS)
        if is_newer:
            self._opened_s = time.monotonic()
        return is_newer

    def _answer(self, tables: Tables, question: Question) -> Answer:
        newest_ms = tables.newest_ms("decisions")
        if newest_ms is None:
            return Answer(question)
        top = top_buckets(
            tables,
            newest_ms,
            _where(question, own_clients(self._settings)),
            question.sort,
            is_reversed=question.is_reversed,
            is_per_broker=question.is_per_broker,
            limit=question.limit,
        )
        if self._settings.quotas.shadow or tables.location(SHADOW_DECISIONS.name):
            tables.follow(SHADOW_DECISIONS.name, _WINDOW_MS)
            top = with_shadow(tables, top, newest_ms)
        details = (
            None
            if question.selected is None
            else self._details(tables, question.selected, question, newest_ms)
        )
        return Answer(question, newest_ms, top, details)

    def _details(self, tables: Tables, key: BucketKey, question: Question, newest_ms: int) -> Details:
        bucket_view, columns = question.bucket_view, question.columns
        if bucket_view is BucketView.VIOLATIONS:
            with Tables(self._settings) as all_tables:
                return Details(
                    bucket_view, newest_ms, episodes=bucket_episodes(all_tables, key, _MOST_EPISODES)
                )
        # `usage` is ahead of `decisions` by the time that judging takes.
        tables.follow("usage", 2 * _WINDOW_MS)
        clients = bucket_clients(tables, key, newest_ms, _MOST_CLIENTS)
        if bucket_view is BucketView.EXPLAIN:
            return Details(
                bucket_view, newest_ms, explanation=_explanation(self._place, key, clients, columns)
            )
        seconds = bucket_seconds(tables, key, newest_ms)
        return Details(
            bucket_view, newest_ms, _timeline(self._settings, key, newest_ms, columns), clients, seconds
        )


def _where(question: Question, ours: tuple[str, ...]) -> Where:
    """Conditions on `decisions`. Buckets with only kquota's clients are left out while small, unless requested.

    Any client may have the same name, so such a bucket is shown near its limit, or if it is large without a limit.
    """
    conditions = bucket_conditions(
        Filter(user=question.user, client=question.client, broker=question.broker, type=question.type)
    )
    if question.owner is not None:
        # A callback of the brokers may put several users into one bucket with the tag of one of them.
        conditions.add(
            "bucket_user = ? and bucket_user <> '' and coalesce(bucket_tags, '') = ''", question.owner
        )
    if question.text:
        conditions.add(f"contains({_NAMES}, lower(?))", question.text)
    if question.client is None and question.user is None and not question.text:
        conditions.add(
            "(not coalesce(regexp_full_match(array_to_string(client_ids, chr(10)), ?), false) "
            f"or coalesce(quota_used_percent >= {NEAR_PERCENT}, rate_per_s > {_SMALL}))",
            own_lines(ours),
        )
    return Where(conditions.sql, tuple(conditions.values))


def _timeline(settings: Settings, key: BucketKey, newest_ms: int, columns: int) -> Timeline:
    period = Period(newest_ms + 1_000 - _CHART_MS, newest_ms + 1_000)
    most_slots = min(max(columns - LABEL - 1, _LEAST_SLOTS), MOST_SLOTS)
    with Tables(settings) as tables:
        tables.open("decisions", period.from_ms)
        return bucket_timeline(tables, key, period, most_slots)


def _explanation(
    place: SettingsPlace, key: BucketKey, clients: Sequence[dict[str, Any]], columns: int
) -> Sequence[Line]:
    """The output of `kquota explain` for the bucket's names; a missing name is taken from its largest client."""
    page = ScreenPage(columns)
    if key.quota_type not in {one.value for one in QuotaType}:
        text = "kquota explain covers quotas of users and client ids. This one is of an address."
        page.paragraph("", text, indent=0)
        return page.lines
    largest = clients[0] if clients else {"user": "", "client_id": ""}
    user, client_id = key.user or largest["user"], key.client_id or largest["client_id"]
    given = [f"--user={user}", f"--client-id={client_id}", f"--type={key.quota_type}"]
    given += [f"--broker={key.broker_id}"] if key.broker_id >= 0 else []
    try:
        print_explanation(given, place, page)
    except UserError as error:
        page.paragraph("", terminal_text(str(error)), Tone.BAD, indent=0)
    return page.lines
