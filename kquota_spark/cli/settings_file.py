"""Loads the settings that a command uses. A mistake in other sections is only a warning and does not stop it."""

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
"""In place of section names: the whole file must be valid."""
_WARNED: set[str] = set()


def settings_from(path: Path | None, tables: str | None, *uses: str, is_quiet: bool = False) -> Settings:
    """The settings of a file, or the built-in defaults; never those of the working directory.

    Args:
        path: the settings file; None for the built-in defaults.
        tables: root of the tables; it replaces that of the file.
        uses: sections that must be valid, or `WHOLE_FILE`. A mistake in another section is a warning now, and an error
            when the section is read. If a root of tables is given, `tables` need not be valid.
        is_quiet: print no warning.

    Raises:
        UserError: the file cannot be read, or has a mistake in what must be valid; one line per mistake in the file.
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
    """Print a warning about the mistakes of a file, once."""
    more = f" (and {len(mistakes) - 1} more)" if mistakes[1:] else ""
    line = f"{mistakes[0]}{more}; kquota doctor --before lists all mistakes"
    if line not in _WARNED:
        _WARNED.add(line)
        print(f"kquota: warning: {terminal_text(line)}", file=sys.stderr)
