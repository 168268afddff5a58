"""`kquota budget`: one row per owner with what is left, at any time, for people, programs and scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.programs.command_output import as_json, run, shown
from tests.support.tables.table_rows import decision, usage, write_table

HOUR_S = 3_600
LAST_S = HOUR_S - 1


def throttle(offset_s: int, longest_ms: int, **changed: Any) -> dict[str, Any]:
    figures = {"observed_throttle_ms": longest_ms, "observed_throttled_requests": 1,
               "observed_total_throttle_ms": longest_ms}  # fmt: skip
    return decision(offset_s, **figures, **changed)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour in which alice and bob send every second; alice waits 200 s in its last ten minutes, bob for 9 s."""
    root = tmp_path_factory.mktemp("budget")
    users = ("alice", "bob")
    write_table(root, "usage", *(usage(at_s, user=user) for at_s in range(HOUR_S) for user in users))
    write_table(
        root, "decisions", throttle(HOUR_S - 300, 100_000), throttle(HOUR_S - 100, 100_000, quota_type="fetch"),
        throttle(10, 9_000, bucket_user="bob", users=["bob"]), decision(LAST_S, bucket_user="bob", users=["bob"]),
    )  # fmt: skip
    (root / "owners.yaml").write_text(
        "objective_percent: 99.5\n"
        "owners:\n"
        "  - {name: payments, users: [alice], contact: pay@example.com}\n"
        "  - {name: search, users: [bob], objective_percent: 99}\n"
        "  - {name: idle, users: [nobody]}\n",
        encoding="utf-8",
    )
    path = root / "kquota.yaml"
    path.write_text(f"cluster_id: demo\ntables: {root}\nowners: {root}/owners.yaml\n", encoding="utf-8")
    return path


def test_a_row_has_the_budget_and_the_burn_rates(config: Path) -> None:
    rows = as_json("budget", "--config", str(config))["rows"]
    # payments: 0.5 % of 3,600 s are 18 s, 200 s are spent. An hour burns 11.1 times: 14.4 would be fast.
    # Six hours have the same, and 30 minutes 22.2 times: both are above 6.
    assert rows[0] == {
        "cluster_id": "demo", "owner": "payments", "objective_percent": 99.5, "objective_days": 30, "active_s": 3_600,
        "time_throttled_s": 200, "budget_s": 18.0, "budget_left_s": -182.0, "budget_left_percent": 100 * -182.0 / 18.0,
        "burn_5m": 200 / 300 / 0.005, "burn_30m": 200 / 1_800 / 0.005, "burn_1h": 200 / 3_600 / 0.005,
        "burn_6h": 200 / 3_600 / 0.005, "burn_3d": 200 / 3_600 / 0.005, "pace": "hours", "spent_at": None,
    }  # fmt: skip
    # search allows 1 %: 36 s, of which 9 s are spent.
    assert (rows[1]["owner"], rows[1]["budget_left_s"], rows[1]["budget_left_percent"]) == (
        "search",
        27.0,
        75.0,
    )
    assert len(rows) == 2


def test_the_buckets_of_an_owner_are_below_it_with_their_part_of_its_spending(config: Path) -> None:
    rows = as_json("budget", "--config", str(config), "--by", "bucket", "--owner", "payments")["rows"]
    found = [
        (row["quota_type"], row["bucket_user"], row["time_throttled_s"], row["budget_left_s"]) for row in rows
    ]
    # Each bucket alone leaves 18 - 100 s.
    assert found == [
        (None, None, 200, -182.0),
        ("fetch", "alice", 100, -82.0),
        ("produce", "alice", 100, -82.0),
    ]
    # In five minutes both were throttled for 100 of 300 s: their burn rates add up to that of the owner.
    assert [row["burn_5m"] for row in rows] == [200 / 300 / 0.005, 100 / 300 / 0.005, 100 / 300 / 0.005]
    text = shown("budget", "--config", str(config), "--by", "bucket")
    names = ["payments ", "  user alice, fetch ", "  user alice, produce ", "search ", "  user bob, produce "]
    assert [line.startswith(name) for line, name in zip(text.splitlines()[-9:], names, strict=False)] == [
        True
    ] * 5


def test_the_budget_at_an_earlier_time(config: Path) -> None:
    rows = as_json("budget", "--config", str(config), "--until", "2026-11-21T06:00:00Z")["rows"]
    # Before the last throttles: 20 minutes, of which bob waited for 9 s, and alice for none.
    found = [(row["owner"], row["active_s"], row["time_throttled_s"]) for row in rows]
    assert found == [("search", 1_200, 9), ("payments", 1_200, 0)]
    assert "0 s" in shown("budget", "--config", str(config), "--until", "2026-11-21T06:00:00Z")


