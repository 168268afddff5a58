"""The file of exempt names: one per line, whatever the name, and nothing else of it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.enforce.guard_settings import Exempt
from kquota_spark.enforcement.exempt_file import ExemptName, add_exempt, read_exempt, remove_exempt
from kquota_spark.enforcement.policies import load_policies
from kquota_spark.errors import UserError

FILE = """\
# people
users/admin
  users/CN%3Dapp%2COU%3Dx

clients/mirror%20maker
pattern connect-.*
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "exempt.txt"
    found.write_text(FILE, encoding="utf-8")
    return found


def test_names_are_spelled_as_kafkas_nodes_spell_them(file: Path) -> None:
    assert read_exempt(file) == Exempt(
        users=("admin", "CN=app,OU=x"), client_ids=("mirror maker",), patterns=("connect-.*",)
    )


@pytest.mark.parametrize(
    ("kind", "name", "line"),
    [
        ("user", "bob", "users/bob"),
        ("user", "two\nlines # \x1b[2J", "users/two%0Alines+%23+%1B%5B2J".replace("+", "%20")),
        ("client", "a/b \u2028", "clients/a%2Fb%20%E2%80%A8"),
        ("client", "# no comment", "clients/%23%20no%20comment"),
        ("pattern", "mm-[a b]+", "pattern mm-[a b]+"),
    ],
)
def test_what_is_added_is_one_line_and_what_is_removed_leaves_the_file_as_it_was(
    file: Path, kind: str, name: str, line: str
) -> None:
    one = ExemptName(kind, name)
    assert add_exempt(file, one)
    assert file.read_text(encoding="utf-8") == f"{FILE}{line}\n"
    assert not add_exempt(file, one)
    exempt = read_exempt(file)
    assert (exempt.users + exempt.client_ids + exempt.patterns).count(name) == 1
    assert remove_exempt(file, one)
    assert file.read_text(encoding="utf-8") == FILE
    assert not remove_exempt(file, one)


def test_a_last_line_without_an_end_stays_a_line_of_its_own(file: Path) -> None:
    file.write_bytes(b"users/a\r\nusers/b")
    assert add_exempt(file, ExemptName("user", "c"))
    assert file.read_bytes() == b"users/a\r\nusers/b\nusers/c\n"
    assert remove_exempt(file, ExemptName("user", "a"))
    assert read_exempt(file).users == ("b", "c")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("admin", "'admin', expected users/NAME, clients/ID or pattern REGEX"),
        ("users/<default>", "'users/<default>', expected users/NAME, clients/ID or pattern REGEX"),
        ("users/a/clients/b", "'users/a/clients/b', expected users/NAME, clients/ID or pattern REGEX"),
        ("pattern a(", "'pattern a(': is no regular expression (missing ): a()"),
    ],
)
def test_a_line_that_exempts_nobody_is_a_problem_with_its_number(file: Path, line: str, problem: str) -> None:
    file.write_text(f"users/a\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_exempt(file)
    assert str(caught.value) == f"{file}: line 2: {problem}"
    with pytest.raises(UserError):
        add_exempt(file, ExemptName("user", "c"))
    assert file.read_text(encoding="utf-8") == f"users/a\n{line}\n"


def test_a_file_that_is_named_and_missing_protects_nobody_silently(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("exempt: {file: exempt.txt, users: [admin]}\n", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"exempt\.txt: there is no such file of exempt names: make it, it may be"
    ):
        load_policies(policy)
    (tmp_path / "exempt.txt").write_text("clients/etl\n", encoding="utf-8")
    exempt = load_policies(policy).exempt
    assert (exempt.users, exempt.client_ids) == (("admin",), ("etl",))
