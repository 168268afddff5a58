"""`kquota audit`: the audit job in this process, which starts Spark; `spark-submit jobs/audit.py` runs the same job."""

from __future__ import annotations

import argparse

from kquota_spark.checkpoints.checkpoints import JMX, LOG
from kquota_spark.cli.check.doctor import Counts, show_checks
from kquota_spark.cli.options import add_config_option, settings_of
from kquota_spark.config.settings import Settings
from kquota_spark.embedded.setup.spark import prepare_spark
from kquota_spark.process.check import require_java

COMMANDS = {
    "audit": (
        "programs",
        "the audit job, in a Spark on this machine",
        "kquota audit --config conf/kquota.yaml",
        "kquota audit --once",
    ),
}

_QUERIES = (LOG, JMX)
_USES = (
    "tables", "checkpoints", "storage_options", "kafka", "quotas", "broker", "stream", "metrics", "collect",
)  # fmt: skip


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `audit`."""
    audit = subparsers.add_parser(
        "audit",
        description="The audit job in a Spark on this machine, until stopped. The first run fetches the jars of Delta "
        "and Kafka. On a Spark cluster, spark-submit jobs/audit.py runs the same job.",
    )
    add_options(audit)
    audit.set_defaults(run=run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the job."""
    add_config_option(parser)
    parser.add_argument(
        "--only", choices=_QUERIES, action="append", help="run only this query; may be repeated"
    )
    parser.add_argument("--once", action="store_true", help="work through what is there, then end")
    parser.add_argument(
        "--drain", action="store_true", help="--once for input that has ended: close the last seconds too"
    )
    parser.add_argument(
        "--new-lineage",
        action="store_true",
        help="queries whose checkpoint is lost continue behind what their tables hold",
    )
    parser.add_argument(
        "--check-store",
        action="store_true",
        help="try tables and checkpoints from the driver and from tasks of Spark, then end",
    )


def run(options: argparse.Namespace) -> int:
    """Run the job until it ends.

    Raises:
        UserError: Spark, Java, a server, topic, table or jar is missing, or a query failed.
    """
    settings = settings_of(options, *_USES)
    prepare_spark("audit")
    if options.check_store:
        return _check_store(settings)
    from kquota_spark.audit.job import run_audit

    run_audit(
        settings,
        [name for name in _QUERIES if options.only is None or name in options.only],
        is_once=options.once,
        is_drained=options.drain,
        is_new_lineage=options.new_lineage,
    )
    return 0


def _check_store(settings: Settings) -> int:
    from kquota_spark.audit.spark import spark_session
    from kquota_spark.doctor.spark_trial import store_checks

    require_java()
    session = spark_session(settings, "kquota-check-store")
    try:
        checks = store_checks(settings, session)
        return show_checks("kquota audit --check-store", checks, "table", _store_verdict)
    finally:
        session.stop()


def _store_verdict(counts: Counts) -> str:
    return counts.text or "the store can be used from the driver and from tasks"
