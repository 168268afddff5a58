"""Times, limits, rates and amounts for people, in the unit of their quota type."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaKey, QuotaType

_TYPES = {kind.key: kind.value for kind in QuotaType}
_RATE_UNITS = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")
_SECOND_MS, _MINUTE_MS, _HOUR_MS = 1_000, 60_000, 3_600_000


def iso_time(time_ms: int) -> str:
    """A time as `2026-11-21T05:40:48Z`; with milliseconds only if they are not 0."""
    time = datetime.fromtimestamp(time_ms / 1_000, UTC)
    form = "%Y-%m-%dT%H:%M:%S" if time_ms % 1_000 == 0 else "%Y-%m-%dT%H:%M:%S.%f"
    text = time.strftime(form)
    return (text if time_ms % 1_000 == 0 else text[:-3]) + "Z"


def clock_time(time_ms: int, *, with_day: bool) -> str:
    """A time as `05:40:48`, or as `11-21 05:40:48` for a table of several days."""
    form = "%m-%d %H:%M:%S" if with_day else "%H:%M:%S"
    return datetime.fromtimestamp(time_ms // 1_000, UTC).strftime(form)


def _scaled(value: float, units: Sequence[str]) -> str:
    """At most four characters and a unit: `950 B/s`, `1.2 MB/s`, `12.3 MB/s`, `123 MB/s`."""
    unit = 0
    # 999.5 would round to 1000 of the smaller unit.
    while abs(value) >= 999.5 and unit < len(units) - 1:
        value /= 1_000
        unit += 1
    is_whole = unit == 0 or abs(value) >= 99.95
    return f"{value:.0f} {units[unit]}" if is_whole else f"{value:.1f} {units[unit]}"


def person_rate(bytes_per_s: float | None) -> str:
    """A rate as `1.2 MB/s`, in powers of 1,000; `none` without a limit."""
    return "none" if bytes_per_s is None else _scaled(bytes_per_s, _RATE_UNITS)


def or_dash(value: float | None, text: Callable[[Any], str]) -> str:
    """The text of a value; `-` for one that the source does not provide."""
    return "-" if value is None else text(value)


def person_bytes(amount: int) -> str:
    """An amount as `1.2 MB`, in powers of 1,000."""
    return _scaled(amount, _BYTE_UNITS)


def person_ms(duration_ms: float) -> str:
    """A duration as `95 ms`, `2.03 s`, `12.3 s`, `280 s`, `15.0 min` or `3.5 h`: at most three significant digits."""
    if duration_ms < 999.5:
        return f"{duration_ms:.0f} ms"
    # 9.995 s would round to four digits.
    if duration_ms < 9_995:
        return f"{duration_ms / _SECOND_MS:.2f} s"
    units = (("s", _SECOND_MS, 599_500), ("min", _MINUTE_MS, 2 * _HOUR_MS), ("h", _HOUR_MS, math.inf))
    unit, of_unit = next((unit, of_unit) for unit, of_unit, end in units if duration_ms < end)
    value = float(f"{duration_ms / of_unit:.3g}")
    return f"{value:.1f} {unit}" if value < 100 else f"{value:,.0f} {unit}"


def person_span(duration_ms: int) -> str:
    """A duration without decimals in the largest unit that allows it: `5 s`, `90 s`, `24 h`; else as `person_ms`."""
    for unit, of_unit in (("h", _HOUR_MS), ("min", _MINUTE_MS), ("s", _SECOND_MS)):
        if duration_ms >= of_unit and duration_ms % of_unit == 0 and duration_ms < 1_000 * of_unit:
            return f"{duration_ms // of_unit} {unit}"
    return person_ms(duration_ms)


def person_pair_ms(one_ms: float | None, other_ms: float | None) -> str:
    """Two durations to compare, `95 / 96 ms`: a common unit is written once; `-` for an unknown one."""
    one, other = or_dash(one_ms, person_ms), or_dash(other_ms, person_ms)
    number, _, unit = one.rpartition(" ")
    return f"{number} / {other}" if unit and other.endswith(f" {unit}") else f"{one} / {other}"


def counted(count: int, noun: str, nouns: str = "") -> str:
    """`1 bucket`, `1,200 buckets`."""
    return f"1 {noun}" if count == 1 else f"{count:,} {nouns or noun + 's'}"


def person_count(count: int) -> str:
    """A count as `2,564`: counts are exact."""
    return f"{count:,}"


def person_percent(percent: float | None) -> str:
    """A percentage as `103.2 %`; `-` without a limit. Decimals only below 200 %: they matter near the limit."""
    if percent is None:
        return "-"
    return f"{percent:.1f} %" if percent < 200 else f"{percent:,.0f} %"


def person_name(name: str | None) -> str:
    """A user or client id; an empty one is quoted, so that it differs from a missing column."""
    return "-" if name is None else name or '""'


def rate_text(quota_type: str, rate: float | None) -> str:
    """A rate as `1.2 MB/s`, `25.5 %` (of a thread) or `5/s`; `none` without a limit."""
    if rate is None or quota_type in BANDWIDTH:
        return person_rate(rate)
    return f"{rate:,.4g} %" if quota_type == QuotaType.REQUEST else f"{rate:,.4g}/s"


def quota_text(key: QuotaKey, value: float | None) -> str:
    """A quota as `300 kB/s`, in the unit of its key, per broker; `not set` without a value."""
    return "not set" if value is None else rate_text(_TYPES[key], value)


def quota_texts(key: QuotaKey, *values: float | None) -> list[str]:
    """`quota_text` of values to compare in one sentence; exact if rounding would make two different ones equal."""
    texts = [quota_text(key, value) for value in values]
    if len(set(texts)) == len(set(values)):
        return texts
    unit = " B/s" if _TYPES[key] in BANDWIDTH else " %" if _TYPES[key] == QuotaType.REQUEST else "/s"
    return ["not set" if value is None else f"{value:,.17g}{unit}" for value in values]


def amount_text(quota_type: str, amount: int) -> str:
    """An amount as `1.2 MB`, `95 ms` (of threads), or a number of partitions."""
    if quota_type in BANDWIDTH:
        return person_bytes(amount)
    return person_ms(amount / 1_000) if quota_type == QuotaType.REQUEST else f"{amount:,}"


def type_text(quota_type: str) -> str:
    """The short name of a quota type."""
    return quota_type.removeprefix("controller_")


def broker_text(broker_id: int) -> str:
    """The broker's id, or `ctl` for the active controller."""
    return "ctl" if broker_id < 0 else str(broker_id)


def bucket_text(user: str, client_id: str, tags: str | None) -> str:
    """A bucket as `user alice`, `client etl` or `alice / etl`.

    With a quota callback of the cluster, it is the callback's own tags (from a JSON object), e.g. `group pay`.
    """
    if tags:
        named: dict[str, str] = json.loads(tags)
        return ", ".join(f"{name} {value}" for name, value in named.items()) or "no tags"
    if user and client_id:
        return f"{user} / {client_id}"
    return f"user {user}" if user else f"client {person_name(client_id)}"
