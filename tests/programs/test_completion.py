"""`kquota viol<TAB>` in real shells: commands, options, choices, and names that the tables and contexts know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kquota_spark.config.contexts import Context, Contexts, save_contexts
from tests.support.places import ROOT
from tests.support.programs.command_output import run
from tests.support.programs.shells import found_shell, kquota_on_path, terminal
from tests.support.tables.table_rows import usage, write_table

_BEGIN = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
    "fish": ["--no-config", "-i"],
}
_BEFORE = {"bash": "", "zsh": "autoload -U compinit; compinit -D -u; ", "fish": ""}


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_tab_key_completes_in_a_terminal(shell: str, tmp_path: Path) -> None:
    environment = kquota_on_path(tmp_path)
    with terminal([found_shell(shell), *_BEGIN[shell]], environment, tmp_path) as typist:
        # What is typed is shown as well: the quotes tell the echo from the answer.
        typist.keys(f"{_BEFORE[shell]}eval \"$(kquota completion {shell})\"; echo rea''dy\r")
        typist.until("ready\r\n")
        typist.keys("kquota viol\t")
        typist.until("kquota violations ")
        typist.keys("--ty\t")
        typist.until("--type ")
        typist.keys("pro\t")
        typist.until("produce ")
        typist.keys("\x15exit\r")


def _fish(line: str, environment: dict[str, str], directory: Path) -> list[str]:
    """What fish offers for a line, without what it says beside."""
    program = 'kquota completion fish | source; complete -C "$argv[1]"'
    done = subprocess.run(
        [found_shell("fish"), "--no-config", "-c", program, line],
        cwd=directory, env=environment, capture_output=True, text=True, check=True, timeout=240,
    )  # fmt: skip
    return [offer.partition("\t")[0] for offer in done.stdout.splitlines()]


def test_fish_completes_commands_options_choices_and_files(tmp_path: Path) -> None:
    environment = kquota_on_path(tmp_path)
    (tmp_path / "mine.yaml").write_text("cluster_id: c\n")
    assert _fish("kquota viol", environment, tmp_path) == ["violations"]
    assert _fish("kquota enforce pl", environment, tmp_path) == ["plan"]
    assert _fish("kquota decisions --thr", environment, tmp_path) == ["--throttled"]
    assert _fish("kquota usage --type c", environment, tmp_path) == ["connection", "controller_mutation"]
    assert _fish("kquota usage --config mi", environment, tmp_path) == ["mine.yaml"]
    assert (
        _fish("kquota usage --limit ", environment, tmp_path) == []
    )  # a number is nothing that could be offered


def _bash(line: str, environment: dict[str, str], directory: Path) -> list[str]:
    """What bash's function of the script offers for a line."""
    program = (
        'eval "$(kquota completion bash)"; COMP_LINE="$1"; COMP_POINT=${#1}; _python_argcomplete kquota; '
        'printf "%s\\0" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [found_shell("bash"), "--norc", "--noprofile", "-c", program, "bash", line],
        cwd=directory, env=environment, capture_output=True, text=True, check=True, timeout=240,
    )  # fmt: skip
    return [offer for offer in done.stdout.split("\0") if offer]


@pytest.fixture
def known(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """A directory with tables and contexts, some of whose names mean harm."""
    names = ("alice", "al pacino", "al$(touch harm)", "al\x1b[2Jclear", "bob", "")
    write_table(tmp_path / "tables", "usage", *(usage(0, cluster_id="kafka", user=name) for name in names))
    save_contexts(
        tmp_path / "contexts.yaml",
        Contexts(contexts={"prod": Context(zookeeper="zk:2181"), "preprod": Context(zookeeper="zk:2181")}),
    )
    return kquota_on_path(tmp_path), tmp_path


def test_names_that_are_known_are_offered_and_quoted(known: tuple[dict[str, str], Path]) -> None:
    environment, directory = known
    line = "kquota violations --tables tables --user al"
    assert _bash(line, environment, directory) == ["al\\ pacino", "al\\$\\(touch\\ harm\\)", "alice"]
    assert _bash(line.replace("--user al", "--user bo"), environment, directory) == ["bob "]
    assert _bash(line.replace("--user al", "--client "), environment, directory) == ["etl "]
    assert _bash("kquota describe --context p", environment, directory) == ["preprod", "prod"]
    assert _bash("kquota kfk query --kafka p", environment, directory) == ["preprod", "prod"]
    assert not (directory / "harm").exists()


def test_quota_keys_and_entities_are_offered(known: tuple[dict[str, str], Path]) -> None:
    environment, directory = known
    alter = "kquota alter --context prod --name user=bob"
    assert _bash(f"{alter} --add pro", environment, directory) == ["producer_byte_rate="]
    assert _bash(f"{alter} --delete co", environment, directory) == [
        "connection_creation_rate", "consumer_byte_rate", "controller_mutation_rate",
    ]  # fmt: skip
    assert _bash("kquota describe --name cl", environment, directory) == ["client-id="]
    (directory / "mine.yaml").write_text("tables: tables\n")
    described = "kquota describe --config mine.yaml"
    assert _bash(f"{described} --user bo", environment, directory) == ["bob "]
    assert _bash(f"{described} --names=user=bo", environment, directory) == []
    # bash takes what stands behind = for a word of its own.
    assert _bash(f"{described} --name user=bo", environment, directory) == ["bob "]


def test_a_name_that_means_harm_is_typed_as_a_word(known: tuple[dict[str, str], Path]) -> None:
    environment, directory = known
    with terminal([found_shell("bash"), *_BEGIN["bash"]], environment, directory) as typist:
        typist.keys("eval \"$(kquota completion bash)\"; echo rea''dy\r")
        typist.until("ready\r\n")
        typist.keys("kquota usage --tables tables --user al\\$\t")
        typist.until("touch\\ harm\\) ")
        typist.keys("--output csv; echo do''ne\r")
        typist.until("done\r\n")
        typist.keys("exit\r")
    assert not (directory / "harm").exists()


def test_no_tables_and_no_valid_settings_are_no_names_and_no_message(tmp_path: Path) -> None:
    environment = kquota_on_path(tmp_path)
    (tmp_path / "bad.yaml").write_text("nonsense: 1\n")
    for options in ("--tables nowhere", "--config bad.yaml"):
        assert _bash(f"kquota usage {options} --user ", environment, tmp_path) == []


def test_the_tab_key_does_not_read_the_settings_of_a_directory(known: tuple[dict[str, str], Path]) -> None:
    """A directory that came from elsewhere may hold settings that open files and addresses."""
    environment, directory = known
    (directory / "conf").mkdir()
    (directory / "conf" / "kquota.yaml").write_text("tables: tables\n")
    assert _bash("kquota usage --user al", environment, directory) == []
    # Control: the same file is read where the line names it.
    named = "kquota usage --config conf/kquota.yaml --user al"
    assert _bash(named, environment, directory) == ["al\\ pacino", "al\\$\\(touch\\ harm\\)", "alice"]


def test_a_command_that_nobody_completes_does_not_load_argcomplete() -> None:
    program = (
        "import sys; from kquota_spark.cli.main import main; main(['tables'])\n"
        "print('argcomplete' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "False"


def test_another_shell_is_wrong_usage() -> None:
    with pytest.raises(SystemExit) as ended:
        run("completion", "tcsh")
    assert ended.value.code == 2
