"""The command that undoes a change of quotas: printed after the change, prepared before it.

A change of one entity is undone by `kquota alter`. A change of several is undone by a file with all earlier quotas.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kquota_spark.errors import UserError
from kquota_spark.formats.quota_files.quota_file import quota_value
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.shell_words import shell_line
from kquota_spark.model.quotas.entities import DEFAULT, Default
from kquota_spark.model.quotas.quota_set import EntityType, QuotaEdit, QuotaSet, parts_of
from kquota_spark.process.clock import now_ms
from kquota_spark.process.replaced_file import replace_file

FOLDER = Path(".kquota") / "undo"
"""Folder of the working directory with files that undo changes."""
MOST_CHARACTERS = 120
"""Maximum length of an undo line, characters."""
_OPTIONS = {EntityType.USER: "--user", EntityType.CLIENT_ID: "--client", EntityType.IP: "--ip"}


class Undo(NamedTuple):
    """The way back from a change that is not made yet."""

    line: str
    """`undo: ` and a command of at most 120 characters, or `no undo: ` and the reason."""
    files: tuple[Path, ...] = ()
    """Files that the command needs."""

    def forget(self) -> None:
        """Remove the files, because nothing was changed."""
        for path in self.files:
            path.unlink(missing_ok=True)


def prepared_undo(edits: Sequence[QuotaEdit], before: QuotaSet, where: Sequence[str]) -> Undo:
    """The way back from edits. Writes a file if the command would be too long, or if several entities change.

    Args:
        edits: at least one, not made yet.
        before: all quotas of the cluster.
        where: options of `kquota alter` and `import` that name the cluster.
    """
    try:
        if len({edit.entity for edit in edits}) == 1 and _is_alterable(edits):
            return _short(["kquota", "alter", *where, *_entity_words(edits[0]), *_value_words(edits)], ())
        return _by_file(before, where)
    except (ValueError, UserError) as error:
        return Undo(terminal_text(f"no undo: {str(error).splitlines()[0]}"))


def _line(words: Iterable[str]) -> str:
    """`undo: ` and a command, quoted for a shell.

    Args:
        words: the command, not quoted.
    """
    return f"undo: {shell_line(words)}"


def settings_words(options: argparse.Namespace) -> list[str]:
    """The given --config and --tables again, as words of a command."""
    given = (("--config", options.config), ("--tables", options.tables))
    return [word for name, value in given if value is not None for word in (name, os.fspath(value))]


def undo_of(words: Sequence[str]) -> str:
    """The line with a command that takes a change of enforcement back; a file runs it if it is too long."""
    try:
        return _short(words, ()).line
    except (ValueError, UserError) as error:
        return terminal_text(f"no undo: {error}")


def _short(words: Sequence[str], files: tuple[Path, ...]) -> Undo:
    """The command itself, or one that runs it from a file if it is too long."""
    line = _line(words)
    if len(line) <= MOST_CHARACTERS:
        return Undo(line, files)
    script = _path("sh")
    replace_file(script, f"{shlex.join(words)}\n".encode("utf-8", "surrogateescape"))
    return Undo(_line(["sh", str(script)]), (*files, script))


def _by_file(before: QuotaSet, where: Sequence[str]) -> Undo:
    from kquota_spark.formats.exchange import NAMES
    from kquota_spark.formats.exchange.declared import write

    text = write(before)
    path = _path("yaml")
    replace_file(path, text.encode())
    is_empty = [] if before else ["--allow-empty", "--format", NAMES[0]]  # nothing in it to guess by
    return _short(["kquota", "import", str(path), "--replace", *is_empty, *where], (path,))


def _path(suffix: str) -> Path:
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{FOLDER}: cannot be made: {error.strerror}") from error
    return FOLDER / f"{now_ms()}.{suffix}"


def _is_alterable(edits: Sequence[QuotaEdit]) -> bool:
    """Whether `kquota alter` takes these names and values. It refuses some that a migration may have left."""
    names = parts_of(edits[0].entity).values()
    is_set = any(edit.before is not None for edit in edits)
    if any("\0" in name for name in names if not isinstance(name, Default)):
        return False
    if is_set and any(name in ("", DEFAULT.value) for name in names):
        return False
    try:
        for edit in edits:
            if edit.before is not None:
                quota_value(edit.key, edit.before, is_above_zero=True)
    except ValueError:
        return False
    return True


def _entity_words(edit: QuotaEdit) -> Iterator[str]:
    for kind, name in parts_of(edit.entity).items():
        option = _OPTIONS[kind]
        if isinstance(name, Default):
            yield f"{option}-defaults"
        elif name == "":
            yield from ("--name", f"{kind.value}=")
        elif name.startswith("-"):
            yield f"{option}={name}"
        else:
            yield from (option, name)


def _value_words(edits: Sequence[QuotaEdit]) -> Iterator[str]:
    added = [f"{edit.key.value}={_number(edit.before)}" for edit in edits if edit.before is not None]
    deleted = [edit.key.value for edit in edits if edit.before is None]
    if added:
        yield from ("--add", ",".join(added))
    if deleted:
        yield from ("--delete", ",".join(deleted))


def _number(value: float) -> str:
    """All digits of a value."""
    return str(int(value)) if value == int(value) else repr(value)
