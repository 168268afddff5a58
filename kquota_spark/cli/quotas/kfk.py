"""`kquota kfk`: the command line and the JSON of kfk-quotas, so that scripts for kfk-quotas continue to work."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from kquota_spark import __version__
from kquota_spark.cli.chosen.cluster_choice import (
    address_of_context,
    image_of,
    of_brokers,
    settings_of_context,
)
from kquota_spark.cli.chosen.entity_options import require_name
from kquota_spark.cli.exit_codes import ERROR, REFUSED_THERE
from kquota_spark.cli.quotas.held_quotas import held_notes, held_steps
from kquota_spark.cli.quotas.kfk_selection import chosen, only_one, selection_of
from kquota_spark.cli.quotas.quota_edits import (
    edits_report,
    exact_text,
    exit_code,
    print_undo,
    undoable_edits,
)
from kquota_spark.cli.text.page import print_line
from kquota_spark.cli.text.render import FORMATS, Format, Report, Shown, show
from kquota_spark.config.contexts import contexts_file, load_contexts
from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.enforce.ports import Cluster
from kquota_spark.errors import UserError
from kquota_spark.formats.exchange.kfk import as_line
from kquota_spark.formats.quota_files.quota_file import finite_number
from kquota_spark.formats.text.escape import encodable_json, entity_text, harmless_json, terminal_text
from kquota_spark.formats.text.person_values import example_of, number_with_unit
from kquota_spark.kafka.client_properties import read_properties
from kquota_spark.kafka.quota_admin import Named
from kquota_spark.model.quotas.entities import AnyEntity, IpEntity
from kquota_spark.model.quotas.ip_quotas import in_spelling_of
from kquota_spark.model.quotas.quota_set import QuotaEdit, QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey
from kquota_spark.process.clock import now_ms
from kquota_spark.quotas.backends import ClusterAddress, opened_cluster

COMMANDS = {
    "kfk": (
        "quotas",
        "quotas by the command line and the JSON of kfk-quotas",
        "kquota kfk query --all-users",
        "kquota kfk create --user alice --produce-rate 2000000 --dry-run",
    ),
}
CODES = {
    "kfk": {ERROR: REFUSED_THERE},
}

_RATES: Mapping[str, tuple[AnyKey, str]] = {
    "produce_rate": (QuotaKey.PRODUCER_BYTE_RATE, "bytes per second and broker"),
    "fetch_rate": (QuotaKey.CONSUMER_BYTE_RATE, "bytes per second and broker"),
    "request_rate": (QuotaKey.REQUEST_PERCENTAGE, "percent of a thread"),
    "mutation_rate": (
        QuotaKey.CONTROLLER_MUTATION_RATE,
        "partitions per second (kfk-quotas has no such option)",
    ),
    "connection_rate": (IpQuotaKey.CONNECTION_CREATION_RATE, "connections a second, of an ip"),
}
"""The key of each option, and its unit for the help."""


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `kfk`."""
    group = subparsers.add_parser("kfk", description="{about}; an array on one line.")
    group.add_argument("-V", "--version", action="version", version=f"kquota {__version__}")
    commands = group.add_subparsers(required=True, metavar="COMMAND")
    query = commands.add_parser(
        "query", help="show quotas; of several kinds of options the first counts, in the order of this help"
    )
    query.add_argument(
        "--all-users", action="store_true", help="of all users, pairs and the default included"
    )
    query.add_argument("--all-clients", action="store_true", help="of all client ids, likewise")
    query.add_argument("--all-ips", action="store_true", help="of all ips")
    query.add_argument(
        "--user-clients", action="append", default=[], metavar="USER=CLIENT,CLIENT",
        help=r"of pairs; \= and \, are part of a name",
    )  # fmt: skip
    for kind in ("user", "client", "ip"):
        query.add_argument(f"--{kind}", action="append", default=[], metavar="NAME", help=f"of this {kind}")
        query.add_argument(f"--{kind}-default", action="store_true", help="and the default")
    query.add_argument(
        "-o", "--only", action="store_true", help="leave defaults out that are not asked for by their option"
    )
    query.set_defaults(run=run_query)
    create = commands.add_parser("create", help="set quotas of one entity; prints nothing when it is done")
    delete = commands.add_parser("delete", help="remove quotas")
    delete.add_argument("--all", action="store_true", help="all of the entity; they are printed first")
    for parser in (create, delete):
        for kind in ("user", "client", "ip"):
            parser.add_argument(f"--{kind}", metavar="NAME", help=f"of this {kind}")
            parser.add_argument(f"--{kind}-default", action="store_true", help="of the default")
        parser.add_argument("--dry-run", action="store_true", help="change nothing; print what would be")
    for name, (key, unit) in _RATES.items():
        option = f"--{name.replace('_', '-')}"
        about = f"{unit}: {example_of(key)}".replace("%", "%%")
        create.add_argument(option, type=partial(_number, key), metavar="N", help=about)
        delete.add_argument(option, action="store_true", help="remove this one")
    create.set_defaults(run=run_create)
    delete.set_defaults(run=run_delete)
    for parser in (query, create, delete):
        where = parser.add_mutually_exclusive_group()
        where.add_argument("--kafka", metavar="NAME", help="a saved context; default the one in use")
        where.add_argument(
            "-c", "--config", type=Path, metavar="FILE", help="client properties with bootstrap.servers"
        )
        parser.add_argument("--output", choices=FORMATS, help="form instead of the JSON of kfk-quotas")


