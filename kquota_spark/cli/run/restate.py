"""`kquota restate`: recomputes a closed stretch of time; starts Spark in this process."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec

from kquota_spark.cli.options.options import add_settings_options, settings_of, time_argument
from kquota_spark.errors import UserError
from kquota_spark.store.reading import utc_text


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `restate`."""
    restate = subparsers.add_parser(
        "restate",
        description="Recompute usage, decisions and violations of a closed stretch from requests, with the quotas "
        "that are known now. May run beside the audit; needs Spark, like spark-submit jobs/restate.py.",
    )
    add_settings_options(restate)
    time_form = "30s, 10m, 2h, 1d ago, an ISO time in UTC, or epoch milliseconds"
    restate.add_argument(
        "--from", dest="start", type=time_argument, required=True, metavar="T", help=time_form
    )
    restate.add_argument(
        "--to", dest="end", type=time_argument, required=True, metavar="T", help="exclusive; likewise"
    )
    restate.set_defaults(run=run_restate)


def run_restate(options: argparse.Namespace) -> int:
    """Restate, and say what was done.

    Raises:
        UserError: the stretch is not closed, Spark is not there, a table cannot be read or written.
    """
    if find_spec("pyspark") is None:
        raise UserError(
            "restate needs Spark: pip install 'kquota-spark[spark]', or spark-submit jobs/restate.py"
        )
    from kquota_spark.audit.past.restate import run_restate as run

    done = run(settings_of(options), options.start.time_ms, options.end.time_ms)
    print(
        f"restated {utc_text(done.from_ms)} to {utc_text(done.to_ms)}: {done.usage_rows:,} rows of usage; "
        f"{done.decision_rows:,} of decisions, through {utc_text(done.decisions_to_ms)}"
    )
    if done.cold_buckets:
        print(
            f"{done.cold_buckets:,} buckets were in use without a pause for a day before: their samples may have "
            "opened elsewhere, and rates may differ a little from what the broker measured",
            file=sys.stderr,
        )
    if done.unsettled_buckets:
        print(
            f"{done.unsettled_buckets:,} buckets have not paused since: the audit goes on with samples that lack "
            "the late requests; restate once more when they have",
            file=sys.stderr,
        )
    return 0
