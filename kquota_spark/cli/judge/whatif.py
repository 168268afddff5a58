"""`kquota whatif`: the throttles that other quotas would have given to the recorded traffic."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
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
from kquota_spark.formats.text.person_units import (
    iso_time,
    person_count,
    person_ms,
    person_percent,
    rate_text,
    type_text,
)
from kquota_spark.model.quotas.entities import DEFAULT, Default, Entity
from kquota_spark.model.quotas.quota_types import BANDWIDTH, AnyKey
from kquota_spark.model.quotas.rules import with_values
from kquota_spark.process.notices import say
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.config.settings import Settings
    from kquota_spark.reports.clients.what_if import Difference, Side, WhatIf

COMMANDS = {
    "whatif": (
        "answers",
        "which throttles other quotas would have given to the traffic in the tables",
        "kquota whatif --add user=alice,producer_byte_rate=2000000",
        "kquota whatif --quotas quotas.yaml --since 1d",
    ),
}

_SIDES = ("before", "after")
_DELAY, _REQUESTS, _TIME = "delay_ms", "throttled_requests", "time_throttled_s"
"""Figures by brokers under the recorded quotas; those by replay have names of their own, see `_by_replay`."""
_STRETCH_MS = 3_600_000
_SLOW_REQUESTS = 50_000
"""Requests above which progress is printed; judging them twice takes about two seconds."""
_NOTE = (
    "before ->: by brokers where they logged it; after: by replay of the recorded requests. Real clients send more "
    "under a higher limit and less under a lower one"
)
_LIMIT = "limit: the last in force, on each broker"
_SECONDS = "time throttled: seconds in which a throttle began or still ran"
_OPEN = (
    "more: clients would wait and send later, so the sum of the recorded requests has no meaning; fits: percent of the "
    "recorded bytes that the lower limit lets through while they arrive"
)
_UNKNOWN = "?, ?n: of n throttled fetches the throttle under another limit is not known"
_NO_BUCKET = "-: no value, the quotas do not make this bucket"
_COLUMNS = (
    "quota_type", "bucket_user", "bucket_client_id", "bucket_tags", "requests", "limit_before_per_s",
    "limit_after_per_s", "throttled_requests", "time_throttled_s", "delay_ms",
    "throttled_requests_by_replay", "throttled_requests_by_replay_after",
    "time_throttled_by_replay_s", "time_throttled_by_replay_after_s",
    "delay_by_replay_ms", "delay_by_replay_after_ms", "delay_by_replay_more_ms",
    "unknown_before", "unknown_after", "fits_percent", "is_changed", "is_lower",
)  # fmt: skip
"""Figures without `_after` are of the recorded quotas. Those by brokers are null where brokers logged none."""


def add_commands(commands: Any) -> None:
    """Add `whatif`."""
    parser = commands.add_parser("whatif")
    parser.add_argument("--quotas", type=Path, metavar="FILE", help="the quotas to try: a quotas.yaml")
    parser.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="QUOTA",
        help="try this on top of the file, or of the quotas that were in force: user=bob,producer_byte_rate=250000, "
        "or 250kB/s; may be repeated",
    )
    from_then = "from then on (default: an hour before the end): 10m, 2h ago, an ISO time in UTC"
    add_time_option(parser, "--since", about=from_then)
    add_time_option(parser, "--until", about="up to then (default: the newest second of the table usage)")
    add_settings_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run_whatif, usage=parser.error)


def run_whatif(options: argparse.Namespace) -> int:
    """Judge a period of usage under the quotas that were in force, and under those to try."""
    from kquota_spark.quotas.sources import from_file, from_tables
    from kquota_spark.reports.clients.what_if import what_if

    if options.quotas is None and not options.add:
        options.usage("no quotas to try: give --quotas FILE, or --add user=NAME,producer_byte_rate=N")
    settings = settings_of(options, "tables")
    history = from_tables(settings)
    settings = settings.changed(cluster_id=history.cluster_id or settings.cluster_id)
    base = history if options.quotas is None else from_file(options.quotas)
    added = added_quotas(options.add)
    book = with_values(base.book, added)
    tried = dataclasses.replace(base, book=book, leaders=history.leaders)
    from_ms, to_ms = _stretch(settings, options.since, options.until)
    with governor_of(settings, history) as before, governor_of(settings, tried) as after:
        found = what_if(settings, before, after, from_ms, to_ms, progress=_progress)
    _require_requests(found, added)
    limit = limit_of(options)
    rows = [_row(each) for each in found.differences]
    if options.output != "table":
        show(_report(found, rows[:limit], rows), options.output)
        return 0
    shown = [row for row in rows if row["is_changed"] or limit is None][:limit]
    show(_report(found, shown, rows), options.output)
    _print_chart([row for row in shown if row["is_changed"]])
    return 0


def _require_requests(found: WhatIf, added: Mapping[Entity, Mapping[AnyKey, float]]) -> None:
    """Refuse a quota of a client without requests in the period: the answer would be that nothing changes.

    Raises:
        UserError: no request matches an added quota.
    """
    for entity, values in added.items():
        types = {quota_type for quota_type in BANDWIDTH if quota_type.key in values}
        matching = {
            quota_type
            for quota_type, user, client_id in found.clients
            if entity.user in (None, DEFAULT, user) and entity.client_id in (None, DEFAULT, client_id)
        }
        if found.requests and types and not types & matching:
            kinds = f"{' or '.join(sorted(types))} " if matching else ""
            period = f"from {utc_text(found.from_ms)} to {utc_text(found.to_ms)}"
            raise UserError(f"no {kinds}request of {terminal_text(_name(entity))} {period}")


def _name(entity: Entity) -> str:
    parts = (("user", entity.user), ("client id", entity.client_id))
    names = (
        f"{part} {name.value if isinstance(name, Default) else name}"
        for part, name in parts
        if name is not None
    )
    return ", ".join(names)


def _stretch(settings: Settings, since: Since | None, until: Since | None) -> tuple[int, int]:
    """The first second and the end of the period, epoch ms."""
    from kquota_spark.store.reading import open_tables

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
        "delay_by_replay_more_ms": each.more_ms,
        **_logged(each),
        "fits_percent": each.fits_percent if each.is_lower else None,
        "is_changed": each.is_changed,
        "is_lower": each.is_lower,
    }


def _logged(each: Difference) -> dict[str, Any]:
    """The brokers' figures; null where they logged none."""
    logged = each.logged
    return {
        _REQUESTS: None if logged is None else logged.throttled_requests,
        _TIME: None if logged is None else logged.throttled_seconds,
        _DELAY: None if logged is None else logged.throttled_ms,
    }