def run_query(options: argparse.Namespace) -> int:
    """Show quotas.

    Raises:
        UserError: no cluster is named, or it does not answer.
    """
    selection = selection_of(options)
    _, *ignored = [f"--{kind.replace('_', '-')}" for kind in selection.kinds] or [""]
    if ignored:
        note = f"{', '.join(ignored)} not looked at; a pair is --user-clients USER=CLIENT"
        print_line(f"kquota: note: {note}", sys.stderr)
    with opened_cluster(_address(options)) as cluster:
        quotas, origin = image_of(cluster).quotas, cluster.origin
    entities = selection.found_in(quotas)
    if options.output is None:
        _print_array(quotas, entities)
    else:
        show(_report(quotas, entities, origin), options.output)
    return 0


def run_create(options: argparse.Namespace) -> int:
    """Set quotas of one entity.

    Raises:
        UserError: no entity, quota or cluster is named, or the cluster does not answer.
    """
    entity = only_one(chosen(options))
    given = {key: getattr(options, name) for name, (key, _) in _RATES.items()}
    values = {key: value for key, value in given.items() if value is not None}
    _check_keys(entity, values)
    require_name(entity, is_set=True)
    with opened_cluster(_address(options)) as cluster:
        held = held_steps(_settings(options), [entity])
        is_read = options.output or held or isinstance(entity, IpEntity) or _shows_undo(options)
        quotas = image_of(cluster).quotas if is_read else {}
        # If the cluster has the address in another spelling, alter that entry: a second one would overwrite the first.
        [entity] = in_spelling_of({entity: {}}, quotas)
        before = quotas.get(entity, {})
        edits = [QuotaEdit(entity, key, before.get(key), value) for key, value in values.items()]
        if options.dry_run and options.output is None:
            _print_array({entity: values}, [entity])
        notes = held_notes(held, edits, now_ms())
        return _carried_out(
            cluster, edits, "kquota kfk create", notes, before=quotas, where=_where(options),
            form=options.output, is_dry_run=options.dry_run,
        )  # fmt: skip


def run_delete(options: argparse.Namespace) -> int:
    """Remove quotas.

    Raises:
        UserError: no entity, quota or cluster is named, or the cluster does not answer.
    """
    entities = chosen(options)
    keys = [key for name, (key, _) in _RATES.items() if getattr(options, name)]
    if options.all and keys:
        raise UserError("--all removes every quota: leave out the options of single ones, or --all")
    if not options.all:
        _check_keys(only_one(entities), keys)
    for entity in entities:
        require_name(entity, is_set=False)
    with opened_cluster(_address(options)) as cluster:
        is_of_ip = any(isinstance(entity, IpEntity) for entity in entities)
        held = held_steps(_settings(options), entities)
        is_read = options.all or options.dry_run or is_of_ip or held or _shows_undo(options)
        found = image_of(cluster).quotas if is_read else {}
        entities = list(in_spelling_of({entity: {} for entity in entities}, found))
        going: QuotaSet = {
            entity: {key: value for key, value in found.get(entity, {}).items() if options.all or key in keys}
            for entity in entities
        }
        if options.output is None and (options.all or options.dry_run):
            _print_array(going, [entity for entity in entities if going[entity]])
        edits = [
            QuotaEdit(entity, key, going[entity].get(key), None)
            for entity in entities
            for key in (going[entity] if options.all else keys)
        ]
        notes = held_notes(held, edits, now_ms())
        return _carried_out(
            cluster, edits, "kquota kfk delete", notes, before=found, where=_where(options),
            form=options.output, is_dry_run=options.dry_run,
        )  # fmt: skip


