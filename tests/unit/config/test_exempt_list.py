"""Exemptions are added and removed in the text of the policy file, and nothing else of it changes."""

from __future__ import annotations

import pytest
import yaml

from kquota_spark.config.exempt_list import with_exempt, without_exempt
from kquota_spark.errors import UserError

BLOCK = """\
mode: observe   # for now
exempt:
  users:   # never these
    - admin    # people
    - 'mirror maker'
  client_ids: [connect, "a b"]  # Connect
  patterns: []
policies: []
"""


def test_a_name_is_added_to_a_block_list_behind_the_comment_of_the_name_before() -> None:
    text = with_exempt(BLOCK, "users", "broker")
    assert text == BLOCK.replace("    - 'mirror maker'\n", "    - 'mirror maker'\n    - broker\n")
    assert with_exempt(with_exempt(BLOCK, "users", "a"), "users", "a") == with_exempt(BLOCK, "users", "a")


def test_a_name_is_added_to_a_list_in_brackets() -> None:
    assert with_exempt(BLOCK, "client_ids", "etl") == BLOCK.replace('"a b"]', '"a b", etl]')
    assert with_exempt(BLOCK, "patterns", "mm-.*") == BLOCK.replace("[]\npol", '["mm-.*"]\npol')


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("mode: observe\n", "mode: observe\n\nexempt:\n  users: [bob]\n"),
        ("mode: observe", "mode: observe\n\nexempt:\n  users: [bob]\n"),
        ("exempt:   # nobody\nmode: off\n", "exempt: {users: [bob]}   # nobody\nmode: off\n"),
        ("exempt: {}\n", "exempt: {users: [bob]}\n"),
        ("exempt: {client_ids: [x]}\n", "exempt: {users: [bob], client_ids: [x]}\n"),
        ("exempt:\n  client_ids: [x]\n", "exempt:\n  users: [bob]\n  client_ids: [x]\n"),
        ("exempt:\n  users:\nmode: off\n", "exempt:\n  users: [bob]\nmode: off\n"),
        ("exempt:\n  users:\n  - al", "exempt:\n  users:\n  - al\n  - bob\n"),
        (
            "exempt:\n  users: [al, # one\n    cy] # two\n",
            "exempt:\n  users: [al, # one\n    cy, bob] # two\n",
        ),
    ],
)
def test_a_name_is_added_whatever_is_there(before: str, after: str) -> None:
    assert with_exempt(before, "users", "bob") == after


@pytest.mark.parametrize(
    ("kind", "name", "after"),
    [
        ("users", "admin", BLOCK.replace("    - admin    # people\n", "")),
        ("users", "mirror maker", BLOCK.replace("    - 'mirror maker'\n", "")),
        ("client_ids", "connect", BLOCK.replace("[connect, ", "[")),
        ("client_ids", "a b", BLOCK.replace(', "a b"]', "]")),
        ("client_ids", "nobody", BLOCK),
    ],
)
def test_a_name_is_removed_with_its_own_comment_only(kind: str, name: str, after: str) -> None:
    assert without_exempt(BLOCK, kind, name) == after


def test_the_last_name_leaves_an_empty_list() -> None:
    assert without_exempt("exempt:\n  users:\n    - al\nmode: off\n", "users", "al") == (
        "exempt:\n  users: []\nmode: off\n"
    )
    assert without_exempt("exempt: {users: [al]}\n", "users", "al") == "exempt: {users: []}\n"


@pytest.mark.parametrize(
    "name", ["no", "1e3", "", "# x", "a: b", "\x1b[2J\n", "-", "ünï 日本 \U0001f600", '"', "'"]
)
def test_any_name_is_read_back_as_it_was(name: str) -> None:
    for text in (BLOCK, "mode: observe\n"):
        added = with_exempt(text, "users", name)
        assert name in yaml.safe_load(added)["exempt"]["users"]
        removed = yaml.safe_load(without_exempt(added, "users", name))["exempt"]["users"]
        assert removed == (yaml.safe_load(text).get("exempt") or {}).get("users", [])


def test_a_form_that_is_not_understood_is_refused_and_not_written() -> None:
    merged = "base: &b {users: [al]}\nexempt:\n  <<: *b\n"
    with pytest.raises(UserError, match="edit it by hand"):
        without_exempt(merged, "users", "al")
