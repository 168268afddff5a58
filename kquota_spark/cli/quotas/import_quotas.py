"""`kquota import`: sets the quotas of a file on a cluster, in place, and says what became of each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.cli.chosen.cluster_choice import add_cluster_options, chosen_cluster, settings_beside
from kquota_spark.cli.quotas.held_quotas import held_notes, held_steps
from kquota_spark.cli.quotas.quota_edits import add_edit_options, carry_out, choices_of
from kquota_spark.cli.text.page import say
from kquota_spark.errors import UserError
from kquota_spark.formats.exchange import NAMES
from kquota_spark.model.quotas.ip_quotas import in_spelling_of
from kquota_spark.model.quotas.quota_set import QuotaEdit, QuotaSet, edits_between
from kquota_spark.process.clock import now_ms

if TYPE_CHECKING:
    from kquota_spark.formats.exchange.registry import Format

_STDIN = "-"
_MOST_BYTES = 64_000_000
"""Of text that the formats would still look at: four bytes a character."""
_MOST_PROBLEMS, _MOST_PROBLEM_CHARACTERS = 60, 400


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `import`."""
    parser = subparsers.add_parser(
        "import",
        description="{about}. What the file does not name stays. Exit codes: 0 done, 1 an error, or an entity was "
        "refused or failed, 2 wrong usage.",
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
    add_cluster_options(parser)
    add_edit_options(parser)
    parser.set_defaults(run=run_import, usage=parser.error)


def run_import(options: argparse.Namespace) -> int:
    """Read, compare, show, ask, set, tell.

    Raises:
        UserError: the file is none or not of its format, or the cluster does not answer.
        SystemExit: with 2: nobody can tell the format, or be asked.
    """
    where = "standard input" if options.file == _STDIN else options.file
    text = file_text(options.file, where)
    wanted = quotas_in(_format_of(text, options.format, options.file, options.usage), text, where)
    if options.replace and not wanted:
        raise UserError(
            f"{where}: no quotas in it, and --replace would remove all that the cluster has: to lift them use "
            "kquota enforcement disable, to remove some kquota alter --delete"
        )
    with chosen_cluster(options) as cluster:
        before = cluster.read()
        try:
            wanted = in_spelling_of(wanted, before)
        except ValueError as error:
            raise UserError(f"{where}: {error}") from error
        edits = _in_safe_order(list(edits_between(before, wanted, keep_others=not options.replace)))
        unchanged = len(wanted.keys() - {edit.entity for edit in edits})
        asked = [*edits, *_kept(before, wanted)]
        held = held_steps(settings_beside(options), {edit.entity for edit in asked})
        notes = held_notes(held, asked, now_ms())
        return carry_out(
            cluster, edits, choices_of(options), command="kquota import", unchanged=unchanged, notes=notes
        )


def _kept(before: QuotaSet, wanted: QuotaSet) -> Iterator[QuotaEdit]:
    """Values of the file that the cluster has already."""
    for entity, values in wanted.items():
        has = before.get(entity, {})
        yield from (
            QuotaEdit(entity, key, value, value) for key, value in values.items() if has.get(key) == value
        )


def _in_safe_order(edits: Sequence[QuotaEdit]) -> list[QuotaEdit]:
    """Entities that get a value before those that only lose some: nobody is without a limit in between."""
    setting = {edit.entity for edit in edits if edit.after is not None}
    return sorted(edits, key=lambda edit: edit.entity not in setting)


def file_text(file: str, where: str) -> str:
    """The text of a file of quotas; `-` is standard input.

    Raises:
        UserError: it cannot be read, is too large, or is not UTF-8.
    """
    try:
        if file == _STDIN:
            data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UserError(f"{where}: larger than {_MOST_BYTES:,} bytes, expected quotas")
        # Line ends stay as they are: a name may hold a carriage return.
        return data.decode("utf-8")
    except OSError as error:
        raise UserError(f"{where}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: not UTF-8 at byte {error.start:,}, expected a text") from error


def _format_of(text: str, name: str | None, file: str, wrong_usage: Callable[[str], object]) -> Format:
    from kquota_spark.formats.exchange.registry import FORMATS, guess

    if name is not None:
        return FORMATS[name]
    found = guess(text, file)
    if len(found) != 1:
        names = " and like ".join(each.name for each in found)
        like = f"it looks like {names}" if found else "no format is like it"
        wrong_usage(f"--format: cannot be guessed, {like}; expected one of {', '.join(FORMATS)}")
    say(f"format: {found[0].name}, guessed; --format names another", sys.stderr)
    return found[0]


def quotas_in(form: Format, text: str, where: str) -> QuotaSet:
    """The quotas of a text.

    Raises:
        UserError: one line a problem.
    """
    try:
        # Our own file may tell of other times too: set is what it says of now.
        return form.read(text) if form.read_at is None else form.read_at(text, now_ms())
    except ValueError as error:
        problems = str(error).split("\n")
        told = [f"{where}: {problem[:_MOST_PROBLEM_CHARACTERS]}" for problem in problems[:_MOST_PROBLEMS]]
        if len(problems) > _MOST_PROBLEMS:
            told.append(f"{where}: ... and {len(problems) - _MOST_PROBLEMS:,} more problems")
        raise UserError("\n".join(told)) from error
