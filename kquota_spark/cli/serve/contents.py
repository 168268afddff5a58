"""The contents of the pages: reports of commands from the tables, each kept for some seconds.

Only one report is made at a time, because it may take gigabytes of memory, and it has a time limit. Another request
during that time is refused and does not occupy a thread, so the other pages always answer.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from kquota_spark.cli.enforce.plan_page import change_text
from kquota_spark.cli.options import SettingsPlace
from kquota_spark.cli.shadow.shadow import shadow_report
from kquota_spark.cli.status.command import status_report, whole_status
from kquota_spark.cli.text.render import Report, Row
from kquota_spark.cli.top.age import age_of, stale_after_ms
from kquota_spark.cli.top.command import age_of_answer, top_report
from kquota_spark.cli.top.feed import Details, Feed, Question
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import LogEntry, Mode
from kquota_spark.enforce.log_state import LogState
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.enforcement.policies import load_policies
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import entity_text
from kquota_spark.process.clock import now_ms
from kquota_spark.process.time_limit import SlowError
from kquota_spark.reports.pages.gathering import gather_report, is_tenant_seen, tenants_seen
from kquota_spark.reports.pages.page import page_of
from kquota_spark.reports.pages.page_html import policed_page
from kquota_spark.reports.parts.page_parts import Page
from kquota_spark.reports.parts.words import bucket_href
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.scope.period import Period, parse_period
from kquota_spark.reports.sections import AuditReport
from kquota_spark.store.reading import utc_text

_MOST_KEPT = 16
_LIVE_S, _REPORT_S = 4.0, 60.0
_MOST_REPORT_S = 55.0
"""Time limit of a report, s: reverse proxies give up after 60 s."""
_MOST_FIRST_S = 10.0
"""Time limit of the report that the overview begins with, s: the rest of the page waits for it."""
_MOST_QUIET_S = 5.0
"""Time limit of the question whether a user sent anything, s: a page waits for it."""
_TOP = 20
_WEEK = "last:7d"
_WIDE = 400
"""Columns of a page: the page scrolls, so no column is left out."""
TIMELINE_COLUMNS = 100
"""Columns of a timeline, which is drawn in characters."""
_T = TypeVar("_T")


class BusyError(UserError):
    """Another report is being made."""


class QuietError(UserError):
    """A user sent nothing in the last week. The text names only that user, so the user may see it."""

    def __init__(self, user: str) -> None:
        super().__init__(f"No traffic of {user} in the last week.")


class FirstScreen(NamedTuple):
    """What a report begins with: its page without the sections, and links to those of its buckets that have a row."""

    page: Page
    linked: frozenset[str]


class DrawnReport(NamedTuple):
    """A report as HTML, the security policy that it needs, and what it begins with."""

    policy: str
    text: str
    first: FirstScreen


class _Kept:
    """Pages of one kind: one is made at a time, and kept for some seconds. All threads may use it."""

    def __init__(self, for_s: float, *, is_heavy: bool = False) -> None:
        self._for_s, self._is_heavy = for_s, is_heavy
        self._turn = threading.Lock()
        self._pages: OrderedDict[object, tuple[float, Any]] = OrderedDict()

    def got(self, key: object, make: Callable[[], _T]) -> _T:
        """The kept page, or a new one.

        Args:
            key: identifies the page.
            make: makes a new page.

        Raises:
            BusyError: pages of this kind are heavy, and another one is being made.
        """
        if (page := self._page(key)) is not None:
            return cast("_T", page)
        if not self._turn.acquire(blocking=not self._is_heavy):
            raise BusyError("another report is being made: try again in some seconds")
        try:
            # Another thread may have made it while this thread waited.
            if (page := self._page(key)) is not None:
                return cast("_T", page)
            began_s, made = time.monotonic(), make()
            self._pages.pop(key, None)
            self._pages[key] = began_s, made
            while len(self._pages) > _MOST_KEPT:
                self._pages.popitem(last=False)
            return made
        finally:
            self._turn.release()

    def _page(self, key: object) -> Any:
        began_s, page = self._pages.get(key, (0.0, None))
        return None if time.monotonic() - began_s > self._for_s else page


class Contents:
    """Reads the tables for all pages. All threads may use it."""

    def __init__(self, settings: Settings, place: SettingsPlace) -> None:
        self._settings, self._place = settings, place
        self._feed = Feed(settings, place)
        self._states, self._lives, self._waiting = _Kept(_LIVE_S), _Kept(_LIVE_S), _Kept(_LIVE_S)
        self._reports, self._quiet = _Kept(_REPORT_S, is_heavy=True), _Kept(_REPORT_S)

    @property
    def cluster_id(self) -> str:
        """The cluster that these pages show."""
        return self._settings.cluster_id

    def status(self) -> Report:
        """The report of `kquota status`."""
        return self._states.got("status", self._status)

    def live(self, question: Question) -> Report:
        """The report of `kquota top`; with an owner in the question, only buckets that no other user shares."""

        def read() -> Report:
            answer = self._feed.read(question)
            age = age_of_answer(answer, self._settings, now_ms())
            return top_report(answer, _WIDE, age, more="; the filter finds the others")

        return self._lives.got(question, read)

    def timeline(self, key: BucketKey) -> Details | None:
        """The last quarter of an hour of one bucket on one broker; None for empty tables."""
        # It is kept among the live views, because the feed takes one question at a time.
        question = Question(selected=key, columns=TIMELINE_COLUMNS, limit=1)
        return self._lives.got(question, lambda: self._feed.read(question).details)

    def stale_text(self, newest_ms: int) -> str:
        """The line STALE for tables with this newest second, epoch ms; empty if they are live."""
        return age_of(newest_ms, now_ms(), stale_after_ms(self._settings.stream)).stale_text

    def first_screen(self, user: str | None, asked: str, period: Period) -> FirstScreen:
        """What a report begins with; arguments and errors are those of `report`, within a shorter time."""
        return self.report(user, asked, period, most_s=min(_MOST_FIRST_S, _MOST_REPORT_S)).first

    def report(
        self, user: str | None, asked: str, period: Period, *, most_s: float | None = None
    ) -> DrawnReport:
        """The page of `kquota report`.

        Args:
            user: `--tenant` of the report; None for the cluster.
            asked: the period as the viewer named it.
            period: the period.
            most_s: time limit, s; None for the usual one.

        Raises:
            UserError: there is nothing to report on.
            BusyError: another report, or the list of users, is being made.
            QuietError: the user sent nothing in the last week.
            SlowError: the report takes too long.
        """

        def draw() -> DrawnReport:
            limit_s = _MOST_REPORT_S if most_s is None else most_s
            gathered = gather_report(
                self._settings, period, made_at_ms=now_ms(), tenant=user, top=_TOP, most_s=limit_s
            )
            return DrawnReport(*policed_page(gathered), _first_screen(gathered))

        try:
            return self._reports.got((user, asked), draw)
        except (BusyError, SlowError):
            raise
        except UserError as error:
            if user is not None and self.is_quiet(user):
                raise QuietError(user) from error
            raise

    def is_quiet(self, user: str) -> bool:
        """Whether the user sent nothing in the last week; False if that cannot be read."""

        def ask() -> bool:
            try:
                week = parse_period(_WEEK, now_ms())
                return not is_tenant_seen(self._settings, user, week, most_s=_MOST_QUIET_S)
            except UserError:
                return False

        return self._quiet.got(user, ask)

    def tenants(self) -> list[str]:
        """The users that sent requests in the last week.

        Raises:
            BusyError: a report is being made.
            SlowError: the query takes too long.
        """

        def ask() -> list[str]:
            return tenants_seen(self._settings, parse_period(_WEEK, now_ms()), most_s=_MOST_REPORT_S)

        return self._reports.got("tenants", ask)

    def shadow(self) -> Report:
        """The report of `kquota shadow` about the last day of the tables.

        Raises:
            UserError: no shadow was judged, or the tables cannot be read.
        """
        return self._waiting.got("shadow", lambda: shadow_report(self._settings))

    def plans(self) -> Report:
        """The changes that `kquota enforce status` shows as waiting."""
        return self._waiting.got("plans", self._plans)

    def close(self) -> None:
        """Free memory and temporary files."""
        self._feed.close()

    def _status(self) -> Report:
        return status_report(whole_status(self._settings, self._place, now_ms))

    def _plans(self) -> Report:
        entries = list(EnforcementLog(self._settings).entries())
        rows: list[Row] = []
        # Without a plan there may be no policies either.
        if entries:
            policies = load_policies(Path(self._settings.enforcement.policy_file))
            waiting = LogState.of(entries).waiting(now_ms(), policies.guards.approve_within)
            rows = [_plan_row(step.last, needs_approval=step.needs_approval) for step in waiting]
        return Report("plans", (), rows, (), when_empty="No plan waits.")


def _first_screen(report: AuditReport) -> FirstScreen:
    page = replace(page_of(report), sections=())
    named = {one.bucket.href for one in page.opening.worst} | {one.href for one in page.opening.tiles}
    return FirstScreen(page, frozenset(named & {bucket_href(one.bucket) for one in report.buckets}))


def _plan_row(entry: LogEntry, *, needs_approval: bool) -> Row:
    proposal = entry.proposal
    until_ms = proposal.expires_at_ms
    plan_id, step = entry.step_id
    return {
        "plan": f"{plan_id} step {step}",
        "entity": entity_text(str(proposal.quota.entity)),
        "quota": proposal.quota.key.value,
        "change": change_text(entry),
        "why": f"{proposal.policy}: {proposal.reason}",
        "until": "stays" if until_ms is None else utc_text(until_ms),
        "state": f"{entry.mode.name.lower()}, {entry.event.value}",
        "next": _next_text(entry, plan_id, needs_approval=needs_approval),
    }


def _next_text(entry: LogEntry, plan_id: str, *, needs_approval: bool) -> str:
    """What has to happen before the change is sent."""
    if needs_approval:
        return f"kquota enforce approve {plan_id}"
    if entry.mode is Mode.OBSERVE:
        return "nothing: mode observe writes it down, and never sends it"
    return "nothing: kquota enforce run sends it at its next check"
