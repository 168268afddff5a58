"""Names, times and numbers of the report as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from datetime import UTC, datetime
from urllib.parse import quote

from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import (
    amount_text,
    bucket_text,
    counted,
    person_ms,
    person_name,
    person_percent,
    rate_text,
)
from kquota_spark.model.quotas.entities import Default, IpEntity, parse_entity
from kquota_spark.model.quotas.quota_types import COUNTED, Counted
from kquota_spark.reports.parts.page_parts import Cell, Column, Tone
from kquota_spark.reports.scope.shared_rows import (
    OBJECTIVE_PERCENT,
    BucketName,
    Confidence,
    Head,
    ThrottledBucket,
)
from kquota_spark.reports.timeline.top_buckets import LIMIT_PERCENT, NEAR_PERCENT

_UNITS: Mapping[Counted | None, str] = {
    Counted.BYTES: "bytes",
    Counted.THREAD_TIME: "µs of threads",
    Counted.PARTITIONS: "partitions",
}
_RATE_UNITS: Mapping[Counted | None, str] = {Counted.BYTES: "bytes/s", Counted.THREAD_TIME: "% of a thread"}
_DAY_MS, _HOUR_MS, _MINUTE_MS = 86_400_000, 3_600_000, 60_000
TYPE_WORDS = {
    "produce": "produce",
    "fetch": "fetch",
    "request": "request time",
    "controller_mutation": "topic changes",
    "connection": "connections",
}

BUCKET_COLUMNS = (Column("bucket"), Column("type", is_short=True))


def type_word(quota_type: str) -> str:
    """The quota type for a heading."""
    return TYPE_WORDS.get(quota_type, quota_type)


def bucket_of(bucket: BucketName, head: Head) -> str:
    """The bucket's name; on a tenant's own page from the view of the tenant."""
    if head.tenant is None or bucket.tags:
        return bucket_text(bucket.user, bucket.client_id, bucket.tags)
    if bucket.user == head.tenant:
        return f"your client {bucket.client_id}" if bucket.client_id else "all your clients"
    return bucket_text(bucket.user, bucket.client_id, None)


def bucket_cells(bucket: BucketName, head: Head) -> tuple[Cell, Cell]:
    """The cells of `BUCKET_COLUMNS`."""
    return Cell(bucket_of(bucket, head), href=bucket_href(bucket)), Cell(type_word(bucket.quota_type))


def bucket_href(bucket: BucketName) -> str:
    """The link to a bucket's row in the table of all buckets, as the browser builds it from the names shown."""
    return "#bucket=" + "/".join(quote(terminal_text(name), safe="!'()*") for name in astuple(bucket))


def throttled_time(one: ThrottledBucket) -> str:
    """The time throttled: `41 %`, below 1 % of the time `38 s`. From JMX, which has samples, always the share."""
    is_sampled = one.throttled_requests is None and not one.shared_with
    if 0 < one.time_throttled_percent < 1 and not is_sampled:
        return length(one.time_throttled_s * 1_000)
    return share_text(one.time_throttled_percent)


def most_delayed(throttled: Iterable[ThrottledBucket]) -> list[ThrottledBucket]:
    """The one ranking of the page: most total delay first, then most time throttled."""
    return sorted(throttled, key=lambda one: (-one.delay_ms, -one.time_throttled_percent))


def throttled_tone(throttled: Iterable[ThrottledBucket]) -> Tone:
    """Over if a bucket was throttled for more of the time than the objective, so that red means to act."""
    worst = max((one.time_throttled_percent for one in throttled), default=0.0)
    return Tone.OVER if worst > OBJECTIVE_PERCENT else Tone.PLAIN if worst else Tone.GOOD


def client_of(user: str, client_id: str, head: Head) -> str:
    """`alice / etl`; on a tenant's own page the client id alone."""
    shown = client_id or "(no client id)"
    return shown if head.tenant is not None else f"{user or '(no user)'} / {shown}"


def entity_of(canonical: str) -> str:
    """`user alice, client id etl`, `default of users`; the text itself if it is no canonical name of an entity."""
    try:
        entity = parse_entity(canonical)
    except ValueError:
        return canonical
    if isinstance(entity, IpEntity):
        return _part("ip", entity.ip)
    parts = (("user", entity.user), ("client id", entity.client_id))
    return ", ".join(_part(noun, name) for noun, name in parts if name is not None)


def _part(noun: str, name: str | Default) -> str:
    return f"default of {noun}s" if isinstance(name, Default) else f"{noun} {person_name(name)}"


