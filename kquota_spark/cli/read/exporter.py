"""`kquota exporter`: usage, limits and throttles of quota buckets for Prometheus, from the tables."""

from __future__ import annotations

import argparse
import io
import sys
import time
from typing import TYPE_CHECKING

from kquota_spark.cli.options import add_settings_options, length_argument, settings_of, whole_number
from kquota_spark.errors import UserError
from kquota_spark.process.clock import now_ms
from kquota_spark.process.notices import notices_of

if TYPE_CHECKING:
    from kquota_spark.reports.exported.tables import ExportedTables

COMMANDS = {
    "exporter": (
        "programs",
        "usage, limits and throttles of quota buckets for Prometheus, from the tables",
        "kquota exporter --port 9404",
        "kquota exporter --once",
    ),
}

_PORT = 9192
_MOST_PORT = 65_535
_MAX_SERIES = 500
_INTERVAL_MS = 15_000

_notice = notices_of("exporter")


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `exporter`."""
    parser = subparsers.add_parser(
        "exporter",
        description="Answers /metrics with what the tables say of each quota bucket, until stopped. Needs no Spark;"
        " the audit job has an endpoint of its own about itself (metrics.port).",
    )
    add_settings_options(parser)
    parser.add_argument(
        "--port", type=port_argument, default=_PORT, metavar="N", help=f"to listen on (default {_PORT})"
    )
    parser.add_argument(
        "--address",
        default="127.0.0.1",
        metavar="IP",
        help="to listen on, 0.0.0.0 for all of this machine; there is no login (default 127.0.0.1)",
    )
    parser.add_argument(
        "--max-series",
        type=_positive,
        default=_MAX_SERIES,
        metavar="N",
        help="buckets with series of their own, by use; all others are one sum a quota type"
        f" (default {_MAX_SERIES})",
    )
    parser.add_argument(
        "--interval",
        type=length_argument,
        default=_INTERVAL_MS,
        metavar="T",
        help="how often to read the tables (default 15s)",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="print what a scrape would have said at the newest decision, then end; counters begin at 0",
    )
    parser.set_defaults(run=run_exporter)


def run_exporter(options: argparse.Namespace) -> int:
    """Answer scrapes until stopped, or print one.

    Raises:
        UserError: the address cannot be listened on; with --once, the tables cannot be read.
    """
    from kquota_spark.process.graceful_stop import StopRequest
    from kquota_spark.process.metrics import exposition, metrics_endpoint
    from kquota_spark.reports.exported.tables import ExportedTables
    from kquota_spark.store.reading import open_tables

    settings = settings_of(options, "tables")
    exported = ExportedTables(settings, options.max_series)
    if options.once:
        # A service may start before the audit. One scrape of nothing is a mistake in the path.
        open_tables(settings, "decisions").close()
        _print_one(exported)
        return 0
    stop = StopRequest(_notice)
    exposed = exported.exposed(now_ms())

    def scrape() -> str:
        # The result of the last check, replaced as a whole: a scrape does not wait, and never gets half a result.
        return exposition(exposed.at(now_ms()))

    with metrics_endpoint(options.address, options.port, scrape, setting="--port") as port:
        _notice(f"answering http://{options.address}:{port}/metrics; stop with Ctrl-C")
        wait_s = 0.0
        while not stop.wait(wait_s):
            began_s = time.monotonic()
            _refresh(exported)
            exposed = exported.exposed(now_ms())
            wait_s = max(0.0, options.interval / 1_000 - (time.monotonic() - began_s))
    stop.end()
    return 0


def _refresh(exported: ExportedTables) -> None:
    began_s, at_ms, is_failed = time.monotonic(), now_ms(), False
    try:
        exported.refresh(at_ms)
    except UserError as error:
        is_failed = True
        _notice(f"{error}; what was there before is shown for five minutes")
    exported.count_refresh(at_ms, time.monotonic() - began_s, is_failed=is_failed)


def _print_one(exported: ExportedTables) -> None:
    from kquota_spark.process.metrics import exposition

    began_s = time.monotonic()
    exported.refresh(now_ms())
    at_ms = exported.newest_decision_ms or now_ms()
    exported.count_refresh(at_ms, time.monotonic() - began_s, is_failed=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # the format requires UTF-8, whatever the locale
    print(exposition(exported.exposed(at_ms).at(at_ms)), end="")


def port_argument(text: str) -> int:
    """A port, as a type of argparse."""
    port = whole_number(text)
    if port > _MOST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a port: 1 to {_MOST_PORT}, 0 for any free one")
    return port


def _positive(text: str) -> int:
    number = whole_number(text)
    if number == 0:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number above 0")
    return number
