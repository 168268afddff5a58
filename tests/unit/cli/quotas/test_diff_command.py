"""`kquota diff`: files and tables held against each other, by text and by effect; the exit code is a gate."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs.command_output import run
from tests.support.tables.table_rows import rule, source, usage, write_table

BEFORE = """\
- {user: alice, type: producer_byte_rate, value: 5000000}
- {user: <default>, type: producer_byte_rate, value: 1000000}
- {ip: '::1', type: connection_creation_rate, value: 5}
"""
WIDTH = 100


def tables(root: Path) -> Path:
    write_table(
        root, "quota_rules", source(9), rule("users/alice", 3, producer_byte_rate=5e6),
        rule("users/<default>", 6, producer_byte_rate=1e6), rule("ips/::1", None, connection_creation_rate=5.0),
    )  # fmt: skip
    write_table(
        root, "usage", usage(0, amount=7_000_000), usage(1, user="bob", client_id="app", amount=40_000),
        usage(-90_000, user="old", client_id="app"),
    )  # fmt: skip
    return root


def file(tmp_path: Path, text: str, name: str = "quotas.yaml") -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def diff(*arguments: str) -> tuple[int, str]:
    code, out, err = run("diff", *arguments)
    assert err == ""
    return code, out


def rows(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code, out = diff(*arguments, "--output", "json")
    return code, json.loads(out)["rows"]


def test_no_difference_is_0(tmp_path: Path) -> None:
    # The address in another spelling, and the number as a text: no difference.
    other = BEFORE.replace("'::1'", "'0:0:0:0:0:0:0:1'").replace("5000000", "'5e6'")
    code, out = diff(file(tmp_path, other), "--tables", str(tables(tmp_path / "t")))
    assert code == 0
    assert "\nno value differs\n\nnobody gets another limit or bucket (of 2 clients seen" in out
    assert rows(file(tmp_path, other), "--tables", str(tmp_path / "t")) == (0, [])


def test_a_dash_is_standard_input_and_a_file_of_that_name_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file(tmp_path, BEFORE, "-")
    given = BEFORE.replace("5000000", "6000000").encode()
    for sides, origins in (
        (("./-", "-"), ("file ./-", "standard input")),
        (("-", "./-"), ("standard input", "file ./-")),
    ):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        code, out, _ = run("diff", *sides, "--by", "text", "--output", "json")
        answer = json.loads(out)
        assert (code, answer["before"], answer["after"]) == (2, *origins)
    assert run("diff", "-", "-") == (
        1, "", "kquota: -: standard input is one side only; a file of this name is ./-\n"
    )  # fmt: skip


def test_one_value_differs_and_two_differ(tmp_path: Path) -> None:
    more = file(tmp_path, BEFORE.replace("5000000", "6000000"))
    _, out = diff(more, "--tables", str(tables(tmp_path / "t")), "--by", "text")
    assert "\n1 value differs\n" in out


def test_by_text_and_by_effect(tmp_path: Path) -> None:
    after = file(tmp_path, BEFORE.splitlines()[1])
    code, out = diff(after, "--tables", str(tables(tmp_path / "t")))
    assert code == 2
    assert (
        out.split("\n\n", 1)[1]
        == """\
2 values differ
entity       key                          before  after
users/alice  producer_byte_rate        5,000,000      -
ips/::1      connection_creation_rate          5      -

