"""`owners.yaml`: all its problems are reported at once with their places, and a good file gives the owners."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.config.owners_file import load_owners, owners_of
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError

GOOD = """\
owners:
  - name: payments
    cost_centre: CC-1201
    contact: payments@example.com
    users: ["pay-.*"]
    valid_to: 2026-11-21
  - name: search
    users: ["pay-.*"]
    client_ids: ["indexer-[0-9]+"]
    valid_from: 2026-11-21T00:00:00Z
"""
MIDNIGHT_MS = 1_795_219_200_000
"""2026-11-21 00:00:00 UTC."""


def written(folder: Path, text: str) -> Path:
    path = folder / "owners.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def problems(folder: Path, text: str) -> list[str]:
    path = written(folder, text)
    with pytest.raises(UserError) as refused:
        load_owners(path)
    return [line.removeprefix(f"{path}: ") for line in str(refused.value).splitlines()]


def test_a_date_and_a_time_with_a_zone_are_times_in_utc(tmp_path: Path) -> None:
    owners = load_owners(written(tmp_path, GOOD))
    assert owners.edges_ms == [MIDNIGHT_MS]
    found = [owners.of("pay-eu", "indexer-7", MIDNIGHT_MS + offset_ms) for offset_ms in (-1, 0)]
    assert [(one.name, one.cost_centre, one.contact) for one in found] == [
        ("payments", "CC-1201", "payments@example.com"),
        ("search", "", ""),
    ]


def test_no_file_is_no_owners(tmp_path: Path) -> None:
    assert owners_of(Settings()) is None
    owners = owners_of(Settings(owners=str(written(tmp_path, GOOD))))
    assert owners is not None and owners.names == ["payments", "search", "unowned"]


def test_all_problems_are_reported_at_once_with_their_places(tmp_path: Path) -> None:
    text = """\
owners:
  - {name: "a,b", users: ["("], valid_from: yesterday}
  - {name: unowned, client_ids: [x]}
  - {name: c}
  - {name: d, users: [x], valid_from: 2026-02-01, valid_to: 2026-01-01}
  - {name: e, users: [x], valid_to: "2026-01-01T00:00:00.5Z"}
"""
    time = "expected a time in UTC in whole seconds, such as 2026-01-31 or 2026-01-31T12:00:00Z"
    assert problems(tmp_path, text) == [
        "owners[0].name: 'a,b', expected 1 to 100 characters without a comma",
        "owners[0].users[0]: '(' is no regular expression (missing ): ()",
        f"owners[0].valid_from: 'yesterday', {time}",
        "owners[1].name: unowned is the name for clients without an owner, expected another name",
        "owners[2].users: neither users nor client_ids, expected patterns of the clients that it owns",
        "owners[3].valid_to: 2026-01-01, expected a time after valid_from",
        f"owners[4].valid_to: '2026-01-01T00:00:00.5Z', {time}",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "owners: missing"),
        ("owners: a", "owners: 'a', expected a list"),
        ("owners: [a]", "owners[0]: 'a', expected a mapping of keys"),
        ("owners: [{nam: a}]", "owners[0].nam: unknown key, did you mean name?"),
        ("owners: [{name: 5, users: [x]}]", "owners[0].name: 5, expected a text"),
        ("owners: [{name: a, users: x}]", "owners[0].users: 'x', expected a list"),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_place(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in problems(tmp_path, text)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^\S+/none.yaml: cannot be read: No such file or directory$"):
        load_owners(tmp_path / "none.yaml")
