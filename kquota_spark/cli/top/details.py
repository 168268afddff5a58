"""One bucket of `kquota top` in detail, as lines: its timeline, its clients, its explanation, its episodes."""

from __future__ import annotations

from collections.abc import Sequence

from kquota_spark.cli.options import bucket_text, rule_text, spans_days
from kquota_spark.cli.read.timeline_page import print_chart
from kquota_spark.cli.text.columns import column
from kquota_spark.cli.text.page import Tone
from kquota_spark.cli.text.render import Report, Row, Shown, layout_of
from kquota_spark.cli.top.feed import BucketView, Details
from kquota_spark.cli.top.lines import BARS, Line, ScreenPage, line_of, tone_of
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import (
    broker_text,
    clock_time,
    person_ms,
    type_text,
)
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.timeline.top_buckets import WINDOW_S, time_throttled_s

_BAR_CELLS = 24
_MOST_EVENTS = 20
_NO_CLIENT = "no client is known by name: only JMX reports it, or it has been idle"
_NO_SECOND = "no second of this bucket in the last 60 s of the table"


def detail_lines(key: BucketKey, details: Details, columns: int) -> list[Line]:
    """All lines about a bucket; the screen shows a part of them."""
    page = ScreenPage(columns)
    page.paragraph("", bucket_line(key, details), Tone.TITLE, indent=0)
    if details.bucket_view is BucketView.EXPLAIN:
        return [*page.lines, Line(), *details.explanation]
    if details.bucket_view is BucketView.VIOLATIONS:
        return [*page.lines, Line(), *_episode_lines(key, details.episodes, columns)]
    page.paragraph("", harm_text(details.seconds, details.newest_ms), indent=0)
    tables = [Line(), *_client_lines(key, details, columns), Line(), *_second_lines(key, details, columns)]
    return [*page.lines, *chart_lines(details, columns), *tables]


def chart_lines(details: Details, columns: int) -> list[Line]:
    """The timeline with its events; nothing without one."""
    page = ScreenPage(columns)
    if details.timeline is not None:
        print_chart(details.timeline, _MOST_EVENTS, page)
    return page.lines


def bucket_line(key: BucketKey, details: Details) -> str:
    """The bucket, its quota type and its broker, and the rule of its newest second."""
    rules = [row["rule"] for row in details.seconds]
    of_key = {
        "bucket_user": key.user,
        "bucket_client_id": key.client_id,
        "bucket_tags": key.tags or None,
        "rule": rules[0] if rules else None,
    }
    named = f"{bucket_text(of_key)}, {type_text(key.quota_type)}, broker {broker_text(key.broker_id)}"
    return terminal_text(f"{named}, rule {rule_text(of_key)}" if rules else named)


def harm_text(seconds: Sequence[Row], newest_ms: int) -> str:
    """Total delay, throttled requests and time throttled in the last minute. JMX contains none of the three."""
    logged = [
        {**row, "age_s": (newest_ms - row["second"]) // 1_000} for row in seconds if row["source"] == "log"
    ]
    if not logged:
        return "total delay, throttled requests and time throttled: not known, no request was logged in 60 s"
    requests = sum(row["requests"] for row in logged)
    throttled = sum(row["delayed_requests"] or 0 for row in logged)
    delay = person_ms(sum(row["delay_ms"] or 0 for row in logged))
    held_s = time_throttled_s(logged, WINDOW_S)
    return (
        f"last {WINDOW_S} s: total delay {delay}, throttled requests {throttled:,} of {requests:,}, "
        f"time throttled {held_s} s"
    )


def _client_lines(key: BucketKey, details: Details, columns: int) -> Sequence[Line]:
    if not details.clients:
        page = ScreenPage(columns)
        page.paragraph("", _NO_CLIENT, indent=0)
        return page.lines
    return _table(client_report(key, details), columns, [None] * len(details.clients))


def client_report(key: BucketKey, details: Details) -> Report:
    """The clients in the bucket in the last minute."""
    shown = (
        column("user", keep=12),
        column("client_id", keep=12),
        column("mean_rate_per_s", "10 s mean", quota_type=key.quota_type),
        column("amount", "in 60 s", rank=1, quota_type=key.quota_type),
        column("requests", "reqs", rank=2),
        column("delay_ms"),
    )
    return Report("", (), details.clients, shown, when_empty=_NO_CLIENT)


def _second_lines(key: BucketKey, details: Details, columns: int) -> Sequence[Line]:
    if not details.seconds:
        return [line_of(_NO_SECOND)]
    tones = [tone_of(row["quota_used_percent"]) for row in details.seconds]
    return _table(second_report(key, details), columns, tones)


def second_report(key: BucketKey, details: Details) -> Report:
    """The seconds of the bucket in the last minute, newest first."""
    shown = (
        Shown("second", lambda row: clock_time(row["second"], with_day=False)),
        column("limit_per_s", quota_type=key.quota_type),
        column("rate_per_s", quota_type=key.quota_type),
        column("quota_used_percent"),
        Shown("", _bar, is_text=True, keep=_BAR_CELLS, rank=3),
        column("delay_ms"),
        column("throttle_ms", "longest, by replay", rank=5),
        column("observed_throttle_ms", "by brokers", rank=4),
        column("requests", "reqs", rank=2),
        Shown(
            "sure",
            lambda row: "jmx" if row["source"] == "jmx" else "yes" if row["is_certain"] else "no",
            rank=1,
        ),
    )
    return Report("", (), details.seconds, shown, when_empty=_NO_SECOND)


def _episode_lines(key: BucketKey, episodes: Sequence[Row], columns: int) -> Sequence[Line]:
    if not episodes:
        return [line_of("no violation of this bucket on this broker")]
    with_day = spans_days(episodes, "start_time")
    shown = (
        Shown("start", lambda row: clock_time(row["start_time"], with_day=with_day)),
        Shown("lasted", _lasted),
        column("limit_per_s", rank=1, quota_type=key.quota_type),
        column("peak_rate_per_s", rank=3, quota_type=key.quota_type),
        column("peak_quota_used_percent"),
        column("delay_ms"),
        column("delayed_requests", "throttled requests", rank=2),
    )
    tones = [Tone.OVER if row["end_time"] is None else None for row in episodes]
    return _table(Report("", (), episodes, shown), columns, tones)


def _table(report: Report, columns: int, tones: Sequence[Tone | None]) -> list[Line]:
    """One or more lines of titles, and one line per row, without the notes below a printed table."""
    layout = layout_of(report, columns)
    titles = [line_of(text, Tone.TITLE) for text in layout.header()]
    return titles + [line_of(text, tone) for (text,), tone in zip(layout.rows(), tones, strict=True)]


def _lasted(row: Row) -> str:
    return "open" if row["end_time"] is None else person_ms(row["end_time"] - row["start_time"])


def _bar(row: Row) -> str:
    """A bar that is full at twice the limit."""
    cells = round(min(row["quota_used_percent"] or 0.0, 200.0) / 200.0 * _BAR_CELLS)
    return BARS[3] * cells + " " * (_BAR_CELLS - cells)
