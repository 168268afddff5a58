"""`kquota timeline`: one client's use of its quota, its limit, and the events around it, on one time axis."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kquota_spark.cli.near_names import meant, who_text
from kquota_spark.cli.options import TIME_FORMS, PeriodOptions, Since, only
from kquota_spark.cli.question import Asked, Found, Question
from kquota_spark.cli.read.timeline_page import print_chart, who_line
from kquota_spark.cli.text.page import Page, columns_of
from kquota_spark.cli.text.render import Row
from kquota_spark.cli.text.timeline_chart import MOST_SLOTS, letter_of, slots_in
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.timeline_slots import Identity
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
_CLUSTERS = "select cluster_id from decisions union select cluster_id from usage order by 1"


def _options(parser: argparse.ArgumentParser) -> None:
    only(
        user="the user; with --client-id that client of it",
        client_id="the client id",
        type="quota type (default the one with the most throttling)",
        broker="broker (default likewise)",
    )(parser)
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
        page.paragraph("", terminal_text(who_line(found)), indent=2)
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