def _by_replay(figure: str, when: str) -> str:
    """The name of the replay's figure under the recorded or the tried quotas: `delay_by_replay_after_ms`."""
    stem, unit = next(
        (figure.removesuffix(unit), unit) for unit in ("_ms", "_s", "") if figure.endswith(unit)
    )
    return f"{stem}_by_replay{'_after' if when == 'after' else ''}{unit}"


def _columns(when: str, side: Side | None) -> dict[str, Any]:
    """Columns of one side. All are null if the rules do not make the bucket; the limit is null if there is none."""
    return {
        f"limit_{when}_per_s": None if side is None else side.limit_per_s,
        _by_replay(_REQUESTS, when): None if side is None else side.throttled_requests,
        _by_replay(_TIME, when): None if side is None else side.throttled_seconds,
        _by_replay(_DELAY, when): None if side is None else side.throttled_ms,
        f"unknown_{when}": None if side is None else side.unknown,
    }


def _report(found: WhatIf, rows: list[dict[str, Any]], of_all: list[dict[str, Any]]) -> Report:
    before_ms, after_ms = (sum(each.throttled_ms[side] for each in found.differences) for side in (0, 1))
    logged = [each.logged.throttled_ms for each in found.differences if each.logged is not None]
    has_open = any(map(_is_open, rows))
    fits = (Shown("fits", _fits),) if has_open else ()
    return Report(
        command="kquota whatif",
        columns=_COLUMNS,
        rows=rows,
        shown=(
            Shown("type", lambda row: type_text(row["quota_type"]), is_text=True, keep=7),
            Shown("bucket", bucket_text, is_text=True, keep=16),
            Shown("limit", _limits, rank=3, note=_LIMIT),
            Shown("throttled requests", _requests, rank=5),
            Shown("time throttled", _seconds, rank=4, note=_SECONDS),
            Shown("total delay", _delays),
            *fits,
        ),
        footer="\n".join([_summary(found, rows, of_all), *_notes(rows, has_open=has_open)]),
        when_empty=_summary(found, rows, of_all)
        if of_all
        else f"no produce or fetch of {utc_text(found.from_ms)} to {utc_text(found.to_ms)} in the table usage",
        colour=_colour,
        envelope={
            "from": iso_time(found.from_ms), "to": iso_time(found.to_ms), "requests": found.requests,
            _DELAY: sum(logged) if logged else None,
            _by_replay(_DELAY, "before"): before_ms, _by_replay(_DELAY, "after"): after_ms,
        },
    )  # fmt: skip


