"""`kquota demo`: a real Kafka on this machine, clients over their quotas, and the audit of them."""

from __future__ import annotations

import argparse
import os

COMMANDS = {
    "demo": (
        "programs",
        "a real Kafka, clients over their quotas, and the audit of them, in three minutes",
        "kquota demo --seconds 60",
    ),
}

_VARIABLES = {"seconds": "DEMO_SECONDS", "kind": "KIND", "kafka": "KAFKA", "source": "SOURCE"}


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `demo`."""
    demo = subparsers.add_parser(
        "demo",
        description="Starts a real Kafka with clients over their quotas and the audit beside it, for about three "
        "minutes. Everything is in .kquota/demo of the working directory, without what an earlier demo left there. "
        "Needs Spark and Java; the first run fetches the jars.",
    )
    demo.add_argument("--seconds", metavar="N", help="length of the load (default 150)")
    demo.add_argument("--kafka", metavar="VERSION", help="another version of Kafka: 3.7.2 or 4.3.0")
    demo.add_argument("--kind", metavar="KIND", help="zookeeper or kraft")
    demo.add_argument("--source", metavar="SOURCE", help="log, or jmx for the audit from JMX alone")
    demo.add_argument(
        "--enforce", action="store_true", help="limit one offender in mid-run, and release it again"
    )
    demo.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the demo. Its options become the environment variables that control `make demo`."""
    from kquota_spark.embedded.demo.__main__ import main

    given = {
        name: value for option, name in _VARIABLES.items() if (value := getattr(options, option)) is not None
    }
    named = {name: f"--{option}" for option, name in _VARIABLES.items()} | {"ENFORCE": "--enforce"}
    return main({**os.environ, **given, **({"ENFORCE": "1"} if options.enforce else {})}, named)
