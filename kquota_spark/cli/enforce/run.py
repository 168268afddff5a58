"""`kquota enforce run`: the enforcer in this process. `spark-submit jobs/enforce.py` runs the same job."""

from __future__ import annotations

import argparse
import os

from kquota_spark.cli.enforce.plan_page import event_line
from kquota_spark.cli.options import add_config_option, settings_of
from kquota_spark.cli.text.page import print_line
from kquota_spark.embedded.setup.spark import prepare_spark

_SUBMIT = "--driver-memory 1g pyspark-shell"
"""Heap of the JVM. Spark only reports new decisions, so little is enough."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `run`."""
    about = "the enforcer: plan, send and expire changes until stopped, as far as the policy file allows"
    parser = commands.add_parser(
        "run",
        help=about,
        description=f"{about}. It needs Spark and Java to hear of new decisions; --once needs neither. On a Spark "
        "cluster, spark-submit jobs/enforce.py runs the same job.",
    )
    add_options(parser)
    parser.set_defaults(run=run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the job."""
    add_config_option(parser)
    parser.add_argument("--once", action="store_true", help="check once, without Spark, then end; for cron")


def run(options: argparse.Namespace) -> int:
    """Run the enforcer until it is stopped, or once.

    Raises:
        UserError: Spark, Java, a server, a table or the policy file cannot be used.
    """
    from kquota_spark.enforcement.job import run_enforcement

    settings = settings_of(options, "tables", "checkpoints", "enforcement", "quotas", "kafka")
    if not options.once:
        os.environ.setdefault("PYSPARK_SUBMIT_ARGS", _SUBMIT)
        prepare_spark("enforce run")
    run_enforcement(settings, lambda entry: print_line(event_line(entry)), is_once=options.once)
    return 0
