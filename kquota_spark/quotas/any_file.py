"""The quotas of a file in any format of `formats.exchange`, by its content."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.errors import UserError
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.process.clock import now_ms

if TYPE_CHECKING:
    from kquota_spark.formats.exchange.registry import Format

STDIN = "-"
_MOST_BYTES = 64_000_000
"""Maximum bytes of a text that the formats accept: four bytes per character."""
_MOST_PROBLEMS, _MOST_PROBLEM_CHARACTERS = 60, 400


def quotas_of_file(file: str) -> QuotaSet:
    """The quotas of a file or of standard input; the content determines the format.

    Args:
        file: its path; `-` is standard input.

    Raises:
        UserError: the file cannot be read, or it has problems, one per line.
    """
    from kquota_spark.formats.exchange.registry import FORMATS, guess

    where = name_of(file)
    text = file_text(file, where)
    require_text(text, where)
    # An empty list does not show its format.
    formats = [FORMATS["declared"]] if text.strip() == "[]" else guess(text, Path(file).name)
    if len(formats) != 1:
        names = ", ".join(each.name for each in formats or FORMATS.values())
        raise UserError(f"{where}: {'could be any of' if formats else 'is none of'} the formats {names}")
    return quotas_in(formats[0], text, where)


def name_of(file: str) -> str:
    """The name of a file in messages."""
    return "standard input" if file == STDIN else file


def file_text(file: str, where: str) -> str:
    """The text of a file of quotas.

    Args:
        file: its path; `-` is standard input.
        where: its name in errors.

    Raises:
        UserError: the file cannot be read, is too large, or is not UTF-8.
    """
    try:
        if file == STDIN:
            data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UserError(f"{where}: larger than {_MOST_BYTES:,} bytes, expected quotas")
        # Line ends stay unchanged: a name may contain a carriage return.
        return data.decode("utf-8")
    except OSError as error:
        raise UserError(f"{where}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: not UTF-8 at byte {error.start:,}, expected a text") from error


def require_text(text: str, where: str) -> None:
    """Refuse an empty file: it is a mistake more often than a set without quotas.

    Raises:
        UserError: the text is empty.
    """
    if not text.strip():
        raise UserError(f"{where}: no quotas in it, and [] would mean that there are none")


def quotas_in(form: Format, text: str, where: str) -> QuotaSet:
    """The quotas of a text.

    Args:
        form: the format of the text.
        text: the text.
        where: its name in errors.

    Raises:
        UserError: one line per problem.
    """
    try:
        # kquota's own format may contain several periods: use the quotas of now.
        return form.read(text) if form.read_at is None else form.read_at(text, now_ms())
    except ValueError as error:
        problems = str(error).split("\n")
        lines = [f"{where}: {problem[:_MOST_PROBLEM_CHARACTERS]}" for problem in problems[:_MOST_PROBLEMS]]
        if len(problems) > _MOST_PROBLEMS:
            lines.append(f"{where}: ... and {len(problems) - _MOST_PROBLEMS:,} more problems")
        raise UserError("\n".join(lines)) from error
