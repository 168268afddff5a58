"""A timeline for people, and as rows for programs."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kquota_spark.cli.options.listing import bucket_text, counted, rule_text
from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.cli.text.render import Row
from kquota_spark.cli.text.timeline_chart import ASCII, BLOCKS, chart, far_limits, letters, marks, time_axis
from kquota_spark.formats.text.escape import cut, terminal_text
from kquota_spark.formats.text.person_units import (
    broker_text,
    clock_time,
    person_ms,
    person_name,
    person_span,
    rate_text,
    type_text,
)
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.scope.timeline_slots import Identity, Place
from kquota_spark.reports.timeline.timeline import Timeline
from kquota_spark.reports.timeline.timeline_events import Event
from kquota_spark.store.reading import utc_text

TIMELINE_COLUMNS = (
    "row", "time", "until", "letter", "rate_per_s", "limit_per_s", "rule", "quota_used_percent", "throttled_ms",
    "throttled_requests", "requests", "seconds", "is_certain", "source", "is_muted", "kind", "what", "before", "after",
    "by",
)  # fmt: skip
"""A slot has the columns up to `is_muted`, an event `letter` and those from `kind` on."""
TIMES = frozenset({"time", "until"})
_LETTERS = string.ascii_uppercase + string.ascii_lowercase
_MOST_TEXT = 200
_MOST_NAME = 40
_DAY_MS = 86_400_000


def who_text(who: Identity) -> str:
    """`alice / etl`, `user alice` or `client etl`; not escaped."""
    if who.user is not None and who.client_id is not None:
        return f"{person_name(who.user)} / {person_name(who.client_id)}"
    return f"user {person_name(who.user)}" if who.user is not None else f"client {person_name(who.client_id)}"


def _lettered(found: Timeline, limit: int | None) -> list[tuple[str, Event]]:
    """The first events with their letters; no more than there are letters, in a chart."""
    return list(zip(_LETTERS, found.events[:limit], strict=False))


def rows_of(found: Timeline, limit: int | None) -> Sequence[Row]:
    """Slots, then events."""
    blank = dict.fromkeys(TIMELINE_COLUMNS)
    slots = [
        {
            **blank,
            **asdict(slot),
            "row": "slot",
            "time": slot.from_ms,
            "until": slot.from_ms + found.length_ms,
        }
        for slot in found.slots
    ]
    names = dict(enumerate(_LETTERS))
    events = [
        {
            **blank,
            **asdict(event),
            "row": "event",
            "letter": names.get(number),
            "time": event.time_ms,
            "until": event.until_ms,
        }
        for number, event in enumerate(found.events)
    ]
    return [*slots, *events][:limit]


def envelope(found: Timeline) -> dict[str, Any]:
    """What JSON says beside the rows."""
    return {
        "user": found.who.user,
        "client_id": found.who.client_id,
        **found.place._asdict(),
        "buckets": [key._asdict() for key in found.keys],
        "slot_ms": found.length_ms,
        "elsewhere": [{**place._asdict(), "throttled_ms": ms} for place, ms in found.elsewhere],
    }


def print_timeline(found: Timeline, limit: int | None, page: Page) -> None:
    """The page."""
    page.paragraph("", terminal_text(_who_line(found)), indent=2)
    print_chart(found, limit, page)


def print_chart(found: Timeline, limit: int | None, page: Page) -> None:
    """The page without its first line, which says whose it is; the slots must fit beside the axis."""
    quota_type = found.place.quota_type
    for line in _head(found):
        page.paragraph("", terminal_text(line), indent=2)
    page.line()
    strokes = BLOCKS if page.has(BLOCKS.all()) else ASCII
    for line in chart(found.slots, strokes, lambda value: rate_text(quota_type, value)):
        page.line(line)
    page.line(time_axis(found.from_ms, found.length_ms, len(found.slots)), Tone.FAINT)
    gaps = [event for event in found.events if event.kind == "gap"]
    for line in marks(found.slots, gaps, found.length_ms, strokes):
        page.line(line, Tone.BAD)
    shown = _lettered(found, limit)
    for line in letters(shown, found.from_ms, found.length_ms, len(found.slots), strokes.edge):
        page.line(line, Tone.TITLE)
    page.line()
    with_day = len({event.time_ms // _DAY_MS for _, event in shown}) > 1
    for letter, event in shown:
        label = f"{letter} {clock_time(event.time_ms, with_day=with_day)}  "
        page.paragraph(
            label,
            _event_text(event, quota_type),
            Tone.BAD if event.kind == "violation" else None,
            indent=len(label),
        )
    if len(found.events) > len(shown):
        more = counted(len(found.events) - len(shown), "event")
        page.paragraph("", f"and {more} more: --output json, or a shorter period", indent=0)
    for line in _foot(found):
        page.paragraph("", terminal_text(line), Tone.FAINT, indent=0)


def _who_line(found: Timeline) -> str:
    buckets = ", then ".join(_key_text(key) for key in found.keys[:3])
    bucket = f"bucket {buckets}" if buckets else "no bucket"
    return f"{who_text(found.who)}: {_place_text(found.place)}, {bucket}"


def _head(found: Timeline) -> Iterator[str]:
    to_ms = found.from_ms + found.length_ms * len(found.slots)
    column = f"a column is {person_span(found.length_ms)}: its highest rate"
    yield f"{utc_text(found.from_ms)} to {utc_text(to_ms)}, {column}"
    limits = {slot.limit_per_s for slot in found.slots if slot.source in ("log", "jmx")}
    far = [rate_text(found.place.quota_type, limit) for limit in sorted(far_limits(found.slots))]
    if far:
        yield f"the limit {', '.join(far)} is far above the picture"
    if not limits:
        yield "no quota governed it: no limit, and the rates are means of what it sent, from usage"
    elif limits == {None}:
        yield "no limit was in force; the rates are the broker's"


def _key_text(key: BucketKey) -> str:
    tags = {"bucket_user": key.user, "bucket_client_id": key.client_id, "bucket_tags": key.tags or None}
    return bucket_text(tags)


def _place_text(place: Place) -> str:
    on = "the active controller" if place.broker_id < 0 else f"broker {broker_text(place.broker_id)}"
    return f"{type_text(place.quota_type)} on {on}"


def _event_text(event: Event, quota_type: str) -> str:
    what = cut(terminal_text(event.what), _MOST_TEXT)
    by = "" if event.by is None else f" by {cut(terminal_text(event.by), _MOST_NAME)}"
    if not event.has_values:
        return f"{event.kind}{by}: {what}"
    values = f"{_value_text(event.before, quota_type)} -> {_value_text(event.after, quota_type)}"
    return f"{event.kind}: {values}{by}: {what}"


def _value_text(value: float | None, quota_type: str) -> str:
    return "not set" if value is None else rate_text(quota_type, value)


def _foot(found: Timeline) -> Iterator[str]:
    judged = [slot for slot in found.slots if slot.source == "log"]
    if judged:
        throttled = sum(slot.throttled_requests or 0 for slot in judged)
        together = person_ms(sum(slot.throttled_ms or 0 for slot in judged))
        requests = sum(slot.requests or 0 for slot in judged)
        yield f"{throttled:,} of {requests:,} requests throttled, total delay {together}"
    if any(slot.is_muted for slot in found.slots):
        yield "muted: no requests, because the last throttle still ran"
    if any(slot.source == "usage" for slot in found.slots) and judged:
        yield "light bars: no quota governed it then; the mean of what it sent, from usage"
    if found.left_out:
        others = ", ".join(_key_text(key) for key in found.left_out[:5])
        yield f"it is also in {counted(len(found.left_out), 'bucket')} more here: {others}; give --user and --client-id"
    if found.elsewhere:
        others = ", ".join(
            f"{_place_text(place)} (total delay {person_ms(ms)})" for place, ms in found.elsewhere[:5]
        )
        more = f" and {len(found.elsewhere) - 5} more" if len(found.elsewhere) > 5 else ""
        yield f"also seen: {others}{more}; --type and --broker choose"
    rules = {rule_text({"rule": slot.rule}) for slot in found.slots if slot.rule is not None}
    if rules:
        yield f"rules in force: {', '.join(sorted(rules))} (u/ user, c/ client id, * the default)"
