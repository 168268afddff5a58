"""Runs `kquota` as its users do, and takes what it says apart."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

from kquota_spark.cli.exit_codes import codes_of
from kquota_spark.cli.main import main
from kquota_spark.formats.text.escape import width


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(list(arguments))
    assert code in codes_of(arguments), "of the one table of exit codes"
    return code, out.getvalue(), err.getvalue()


def shown(*arguments: str) -> str:
    """What a command that succeeds shows; no line is wider than 100 columns, but a command to copy may be."""
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert max(width(line) for line in out.splitlines() if not line.startswith("undo: ")) <= 100
    return out


def as_json(*arguments: str) -> dict[str, Any]:
    """The JSON of a command that succeeds."""
    code, out, err = run(*arguments, "--output", "json")
    assert (code, err) == (0, "")
    answer: dict[str, Any] = json.loads(out)
    return answer