@pytest.mark.parametrize(("owner", "code"), [("payments", 2), ("search", 0), (None, 2)])
def test_scripts_see_by_the_code_whether_a_budget_is_spent(
    owner: str | None, code: int, config: Path
) -> None:
    chosen = [] if owner is None else ["--owner", owner]
    assert run("budget", "--config", str(config), "--check", *chosen)[0] == code
    assert run("budget", "--config", str(config), *chosen)[0] == 0


def test_without_a_file_of_owners_each_user_has_a_budget(config: Path) -> None:
    tables = str(config.parent)
    rows = as_json("budget", "--tables", tables)["rows"]
    assert [(row["owner"], row["time_throttled_s"]) for row in rows] == [("alice", 200), ("bob", 9)]
    text = shown("budget", "--tables", tables)
    assert "\nuser " in f"\n{text}" and "no file of owners is set, so each user has a budget" in text
    owned = as_json("budget", "--tables", tables, "--owners", str(config.parent / "owners.yaml"))["rows"]
    assert [row["owner"] for row in owned] == ["payments", "search"]


def test_an_unknown_owner_is_an_error_that_names_a_near_one(config: Path) -> None:
    code, _, err = run("budget", "--config", str(config), "--owner", "payment")
    assert (code, err) == (
        1, f"kquota: --owner: 'payment' is no owner in {config.parent}/owners.yaml, did you mean 'payments'?\n"
    )  # fmt: skip
    assert run("budget", "--tables", str(config.parent), "--owner", "payments")[0] == 1


def test_an_owner_that_was_not_active_is_no_row(config: Path) -> None:
    code, out, err = run("budget", "--config", str(config), "--owner", "idle")
    assert (code, err) == (0, "")
    assert out == "no client of idle was active in the 30 days before 2026-11-21 06:40:00 UTC\n"


def test_empty_tables_are_an_error_and_a_time_before_all_data_has_no_row(
    tmp_path: Path, config: Path
) -> None:
    for name in ("usage", "decisions"):
        write_table(tmp_path, name)
    code, _, err = run("budget", "--tables", str(tmp_path))
    assert (code, err) == (1, "kquota: the table decisions is empty: has the audit processed anything yet?\n")
    assert shown("budget", "--config", str(config), "--until", "2026-11-01") == (
        "no client was active in the 30 days before 2026-11-01 00:00:00 UTC\n"
    )


def test_names_of_owners_and_users_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    user = "\x1b[31mred\u202e"
    write_table(tmp_path, "usage", usage(0, user=user))
    write_table(tmp_path, "decisions", decision(0, bucket_user=user))
    text = shown("budget", "--tables", str(tmp_path))
    assert "\x1b" not in text and "\u202e" not in text and "red" in text


def test_maintain_keeps_the_budget_of_the_dates_that_it_deletes(tmp_path: Path) -> None:
    # Ten seconds on each of three dates; 66,000 s after T0 is midnight. The throttle of the first one is over it.
    begins = (0, 66_000, 66_000 + 86_400)
    write_table(tmp_path, "usage", *(usage(begin_s + number) for begin_s in begins for number in range(10)))
    write_table(tmp_path, "decisions", throttle(65_998, 5_000), *(decision(begin_s) for begin_s in begins))
    write_table(tmp_path, "requests")
    config = tmp_path / "kquota.yaml"
    retention = "{usage: 1 h, decisions: 1 h}"
    config.write_text(
        f"cluster_id: demo\ntables: {tmp_path}\ncheckpoints: {tmp_path}/checkpoints\n"
        f"maintain: {{retention: {retention}}}\n",
        encoding="utf-8",
    )
    before = as_json("budget", "--config", str(config))["rows"]
    steps = as_json("maintain", "--config", str(config))["rows"]
    assert [(step["action"], step["date"], step["note"]) for step in steps if step["table"] == "budget_days"] == [
        ("add date", "2026-11-21", "1 user"), ("add date", "2026-11-22", "1 user"), ("remove files", "", ""),
    ]  # fmt: skip
    deleted = [(step["table"], step["date"]) for step in steps if step["action"] == "delete date"]
    assert deleted == [(name, f"2026-11-{day}") for name in ("usage", "decisions") for day in (21, 22)]
    assert as_json("budget", "--config", str(config))["rows"] == before
    # 20 seconds of traffic, two of the throttle before midnight, and the first one of the last date: it is the newest
    # second of decisions.
    assert [(row["owner"], row["active_s"], row["time_throttled_s"]) for row in before] == [("alice", 23, 5)]
    again = as_json("maintain", "--config", str(config))["rows"]
    assert [step for step in again if step["action"] == "add date"] == []
    # Buckets are not kept: their question reads the tables, which have the last date only.
    by_bucket = as_json("budget", "--config", str(config), "--by", "bucket")["rows"]
    assert [(row["bucket_user"], row["active_s"]) for row in by_bucket] == [(None, 1)]
