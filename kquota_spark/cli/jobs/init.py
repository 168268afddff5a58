"""`kquota init`: the first settings file from a broker's address, the log topic, and the next steps."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kquota_spark.cli.check.doctor import before_verdict, show_checks
from kquota_spark.cli.exit_codes import DONE, ERROR, FOUND
from kquota_spark.cli.options import DEFAULT_CONFIG, add_form_option
from kquota_spark.cli.text.page import Page, print_line
from kquota_spark.cli.text.render import print_answer
from kquota_spark.config.first_settings import first_settings
from kquota_spark.config.loader import load_settings
from kquota_spark.config.roots import canonical_root
from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.kafka.advised_topic import audit_grants, shipper_grants, topic_command
from kquota_spark.kafka.client_properties import (
    plain_login,
    read_properties,
    secret_variables,
    settings_options,
    user_name,
)
from kquota_spark.process.check import Check, Status
from kquota_spark.process.clock import now_ms
from kquota_spark.process.listeners import require_listener, require_ports

if TYPE_CHECKING:
    from kquota_spark.kafka.cluster_facts import ClusterFacts

COMMANDS = {
    "init": (
        "programs",
        "write the first settings from a broker's address, and show what is left to do",
        "kquota init --bootstrap-server broker1:9092",
        "kquota init --bootstrap-server broker1:9092 --command-config client.properties --yes",
    ),
}
CODES = {
    "init": {
        DONE: "the settings are written, and all checks pass",
        ERROR: "an error, or a usage error: no settings were written",
        FOUND: "the settings are written, and a check fails",
    },
}

_USER, _SHIPPER = "kquota-audit", "kquota-ship"
_LOG = "/var/log/kafka/kafka-request-audit.log"


class _Plan(NamedTuple):
    """The checked options."""

    config: Path
    """The file to write."""
    tables: str
    kafka: Kafka
    """Address and login."""
    login: Path | None
    """The file of --command-config."""
    user: str
    """The audit's user, without `User:`."""


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `init`."""
    parser = subparsers.add_parser("init")
    parser.add_argument(
        "--bootstrap-server", required=True, metavar="HOST:PORT", help="brokers of the cluster"
    )
    parser.add_argument("--command-config", type=Path, metavar="FILE", help="client properties: the login")
    parser.add_argument("--tables", metavar="PATH", help="root of the tables (default .kquota/tables)")
    parser.add_argument(
        "--config", type=Path, default=DEFAULT_CONFIG, metavar="FILE",
        help=f"the file to write, never overwritten (default {DEFAULT_CONFIG})",
    )  # fmt: skip
    parser.add_argument(
        "--principal", metavar="NAME",
        help=f"the user whose rights are printed (default that of --command-config, else {_USER})",
    )  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="create the log topic; without, only print how")
    add_form_option(parser, ("table", "json", "yaml"))
    parser.set_defaults(run=run_init)


def run_init(options: argparse.Namespace) -> int:
    """Write the settings, create the topic with --yes, run the checks and print the next steps.

    Raises:
        UserError: the file exists or cannot be written, or the cluster does not answer or refuses.
    """
    from kquota_spark.kafka.cluster_facts import asked_cluster, create_log_topic

    plan = _plan(options)
    kafka = plan.kafka
    require_listener("Kafka", kafka.bootstrap_servers, "--bootstrap-server")
    asking = Settings(kafka=kafka)
    facts = asked_cluster(asking, "--command-config")
    text = first_settings(
        cluster_id=facts.cluster_id,
        servers=kafka.bootstrap_servers,
        tables=plan.tables,
        checkpoints=checkpoints_beside(plan.tables),
        topic=kafka.topic,
        options=settings_options(kafka.options),
        brokers=facts.brokers,
    )
    state = "exists" if kafka.topic in facts.topics else "created" if options.yes else "missing"
    if state == "created":
        create_log_topic(asking, len(facts.brokers))
    _write_new(plan.config, text)
    answer = _answer(plan, facts, state)
    if options.output == "table":
        _print(answer)
    checks = _checks(plan)
    if options.output != "table":
        rows = [asdict(check) | {"status": check.status.value} for check in checks]
        print_answer("kquota init", {**answer, "checks": rows}, options.output)
        return FOUND if any(row["status"] == Status.FAIL.value for row in rows) else DONE
    code = show_checks("kquota init", checks, options.output, partial(before_verdict, plan.config))
    _print_next(answer)
    return code


def checkpoints_beside(tables: str) -> str:
    """The root of the checkpoints beside a root of tables: `/data/tables` has `/data/checkpoints`."""
    root, slash, name = tables.rstrip("/").rpartition("/")
    if name == "tables":
        return f"{root}{slash}checkpoints"
    # A bucket has no neighbour that is ours.
    return f"{root}{slash}{name}/checkpoints" if root.endswith(":/") else f"{root}{slash}{name}-checkpoints"


def _plan(options: argparse.Namespace) -> _Plan:
    """The checked options.

    Raises:
        UserError: the settings file exists, or an option is wrong.
    """
    require_ports(options.bootstrap_server, "--bootstrap-server")
    if options.config.exists():
        raise UserError(
            f"{options.config} exists and is never overwritten: remove it, or name another --config"
        )
    try:
        tables = canonical_root(Settings().tables if options.tables is None else options.tables)
    except ValueError as error:
        raise UserError(f"--tables: {error}") from error
    properties = {} if options.command_config is None else read_properties(options.command_config)
    properties = plain_login(properties)
    kafka = Kafka(bootstrap_servers=options.bootstrap_server, options=properties)
    user = options.principal or user_name(properties) or _USER
    return _Plan(options.config, tables, kafka, options.command_config, user.removeprefix("User:"))


def _write_new(config: Path, text: str) -> None:
    """Write a file that does not exist yet.

    Raises:
        UserError: it exists, or cannot be written.
    """
    try:
        config.parent.mkdir(parents=True, exist_ok=True)
        with config.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"{config} cannot be written: {error.strerror}") from error


def _checks(plan: _Plan) -> Iterator[Check]:
    """The checks of `kquota doctor --before` on the new file, with the secrets of --command-config."""
    from kquota_spark.doctor.preflight import before_checks

    settings = load_settings(plan.config)
    yield from before_checks(
        settings.changed(kafka=settings.kafka.changed(options=plan.kafka.options)), now_ms()
    )


def _answer(plan: _Plan, facts: ClusterFacts, state: str) -> dict[str, Any]:
    kafka, config = plan.kafka, shlex.quote(str(plan.config))
    servers, topic = kafka.bootstrap_servers, kafka.topic
    login = "" if plan.login is None else f" --command-config {shlex.quote(str(plan.login))}"
    shipper = plan.user if kafka.options else _SHIPPER
    grants = audit_grants(servers, plan.user, topic) + shipper_grants(servers, shipper, topic)
    is_open = facts.has_authorizer is False
    first = facts.brokers[0].broker_id
    return {
        "config": str(plan.config),
        "cluster_id": facts.cluster_id,
        "brokers": [{"broker_id": broker.broker_id, "version": broker.version} for broker in facts.brokers],
        "topic": topic,
        "topic_state": state,
        "topic_command": topic_command(servers, topic, len(facts.brokers)) + login,
        "grants": [] if is_open else [command + login for command in grants],
        "secrets": secret_variables(kafka.options),
        "next": [
            f"kquota ship --config {config} --file {first}={_LOG}",
            f"kquota audit --config {config}",
        ],
    }


def _print(answer: dict[str, Any]) -> None:
    page = Page()
    versions = ", ".join(f"{broker['broker_id']} ({broker['version']})" for broker in answer["brokers"])
    written = f"{answer['config']}: cluster {answer['cluster_id']}, brokers {versions}"
    page.paragraph("wrote", terminal_text(written))
    if answer["topic_state"] == "missing":
        page.paragraph("topic", f"{answer['topic']} does not exist, and --yes was not given. Create it:")
        _print_commands(answer["topic_command"])
    else:
        was = "exists, its settings are checked below" if answer["topic_state"] == "exists" else "created"
        page.paragraph("topic", f"{answer['topic']}: {was}")
    if answer["grants"]:
        page.paragraph("rights", "of the audit and the shipper (kquota help rights):")
        _print_commands(*answer["grants"])
    else:
        page.paragraph("rights", "none are needed: the brokers have no authorizer")
    page.paragraph("log", "each broker has to write its request log: kquota help operating, section 1")
    page.line()


def _print_next(answer: dict[str, Any]) -> None:
    page = Page()
    page.line()
    if answer["topic_state"] == "missing":
        page.paragraph("first", "create the topic: the command is above")
    if answer["secrets"]:
        page.paragraph(
            "first", f"set {', '.join(answer['secrets'])}: the file names them, and holds no secret"
        )
    page.paragraph("next", "on the machine of each broker, with its id and its request log:")
    _print_commands(answer["next"][0])
    page.paragraph("then", "on one machine:")
    _print_commands(*answer["next"][1:])


def _print_commands(*commands: str) -> None:
    """Print commands for copying, unwrapped."""
    for command in commands:
        print_line(f"  {terminal_text(command)}")
