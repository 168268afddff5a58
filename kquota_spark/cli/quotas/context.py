"""`kquota context`: clusters saved by name, for the commands that work on a running cluster."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict, replace
from pathlib import Path

from kquota_spark.cli.chosen.cluster_choice import saved_context
from kquota_spark.cli.options import add_form_option
from kquota_spark.cli.text.page import print_line
from kquota_spark.cli.text.render import Format, Report, Row, Shown, show
from kquota_spark.config.contexts import Context, Contexts, contexts_file, load_contexts, save_contexts
from kquota_spark.config.loader import load_settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.kafka.client_properties import read_properties
from kquota_spark.process.listeners import require_ports

COMMANDS = {
    "context": (
        "quotas",
        "saved connections to clusters: addresses and paths, never a secret",
        "kquota context add prod --bootstrap-server broker1:9092",
        "kquota context use prod",
    ),
}

_COLUMNS = ("name", "is_in_use", "bootstrap_server", "command_config", "zookeeper", "config")


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `context`."""
    group = subparsers.add_parser(
        "context", description="{about}. Kept in $KQUOTA_CONTEXTS or ~/.config/kquota/contexts.yaml."
    )
    commands = group.add_subparsers(required=True, metavar="COMMAND")
    add = commands.add_parser("add", help="save a connection by a name")
    add.add_argument("name", metavar="NAME", help="letters, digits, '.', '_' and '-'")
    where = add.add_mutually_exclusive_group()
    where.add_argument("--bootstrap-server", default="", metavar="HOST:PORT", help="its brokers")
    where.add_argument("--zookeeper", default="", metavar="HOST:PORT[/CHROOT]", help="its ZooKeeper")
    add.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="with --bootstrap-server: client properties, the login",
    )
    add.add_argument(
        "--config", type=Path, metavar="FILE",
        help="settings: with --zookeeper for its login and TLS, alone for the cluster itself",
    )  # fmt: skip
    add.set_defaults(run=run_add)
    listing = commands.add_parser("list", help="all of them")
    add_form_option(listing)
    listing.set_defaults(run=run_list)
    showing = commands.add_parser("show", help="one of them")
    showing.add_argument("name", nargs="?", metavar="NAME", help="default the one in use")
    add_form_option(showing)
    showing.set_defaults(run=run_show)
    delete = commands.add_parser("delete", help="forget one; the cluster is not touched")
    delete.add_argument("name", metavar="NAME")
    delete.set_defaults(run=run_delete)
    use = commands.add_parser("use", help="the one meant where a command names no cluster")
    which = use.add_mutually_exclusive_group(required=True)
    which.add_argument("name", nargs="?", metavar="NAME")
    which.add_argument("--none", action="store_true", help="use none any more")
    use.set_defaults(run=run_use)


def run_add(options: argparse.Namespace) -> int:
    """Save a context.

    Raises:
        UserError: the name is in use, there is no address, or a file cannot be read.
    """
    path, contexts = _saved()
    if options.name in contexts.contexts:
        raise UserError(
            f"context {options.name} is there already: kquota context delete {options.name} first"
        )
    if not (options.bootstrap_server or options.zookeeper or options.config):
        raise UserError(f"context {options.name}: give --bootstrap-server, --zookeeper or --config")
    if options.command_config is not None:
        read_properties(options.command_config)
    if options.config is not None:
        load_settings(options.config)
    if options.bootstrap_server.strip():
        require_ports(options.bootstrap_server, "--bootstrap-server")
    context = Context(
        bootstrap_server=options.bootstrap_server,
        command_config=_absolute(options.command_config),
        zookeeper=options.zookeeper,
        config=_absolute(options.config),
    )
    save_contexts(path, replace(contexts, contexts={**contexts.contexts, options.name: context}))
    print_line(f"context {options.name}: {terminal_text(context.address)}, saved in {path}")
    return 0


def run_list(options: argparse.Namespace) -> int:
    """Show all contexts."""
    _, contexts = _saved()
    _show("kquota context list", contexts, sorted(contexts.contexts), options.output)
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Show one context.

    Raises:
        UserError: no context has this name, or none is in use.
    """
    _, contexts = _saved()
    name = options.name or contexts.in_use
    if not name:
        raise UserError("no context is in use: name one, or choose it by kquota context use NAME")
    saved_context(name)
    _show("kquota context show", contexts, [name], options.output)
    return 0


def run_delete(options: argparse.Namespace) -> int:
    """Delete a context.

    Raises:
        UserError: no context has this name.
    """
    path, contexts = _saved()
    saved_context(options.name)
    left = {name: context for name, context in contexts.contexts.items() if name != options.name}
    was_in_use = contexts.in_use == options.name
    save_contexts(path, Contexts(in_use="" if was_in_use else contexts.in_use, contexts=left))
    print_line(f"context {options.name} is forgotten{'; none is in use now' if was_in_use else ''}")
    return 0


def run_use(options: argparse.Namespace) -> int:
    """Choose the context in use.

    Raises:
        UserError: no context has this name.
    """
    path, contexts = _saved()
    if options.none:
        save_contexts(path, replace(contexts, in_use=""))
        print_line("no context is in use")
        return 0
    context = saved_context(options.name)
    save_contexts(path, replace(contexts, in_use=options.name))
    print_line(f"context {options.name} is in use: {terminal_text(context.address)}")
    return 0


def _saved() -> tuple[Path, Contexts]:
    path = contexts_file(os.environ)
    return path, load_contexts(path)


def _absolute(path: Path | None) -> str:
    return "" if path is None else str(path.expanduser().absolute())


def _show(command: str, contexts: Contexts, names: list[str], form: Format) -> None:
    shown = (
        Shown("", lambda row: "*" if row["is_in_use"] else "", is_text=True, keep=1),
        Shown("context", lambda row: str(row["name"]), is_text=True, keep=20),
        Shown("cluster", lambda row: contexts.contexts[row["name"]].address, is_text=True, keep=40),
        Shown("files", _files, is_text=True),
    )
    footer = "* in use" if contexts.in_use in names else ""
    when_empty = "no context is saved: see kquota context add"
    rows = [_row(name, contexts) for name in names]
    show(Report(command, _COLUMNS, rows, shown, footer=footer, when_empty=when_empty), form)


def _row(name: str, contexts: Contexts) -> Row:
    fields = {field: value or None for field, value in asdict(contexts.contexts[name]).items()}
    return {"name": name, "is_in_use": name == contexts.in_use, **fields}


def _files(row: Row) -> str:
    return ", ".join(path for path in (row["command_config"], row["config"]) if path) or "-"
