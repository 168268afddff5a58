"""`kquota import` and `kquota export`: sets the quotas of a file on a cluster, and writes those of a cluster to a file.

Import sets them in place, and reports the outcome of each. Export can also write the quotas of the tables at any time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.cli.chosen.cluster_choice import (
    add_cluster_options,
    chosen_cluster,
    cluster_words,
    image_of,
    settings_beside,
)
from kquota_spark.cli.exit_codes import ERROR, NOT_AGREED, NOTHING, REFUSED_THERE
from kquota_spark.cli.options import add_tables_option, settings_of, time_argument
from kquota_spark.cli.quotas.held_quotas import held_notes, held_steps
from kquota_spark.cli.quotas.quota_edits import add_edit_options, carry_out, choices_of, entities_text
from kquota_spark.cli.quotas.quota_sides import stored_side
from kquota_spark.cli.text.page import print_as_it_is, print_line
from kquota_spark.cli.text.render import Report, Shown, show
from kquota_spark.enforce.ports import Image
from kquota_spark.errors import UserError
from kquota_spark.formats.exchange import NAMES
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.model.quotas.ip_quotas import in_spelling_of
from kquota_spark.model.quotas.quota_set import QuotaEdit, QuotaSet, edits_between, in_order
from kquota_spark.process.clock import now_ms
from kquota_spark.process.replaced_file import replace_file
from kquota_spark.quotas.any_file import STDIN, file_text, quotas_in
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.formats.exchange.registry import Format

COMMANDS = {
    "import": (
        "quotas",
        "set the quotas of a file on a cluster, in place; kquota's own format and those of other tools",
        "kquota import quotas.yaml --dry-run",
        "kquota import quotas.yaml --replace --context prod --yes",
    ),
    "export": (
        "quotas",
        "write the quotas of a cluster, or of the tables at a moment, in kquota's own format or another tool's",
        "kquota export --to quotas.yaml",
        "kquota export --format strimzi --to users.yaml",
    ),
}
CODES = {
    "import": {ERROR: REFUSED_THERE, NOTHING: NOT_AGREED},
    "export": {ERROR: "an error, or the format cannot say some quotas"},
}


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `import` and `export`."""
    _add_import(subparsers)
    _add_export(subparsers)


def _add_import(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "import",
        description="{about}. What the file does not name stays.",
    )
    parser.add_argument("file", metavar="FILE", help="the file; - is standard input")
    parser.add_argument(
        "--format", choices=NAMES, metavar="F", help=f"{', '.join(NAMES)}; guessed by content and suffix"
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="remove what the file does not name: the cluster gets exactly the file",
    )
    parser.add_argument(
        "--allow-empty", action="store_true", help="with --replace: a file without quotas removes all"
    )
    add_cluster_options(parser)
    add_edit_options(parser)
    parser.set_defaults(run=run_import, usage=parser.error)


