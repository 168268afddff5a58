"""The settings of a file for a command, as far as it uses them: a mistake elsewhere must keep nobody from acting."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kquota_spark.config.loader import load_settings, settings_and_mistakes
from kquota_spark.config.roots import canonical_root
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text

WHOLE_FILE = "whole file"
"""Instead of the names of sections: all must be right."""
_WARNED: set[str] = set()


def settings_from(path: Path | None, tables: str | None, *uses: str, is_quiet: bool = False) -> Settings:
    """The settings of a file, or the built-in ones; never those of the working directory.

    Args:
        path: of the file; None for the built-in ones.
        tables: root of the tables instead of the file's own.
        uses: sections that must be right, or `WHOLE_FILE`; a mistake elsewhere is a warning, and an error when it is
            read. Of a root of tables that is given, `tables` asks nothing.
        is_quiet: without the warning.

    Raises:
        UserError: the file cannot be read, or has a mistake in what must be right; a line for each in the file.
    """
    if path is None:
        settings = Settings()
    elif WHOLE_FILE in uses:
        settings = load_settings(path)
    else:
        settings, mistakes = settings_and_mistakes(path)
        for section in uses:
            if section != "tables" or tables is None:
                getattr(settings, section)  # fails with all mistakes if it has one
        if mistakes and not is_quiet:
            _warn(mistakes)
    if tables is None:
        return settings
    try:
        return settings.changed(tables=canonical_root(tables))
    except ValueError as error:
        raise UserError(f"--tables: {error}") from error


def _warn(mistakes: Sequence[str]) -> None:
    """A line about the mistakes of a file, once."""
    more = f" (and {len(mistakes) - 1} more)" if mistakes[1:] else ""
    line = f"{mistakes[0]}{more}; kquota doctor --before lists all mistakes"
    if line not in _WARNED:
        _WARNED.add(line)
        print(f"kquota: warning: {terminal_text(line)}", file=sys.stderr)
