"""The rows of a replay as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from kquota_spark.cli.judge.replay_rows import bucket_name
from kquota_spark.cli.text.render import Colour, Report, Row, Shown, show
from kquota_spark.formats.text.person_units import (
    amount_text,
    broker_text,
    person_count,
    person_pair_ms,
    person_percent,
    rate_text,
    type_text,
)
from kquota_spark.model.measure.points import CONTROLLER_ID

_COMMAND = "kquota replay"
_SIDES = "by replay / by brokers"


def show_buckets(rows: Sequence[Row], *, has_more: bool) -> None:
    """A table of buckets."""
    shown = (
        *place_columns(rows),
        Shown("limit", lambda row: rate_text(row["quota_type"], row["limit_per_s"]), rank=3),
        Shown("requests", lambda row: person_count(row["requests"]), rank=4),
        Shown("amount", lambda row: amount_text(row["quota_type"], row["amount"]), rank=5),
        Shown("throttled requests", _throttled_requests),
        Shown("total delay", lambda row: person_pair_ms(row["throttle_ms"], row["observed_throttle_ms"])),
        Shown("wrong", lambda row: person_count(row["wrong"])),
        Shown("unsure", lambda row: person_count(row["uncertain"])),
    )
    footer = f"throttled requests, total delay: {_SIDES}; limit: the last in force{_more(has_more)}"
    show(Report(_COMMAND, (), rows, shown, footer=footer, colour=_bucket_colour), "table")


def show_requests(rows: Sequence[Row], *, has_more: bool) -> None:
    """A table of requests."""
    shown = (
        Shown("record time", lambda row: row["record_time"][11:-1]),
        *place_columns(rows),
        Shown("amount", lambda row: amount_text(row["quota_type"], row["amount"]), rank=5),
        Shown("limit", lambda row: rate_text(row["quota_type"], row["limit_per_s"]), rank=3),
        Shown("used", lambda row: person_percent(row["quota_used_percent"]), rank=4),
        Shown("throttle", lambda row: person_pair_ms(row["throttle_ms"], row["observed_throttle_ms"])),
        Shown("verdict", lambda row: row["outcome"], is_text=True, keep=14),
    )
    footer = f"times in UTC; throttle: {_SIDES}{_more(has_more)}"
    show(Report(_COMMAND, (), rows, shown, footer=footer, colour=_request_colour), "table")


def place_columns(rows: Sequence[Row]) -> tuple[Shown, ...]:
    """Broker (where there are several), type and bucket."""
    columns = (
        Shown("type", lambda row: type_text(row["quota_type"]), is_text=True, keep=8),
        Shown("bucket", bucket_name, is_text=True, keep=12),
    )
    if len({row["broker_id"] for row in rows} - {CONTROLLER_ID}) < 2:
        return columns
    return (Shown("broker", lambda row: broker_text(row["broker_id"])), *columns)


def _more(has_more: bool) -> str:
    return "\nthere are more: --limit 0 shows all" if has_more else ""


def _throttled_requests(row: Row) -> str:
    return f"{row['throttled_requests']:,} / {row['observed_throttled_requests']:,}"


def _bucket_colour(row: Row) -> Colour | None:
    return Colour.RED if row["wrong"] else None


def _request_colour(row: Row) -> Colour | None:
    if row["outcome"].startswith("false"):
        return Colour.RED
    return Colour.YELLOW if row["outcome"] == "uncertain" else None
