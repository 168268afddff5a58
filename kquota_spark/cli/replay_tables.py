"""The rows of a replay as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from kquota_spark.cli.render import Colour, Report, Row, Shown, show
from kquota_spark.cli.replay_rows import bucket_name
from kquota_spark.formats.person_units import amount_text, broker_text, rate_text, type_text
from kquota_spark.model.points import CONTROLLER_ID

_COMMAND = "kquota replay"
_OURS = "by the replay / in the broker's log"


def show_buckets(rows: Sequence[Row], *, has_more: bool) -> None:
    """A table of buckets."""
    shown = (
        *place_columns(rows),
        Shown("limit", lambda row: rate_text(row["quota_type"], row["limit_per_s"])),
        Shown("reqs", lambda row: str(row["requests"])),
        Shown("amount", lambda row: amount_text(row["quota_type"], row["amount"])),
        Shown("throttled", lambda row: f"{row['throttled_requests']}/{row['observed_throttled_requests']}"),
        Shown("delay", lambda row: _pair_of_ms(row["throttle_ms"], row["observed_throttle_ms"])),
        Shown("wrong", lambda row: str(row["wrong"])),
        Shown("unsure", lambda row: str(row["uncertain"])),
    )
    footer = f"throttled requests, sum of throttles: {_OURS}; limit: the last in force{_more(has_more)}"
    show(Report(_COMMAND, (), rows, shown, footer=footer, colour=_bucket_colour), "table")


def show_requests(rows: Sequence[Row], *, has_more: bool) -> None:
    """A table of requests."""
    shown = (
        Shown("record time", lambda row: row["record_time"][11:-1]),
        *place_columns(rows),
        Shown("amount", lambda row: f"{row['amount']:,}"),
        Shown("limit", lambda row: rate_text(row["quota_type"], row["limit_per_s"])),
        Shown("used", _used_text),
        Shown("throttle ms", lambda row: f"{row['throttle_ms']}/{row['observed_throttle_ms']}"),
        Shown("verdict", lambda row: row["outcome"], is_text=True, keep=14),
    )
    footer = f"times in UTC; throttle: {_OURS}{_more(has_more)}"
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


def _used_text(row: Row) -> str:
    return "-" if row["quota_used_percent"] is None else f"{row['quota_used_percent']:.1f} %"


def _pair_of_ms(ours_ms: int, observed_ms: int) -> str:
    """`12.3/12.1 s`: one unit for both."""
    if max(ours_ms, observed_ms) < 10_000:
        return f"{ours_ms}/{observed_ms} ms"
    return f"{ours_ms / 1_000:.1f}/{observed_ms / 1_000:.1f} s"


def _bucket_colour(row: Row) -> Colour | None:
    return Colour.RED if row["wrong"] else None


def _request_colour(row: Row) -> Colour | None:
    if row["outcome"].startswith("false"):
        return Colour.RED
    return Colour.YELLOW if row["outcome"] == "uncertain" else None
