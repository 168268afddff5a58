"""`kquota enforce simulate`: the whole of enforcement against a simulated broker with faults, many times over."""

from __future__ import annotations

import argparse
import sys
import time

from kquota_spark.cli.options.options import add_form_option, whole_number
from kquota_spark.cli.text.render import Report, Shown, show
from kquota_spark.enforce.simulation.closed_loop import run
from kquota_spark.formats.text.escape import terminal_text

_SCENARIOS = 200
_EVERY_S = 2.0
_BROKEN_EXIT_CODE = 1


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `simulate`."""
    about = (
        "random clusters, clients, faults and crashes: is any promise of enforcement broken? Needs no cluster"
    )
    parser = commands.add_parser("simulate", help=about, description=f"{about}. Exit code 1 if one is.")
    parser.add_argument(
        "--scenarios",
        type=whole_number,
        default=_SCENARIOS,
        metavar="N",
        help=f"how many (default {_SCENARIOS})",
    )
    parser.add_argument(
        "--seed", type=whole_number, default=1, metavar="N", help="the only source of chance (default 1)"
    )
    add_form_option(parser)
    parser.set_defaults(run=run_simulate)


def run_simulate(options: argparse.Namespace) -> int:
    """Run the scenarios, and say what was done and what was broken."""
    summary = run(options.scenarios, options.seed, _Progress(options.scenarios).report)
    rows = [{"what": what, "kind": kind, "count": count} for what, kind, count in summary.rows()]
    shown = (
        Shown("what", lambda row: row["what"], is_text=True),
        Shown("kind", lambda row: row["kind"], is_text=True),
        Shown("count", lambda row: f"{row['count']:,}"),
    )
    report = Report(
        "kquota enforce simulate",
        ("what", "kind", "count"),
        rows,
        shown,
        footer="\n".join(f"broken in scenario {terminal_text(line)}" for line in summary.first_broken),
        envelope={"broken": list(summary.first_broken)},
    )
    show(report, options.output)
    return _BROKEN_EXIT_CODE if summary.broken else 0


class _Progress:
    """A line on stderr now and then, once that takes longer than a person waits."""

    def __init__(self, scenarios: int) -> None:
        self._scenarios = scenarios
        self._said_s = time.monotonic()

    def report(self, done: int) -> None:
        """Say how many are done, if it is time to."""
        if time.monotonic() - self._said_s > _EVERY_S:
            self._said_s = time.monotonic()
            print(f"{done:,} of {self._scenarios:,} scenarios", file=sys.stderr)
