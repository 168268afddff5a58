"""Reads for `kquota top`, again and again: only what was committed since, and on after an error."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from kquota_spark.cli.options.filters import Filter
from kquota_spark.cli.options.listing import bucket_conditions
from kquota_spark.cli.options.options import SettingsPlace
from kquota_spark.cli.top.detail import Look, Near, Sources, read_near
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.timeline.top_buckets import WINDOW_S, SortBy, TopBuckets, Where, top_buckets
from kquota_spark.store.reading import Tables

_WINDOW_MS = WINDOW_S * 1_000
_OPEN_ANEW_S = 30.0
_NAMES = "lower(concat_ws(chr(10), {}))".format(
    "bucket_user, bucket_client_id, bucket_tags, array_to_string(users, chr(10)), array_to_string(client_ids, chr(10))"
)


@dataclass(frozen=True, slots=True)
class Question:
    """What to show.

    Attributes:
        user, client, broker, type: as the options of the same names.
        text: part of a name of the bucket, or of a user or client id inside.
        is_per_broker: one row per bucket and broker; else that of the worst broker.
        near: a bucket to be looked at from near.
        look: what of it.
        columns: width of the terminal, for what is seen from near.
        limit: at most so many rows; None for all.
    """

    user: str | None = None
    client: str | None = None
    broker: int | None = None
    type: str | None = None
    text: str = ""
    sort: SortBy = SortBy.USED
    is_reversed: bool = False
    is_per_broker: bool = False
    near: BucketKey | None = None
    look: Look = Look.CHART
    columns: int = 100
    limit: int | None = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found, and to what question; `newest_ms` is None for an empty table."""

    question: Question
    newest_ms: int | None = None
    top: TopBuckets = field(default_factory=lambda: TopBuckets([]))
    near: Near | None = None


class Feed:
    """The tables, kept open between questions; one question at a time."""

    def __init__(self, settings: Settings, place: SettingsPlace) -> None:
        self._settings, self._place = settings, place
        self._tables: Tables | None = None
        self._opened_s = 0.0
        self._last: Answer | None = None

    def read(self, question: Question, *, is_frozen: bool = False) -> Answer:
        """The answer as of now.

        Args:
            question: what to show.
            is_frozen: of what was read before, where there is something.

        Raises:
            UserError: the tables cannot be read; the next call opens them anew.
        """
        try:
            return self._read(question, is_frozen=is_frozen)
        except UserError:
            self.close()
            raise

    def close(self) -> None:
        """Free memory and temporary files."""
        if self._tables is not None:
            self._tables.close()
            self._tables = None

    def _read(self, question: Question, *, is_frozen: bool) -> Answer:
        is_same = (is_frozen and self._tables is not None) or not self._is_newer()
        if self._last is None or not is_same or self._last.question != question:
            assert self._tables is not None
            self._last = _answer(Sources(self._tables, self._settings, self._place), question)
        return self._last

    def _is_newer(self) -> bool:
        """Follow the table; whether there is another version of it than before."""
        if self._tables is not None and time.monotonic() - self._opened_s > _OPEN_ANEW_S:
            # A table that was deleted and made anew has lower versions, which following would never see.
            self.close()
        if self._tables is None:
            self._tables, self._opened_s = Tables(self._settings), time.monotonic()
        is_newer = self._tables.follow("decisions", _WINDOW_MS)
        if is_newer:
            self._opened_s = time.monotonic()
        return is_newer


def _answer(sources: Sources, question: Question) -> Answer:
    tables = sources.tables
    newest_ms = tables.newest_ms("decisions")
    if newest_ms is None:
        return Answer(question)
    top = top_buckets(
        tables,
        newest_ms,
        _where(question),
        question.sort,
        is_reversed=question.is_reversed,
        is_per_broker=question.is_per_broker,
        limit=question.limit,
    )
    if question.near is None:
        return Answer(question, newest_ms, top)
    near = read_near(sources, question.near, question.look, newest_ms, question.columns)
    return Answer(question, newest_ms, top, near)


def _where(question: Question) -> Where:
    conditions = bucket_conditions(
        Filter(user=question.user, client=question.client, broker=question.broker, type=question.type)
    )
    if question.text:
        conditions.add(f"contains({_NAMES}, lower(?))", question.text)
    return Where(conditions.sql, tuple(conditions.values))
