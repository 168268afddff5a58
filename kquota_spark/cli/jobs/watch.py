"""`kquota watch`: keeps the quota tables up to date without the job."""

from __future__ import annotations

import argparse
import sys

from kquota_spark.cli.options import add_settings_options, settings_of
from kquota_spark.errors import UserError

COMMANDS = {
    "watch": (
        "programs",
        "follow the quotas into quota_changes and quota_rules (the audit job does that itself)",
        "kquota watch",
        "kquota watch --once",
    ),
}

_CHECK_S = 0.5


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `watch`."""
    command = subparsers.add_parser(
        "watch",
        description="Follow the quotas into the tables quota_changes and quota_rules, until stopped. The "
        "audit job does that itself: use this to start the history of quotas before the first audit.",
    )
    add_settings_options(command)
    command.add_argument("--once", action="store_true", help="write what is set now, then end")
    command.add_argument(
        "--accept-removal",
        action="store_true",
        help="believe it that most quotas have vanished, or that nodes are older than recorded",
    )
    command.set_defaults(run=watch)


def watch(options: argparse.Namespace) -> int:
    """Run until a signal stops it, or once.

    Raises:
        UserError: the source or the tables cannot be read or written.
    """
    from kquota_spark.kafka.broker_configs import BrokerConfigs
    from kquota_spark.process.clock import now_ms
    from kquota_spark.process.graceful_stop import stop_event
    from kquota_spark.quotas.sources import require_source
    from kquota_spark.quotas.watch import Watcher

    settings = settings_of(options, "tables", "kafka", "quotas")
    if options.once:
        require_source(settings)
    if options.accept_removal:
        settings = settings.changed(quotas=settings.quotas.changed(accept_mass_removal=True))
    stopped = stop_event()
    watcher = Watcher(settings)
    brokers = BrokerConfigs(settings, now_ms)
    watcher.start()
    try:
        if options.once and watcher.is_stale:
            raise UserError("nothing was written: the source of the quotas does not answer")
        if not options.once and watcher.is_following:
            for finding in brokers.ask():
                print(f"warning: {finding.evidence}: {finding.advice}", file=sys.stderr)
            brokers.start()
            print(f"watching the quotas of {settings.cluster_id}; stop with Ctrl-C", file=sys.stderr)
            while not stopped.wait(_CHECK_S):
                watcher.check()
                brokers.check()
    finally:
        brokers.stop()
        watcher.stop()
    return 0
