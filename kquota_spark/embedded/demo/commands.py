"""Commands that the demo runs as its user would, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kquota_spark.errors import UserError

_WITHIN_S = 180.0


def kquota_output(*words: str, config: Path) -> str:
    """What `kquota` prints.

    Raises:
        UserError: it fails.
    """
    return output_of([sys.executable, "-m", "kquota_spark.cli.main", *words, "--config", str(config)])


def output_of(command: list[str]) -> str:
    """What a command prints.

    Raises:
        UserError: it fails.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WITHIN_S)
    if done.returncode != 0:
        raise UserError(
            f"{' '.join(command[1:])} ended with {done.returncode}: {done.stderr.strip() or done.stdout}"
        )
    return done.stdout


def shown(*words: str, config: Path) -> str:
    """A command line of `kquota`, and below it what it prints."""
    return f"\n$ kquota {' '.join(words)} --config {config}\n{kquota_output(*words, config=config)}"
