"""The page of a timeline: its chart, the events below it, and what else there is to know."""

from __future__ import annotations

from collections.abc import Iterator

from kquota_spark.cli.near_names import who_text
from kquota_spark.cli.options import bucket_text, rule_text
from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.cli.text.timeline_chart import (
    ASCII,
    BLOCKS,
    chart,
    far_limits,
    letter_of,
    letters,
    marks,
    time_axis,
)
from kquota_spark.formats.text.escape import cut, terminal_text
from kquota_spark.formats.text.person_units import (
    broker_text,
    clock_time,
    counted,
    person_ms,
    person_span,
    rate_text,
    type_text,
)
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.scope.timeline_slots import Place
from kquota_spark.reports.timeline.events import Event
from kquota_spark.reports.timeline.timeline import Timeline
from kquota_spark.store.reading import utc_text

_MOST_TEXT = 200
_MOST_NAME = 40
_DAY_MS = 86_400_000


def print_chart(found: Timeline, limit: int | None, page: Page) -> None:
    """Print the chart with its events; the slots must fit beside the axis."""
    quota_type = found.place.quota_type
    for line in _head(found):
        page.paragraph("", terminal_text(line), indent=2)
    page.line()
    strokes = BLOCKS if page.has("".join(BLOCKS)) else ASCII
    for line in chart(found.slots, strokes, lambda value: rate_text(quota_type, value)):
        page.line(line)
    page.line(time_axis(found.from_ms, found.length_ms, len(found.slots)), Tone.FAINT)
    gaps = [event for event in found.events if event.kind == "gap"]
    for line in marks(found.slots, gaps, found.length_ms, strokes):
        page.line(line, Tone.BAD)
    shown = [(letter_of(number), event) for number, event in enumerate(found.events[:limit])]
    for line in letters(shown, found.from_ms, found.length_ms, len(found.slots), strokes.edge):
        page.line(line, Tone.TITLE)
    page.line()
    with_day = len({event.time_ms // _DAY_MS for _, event in shown}) > 1
    longest = max((len(letter) for letter, _ in shown), default=0)
    for letter, event in shown:
        label = f"{letter:<{longest}} {clock_time(event.time_ms, with_day=with_day)}  "
        tone = Tone.BAD if event.kind == "violation" else None
        page.paragraph(label, _event_text(event, quota_type), tone, indent=len(label))
    if len(found.events) > len(shown):
        more = counted(len(found.events) - len(shown), "event")
        page.paragraph("", f"and {more} more: --output json, or a shorter period", indent=0)
    for line in _foot(found):
        page.paragraph("", terminal_text(line), Tone.FAINT, indent=0)


def who_line(found: Timeline) -> str:
    """The client, the place, and the buckets that it was in."""
    buckets = ", then ".join(_key_text(key) for key in found.keys[:3])
    bucket = f"bucket {buckets}" if buckets else "no bucket"
    return f"{who_text(found.who.user, found.who.client_id)}: {_place_text(found.place)}, {bucket}"


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
    status = "" if event.status in ("", "applied") else f" {event.status}"
    values = _values_text(event, quota_type)
    return f"{event.kind}{status}{by} {values}, {', '.join([what, *_times_of(event)])}"


def _times_of(event: Event) -> Iterator[str]:
    """The other times of a change; those in the event's own second are left out."""
    times = {
        "planned": event.planned_at_ms,
        "approved": event.approved_at_ms,
        "in force": event.in_force_at_ms,
        "seen by the watcher": event.seen_at_ms,
    }
    for name, time_ms in times.items():
        if time_ms is None:
            continue
        if time_ms // 1_000 != event.time_ms // 1_000:
            is_same_day = time_ms // _DAY_MS == event.time_ms // _DAY_MS
            yield f"{name} {clock_time(time_ms, with_day=not is_same_day)}"
        elif name == "in force":
            yield "in force at once"


def _values_text(event: Event, quota_type: str) -> str:
    """`200 -> 250 kB/s`: a common unit is written once."""
    before, after = (_value_text(value, quota_type) for value in (event.before, event.after))
    number, _, unit = before.rpartition(" ")
    is_common = event.before is not None and event.after is not None and unit == after.rpartition(" ")[2]
    return f"{number if is_common and number else before} -> {after}"


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
