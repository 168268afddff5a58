"""`kquota timeline`: one client's use of its quota, its limit, and all that happened to it, on one axis."""

from __future__ import annotations

import argparse

from kquota_spark.cli.look.timeline_page import (
    TIMELINE_COLUMNS,
    TIMES,
    envelope,
    print_timeline,
    rows_of,
    who_text,
)
from kquota_spark.cli.options.options import (
    TYPES,
    Since,
    add_output_options,
    add_settings_options,
    limit_of,
    settings_of,
    time_argument,
    whole_number,
)
from kquota_spark.cli.text.page import Page
from kquota_spark.cli.text.render import Report, show
from kquota_spark.cli.text.timeline_chart import MOST_SLOTS, slots_in
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.timeline_slots import Identity
from kquota_spark.reports.timeline.timeline import timeline
from kquota_spark.store.reading import Tables, utc_text

_HOUR_MS = 3_600_000
_CLUSTERS = "select cluster_id from decisions union select cluster_id from usage order by 1"


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `timeline`."""
    parser = subparsers.add_parser("timeline")
    add_settings_options(parser)
    parser.add_argument("--user", metavar="NAME", help="the user; with --client-id that client of it")
    parser.add_argument("--client-id", metavar="ID", help="the client id")
    parser.add_argument("--type", choices=TYPES, help="quota type (default the one with the most throttling)")
    parser.add_argument("--broker", type=whole_number, metavar="ID", help="broker (default likewise)")
    parser.add_argument(
        "--since",
        type=time_argument,
        metavar="T",
        help="from then on: 30s, 10m, 2h, 1d ago, an ISO time in UTC, or epoch milliseconds (default an hour)",
    )
    parser.add_argument(
        "--until",
        type=time_argument,
        metavar="T",
        help="until then (default the newest second of the tables)",
    )
    add_output_options(parser)
    parser.set_defaults(run=run_timeline)


def run_timeline(options: argparse.Namespace) -> int:
    """Show it.

    Raises:
        UserError: nobody is named, the stretch is empty, or the tables cannot be read.
    """
    if options.user is None and options.client_id is None:
        raise UserError("timeline: of whom? give --user NAME, --client-id ID, or both")
    settings = settings_of(options)
    page = Page()
    with Tables(settings) as tables:
        stretch = _stretch(tables, options.since, options.until)
        who = Identity(options.user, options.client_id, _cluster(tables, settings))
        found = timeline(
            tables,
            who,
            stretch,
            broker_id=options.broker,
            quota_type=options.type,
            most_slots=slots_in(page.columns) if options.output == "table" else MOST_SLOTS,
            is_clipped=options.since is None,
        )
    if options.output == "table" and found is not None:
        print_timeline(found, limit_of(options), page)
    elif options.output == "table":
        page.paragraph("", terminal_text(_nobody(who, stretch, options.type, options.broker)), indent=0)
    else:
        rows = [] if found is None else rows_of(found, limit_of(options))
        beside = {} if found is None else envelope(found)
        show(
            Report("kquota timeline", TIMELINE_COLUMNS, rows, (), times=TIMES, envelope=beside),
            options.output,
        )
    return 0


def _stretch(tables: Tables, since: Since | None, until: Since | None) -> Period:
    """As asked for; else up to the newest second, from an hour before on."""
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
    """The settings' cluster where the tables hold several; None where it is the only one, whatever its name."""
    held = [name for (name,) in tables.query(_CLUSTERS).rows]
    if len(held) < 2:
        return None
    if settings.cluster_id not in held:
        names = terminal_text(", ".join(held))
        raise UserError(
            f"the tables under {settings.tables} hold {names}: set cluster_id to one of them (--config)"
        )
    return settings.cluster_id


def _nobody(who: Identity, stretch: Period, quota_type: str | None, broker_id: int | None) -> str:
    of_type = f" of type {quota_type}" if quota_type else ""
    on = f" on broker {broker_id}" if broker_id is not None else ""
    return (
        f"{who_text(who)} was never seen{of_type}{on} from {utc_text(stretch.from_ms)} to {utc_text(stretch.to_ms)}: "
        "no decision and no usage names it; --since looks further back"
    )
