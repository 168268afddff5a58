"""Where the width comes from: the terminal's own, COLUMNS elsewhere, else 100."""

from __future__ import annotations

import io
import os

import pytest

from kquota_spark.cli.text.page import columns_of
from tests.support.programs.command_output import run
from tests.support.programs.terminal_output import on_terminal


@pytest.mark.parametrize(
    ("variable", "columns"), [("80", 80), ("200", 200), ("", 100), ("0", 100), ("wide", 100), ("-5", 100)]
)
def test_a_pipe_has_the_columns_of_the_variable(
    variable: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", variable)
    assert columns_of(io.StringIO()) == columns


def test_a_terminal_has_its_own_whatever_the_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    seen = on_terminal(monkeypatch, 60, "tables", "decisions")
    assert seen.code == 0 and len(seen.rows) == seen.lines
    assert max(map(len, seen.rows)) <= 60


def test_a_terminal_that_reports_no_width_has_that_of_a_pipe() -> None:
    controller, terminal = os.openpty()  # of 0 columns, as a serial line
    with os.fdopen(terminal, "w") as out:
        assert (out.isatty(), columns_of(out)) == (True, 100)
    os.close(controller)


def test_a_pipe_is_wrapped_at_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    _, out, _ = run("tables", "usage")
    assert max(map(len, out.splitlines())) <= 72


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["violatons"], "unknown command 'violatons', did you mean violations?"),
        (["enforce", "aply"], "unknown command 'aply', did you mean apply?"),
        (["context", "lst"], "unknown command 'lst', did you mean list?"),
        (["quotas", "statsu"], "unknown command 'statsu', did you mean status?"),
        (["usage", "--by-secnd"], "unknown option '--by-secnd', did you mean --by-second?"),
        (["exempt", "list", "--confg", "x"], "unknown option '--confg', did you mean --config?"),
    ],
)
def test_misspelt_commands_and_options_are_answered_with_the_nearest(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        run_words(words)
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def run_words(words: list[str]) -> None:
    from kquota_spark.cli.main import main

    main(words)