def _add_export(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("export")
    parser.add_argument(
        "--format",
        choices=NAMES,
        metavar="F",
        help=f"{', '.join(NAMES)} (default by the suffix of --to, else {NAMES[0]})",
    )
    parser.add_argument(
        "--formats", action="store_true", help="only show what formats there are, and what they can say"
    )
    parser.add_argument("--to", type=Path, metavar="FILE", help="write there instead of to standard output")
    parser.add_argument(
        "--partial", action="store_true", help="leave out what the format cannot say, and report it"
    )
    add_cluster_options(parser)
    tables = parser.add_argument_group("tables", "instead of a running cluster: what the audit has recorded")
    add_tables_option(tables)
    tables.add_argument(
        "--at",
        type=time_argument,
        metavar="T",
        help="as of then: 10m, 2h, 1d ago, an ISO time in UTC, or epoch milliseconds (default now)",
    )
    parser.set_defaults(run=run_export, usage=parser.error)


def run_import(options: argparse.Namespace) -> int:
    """Import the quotas of a file: compare with the cluster, show the difference, ask, write, report.

    Raises:
        UserError: the file cannot be read or is not of its format, or the cluster does not answer.
        SystemExit: with 2: the format cannot be guessed.
    """
    where = "standard input" if options.file == STDIN else options.file
    text = file_text(options.file, where)
    wanted = quotas_in(_read_format(text, options.format, options.file, options.usage), text, where)
    if options.replace and not wanted and not options.allow_empty:
        raise UserError(
            f"{where}: no quotas in it, and --replace would remove all that the cluster has: to lift them use "
            "kquota lift, to remove some kquota alter --delete, to remove all --allow-empty"
        )
    with chosen_cluster(options) as cluster:
        before = image_of(cluster).quotas
        try:
            wanted = in_spelling_of(wanted, before)
        except ValueError as error:
            raise UserError(f"{where}: {error}") from error
        edits = _in_safe_order(list(edits_between(before, wanted, keep_others=not options.replace)))
        unchanged = len(wanted.keys() - {edit.entity for edit in edits})
        asked = [*edits, *_kept(before, wanted)]
        held = held_steps(settings_beside(options), {edit.entity for edit in asked})
        notes = held_notes(held, asked, now_ms())
        choices = choices_of(options)
        return carry_out(
            cluster, edits, choices, command="kquota import", unchanged=unchanged, notes=notes, before=before,
            where=cluster_words(options),
        )  # fmt: skip


def _kept(before: QuotaSet, wanted: QuotaSet) -> Iterator[QuotaEdit]:
    """The values of the file that the cluster has already, as edits without a change."""
    for entity, values in wanted.items():
        has = before.get(entity, {})
        yield from (
            QuotaEdit(entity, key, value, value) for key, value in values.items() if has.get(key) == value
        )


def _in_safe_order(edits: Sequence[QuotaEdit]) -> list[QuotaEdit]:
    """The edits: first entities that get a value, then those that only lose some. So no client is without a limit."""
    setting = {edit.entity for edit in edits if edit.after is not None}
    return sorted(edits, key=lambda edit: edit.entity not in setting)


def _read_format(text: str, name: str | None, file: str, wrong_usage: Callable[[str], object]) -> Format:
    from kquota_spark.formats.exchange.registry import FORMATS, guess

    if name is not None:
        return FORMATS[name]
    found = guess(text, file)
    if not text.strip():
        raise UserError(f"{file}: an empty file, expected quotas; name the --format if it means none")
    if len(found) != 1:
        names = " and like ".join(each.name for each in found)
        like = f"it looks like {names}" if found else "no format is like it"
        wrong_usage(f"{file}: --format cannot be guessed, {like}; expected one of {', '.join(FORMATS)}")
    print_line(f"format: {found[0].name}, guessed; --format names another", sys.stderr)
    return found[0]


def run_export(options: argparse.Namespace) -> int:
    """Read quotas and write them in a format.

    Raises:
        UserError: the source cannot be read, the file cannot be written, or the format cannot express all quotas.
        SystemExit: with 2: both a cluster and the tables are named.
    """
    if options.formats:
        return _show_formats()
    form = _written_format(options)
    if options.at is not None or options.tables is not None:
        found = _of_tables(options)
    else:
        with chosen_cluster(options) as cluster:
            found = image_of(cluster)
    origin, quotas = found.origin, found.quotas
    if options.partial:
        quotas = _expressible(form, quotas)
    text = _written(form, quotas, is_partial=options.partial)
    if not quotas:
        print_line(terminal_text(f"kquota: note: no quotas in {origin}"), sys.stderr)
    if options.to is None:
        print_as_it_is(text)
    else:
        replace_file(options.to, text.encode())
        counts = f"{entities_text(len(quotas))}, {sum(map(len, quotas.values())):,} values"
        print_line(terminal_text(f"{counts} of {origin} in {options.to} ({form.name})"), sys.stderr)
    return 0


def _show_formats() -> int:
    from kquota_spark.formats.exchange.registry import FORMATS

    rows = [{"format": form.name, "about": form.about, "says": form.says} for form in FORMATS.values()]
    shown = tuple(Shown(name, itemgetter(name), is_text=True) for name in rows[0])
    show(Report("kquota export", tuple(rows[0]), rows, shown), "table")
    return 0


def _written_format(options: argparse.Namespace) -> Format:
    from kquota_spark.formats.exchange.registry import FORMATS, guess

    if options.format is not None:
        return FORMATS[options.format]
    by_suffix = guess("", str(options.to or ""))
    return by_suffix[0] if len(by_suffix) == 1 else FORMATS[NAMES[0]]


def _of_tables(options: argparse.Namespace) -> Image:
    names = ("context", "bootstrap_server", "command_config", "zookeeper")
    given = ", ".join(f"--{name.replace('_', '-')}" for name in names if getattr(options, name) is not None)
    if given:
        options.usage(f"{given}: a cluster has only the quotas of now; --at and --tables read the tables")
    stored = stored_side(
        settings_of(options, "tables"), now_ms() if options.at is None else options.at.time_ms
    )
    if stored.known_through_ms is not None:
        print_line(f"kquota: note: edits after {utc_text(stored.known_through_ms)} are not known", sys.stderr)
    return stored


def _expressible(form: Format, quotas: QuotaSet) -> QuotaSet:
    """The entities that the format can express; the others are reported on standard error."""
    refused: list[str] = []
    found = {}
    for entity in in_order(quotas):
        try:
            form.write({entity: quotas[entity]})
        except ValueError as error:
            refused += str(error).split("\n")
        else:
            found[entity] = quotas[entity]
    for problem in refused:
        print_line(terminal_text(f"kquota: left out: {problem}"), sys.stderr)
    return found


def _written(form: Format, quotas: QuotaSet, *, is_partial: bool) -> str:
    try:
        return form.write(quotas)
    except ValueError as error:
        problems = [f"{form.name} cannot say {problem}" for problem in str(error).split("\n")]
        if not is_partial:
            problems.append("nothing was written: --partial leaves these out, other formats may say them")
        raise UserError("\n".join(problems)) from error