who gets another limit or bucket
who            type          before      after  rule            bucket    used
alice / etl    produce     5.0 MB/s   1.0 MB/s  u/alice -> u/*          7.0 MB
alice / (any)  produce     5.0 MB/s   1.0 MB/s  u/alice -> u/*               -
ip ::1         connection       5/s  unlimited  ips/::1 -> -                 -
1 seen and 2 possible, of 2 clients seen in the day to 2026-11-21T05:40:02Z
(any): one that no rule names; rule: u/ user, c/ client id, * the default; limits hold per broker;
bucket: where it changes, whether a user, a client id or a pair shares the limit
"""
    )
    assert max(map(len, out.splitlines())) <= WIDTH


def test_json_says_the_level_and_the_bucket(tmp_path: Path) -> None:
    after = file(
        tmp_path, "- {user: alice, client_id: <default>, type: producer_byte_rate, value: 5000000}\n"
    )
    before = file(tmp_path, BEFORE.splitlines()[0], "before.yaml")
    code, found = rows(before, after, "--tables", str(tables(tmp_path / "t")), "--by", "effect")
    assert code == 2
    seen = found[0]
    assert {name: seen[name] for name in ("user", "client_id", "before", "after", "is_seen", "amount")} == {
        "user": "alice", "client_id": "etl", "before": 5e6, "after": 5e6, "is_seen": True, "amount": 7_000_000,
    }  # fmt: skip
    assert (seen["level_before"], seen["level_after"], seen["is_other_bucket"]) == (3, 2, True)
    assert seen["bucket_before"] == {"user": "alice", "client_id": ""}
    assert seen["bucket_after"] == {"user": "alice", "client_id": "etl"}
    assert found[1]["bucket_after"] == {"user": "alice", "client_id": None}, "each of them has its own"


def test_by_chooses(tmp_path: Path) -> None:
    root = str(tables(tmp_path / "t"))
    # Alice's pair is behind nothing: her rule of now goes on for all other client ids of hers.
    after = file(tmp_path, BEFORE + "- {client_id: etl, type: producer_byte_rate, value: 1}\n")
    assert [row["by"] for row in rows(after, "--tables", root, "--by", "text")[1]] == ["text"]
    assert rows(after, "--tables", root, "--by", "effect") == (0, []), "users come before client ids"
    assert [row["by"] for row in rows(after, "--tables", root)[1]] == ["text"]
    assert diff(after, "--tables", root)[0] == 2


def test_a_file_of_another_tool(tmp_path: Path) -> None:
    text = (
        "Quota configs for user-principal 'alice' are producer_byte_rate=5000000.0\n"
        "Quota configs for the default user-principal are producer_byte_rate=1000000.0\n"
        "Quota configs for ip '::1' are connection_creation_rate=5.0\n"
    )
    assert diff(file(tmp_path, text, "configs.txt"), "--tables", str(tables(tmp_path / "t")))[0] == 0


def test_a_migration_that_mangles_names_does_not_pass(tmp_path: Path) -> None:
    before = file(tmp_path, "- {user: 'CN=app', type: producer_byte_rate, value: 5}\n", "zookeeper.yaml")
    after = file(tmp_path, "- {user: 'CN%3Dapp', type: producer_byte_rate, value: 5}\n", "kraft.yaml")
    code, out = diff(before, after, "--tables", str(tmp_path / "none"))
    assert code == 2
    assert (
        "mangled: users/CN%3Dapp became users/CN%253Dapp: the name is still as ZooKeeper spells it (KAFKA-16222)"
        in " ".join(out.split())
    )
    assert "CN=app / (any)    produce      5 B/s  unlimited  u/CN=app -> -" in out


def test_the_tables_as_of_then(tmp_path: Path) -> None:
    root = str(tables(tmp_path / "t"))
    code, out = diff(file(tmp_path, BEFORE), "--tables", root, "--at", "2026-10-01T00:00:00Z")
    assert code == 2
    assert "as of 2026-10-01T00:00:00Z" in " ".join(out.split())
    assert "3 values differ" in out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere.yaml"], "nowhere.yaml: no such file, and context nowhere.yaml: not in"),
        (
            ["a.yaml", "--zookeeper", "z:1", "--at", "1h"],
            "--at: a running cluster has only the quotas of now",
        ),
        (["a.yaml", "a.yaml", "--zookeeper", "z:1"], "two sides are named already"),
        (["a.yaml", "a.yaml", "--command-config", "f"], "two sides are named already"),
        (["a.yaml", "a.yaml", "a.yaml"], "more than two sides: expected before and after"),
        (["b.txt", "a.yaml"], "b.txt: is none of the formats"),
        (
            ["c.yaml", "a.yaml"],
            "c.yaml: [0].value: -1, expected a whole number of bytes per second, 0 or more",
        ),
    ],
)
def test_errors_are_1(
    arguments: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file(tmp_path, BEFORE, "a.yaml")
    file(tmp_path, "hello", "b.txt")
    file(tmp_path, "- {user: a, type: producer_byte_rate, value: -1}\n", "c.yaml")
    code, out, err = run("diff", *arguments)
    assert (code, out) == (1, "")
    assert err.startswith(f"kquota: {problem}")


def test_a_hostile_name_does_no_harm(tmp_path: Path) -> None:
    name = "\\x1b[31mred\\n"
    text = f'- {{user: "{name}", type: producer_byte_rate, value: 5}}\n'
    code, out = diff(
        file(tmp_path, text), file(tmp_path, "[]\n", "empty.yaml"), "--tables", str(tmp_path / "none")
    )
    assert code == 2
    assert "\x1b" not in out
