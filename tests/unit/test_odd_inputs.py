"""What nobody means to ask `resolve`, `explain` and `replay` is one clear line and an exit code, never a traceback."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from kquota_spark.cli.main import main

DATA = Path(__file__).parents[1] / "data"
FILE = ("--quotas", str(DATA / "zk39-levels" / "quotas.yaml"))


def refused(*arguments: str) -> str:
    """The last line of what a wrong usage gets."""
    with pytest.raises(SystemExit) as stopped, contextlib.redirect_stderr(io.StringIO()) as err:
        main(list(arguments))
    assert stopped.value.code == 2
    return err.getvalue().splitlines()[-1]


@pytest.mark.parametrize("command", ["resolve", "explain"])
@pytest.mark.parametrize(
    "at",
    [
        "253402300800000",  # one ms behind the year 9999
        "99999999999999d",
        "30000d",  # before 1970
        "1969-12-31T23:59:59.999Z",
        "9999-12-31T23:59:59-12:00",
    ],
)
def test_a_moment_that_no_table_holds_is_refused(command: str, at: str) -> None:
    assert refused(command, "--user", "bob", "--at", at, *FILE) == (
        f"kquota {command}: error: argument --at: {at!r}, expected a length of time (30s, 10m, 2h, 1d) or a time "
        "such as 2026-11-21T05:40:00Z, 1970 to 9999"
    )


@pytest.mark.parametrize("at", ["1970-01-01", "253402300799999"])
def test_the_first_and_the_last_moment_are_answered(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resolve", "--user", "bob", "--at", at, *FILE]) == 0
    assert f"as of {'1970-01-01T00:00:00Z' if at == '1970-01-01' else '9999-12-31T23:59:59Z'}, " in (
        capsys.readouterr().out
    )