def _summary(found: WhatIf, rows: list[dict[str, Any]], of_all: list[dict[str, Any]]) -> str:
    """How many buckets change, and the total delay before and after; none after where it has no meaning."""
    changed = [row for row in of_all if row["is_changed"]]
    shown = sum(row["is_changed"] for row in rows)
    change = f"{len(changed):,} of {counted(len(of_all), 'bucket')} change"
    parts = [change if changed else f"nothing changes in {counted(len(of_all), 'bucket')}"]
    if shown < len(changed):
        parts.append(f"{shown:,} shown (--limit 0 shows all)")
    elif changed and len(rows) < len(of_all):
        parts.append(f"{len(of_all) - len(changed):,} unchanged (--limit 0 shows them)")
    before_ms = sum(_before(row, _DELAY) or 0 for row in of_all)
    after = "more" if any(map(_is_open, of_all)) else person_ms(sum(map(_after_ms, of_all)))
    if any(row["unknown_after"] for row in changed):
        after = "?"
    period = f"{utc_text(found.from_ms)} to {utc_text(found.to_ms)}"
    delay = f"total delay {person_ms(before_ms)}" + (f" -> {after}" if changed else "")
    return f"{', '.join(parts)}; {found.requests:,} requests from {period}: {delay}"


def _after_ms(row: Row) -> int:
    """The total delay after; the brokers' own of a bucket that does not change."""
    return _figure(row, _DELAY, "after" if row["is_changed"] else "before")


def _notes(rows: list[dict[str, Any]], *, has_open: bool) -> Iterator[str]:
    """The legend of what the rows show."""
    yield _NOTE
    if has_open:
        yield _OPEN
    if any(row["unknown_before"] or row["unknown_after"] for row in rows):
        yield _UNKNOWN
    if any(row[_by_replay(_DELAY, when)] is None for row in rows for when in _SIDES):
        yield _NO_BUCKET


def _print_chart(changed: list[dict[str, Any]]) -> None:
    """Print the total delay of each bucket that changes, today and proposed, where both are known."""
    rows = [row for row in changed if not _is_open(row) and not row["unknown_after"]]
    if not any(_before(row, _DELAY) or _figure(row, _DELAY, "after") for row in rows):
        return
    page = Page()
    marks = DRAWN if page.has("".join(DRAWN)) else ASCII
    page.line()
    title = f"total delay: {marks.today} today, {marks.proposed} proposed, {marks.both} both in one place"
    page.paragraph("", title, Tone.TITLE, indent=0)
    drawn = [
        Dumbbell(page.possible(_chart_name(row)), _before(row, _DELAY), row[_by_replay(_DELAY, "after")])
        for row in rows
    ]
    for line in dumbbells(drawn, page.columns, marks, person_ms):
        page.line(line)


def _chart_name(row: Row) -> str:
    return terminal_text(f"{type_text(row['quota_type'])} {bucket_text(row)}")


def _pair(row: Row, text: Callable[[str], str]) -> str:
    """Before and after, or one text if they are equal; `-` for a side with rules that do not make this bucket."""
    before, after = ("-" if row[_by_replay(_DELAY, when)] is None else text(when) for when in _SIDES)
    return before if before == after or not row["is_changed"] else f"{before} -> {after}"


def _before(row: Row, name: str) -> int | None:
    """The figure before: the brokers' own where they logged it, else that of the replay."""
    logged: int | None = row[name]
    replayed: int | None = row[_by_replay(name, "before")]
    return replayed if logged is None else logged


def _figure(row: Row, name: str, when: str) -> int:
    return (_before(row, name) if when == "before" else row[_by_replay(name, "after")]) or 0


def _is_open(row: Row) -> bool:
    """Whether the recorded requests would have come later under a lower limit: their sum of delays has no meaning."""
    return bool(row["is_lower"] and row["delay_by_replay_after_ms"] > (row["delay_by_replay_ms"] or 0))


def _fits(row: Row) -> str:
    return person_percent(row["fits_percent"]) if _is_open(row) else ""


def _delays(row: Row) -> str:
    def text(when: str) -> str:
        if when == "after" and row["unknown_after"]:
            return "?"
        return "more" if when == "after" and _is_open(row) else person_ms(_figure(row, _DELAY, when))

    return _pair(row, text)


def _limits(row: Row) -> str:
    return _pair(row, lambda when: rate_text(row["quota_type"], row[f"limit_{when}_per_s"]))


def _requests(row: Row) -> str:
    def text(when: str) -> str:
        count, unknown = _figure(row, _REQUESTS, when), row[f"unknown_{when}"]
        return f"{count:,} ?{unknown:,}" if unknown else person_count(count)

    return _pair(row, text)


def _seconds(row: Row) -> str:
    def text(when: str) -> str:
        is_known = when == "before" or not row["unknown_after"]
        return f"{_figure(row, _TIME, when):,} s" if is_known else "?"

    return _pair(row, text)


def _colour(row: Row) -> Colour | None:
    if row["delay_by_replay_more_ms"] == 0:
        return None
    return Colour.RED if row["delay_by_replay_more_ms"] > 0 else Colour.YELLOW
