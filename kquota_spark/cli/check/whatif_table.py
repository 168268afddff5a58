"""The answer of `kquota whatif`: a row per bucket and loop for programs, three lines per bucket for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kquota_spark.cli.options import bucket_text
from kquota_spark.cli.text.dumbbell import ASCII, DRAWN, Dumbbell, dumbbells
from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.cli.text.render import Colour, Report, Row, Shown
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import (
    counted,
    iso_time,
    or_dash,
    person_bytes,
    person_count,
    person_ms,
    rate_text,
    type_text,
)
from kquota_spark.model.quotas.quota_types import BANDWIDTH
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.reports.clients.judged_groups import Side
    from kquota_spark.reports.clients.what_if import Difference, WhatIf

OPEN, CLOSED = "open", "closed"
COLUMNS = (
    "quota_type", "bucket_user", "bucket_client_id", "bucket_tags", "loop", "requests", "limit_before_per_s",
    "limit_after_per_s", "delay_ms", "delay_by_replay_ms", "delay_by_replay_after_ms",
    "delay_by_replay_more_ms", "delay_low_ms", "delay_high_ms", "throttled_requests",
    "throttled_requests_by_replay", "throttled_requests_by_replay_after", "time_throttled_s",
    "time_throttled_by_replay_s", "time_throttled_by_replay_after_s", "served_bytes_before", "served_bytes_after",
    "served_low_bytes", "served_high_bytes", "deferred_bytes", "fits_percent", "unknown_before", "unknown_after",
    "is_censored", "is_changed", "is_lower",
)  # fmt: skip
_NOTE = (
    "before: by brokers where they logged it. open: by replay of the recorded requests at their times. closed: each "
    "connection waits for its throttles and keeps its own pace. Expect this of most clients"
)
_LIMIT = "limit: the last in force, on each broker"
_SECONDS = "time throttled: seconds in which a throttle began or still ran"
_MORE = (
    "more: at the recorded times the requests pile up, so the sum has no meaning; served is then what the lower limit "
    "lets through while they arrive"
)
_CENSORED = ">=: at least; a saturated connection would send more under the higher limit"
_UNKNOWN = (
    "?, ?n: of n requests the throttle under another limit is not known, their amount is not in the log"
)
_NO_BUCKET = "-: no value, the quotas do not make this bucket"

_FIGURES = (
    ("throttled_ms", "delay_ms", "delay_by_replay_ms"),
    ("throttled_requests", "throttled_requests", "throttled_requests_by_replay"),
    ("throttled_seconds", "time_throttled_s", "time_throttled_by_replay_s"),
)
"""A figure of `Side` and `Logged`, and its columns under the recorded quotas: by brokers, and by replay."""
_BY_REPLAY = {"before": "delay_by_replay_ms", "after": "delay_by_replay_after_ms"}


def rows_of(each: Difference) -> list[dict[str, Any]]:
    """The rows of one bucket: its open loop, and its closed loop if it has one."""
    before, after, logged = each.before, each.after, each.logged
    tags = dict(each.bucket.custom_tags)
    common: dict[str, Any] = {
        "quota_type": each.quota_type.value,
        "bucket_user": each.bucket.user,
        "bucket_client_id": each.bucket.client_id,
        "bucket_tags": json.dumps(tags) if tags else None,
        "requests": max(side.requests for side in (before, after) if side is not None),
        "limit_before_per_s": None if before is None else before.limit_per_s,
        "limit_after_per_s": None if after is None else after.limit_per_s,
        "unknown_before": None if before is None else before.unknown,
        "is_changed": each.is_changed,
        "is_lower": each.is_lower,
    }
    for name, column, by_replay in _FIGURES:
        replayed = None if before is None else getattr(before, name)
        common[by_replay] = replayed
        common[column] = None if logged is None else getattr(logged, name)
    is_bytes = each.quota_type in BANDWIDTH
    common["served_bytes_before"] = each.amount if is_bytes and before is not None else None
    return [{**common, **_open(each, after)}, *({**common, **found} for found in _closed(each, after))]


def _open(each: Difference, after: Side | None) -> dict[str, Any]:
    """Columns of the open loop; all null if the tried rules do not make the bucket."""
    fits = each.fits_percent if each.is_lower else None
    served = each.amount if fits is None else round(each.amount * fits / 100)
    is_served = each.quota_type in BANDWIDTH and after is not None
    delay_ms = None if after is None else after.throttled_ms
    high_ms = (
        None if after is None or after.unknown else delay_ms if after.at_most_ms is None else after.at_most_ms
    )
    return {
        "loop": OPEN,
        "delay_by_replay_after_ms": delay_ms,
        "delay_by_replay_more_ms": each.more_ms,
        "delay_low_ms": delay_ms,
        "delay_high_ms": high_ms,
        "throttled_requests_by_replay_after": None if after is None else after.throttled_requests,
        "time_throttled_by_replay_after_s": None if after is None else after.throttled_seconds,
        "served_bytes_after": served if is_served else None,
        "served_low_bytes": served if is_served else None,
        "served_high_bytes": served if is_served else None,
        "deferred_bytes": each.amount - served if is_served else None,
        "fits_percent": fits,
        "unknown_after": None if after is None else after.unknown,
        "is_censored": False,
    }


def _closed(each: Difference, after: Side | None) -> Iterator[dict[str, Any]]:
    found = each.closed
    if found is None or after is None:
        return
    is_bytes = each.quota_type in BANDWIDTH
    yield {
        "loop": CLOSED,
        "delay_by_replay_after_ms": found.throttled_ms,
        "delay_by_replay_more_ms": found.throttled_ms - each.throttled_ms[0],
        "delay_low_ms": found.delay.low,
        "delay_high_ms": found.delay.high,
        "throttled_requests_by_replay_after": found.throttled_requests,
        "time_throttled_by_replay_after_s": found.throttled_seconds,
        "served_bytes_after": found.served if is_bytes else None,
        "served_low_bytes": found.served_bound.low if is_bytes else None,
        "served_high_bytes": found.served_bound.high if is_bytes else None,
        "deferred_bytes": found.deferred if is_bytes else None,
        "fits_percent": None,
        "unknown_after": 0,
        "is_censored": found.is_censored,
    }


def _before(row: Row, column: str) -> int | None:
    """The figure before: the brokers' own where they logged it, else that of the replay."""
    by_replay = next(other for _, own, other in _FIGURES if own == column)
    found: int | None = row[by_replay] if row[column] is None else row[column]
    return found


