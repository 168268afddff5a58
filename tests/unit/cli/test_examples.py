"""The help of every command ends with one or two examples, and each of them is a command line that parses."""

from __future__ import annotations

import shlex

import pytest

from kquota_spark.cli.command_groups import WIDEST, all_commands, examples_text
from kquota_spark.cli.main import main, parser_for

COMMANDS = all_commands()
EXAMPLES = [example for command in COMMANDS for example in command.examples]


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_help_ends_with_one_or_two_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    [examples] = [command.examples for command in COMMANDS if command.name == name]
    assert len(examples) in (1, 2)
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1 - len(examples) :] == ["Examples:", *(f"  {example}" for example in examples)]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_parses_and_fits_a_terminal(example: str) -> None:
    program, *words = shlex.split(example)
    assert program == "kquota"
    assert len(f"  {example}") <= WIDEST
    assert callable(parser_for(words).parse_args(words).run)


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_the_examples_of_a_command_run_that_command(name: str) -> None:
    [examples] = [command.examples for command in COMMANDS if command.name == name]
    assert {example.split()[1] for example in examples} == {name}


def test_a_subcommand_has_only_its_own_examples() -> None:
    assert examples_text("kquota context use") == "Examples:\n  kquota context use prod"
    assert examples_text("kquota context list") == ""
    assert examples_text("kquota") == ""
