"""One table has the exit codes of all commands: commands take theirs from it, help and the page show it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from kquota_spark.cli.command_groups import GROUPS
from kquota_spark.cli.exit_codes import ALL, codes_of, codes_text, own_codes
from kquota_spark.cli.main import main, parser
from tests.support.places import ROOT
from tests.support.programs.command_output import run

CLI = ROOT / "kquota_spark" / "cli"
LISTED = [command.name for commands in GROUPS.values() for command in commands]
OWN = {words: own for name in LISTED for words, own in own_codes(name).items()}
NAMES = {"DONE", "ERROR", "USAGE", "FOUND", "REFUSED", "NOTHING", "STOPPED"}


def _returned_numbers(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and node.value is not None:
            values = (
                [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]
            )
            yield from (
                value.value
                for value in values
                if isinstance(value, ast.Constant) and type(value.value) is int
            )


def test_no_command_writes_a_code_of_its_own_but_0() -> None:
    found = {
        str(file.relative_to(CLI)): numbers
        for file in CLI.rglob("*.py")
        if (numbers := sorted({*_returned_numbers(ast.parse(file.read_text(encoding="utf-8")))} - {0}))
    }
    assert found == {}


def test_the_codes_of_a_command_are_those_of_all_with_its_own_meanings() -> None:
    assert codes_of(["usage", "--user", "a"]) == {
        0: "done", 1: "an error, in one line on standard error", 2: "a usage error", 130: "stopped with Ctrl-C"
    }  # fmt: skip
    assert codes_of(["drift", "x"])[2] == "drift"
    assert codes_of(["enforce", "apply", "p-1"])[4].startswith("nothing was done: ")
    assert 4 not in codes_of(["enforce", "plan"])


@pytest.mark.parametrize("words", ["usage", "drift", "enforce apply", "override expire", "cluster status"])
def test_help_shows_the_codes_of_the_command(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), "--help"])
    assert ended.value.code == 0
    assert codes_text(words.split()) in " ".join(capsys.readouterr().out.split())


def test_the_page_shows_the_whole_table() -> None:
    page = (ROOT / "kquota_spark" / "docs" / "reading.md").read_text(encoding="utf-8")
    shown = page.partition("## Exit codes")[2]
    rows = ["| code | meaning |", "| ---: | --- |"]
    rows += [f"| {code} | {meaning} |" for code, meaning in ALL.items()]
    rows += ["| command | its own meanings |", "| --- | --- |"]
    for words, own in OWN.items():
        rows.append(f"| `{words}` | {'; '.join(f'{code}: {meaning}' for code, meaning in own.items())} |")
    assert [line for line in shown.splitlines() if line.startswith("| ")] == rows


def test_an_error_and_a_usage_error_have_the_codes_of_the_table() -> None:
    assert run("enforce", "show", "p-1", "--config", "/nowhere")[0] == 1
    for command, code in (("usage", 2), ("doctor", 1), ("diff", 1), ("drift", 1)):
        with pytest.raises(SystemExit) as ended:
            main([command, "--nonsense"])
        assert ended.value.code == code


def test_each_command_of_the_table_is_there() -> None:
    for words in OWN:
        with pytest.raises(SystemExit) as ended:
            parser().parse_args([*words.split(), "--help"])
        assert ended.value.code == 0, words
