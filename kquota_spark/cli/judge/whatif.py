"""`kquota whatif`: the throttles that other quotas would have given to the recorded traffic."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kquota_spark.cli.chosen.quota_source import added_quotas, governor_of
from kquota_spark.cli.options import (
    Since,
    add_output_options,
    add_settings_options,
    add_time_option,
    bucket_text,
    counted,
    limit_of,
    settings_of,
)
from kquota_spark.cli.text.dumbbell import ASCII, DRAWN, Dumbbell, dumbbells
from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.cli.text.render import Colour, Report, Row, Shown, show
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import iso_time, person_count, person_ms, rate_text, type_text
from kquota_spark.model.quotas.rules import with_values
from kquota_spark.process.notices import say

if TYPE_CHECKING:
    from kquota_spark.config.settings import Settings
    from kquota_spark.reports.clients.what_if import Difference, Side, WhatIf

COMMANDS = {
    "whatif": (
        "judge",
        "which throttles other quotas would have given to the traffic in the tables",
        "kquota whatif --add user=alice,producer_byte_rate=2000000",
        "kquota whatif --quotas quotas.yaml --since 1d",
    ),
}

_STRETCH_MS = 3_600_000
_SLOW_REQUESTS = 50_000
"""Requests above which progress is printed; judging them twice takes about two seconds."""
_NOTE = (
    "all figures are by replay, of the recorded requests: real clients send more under a higher limit and less under "
    "a lower one\n"
    "limit: the last in force, on each broker; throttled seconds: those with a throttle; ?n: throttled fetches whose "
    "throttle under another limit is not known; -: no value, the quotas do not make this bucket"
)
_COLUMNS = (
    "quota_type", "bucket_user", "bucket_client_id", "bucket_tags", "requests", "limit_before_per_s",
    "limit_after_per_s", "throttled_requests_before", "throttled_requests_after",
    "throttled_seconds_before", "throttled_seconds_after", "throttled_ms_before",
    "throttled_ms_after", "more_throttled_ms", "unknown_before", "unknown_after",
)  # fmt: skip


def add_commands(commands: Any) -> None:
    """Add `whatif`."""
    parser = commands.add_parser("whatif")
    parser.add_argument("--quotas", type=Path, metavar="FILE", help="the quotas to try: a quotas.yaml")
    parser.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="QUOTA",
        help="try this on top of the file, or of the quotas that were in force: user=bob,producer_byte_rate=250000; "
        "may be repeated",
    )
    from_then = "from then on (default: an hour before the end): 10m, 2h ago, an ISO time in UTC"
    add_time_option(parser, "--since", about=from_then)
    add_time_option(parser, "--until", about="up to then (default: the newest second of the table usage)")
    add_settings_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run_whatif)


def run_whatif(options: argparse.Namespace) -> int:
    """Judge a period of usage under the quotas that were in force, and under those to try."""
    from kquota_spark.quotas.sources import from_file, from_tables
    from kquota_spark.reports.clients.what_if import what_if

    if options.quotas is None and not options.add:
        raise UserError("no quotas to try: give --quotas FILE, or --add user=NAME,producer_byte_rate=N")
    settings = settings_of(options, "tables")
    history = from_tables(settings)
    settings = settings.changed(cluster_id=history.cluster_id or settings.cluster_id)
    base = history if options.quotas is None else from_file(options.quotas)
    book = with_values(base.book, added_quotas(options.add))
    tried = dataclasses.replace(base, book=book, leaders=history.leaders)
    from_ms, to_ms = _stretch(settings, options.since, options.until)
    with governor_of(settings, history) as before, governor_of(settings, tried) as after:
        found = what_if(settings, before, after, from_ms, to_ms, progress=_progress)
    limit = limit_of(options)
    rows = [_row(each) for each in found.differences]
    show(_report(found, rows[:limit], len(rows)), options.output)
    if options.output == "table":
        _print_chart(rows[:limit])
    return 0


def _stretch(settings: Settings, since: Since | None, until: Since | None) -> tuple[int, int]:
    """The first second and the end of the period, epoch ms."""
    from kquota_spark.store.reading import open_tables, utc_text

    if until is not None:
        to_ms = until.time_ms
    else:
        with open_tables(settings, "usage") as tables:
            newest_ms = tables.newest_ms("usage")
        if newest_ms is None:
            raise UserError(f"table usage under {settings.tables} is empty: there is nothing to judge")
        to_ms = newest_ms + 1_000
    from_ms = to_ms - _STRETCH_MS if since is None else since.time_ms
    if from_ms >= to_ms:
        raise UserError(f"--since {utc_text(from_ms)}: not before the end, {utc_text(to_ms)}")
    return from_ms, to_ms


def _progress(requests: int) -> None:
    if requests > _SLOW_REQUESTS:
        say(f"judging {requests:,} requests under both quotas")


def _row(each: Difference) -> dict[str, Any]:
    before, after = each.before, each.after
    tags = dict(each.bucket.custom_tags)
    return {
        "quota_type": each.quota_type.value,
        "bucket_user": each.bucket.user,
        "bucket_client_id": each.bucket.client_id,
        "bucket_tags": json.dumps(tags) if tags else None,
        "requests": max(side.requests for side in (before, after) if side is not None),
        **_columns("before", before),
        **_columns("after", after),
        "more_throttled_ms": each.more_ms,
    }


def _columns(when: str, side: Side | None) -> dict[str, Any]:
    """Columns of one side. All are null if the rules do not make the bucket; the limit is null if there is none."""
    return {
        f"limit_{when}_per_s": None if side is None else side.limit_per_s,
        f"throttled_requests_{when}": None if side is None else side.throttled_requests,
        f"throttled_seconds_{when}": None if side is None else side.throttled_seconds,
        f"throttled_ms_{when}": None if side is None else side.throttled_ms,
        f"unknown_{when}": None if side is None else side.unknown,
    }


def _report(found: WhatIf, rows: list[dict[str, Any]], count: int) -> Report:
    before_ms, after_ms = (sum(each.throttled_ms[side] for each in found.differences) for side in (0, 1))
    rest = "; there are more: --limit 0 shows all" if count > len(rows) else ""
    summary = (
        f"{counted(count, 'bucket')}, {found.requests:,} requests from {iso_time(found.from_ms)} to "
        f"{iso_time(found.to_ms)}: "
        f"total delay {person_ms(before_ms)} -> {person_ms(after_ms)}{rest}"
    )
    return Report(
        command="kquota whatif",
        columns=_COLUMNS,
        rows=rows,
        shown=(
            Shown("type", lambda row: type_text(row["quota_type"]), is_text=True, keep=7),
            Shown("bucket", bucket_text, is_text=True, keep=16),
            Shown("limit", _limits, rank=3),
            Shown("throttled requests", _requests, rank=4),
            Shown("throttled seconds", _seconds, rank=5),
            Shown("total delay", lambda row: _pair(row, lambda when: person_ms(row[f"throttled_ms_{when}"]))),
        ),
        footer=f"{summary}\n{_NOTE}",
        when_empty=f"no produce or fetch of {iso_time(found.from_ms)} to {iso_time(found.to_ms)} in the table usage",
        colour=_colour,
        envelope={
            "from": iso_time(found.from_ms), "to": iso_time(found.to_ms), "requests": found.requests,
            "throttled_ms_before": before_ms, "throttled_ms_after": after_ms,
        },
    )  # fmt: skip


def _print_chart(rows: list[dict[str, Any]]) -> None:
    """Print the total delay of each bucket, today and proposed. Prints nothing if no request is throttled."""
    if not any(row[f"throttled_ms_{when}"] for row in rows for when in ("before", "after")):
        return
    page = Page()
    marks = DRAWN if page.has("".join(DRAWN)) else ASCII
    page.line()
    title = f"total delay by replay: {marks.today} today, {marks.proposed} proposed, {marks.both} both in one place"
    page.paragraph("", title, Tone.TITLE, indent=0)
    drawn = [
        Dumbbell(page.possible(_chart_name(row)), row["throttled_ms_before"], row["throttled_ms_after"])
        for row in rows
    ]
    for line in dumbbells(drawn, page.columns, marks, person_ms):
        page.line(line)


def _chart_name(row: Row) -> str:
    return terminal_text(f"{type_text(row['quota_type'])} {bucket_text(row)}")


def _pair(row: Row, text: Callable[[str], str]) -> str:
    """Before and after, or one text if they are equal; `-` for a side with rules that do not make this bucket."""
    sides = ("before", "after")
    before, after = ("-" if row[f"throttled_ms_{when}"] is None else text(when) for when in sides)
    return before if before == after else f"{before} -> {after}"


def _limits(row: Row) -> str:
    return _pair(row, lambda when: rate_text(row["quota_type"], row[f"limit_{when}_per_s"]))


def _requests(row: Row) -> str:
    def text(when: str) -> str:
        count, unknown = row[f"throttled_requests_{when}"], row[f"unknown_{when}"]
        return f"{count:,} ?{unknown:,}" if unknown else person_count(count)

    return _pair(row, text)


def _seconds(row: Row) -> str:
    return _pair(row, lambda when: person_count(row[f"throttled_seconds_{when}"]))


def _colour(row: Row) -> Colour | None:
    if row["more_throttled_ms"] == 0:
        return None
    return Colour.RED if row["more_throttled_ms"] > 0 else Colour.YELLOW
