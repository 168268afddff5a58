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


def test_an_owner_has_the_objective_of_the_file_or_its_own(tmp_path: Path) -> None:
    text = """\
objective_percent: 99
objective_days: 7
owners:
  - {name: a, users: [a], objective_percent: 99.9}
  - {name: b, users: [b], objective_days: 28}
  - {name: c, users: [c]}
"""
    owners = load_owners(written(tmp_path, text))
    found = {name: owners.objective_of(name) for name in owners.names}
    assert {name: (one.percent, one.days) for name, one in found.items()} == {
        "a": (99.9, 7), "b": (99.0, 28), "c": (99.0, 7), "unowned": (99.0, 7),
    }  # fmt: skip
    default = load_owners(written(tmp_path, GOOD)).objective_of("payments")
    assert (default.percent, default.days) == (99.5, 30)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("objective_percent: 50", "objective_percent: 50, expected 94 to 99.999"),
        ("objective_percent: 100", "objective_percent: 100, expected 94 to 99.999"),
        ("objective_days: 2", "objective_days: 2, expected 3 to 90"),
        ("objective_days: 1.5", "objective_days: 1.5, expected a whole number"),
    ],
)
def test_an_objective_that_no_alert_can_hold_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    assert problems(tmp_path, f"{line}\nowners: [{{name: a, users: [a]}}]\n") == [problem]
    assert problems(tmp_path, f"owners: [{{name: a, users: [a], {line}}}]\n") == [f"owners[0].{problem}"]


def test_entries_of_one_name_have_one_objective(tmp_path: Path) -> None:
    text = """\
owners:
  - {name: a, users: [a], valid_to: 2026-01-01, objective_percent: 99}
  - {name: a, users: [b], objective_percent: 99.9}
"""
    expected = "another one than in the first entry of a, expected the same in all its entries"
    assert problems(tmp_path, text) == [f"owners[1].objective_percent: {expected}"]
