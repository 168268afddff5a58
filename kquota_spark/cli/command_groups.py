"""Every command: under which heading `kquota --help` names it, and which module has it.

A command imports its own module alone; the other ones are names and a line of help, which is why all lines stand here.
"""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

from kquota_spark.cli.text.page import columns_of

WIDEST = 100
_INDENT = 15
_NAMES_AT = 12
_BEGINNINGS = (
    "kquota help COMMAND      what a command does, with its options",
    "kquota help              the pages of the documentation, first of all tutorial",
    "kquota --help            every command with a line about it",
    "kquota replay --sample   a first try without Kafka, Spark and Java",
)


class Command(NamedTuple):
    """One command of `kquota`."""

    name: str
    module: str
    """Of `kquota_spark.cli`; its `add_commands` adds this command, and any other one that it has."""
    about: str


_ABOUTS = {
    "look": {
        "status": "one screen: job, shippers, quota sources, lag, agreement, enforcement; and what to run next",
        "top": "what quota buckets do now: a live view of the newest minute of the tables",
        "timeline": "one client over time: its rate, its limit, its throttles, and who changed what",
        "violations": "episodes of buckets above their limit",
        "decisions": "every second of every quota bucket, judged as the broker does",
        "usage": "what each client used in the last day of the table, or since --since",
        "report": "a page about a day or any period: who was throttled, who is near a limit, who used what",
        "tables": "the tables and their columns: name, type, meaning",
        "serve": "the report, the live view, tenants' own pages and waiting plans in a browser, read only",
        "exporter": "usage, limits and throttles of quota buckets for Prometheus, from the tables",
    },
    "quotas": {
        "resolve": "which quotas govern a user and client id, from which rule, in which bucket",
        "explain": "why a client has its limit: the walk over all levels, who shares the bucket, what the limit means",
        "tree": "the quota tree: each rule with what it governed, and those that limit nobody",
        "describe": "the quotas of a running cluster that match, all without a name",
        "alter": "set and remove quotas of one entity in place; its other quotas stay",
        "import": "set the quotas of a file on a cluster, in place; kquota's own format and those of other tools",
        "export": "write the quotas of a cluster, or of the tables at a moment, in kquota's own format or another "
        "tool's",
        "diff": "what differs between two sets of quotas, by text and by effect",
        "drift": "whether a cluster is still what a file declares; if not, since when, and who edited it",
        "kfk": "quotas by the command line and the JSON of kfk-quotas",
        "context": "saved connections to clusters: addresses and paths, never a secret",
    },
    "judge": {
        "agreement": "how well verdicts agree with the throttle and the JMX of the brokers, and why not",
        "findings": "what is wrong with quotas and clients: who ignores throttling, which rules do nothing, ...",
        "doctor": "check that every line is counted and every table is up to date",
        "replay": "judge request-log files without Spark, and compare with the broker",
        "whatif": "which throttles other quotas would have given to the traffic in the tables",
    },
    "run": {
        "audit": "the audit job, in a Spark on this machine",
        "ship": "ship request logs into Kafka",
        "collect": "collect metrics of brokers into Kafka",
        "watch": "follow the quotas into quota_changes and quota_rules (the audit job does that itself)",
        "notify": "news to people by webhook, Slack, Alertmanager and mail: violations, waiting plans, ...",
        "backfill": "archived request logs into the tables",
        "restate": "recompute a closed period: late lines, quotas that were known too late",
        "maintain": "delete old dates, compact closed ones, remove files that nobody reads; run it daily",
        "help": "read the documentation: a page, or without a topic the list of all",
        "completion": "a script for the shell that completes kquota by the tab key",
    },
    "enforce": {
        "enforce": "decisions become quotas: plan, approve, apply, roll back; only run sends without --yes",
        "override": "a person's own change of a quota for a time; it goes through the guards, and ends by itself",
        "exempt": "names that enforcement never touches: edits exempt.file of the policies",
        "freeze": "stop all enforcement at once: nothing is sent any more, neither changes nor expiries",
        "unfreeze": "let enforcement continue; expired changes are reverted at once",
        "quotas": "disable and enable the brokers' quotas: lift them, and put back exactly what was there",
    },
    "cluster": {
        "cluster": "run a real Kafka on this machine, with ZooKeeper or KRaft",
        "demo": "a real Kafka, clients over their quotas, and the audit of them, in three minutes",
    },
}
_ELSEWHERE = {
    "status.command": ("status",),
    "serve.command": ("serve",),
    "top.command": ("top",),
    "look.declared_tables": ("tables",),
    "resolve.resolve": ("resolve",),
    "resolve.explain": ("explain",),
    "quotas.exchange": ("import", "export"),
    "run.to_kafka": ("ship", "collect"),
    "run.past": ("backfill", "restate", "maintain"),
    "run.topics": ("help",),
    "completion": ("completion",),
    "enforce.plans": ("enforce",),
    "enforce.freeze": ("unfreeze",),
    "run.cluster": ("cluster",),
    "run.demo": ("demo",),
}
"""Modules that are not the heading's room and the command's name."""
_MODULES = {name: module for module, names in _ELSEWHERE.items() for name in names}

GROUPS = {
    title: tuple(
        Command(name, _MODULES.get(name, f"{title}.{name}"), about) for name, about in abouts.items()
    )
    for title, abouts in _ABOUTS.items()
}
"""In the order in which they are named; each command is in one group."""


def all_commands() -> list[Command]:
    """The commands of all groups."""
    return [command for commands in GROUPS.values() for command in commands]


if TYPE_CHECKING:
    _Added = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    _Added = argparse._SubParsersAction  # generic for type checkers alone


class Commands(_Added):
    """Adds commands, each with its line of help."""

    def add_parser(
        self, name: str, *, description: str | None = "{about}", **options: Any
    ) -> argparse.ArgumentParser:
        """A command; its own help says the description, with `{about}` for the line of help."""
        [about] = [command.about for command in all_commands() if command.name == name]
        whole = description and description.replace("{about}", about)
        return super().add_parser(name, help=about, description=whole, **options)


def module_of(name: str) -> str | None:
    """The module of a command; None if there is no such command."""
    return next((command.module for command in all_commands() if command.name == name), None)


def overview() -> str:
    """The names of all commands under their headings, and where to begin; it fits a small terminal."""
    columns = min(WIDEST, columns_of())
    lines = ["usage: kquota COMMAND ...", ""]
    for title, commands in GROUPS.items():
        names = ", ".join(command.name for command in commands)
        begin = f"  {title}:".ljust(_NAMES_AT)
        lines += textwrap.wrap(names, columns, initial_indent=begin, subsequent_indent=" " * _NAMES_AT)
    return "\n".join([*lines, "", *_BEGINNINGS])


def listing() -> str:
    """The commands under their headings, as wide as the terminal, 100 columns at most."""
    columns = min(WIDEST, columns_of())
    lines: list[str] = []
    for title, commands in GROUPS.items():
        lines.append(f"{title}:")
        for name, _, about in commands:
            begin = f"  {name.ljust(_INDENT - 3)} "
            lines += textwrap.wrap(about, columns, initial_indent=begin, subsequent_indent=" " * _INDENT)
        lines.append("")
    return "\n".join([*lines, "kquota COMMAND --help shows the options of a command."])
