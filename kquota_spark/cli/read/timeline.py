"""`kquota timeline`: one client's use of its quota, its limit, and the events around it, on one time axis."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kquota_spark.cli.near_names import meant, who_text
from kquota_spark.cli.options import (
    TIME_FORMS,
    TYPES,
    PeriodOptions,
    Since,
    add_client_option,
    bucket_text,
    counted,
    rule_text,
    whole_number,
)
from kquota_spark.cli.question import Asked, Found, Question
from kquota_spark.cli.text.page import Page, Tone, columns_of
from kquota_spark.cli.text.render import Row
from kquota_spark.cli.text.timeline_chart import (
    ASCII,
    BLOCKS,
    MOST_SLOTS,
    chart,
    far_limits,
    letter_of,
    letters,
    marks,
    slots_in,
    time_axis,
)
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import cut, terminal_text
from kquota_spark.formats.text.person_units import (
    broker_text,
    clock_time,
    person_ms,
    person_span,
    rate_text,
    type_text,
)
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.timeline_slots import Identity, Place
from kquota_spark.reports.timeline.events import Event
from kquota_spark.reports.timeline.timeline import Timeline, timeline
from kquota_spark.store.reading import Tables, utc_text

COMMANDS = {
    "timeline": (
        "answers",
        "one client over time: its rate, its limit, its throttles, and who changed what",
        "kquota timeline --user alice --client-id etl",
        "kquota timeline --user bob --type fetch --since 2h",
    ),
}

_HOUR_MS = 3_600_000
_COLUMNS = (
    "row", "time", "until", "letter", "rate_per_s", "limit_per_s", "rule", "quota_used_percent", "delay_ms",
    "throttled_requests", "requests", "seconds", "is_certain", "source", "is_muted", "kind", "status", "what",
    "before", "after", "by", "entity", "planned_at", "approved_at", "seen_at", "in_force_at",
)  # fmt: skip
"""A slot has the columns up to `is_muted`; an event has `letter` and the columns from `kind`."""
_OF_CHANGE = ("planned_at", "approved_at", "seen_at", "in_force_at")
"""Columns with the times of a change; the attribute of an event has the suffix `_ms`."""
_TIMES = frozenset({"time", "until", *_OF_CHANGE})
_MOST_TEXT = 200
_MOST_NAME = 40
_DAY_MS = 86_400_000
_CLUSTERS = "select cluster_id from decisions union select cluster_id from usage order by 1"


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", metavar="NAME", help="the user; with --client-id that client of it")
    add_client_option(parser, "the client id")
    parser.add_argument("--type", choices=TYPES, help="quota type (default the one with the most throttling)")
    parser.add_argument("--broker", type=whole_number, metavar="ID", help="broker (default likewise)")
    parser.set_defaults(usage=parser.error)


def _client_id(options: argparse.Namespace) -> str | None:
    if options.user is None and options.client_id is None:
        options.usage("which client? add --user NAME, --client-id ID, or both")
    client_id: str | None = options.client_id
    return client_id


def _find(asked: Asked) -> Found:
    """The slots and events of one client.

    Raises:
        UserError: the period is empty, or the tables cannot be read.
    """
    tables, wanted = asked.tables, asked.wanted
    period = _period(tables, wanted.since, wanted.until)
    who = Identity(wanted.user, asked.own, _cluster(tables, asked.settings))
    found = timeline(
        tables,
        who,
        period,
        broker_id=wanted.broker,
        quota_type=wanted.type,
        most_slots=slots_in(columns_of()) if asked.is_for_people else MOST_SLOTS,
        is_clipped=wanted.since is None,
    )
    if found is None:
        nobody = _nobody(who, period, wanted.type, wanted.broker) + meant(tables, who.user, who.client_id)
        return Found(
            _COLUMNS, (), page=lambda page: page.paragraph("", terminal_text(nobody), indent=0), times=_TIMES
        )

    def print_all(page: Page) -> None:
        page.paragraph("", terminal_text(_who_line(found)), indent=2)
        print_chart(found, asked.limit, page)

    return Found(_COLUMNS, _rows(found, asked.limit), envelope=_envelope(found), page=print_all, times=_TIMES)


def _period(tables: Tables, since: Since | None, until: Since | None) -> Period:
    """The requested period; by default the hour up to the newest second."""
    for name in ("decisions", "usage"):
        if since is not None:
            tables.open(name, since.time_ms)
        elif until is not None:
            tables.open(name, until.time_ms - _HOUR_MS)
        else:
            tables.follow(name, _HOUR_MS)
    newest_ms = [tables.newest_ms(name) for name in ("decisions", "usage")]
    end_ms = max((ms + 1_000 for ms in newest_ms if ms is not None), default=None)
    if end_ms is None:
        raise UserError("the tables decisions and usage are empty: has the audit processed anything yet?")
    to_ms = end_ms if until is None else until.time_ms
    from_ms = to_ms - _HOUR_MS if since is None else since.time_ms
    if from_ms >= to_ms:
        raise UserError(
            f"nothing lies between {utc_text(from_ms)} and {utc_text(to_ms)}: the tables reach {utc_text(end_ms)}, "
            "give --since and --until"
        )
    return Period(from_ms, to_ms)


def _cluster(tables: Tables, settings: Settings) -> str | None:
    """The cluster of the settings if the tables contain several; None if they contain only one."""
    held = [name for (name,) in tables.query(_CLUSTERS).rows]
    if len(held) < 2:
        return None
    if settings.cluster_id not in held:
        names = terminal_text(", ".join(held))
        raise UserError(
            f"the tables under {settings.tables} hold {names}: set cluster_id to one of them (--config)"
        )
    return settings.cluster_id


def _nobody(who: Identity, period: Period, quota_type: str | None, broker_id: int | None) -> str:
    of_type = f" of type {quota_type}" if quota_type else ""
    on = f" on broker {broker_id}" if broker_id is not None else ""
    return (
        f"{who_text(who.user, who.client_id)} was never seen{of_type}{on} from {utc_text(period.from_ms)} to "
        f"{utc_text(period.to_ms)}: "
        "no decision and no usage names it; --since looks further back"
    )


def _rows(found: Timeline, limit: int | None) -> Sequence[Row]:
    """Rows of the slots, then of the events."""
    blank = dict.fromkeys(_COLUMNS)
    slots = [
        blank
        | asdict(slot)
        | {"row": "slot", "time": slot.from_ms, "until": slot.from_ms + found.length_ms}
        | {"delay_ms": slot.throttled_ms}
        for slot in found.slots
    ]
    events = [
        blank
        | asdict(event)
        | {name: getattr(event, f"{name}_ms") for name in _OF_CHANGE}
        | {"row": "event", "letter": letter_of(number), "time": event.time_ms, "until": event.until_ms}
        for number, event in enumerate(found.events)
    ]
    return [*slots, *events][:limit]


def _envelope(found: Timeline) -> dict[str, Any]:
    """Values of JSON beside the rows."""
    return {
        "user": found.who.user,
        "client_id": found.who.client_id,
        **found.place._asdict(),
        "buckets": [key._asdict() for key in found.keys],
        "slot_ms": found.length_ms,
        "elsewhere": [{**place._asdict(), "delay_ms": ms} for place, ms in found.elsewhere],
    }


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


def _who_line(found: Timeline) -> str:
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


QUESTION = Question(
    command="timeline",
    table=None,
    find=_find,
    options=_options,
    own=_client_id,
    has_agreement=False,
    period=PeriodOptions(
        f"from then on: {TIME_FORMS} (default an hour)",
        "until then (default the newest second of the tables)",
    ),
)
add_commands = QUESTION.add_to