def lines_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The lines of the table for the rows of one bucket: before, open and closed; one if nothing changes."""
    first = rows[0]
    named = {"type": type_text(first["quota_type"]), "bucket": bucket_text(first)}
    before = {
        "loop": "before", "colour": None, "limit": _limit(first, "before"),
        "requests": or_dash(_before(first, "throttled_requests"), person_count),
        "seconds": or_dash(_before(first, "time_throttled_s"), lambda seconds: f"{seconds:,} s"),
        "delay": or_dash(_before(first, "delay_ms"), person_ms), "bound": "",
        "served": or_dash(first["served_bytes_before"], person_bytes), "deferred": "",
    }  # fmt: skip
    if not first["is_changed"]:
        return [{**named, **before, "loop": ""}]
    return [{**named, **before}, *({"type": "", "bucket": "", **_line(row)} for row in rows)]


def _limit(row: Row, when: str) -> str:
    """The limit before or after; `-` if those rules do not make the bucket."""
    if row[_BY_REPLAY[when]] is None:
        return "-"
    return rate_text(row["quota_type"], row[f"limit_{when}_per_s"])


def _line(row: Row) -> dict[str, Any]:
    is_open, unknown, mark = _is_open(row), row["unknown_after"], ">= " if row["is_censored"] else ""
    count, seconds = row["throttled_requests_by_replay_after"], row["time_throttled_by_replay_after_s"]
    delay = "more" if is_open else "?" if unknown else or_dash(row["delay_by_replay_after_ms"], person_ms)
    return {
        "loop": row["loop"],
        "colour": _colour(row),
        "limit": _limit(row, "after"),
        "requests": f"{count:,} ?{unknown:,}" if unknown else or_dash(count, person_count),
        "seconds": "?" if unknown else or_dash(seconds, lambda seconds: f"{seconds:,} s"),
        "delay": f"{mark}{delay}",
        "bound": "" if is_open or unknown else _bound(row["delay_low_ms"], row["delay_high_ms"]),
        "served": or_dash(row["served_bytes_after"], person_bytes),
        "deferred": or_dash(row["deferred_bytes"], person_bytes),
    }


def _bound(low_ms: int | None, high_ms: int | None) -> str:
    if low_ms is None or low_ms == high_ms:
        return ""
    return (
        f"{person_ms(low_ms)} or more" if high_ms is None else f"{person_ms(low_ms)} to {person_ms(high_ms)}"
    )


def program_report(found: WhatIf, rows: Sequence[Row]) -> Report:
    """The report for programs: a row per bucket and loop, and the sums of all buckets."""
    logged = [each.logged.throttled_ms for each in found.differences if each.logged is not None]
    closed_ms = sum(
        each.throttled_ms[1] if each.closed is None else each.closed.throttled_ms
        for each in found.differences
    )
    envelope = {
        "from": iso_time(found.from_ms),
        "to": iso_time(found.to_ms),
        "requests": found.requests,
        "delay_ms": sum(logged) if logged else None,
        "delay_by_replay_ms": sum(each.throttled_ms[0] for each in found.differences),
        "delay_by_replay_after_ms": sum(each.throttled_ms[1] for each in found.differences),
        "delay_by_closed_loop_ms": closed_ms,
    }
    return Report(command="kquota whatif", columns=COLUMNS, rows=rows, shown=(), envelope=envelope)


def table(found: WhatIf, shown: Sequence[Sequence[Row]], of_all: Sequence[Sequence[Row]]) -> Report:
    """The report for people.

    Args:
        found: the answer.
        shown: the rows of each bucket to show.
        of_all: the rows of each bucket of the answer.
    """
    changed = [row for of_bucket in shown for row in of_bucket if row["is_changed"]]
    period = f"{utc_text(found.from_ms)} to {utc_text(found.to_ms)}"
    summary = (
        _summary(found, shown, of_all) if of_all else f"no produce or fetch of {period} in the table usage"
    )
    return Report(
        command="kquota whatif",
        columns=COLUMNS,
        rows=[line for of_bucket in shown for line in lines_of(of_bucket)],
        shown=(
            Shown("type", lambda line: line["type"], is_text=True, keep=7),
            Shown("bucket", lambda line: line["bucket"], is_text=True, keep=12),
            Shown("loop", lambda line: line["loop"], is_text=True),
            Shown("limit", lambda line: line["limit"], rank=1, note=_LIMIT),
            Shown("total delay", lambda line: line["delay"]),
            Shown("bound", lambda line: line["bound"], rank=6),
            Shown("throttled requests", lambda line: line["requests"], rank=5),
            Shown("time throttled", lambda line: line["seconds"], rank=3, note=_SECONDS),
            Shown("served", lambda line: line["served"], rank=4),
            Shown("deferred", lambda line: line["deferred"], rank=2),
        ),
        footer="\n".join([summary, *_notes(changed)]),
        when_empty=summary,
        colour=lambda line: line["colour"],
    )


def _summary(found: WhatIf, shown: Sequence[Sequence[Row]], of_all: Sequence[Sequence[Row]]) -> str:
    """How many buckets change, and the total delay before and in both loops; `more` where it has no meaning."""
    changed = [of_bucket for of_bucket in of_all if of_bucket[0]["is_changed"]]
    shown_changed = sum(of_bucket[0]["is_changed"] for of_bucket in shown)
    buckets = counted(len(of_all), "bucket")
    parts = [
        f"{len(changed):,} of {buckets} change" if changed else f"no difference: nothing changes in {buckets}"
    ]
    if shown_changed < len(changed):
        parts.append(f"{shown_changed:,} shown (--limit 0 shows all)")
    elif changed and len(shown) < len(of_all):
        parts.append(f"{len(of_all) - len(changed):,} unchanged (--limit 0 shows them)")
    before_ms = sum(_before(of_bucket[0], "delay_ms") or 0 for of_bucket in of_all)
    delay = f"total delay {person_ms(before_ms)}"
    if changed:
        is_more = any(_is_open(of_bucket[0]) for of_bucket in changed)
        is_unknown = any(of_bucket[0]["unknown_after"] for of_bucket in changed)
        open_text = (
            "?"
            if is_unknown
            else "more"
            if is_more
            else person_ms(sum(_after_ms(each[0]) for each in of_all))
        )
        least = ">= " if any(each[-1]["is_censored"] for each in changed) else ""
        closed_text = least + person_ms(sum(_after_ms(each[-1]) for each in of_all))
        delay += f" -> open {open_text}, closed {closed_text}"
    period = f"{utc_text(found.from_ms)} to {utc_text(found.to_ms)}"
    return f"{', '.join(parts)}; {found.requests:,} requests from {period}: {delay}"


def _after_ms(row: Row) -> int:
    """The total delay after; the brokers' own of a bucket that does not change."""
    return (row["delay_by_replay_after_ms"] if row["is_changed"] else _before(row, "delay_ms")) or 0


