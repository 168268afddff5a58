"""Every command stands under one heading of `kquota --help`, and starts without the modules of the others."""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys

import pytest

from kquota_spark.cli.command_groups import GROUPS, UNLISTED, all_commands, listing, module_of
from kquota_spark.cli.main import main, parser
from tests.support.places import ROOT

CLI = ROOT / "kquota_spark" / "cli"


def _commands(found: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    [action] = [one for one in found._actions if isinstance(one, argparse._SubParsersAction)]
    return action


def test_each_command_is_in_exactly_one_group() -> None:
    names = [command.name for command in all_commands()]
    assert sorted(names) == sorted(set(names))
    assert sorted(names) == sorted(_commands(parser()).choices)
    assert list(GROUPS) == ["answers", "quotas", "changes with guards", "programs", "help"]
    assert [command.name for command in UNLISTED] == ["quotas"]


def test_every_module_with_commands_is_reached() -> None:
    sources = {
        ".".join(file.relative_to(CLI).with_suffix("").parts): file.read_text(encoding="utf-8")
        for file in CLI.rglob("*.py")
    }
    with_commands = {
        name
        for name, source in sources.items()
        for node in ast.parse(source).body
        if (isinstance(node, ast.FunctionDef) and node.name == "add_commands")
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "add_commands")
    }
    reached = {command.module for command in all_commands()}
    below = {
        name
        for name in with_commands
        if any(f"{name.rpartition('.')[2]}.add_commands(" in text for text in sources.values())
    }
    assert with_commands - below == reached - below


def test_help_names_the_one_command_of_enforcement_that_sends_unasked() -> None:
    commands = _commands(_commands(parser()).choices["enforce"]).choices
    unasked = {name for name, command in commands.items() if "--yes" not in command.format_help()}
    assert unasked == {"run", "plan", "show", "status"}  # all but run only read, or write a plan down
    assert [command.about for command in all_commands() if command.name == "enforce"] == [
        "decisions become quotas: plan, approve, apply, roll back; only run sends without --yes"
    ]


def test_help_names_every_command_once_under_its_heading(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: kquota [-h] [--version] COMMAND ...\n")
    assert max(map(len, shown.splitlines())) <= 100
    found: dict[str, list[str]] = {}
    for line in listing().splitlines():
        if line.endswith(":") and not line.startswith(" "):
            heading = found.setdefault(line[:-1], [])
        elif line.startswith("  ") and line[2] != " ":
            heading.append(line[2:14].rstrip())
    names = {title: [command.name for command in commands] for title, commands in GROUPS.items()}
    names["programs"].insert(2, "enforce run")
    assert found == names
    assert listing() in shown


@pytest.mark.parametrize("words", [["violations", "--help"], ["--help"], ["ship", "--help"]])
def test_a_command_imports_no_other_command(words: list[str]) -> None:
    program = f"""
import contextlib, json, sys
from kquota_spark.cli.main import main
with contextlib.suppress(SystemExit):
    main({words!r})
own = "kquota_spark.cli."
print(json.dumps(sorted(name.removeprefix(own) for name in sys.modules if name.startswith(own))))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    modules = {command.module for command in all_commands()}
    assert loaded & modules == {module for module in [module_of(words[0])] if module}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["violatoins"], "kquota: unknown command 'violatoins', did you mean violations?"),
        (["xyzzy"], "kquota: unknown command 'xyzzy'"),  # the others are too many for one line
        (["enforce", "plann"], "kquota enforce: unknown command 'plann', did you mean plan?"),
        (
            ["violations", "--outptu", "json"],
            "kquota violations: unknown option '--outptu', did you mean --output?",
        ),
        (
            ["violations", "--outptu=json"],
            "kquota violations: unknown option '--outptu', did you mean --output?",
        ),
        (["replay"], "kquota replay: name a LOG, or add --sample to replay the bundled one"),
        (
            ["tables", "nosuch"],
            "kquota tables: unknown value of NAME 'nosuch', expected one of requests, ",
        ),
        # The unknown option is why the required one is missing.
        (
            ["exempt", "add", "--client_id", "web"],
            "kquota exempt add: unknown option '--client_id', did you mean --client",
        ),
        (["exempt", "add"], "kquota exempt add: one of the arguments --user --client"),
        # The value of another option is no option: argparse itself would end with an error about it.
        (
            ["override", "expire", "--config", "admin.yaml"],
            "kquota override expire: the following arguments are required: PLAN",
        ),
        (["usage", "extra"], "kquota usage: unexpected argument 'extra'"),
        (["enforce", "show", "p-1", "p-2"], "kquota enforce show: unexpected argument 'p-2'"),
        # `--tables` and `--names` share the hyphens and little more.
        (["describe", "--tables", "x"], "kquota describe: unknown option '--tables'"),
        (["timeline"], "kquota timeline: which client? add --user NAME, --client"),
        (["whatif"], "kquota whatif: no quotas to try: give --quotas FILE, or --add user=NAME,"),
        (
            ["override", "set", "--key=producer_byte_rate", "--value=1MB", "--for=1h", "--reason=r"],
            "kquota override set: whose quota: give --user, --user-default, ",
        ),
        (
            ["usage", "--type", "prodce"],
            "kquota usage: unknown value of --type 'prodce', did you mean produce?",
        ),
        (
            ["usage", "--output", "xml2"],
            "kquota usage: unknown value of --output 'xml2', expected one of table, json, yaml, csv",
        ),
        (
            ["usage", "--type", "a' or \x1b[31m"],
            'kquota usage: unknown value of --type "a\' or \\x1b[31m"',
        ),
    ],
)
def test_a_typing_error_is_one_line_with_the_word_that_was_meant(
    capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    found, where_help_is = capsys.readouterr().err.splitlines()
    assert found.startswith(error) and ("did you mean" in error or "did you mean" not in found)
    assert where_help_is == f"{error.partition(':')[0]} --help shows the usage"


def test_no_command_shows_the_ten_that_answer_most_questions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([]) == 2
    shown, err = capsys.readouterr()
    assert err == ""
    lines = shown.splitlines()
    assert len(lines) <= 20 and max(map(len, lines)) <= 80
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    assert names == [
        "try", "status", "top", "throttled", "explain", "timeline", "whatif", "describe", "report", "doctor",
    ]  # fmt: skip
    assert set(names) <= {command.name for commands in GROUPS.values() for command in commands}
    assert lines[-1] == "kquota --help has all; kquota help tutorial begins"


def test_a_missing_command_below_another_is_one_line_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["quotas"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        "kquota quotas: which command: one of disable, enable, status",
        "kquota quotas --help shows the usage",
    ]
