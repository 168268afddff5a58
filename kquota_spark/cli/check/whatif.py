"""`kquota whatif`: the throttles that other quotas would have given to the recorded traffic."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kquota_spark.cli.check.whatif_table import print_chart, program_report, rows_of, table
from kquota_spark.cli.chosen.quota_source import added_quotas, governor_of
from kquota_spark.cli.options import (
    Since,
    add_output_options,
    add_settings_options,
    add_time_option,
    limit_of,
    settings_of,
)
from kquota_spark.cli.text.render import show
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import type_text
from kquota_spark.model.quotas.entities import DEFAULT, Default, Entity
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaType
from kquota_spark.model.quotas.rules import with_values
from kquota_spark.process.notices import notice
from kquota_spark.quotas.any_file import require_text
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.config.settings import Settings
    from kquota_spark.reports.clients.what_if import WhatIf

COMMANDS = {
    "whatif": (
        "answers",
        "which throttles other quotas would have given to the traffic in the tables",
        "kquota whatif --add user=bob,producer_byte_rate=250kB/s --since 2h",
        "kquota whatif --quotas quotas.yaml --since 1d",
    ),
}

_DEFAULT_PERIOD_MS = 3_600_000
_SLOW_REQUESTS = 50_000
"""Requests above which progress is printed; judging them twice takes about a second."""


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
    base = history
    if options.quotas is not None:
        base = from_file(options.quotas)
        if options.quotas.is_file():  # a pipe can be read only once
            require_text(options.quotas.read_text("utf-8"), str(options.quotas))
    added = added_quotas(options.add)
    book = with_values(base.book, added)
    tried = dataclasses.replace(base, book=book, leaders=history.leaders)
    from_ms, to_ms = _period(settings, options.since, options.until)
    with governor_of(settings, history) as before, governor_of(settings, tried) as after:
        found = what_if(settings, before, after, from_ms, to_ms, progress=_progress)
    _require_requests(found, added)
    limit = limit_of(options)
    of_all = [rows_of(each) for each in found.differences]
    if options.output != "table":
        rows = [row for of_bucket in of_all[:limit] for row in of_bucket]
        show(program_report(found, rows), options.output)
        return 0
    shown = [of_bucket for of_bucket in of_all if of_bucket[0]["is_changed"] or limit is None][:limit]
    show(table(found, shown, of_all), options.output)
    print_chart([of_bucket for of_bucket in shown if of_bucket[0]["is_changed"]])
    return 0


def _require_requests(found: WhatIf, added: Mapping[Entity, Mapping[AnyKey, float]]) -> None:
    """Refuse a quota of a client without requests in the period: the answer would be that nothing changes.

    Raises:
        UserError: no request matches an added quota, or its thread time was not measured.
    """
    for entity, values in added.items():
        types = {quota_type for quota_type in QuotaType if quota_type.key in values}
        matching = {
            quota_type
            for quota_type, user, client_id in found.clients
            if entity.user in (None, DEFAULT, user) and entity.client_id in (None, DEFAULT, client_id)
        }
        name, period = (
            terminal_text(_name(entity)),
            f"from {utc_text(found.from_ms)} to {utc_text(found.to_ms)}",
        )
        if not found.requests or not types or types & matching:
            continue
        if types == {QuotaType.REQUEST} and matching:
            raise UserError(
                f"the thread time of {name} was not measured {period}: the audit measures it only for clients with a "
                f"request_percentage; set one on the cluster, a high one throttles nobody, and ask again an hour later"
            )
        kinds = f"{' or '.join(sorted(map(type_text, types)))} " if matching else ""
        raise UserError(f"no {kinds}request of {name} {period}")


def _name(entity: Entity) -> str:
    parts = (("user", entity.user), ("client id", entity.client_id))
    names = (
        f"{part} {name.value if isinstance(name, Default) else name}"
        for part, name in parts
        if name is not None
    )
    return ", ".join(names)


def _period(settings: Settings, since: Since | None, until: Since | None) -> tuple[int, int]:
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
    from_ms = to_ms - _DEFAULT_PERIOD_MS if since is None else since.time_ms
    if from_ms >= to_ms:
        raise UserError(f"--since {utc_text(from_ms)}: not before the end, {utc_text(to_ms)}")
    return from_ms, to_ms


def _progress(requests: int) -> None:
    if requests > _SLOW_REQUESTS:
        notice(f"judging {requests:,} requests under both quotas")