def _address(options: argparse.Namespace) -> ClusterAddress:
    if options.config is not None:
        path: Path = options.config
        properties = read_properties(path)
        servers = properties.pop("bootstrap.servers", "")
        named = Named(f"bootstrap.servers in {path}", str(path), "a context with --zookeeper")
        return of_brokers(Quotas(), servers, properties, named)
    return address_of_context(_context(options))


def _context(options: argparse.Namespace) -> str:
    # An empty name, e.g. from an unset variable, is an error: it must not select another cluster.
    name: str = load_contexts(contexts_file(os.environ)).in_use if options.kafka is None else options.kafka
    if name == "":
        raise UserError("which cluster: give --kafka CONTEXT or --config FILE; kquota context add saves one")
    return name


def _settings(options: argparse.Namespace) -> Settings | None:
    """The settings that the context names; None with --config, which is a file of another kind here."""
    return None if options.config is not None else settings_of_context(_context(options))


def _shows_undo(options: argparse.Namespace) -> bool:
    """Whether a person may read the way back. Scripts for kfk-quotas expect silence, and read nothing first."""
    return options.output is not None or sys.stderr.isatty()


def _where(options: argparse.Namespace) -> list[str] | None:
    """Options of `kquota alter` that name the cluster; None if no undo is shown."""
    if not _shows_undo(options):
        return None
    if options.config is None:
        return ["--context", _context(options)]
    servers = read_properties(options.config).get("bootstrap.servers", "")
    return ["--bootstrap-server", servers, "--command-config", str(options.config)]


def _carried_out(
    cluster: Cluster,
    edits: Sequence[QuotaEdit],
    command: str,
    notes: Sequence[str],
    *,
    before: QuotaSet,
    where: Sequence[str] | None,
    form: Format | None,
    is_dry_run: bool,
) -> int:
    for note in notes:
        print_line(f"kquota: note: {terminal_text(note)}", sys.stderr)
    results, undo = undoable_edits(cluster, edits, before, where, is_dry_run=is_dry_run)
    if form is not None:
        show(edits_report(command, cluster.origin, results, notes, undo=undo), form)
        print_undo(undo, form)
        return exit_code(results)
    for result in results:
        if not result.status.is_done:
            line = f"{result.entity}: {result.status.value}" + (f": {result.detail}" if result.detail else "")
            print_line(f"kquota: {terminal_text(line)}", sys.stderr)
    if undo:
        print_line(undo, sys.stderr)
    return exit_code(results)


def _print_array(quotas: QuotaSet, entities: Sequence[AnyEntity]) -> None:
    try:
        line = as_line(quotas, entities)
    except ValueError as error:
        raise UserError(str(error)) from error
    text = encodable_json(harmless_json(line.rstrip("\n")), sys.stdout.encoding or "utf-8")
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()  # print quotas before they are deleted


def _report(quotas: QuotaSet, entities: Sequence[AnyEntity], origin: str) -> Report:
    rows = [
        {"entity": str(entity), "key": key.value, "value": quotas[entity][key]}
        for entity in entities
        for key, _ in _RATES.values()
        if key in quotas[entity]
    ]
    shown = (
        Shown("entity", lambda row: entity_text(row["entity"]), is_text=True, keep=24),
        Shown("key", lambda row: row["key"], is_text=True, keep=24),
        Shown("value", lambda row: exact_text(row["value"])),
    )
    columns = ("entity", "key", "value")
    empty = f"no quotas ({terminal_text(origin)})"
    return Report("kquota kfk query", columns, rows, shown, when_empty=empty, envelope={"cluster": origin})


def _check_keys(entity: AnyEntity, keys: Iterable[AnyKey]) -> None:
    """Check that the keys fit the kind of entity. Kafka itself only reports that a key is invalid.

    Raises:
        UserError: no key, or a key that does not fit.
    """
    wanted = [f"--{name.replace('_', '-')}" for name, (key, _) in _RATES.items() if _fits(entity, key)]
    keys = list(keys)
    if not keys or not all(_fits(entity, key) for key in keys):
        raise UserError(f"{entity}: which quota: expected {', '.join(wanted)}")


def _fits(entity: AnyEntity, key: AnyKey) -> bool:
    return isinstance(key, IpQuotaKey) == (entity.level is None)


def _number(key: AnyKey, text: str) -> float:
    """A number of any size, as kfk-quotas takes it, or a value with a unit; the cluster checks it."""
    try:
        value = finite_number(text)
        value = number_with_unit(key, text) if value is None else value
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}, expected {error}") from None
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number, e.g. {example_of(key)}")
    return value
