"""One bucket of `kquota top` from near: who is inside, and its last seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kquota_spark.cli.listing import bucket_text, rule_text
from kquota_spark.cli.render import Report, Row, Shown, table_report
from kquota_spark.cli.sparkline import BARS
from kquota_spark.cli.top_feed import Near
from kquota_spark.formats.escape import terminal_text
from kquota_spark.formats.person_units import (
    amount_text,
    broker_text,
    clock_time,
    or_dash,
    person_ms,
    person_name,
    person_percent,
    rate_text,
    type_text,
)
from kquota_spark.reports.top_buckets import BucketKey

_BAR_CELLS = 24


def near_lines(key: BucketKey, near: Near, columns: int, room: int) -> Iterator[tuple[str, float | None]]:
    """Escaped lines, each with the percent of the limit that it tells of.

    Args:
        key: the bucket.
        near: what is known of it.
        columns: width of the terminal.
        room: lines that fit; clients get at most a third.
    """
    yield _headline(key, near), None
    yield "", None
    if near.clients:
        clients = _client_table(key, near.clients[: max(room // 3, 1)], columns)
        yield from ((line, None) for line in clients)
        if len(near.clients) > max(room // 3, 1):
            yield "  more clients: kquota usage", None
    else:
        yield "no client is known by name: only JMX tells of this bucket, or it has been idle", None
    yield "", None
    lines = _second_table(key, near.seconds, columns)
    yield lines[0], None
    yield from zip(lines[1:], (row["quota_used_percent"] for row in near.seconds), strict=False)


def _headline(key: BucketKey, near: Near) -> str:
    of_key = {
        "bucket_user": key.user,
        "bucket_client_id": key.client_id,
        "bucket_tags": key.tags or None,
        "rule": near.seconds[0]["rule"] if near.seconds else None,
    }
    named = f"{bucket_text(of_key)}, {type_text(key.quota_type)}, broker {broker_text(key.broker_id)}"
    return terminal_text(f"{named}, rule {rule_text(of_key)}")


def _client_table(key: BucketKey, clients: Sequence[Row], columns: int) -> list[str]:
    shown = (
        Shown("user", lambda row: person_name(row["user"]), is_text=True, keep=12),
        Shown("client id", lambda row: person_name(row["client_id"]), is_text=True, keep=12),
        Shown("10 s mean", lambda row: rate_text(key.quota_type, row["mean_rate_per_s"])),
        Shown(
            "in 60 s", lambda row: or_dash(row["amount"], lambda amount: amount_text(key.quota_type, amount))
        ),
        Shown("reqs", lambda row: or_dash(row["requests"], str)),
        Shown("throttled", lambda row: or_dash(row["throttled_ms"], person_ms)),
    )
    return table_report(Report("", (), clients, shown), columns).splitlines()


def _second_table(key: BucketKey, seconds: Sequence[Row], columns: int) -> list[str]:
    if not seconds:
        return ["no second of this bucket in the last 60 s of the table"]
    shown = (
        Shown("second", lambda row: clock_time(row["second"], with_day=False)),
        Shown("limit", lambda row: rate_text(key.quota_type, row["limit_per_s"])),
        Shown("rate", lambda row: rate_text(key.quota_type, row["rate_per_s"])),
        Shown("used", lambda row: person_percent(row["quota_used_percent"])),
        Shown("", _bar, is_text=True),
        Shown("throttle", lambda row: or_dash(row["throttle_ms"], person_ms)),
        Shown("in the log", lambda row: or_dash(row["observed_throttle_ms"], person_ms)),
        Shown("reqs", lambda row: or_dash(row["requests"], str)),
        Shown("sure", lambda row: "jmx" if row["source"] == "jmx" else "yes" if row["is_certain"] else "no"),
    )
    return table_report(Report("", (), seconds, shown), columns).splitlines()


def _bar(row: Row) -> str:
    """Twice the limit is the whole bar."""
    cells = round(min(row["quota_used_percent"] or 0.0, 200.0) / 200.0 * _BAR_CELLS)
    return BARS[3] * cells + " " * (_BAR_CELLS - cells)