def moment(time_ms: int) -> str:
    """`2026-11-21 05:40:48`, in UTC."""
    return _utc(time_ms).strftime("%Y-%m-%d %H:%M:%S")


def short_moment(time_ms: int) -> str:
    """`2026-11-21 05:40`, with seconds only where there are some."""
    return _utc(time_ms).strftime("%Y-%m-%d %H:%M" if time_ms % _MINUTE_MS == 0 else "%Y-%m-%d %H:%M:%S")


def _utc(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms // 1_000, UTC)


def length(duration_ms: int) -> str:
    """`24 hours`, `7 days`, `2 min 30 s`."""
    if duration_ms > _DAY_MS and duration_ms % _DAY_MS == 0:
        return f"{duration_ms // _DAY_MS} days"
    if duration_ms >= _HOUR_MS and duration_ms % _HOUR_MS == 0:
        return counted(duration_ms // _HOUR_MS, "hour")
    minutes, seconds = divmod(duration_ms // 1_000, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{count} {unit}" for count, unit in ((hours, "h"), (minutes, "min"), (seconds, "s")) if count]
    return " ".join(parts) or "0 s"


def of_the_period(head: Head) -> str:
    """`of the day` for one covered day, `of the time covered` for an uncovered period, else `of the time`."""
    if not head.is_covered:
        return "of the time covered"
    return "of the day" if head.to_ms - head.from_ms == _DAY_MS else "of the time"


def is_sampled(found: Confidence) -> bool:
    """Whether JMX is the only source, which has no traffic without a quota."""
    return found.sources == ("jmx",)


def done_word(quota_type: str) -> str:
    """The word after an amount, as in `252 MB produced` or `6 partitions changed`."""
    done = {"produce": "produced", "fetch": "fetched", "controller_mutation": "partitions changed"}
    return done.get(quota_type, type_word(quota_type))


def in_order(quota_type: str) -> int:
    """The place of a quota type in a list: produce first, unknown types last."""
    return list(TYPE_WORDS).index(quota_type) if quota_type in TYPE_WORDS else len(TYPE_WORDS)


def sentence(text: str) -> str:
    """The text with a capital letter at the beginning and a full stop at the end."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def share_text(percent: float) -> str:
    """`41 %`, `3.2 %`; more than nothing is never shown as 0, and less than all never as 100."""
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.0f} %" if percent >= 99.95 or percent == 0 else f"{percent:.1f} %"


def finite(value: float | None) -> float | None:
    """The number; None if JSON cannot contain it, such as infinity."""
    return value if value is not None and math.isfinite(value) else None


def highest(row: Iterable[float | None]) -> float | None:
    """The largest known number; None if there is none."""
    return max((number for value in row if (number := finite(value)) is not None), default=None)


def count_cell(count: int) -> Cell:
    """A whole number."""
    return Cell(f"{count:,}")


def share_cell(percent: float) -> Cell:
    """A share with its bar, exact in the title."""
    return Cell(share_text(percent), f"{percent:.4f} %", bar_percent=percent)


def rate_cell(quota_type: str, rate: float | None, none: str = "none") -> Cell:
    """A rate in its unit, exact in the title."""
    shown = finite(rate)
    if shown is None:
        return Cell(none)
    return Cell(
        rate_text(quota_type, shown), exact=f"{shown:,.3f} {_RATE_UNITS.get(COUNTED.get(quota_type), '/s')}"
    )


def amount_cell(quota_type: str, amount: int) -> Cell:
    """An amount in its unit, exact in the title."""
    return Cell(
        amount_text(quota_type, amount), exact=f"{amount:,} {_UNITS.get(COUNTED.get(quota_type), '')}".strip()
    )


def throttles_cell(delay_ms: int | None) -> Cell:
    """A total delay; `-` if there is none, or if JMX, which has no sums, is the only source of the bucket."""
    return Cell(person_ms(delay_ms), exact=f"{delay_ms:,} ms") if delay_ms else Cell("-")


def used_cell(percent: float | None) -> Cell:
    """Percent of a quota, marked as near from 80 on and as over above 100."""
    if finite(percent) is None or percent is None:
        return Cell("-")
    return Cell(person_percent(percent), exact=f"{percent:.4f} %", tone=used_tone(percent))


def used_tone(percent: float) -> Tone:
    """The tone of a percent of a quota: near from 80 on, over above 100."""
    if percent > LIMIT_PERCENT:
        return Tone.OVER
    return Tone.NEAR if percent >= NEAR_PERCENT else Tone.PLAIN