def _notes(changed: Sequence[Row]) -> Iterator[str]:
    """The legend of what the table shows."""
    if changed:
        yield _NOTE
    if any(map(_is_open, changed)):
        yield _MORE
    if any(row["is_censored"] for row in changed):
        yield _CENSORED
    if any(row["unknown_before"] or row["unknown_after"] for row in changed):
        yield _UNKNOWN
    if any(row[column] is None for row in changed for column in _BY_REPLAY.values()):
        yield _NO_BUCKET


def print_chart(changed: Sequence[Sequence[Row]]) -> None:
    """Print the total delay of each bucket that changes, today and in the closed loop."""
    rows = [of_bucket[-1] for of_bucket in changed if of_bucket[-1]["loop"] == CLOSED]
    if not any(_before(row, "delay_ms") or row["delay_by_replay_after_ms"] for row in rows):
        return
    page = Page()
    marks = DRAWN if page.has("".join(DRAWN)) else ASCII
    page.line()
    title = f"total delay: {marks.today} today, {marks.proposed} proposed (closed), {marks.both} both in one place"
    page.paragraph("", title, Tone.TITLE, indent=0)
    drawn = [
        Dumbbell(page.possible(_chart_name(row)), _before(row, "delay_ms"), row["delay_by_replay_after_ms"])
        for row in rows
    ]
    for line in dumbbells(drawn, page.columns, marks, person_ms):
        page.line(line)


def _chart_name(row: Row) -> str:
    return terminal_text(f"{type_text(row['quota_type'])} {bucket_text(row)}")


def _is_open(row: Row) -> bool:
    """Whether the recorded requests would have come later under a lower limit: their sum of delays has no meaning."""
    is_more = (row["delay_by_replay_after_ms"] or 0) > (row["delay_by_replay_ms"] or 0)
    return bool(row["loop"] == OPEN and row["is_lower"] and is_more)


def _colour(row: Row) -> Colour | None:
    more_ms = row["delay_by_replay_more_ms"]
    if more_ms == 0:
        return None
    return Colour.RED if more_ms > 0 else Colour.YELLOW
