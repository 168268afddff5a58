"""`kquota rightsize` on tables of weeks with known demand: a free client, one that waits, and one that is new."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from tests.right_size.tables import write_weeks
from tests.support.programs.command_output import as_json, run, shown


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifteen days, in a folder without a policy file."""
    root = tmp_path_factory.mktemp("weeks")
    path = write_weeks(root, 15)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"enforcement: {{policy_file: {root}/policy.yaml}}\n")
    return path


def by_user(config: Path, *options: str) -> dict[str, dict[str, Any]]:
    rows = as_json("rightsize", "--config", str(config), *options)["rows"]
    return {row["bucket_user"]: row for row in rows}


def test_a_free_client_is_sized_by_what_it_sent(config: Path) -> None:
    row = by_user(config)["alice"]
    # The hours of the day have the same weight but for the last one, which has no whole window after 23:05:50.
    # 36 windows per hour from 100 to 135 kB/s, so 134 kB/s is the 98th percentile. Bin 242 is 134.3 to 141.0 kB/s and
    # has the last one: 1/36 = 2.8 % of windows, of which 99 % is 1.8 / 2.8 of the way up.
    wanted = 1.05 ** (242 + (0.99 - 35 / 36) * 36)
    assert (row["demand_per_s"], row["target_per_s"]) == (
        pytest.approx(wanted, 1e-4),
        pytest.approx(1.1 * wanted, 1e-4),
    )
    assert (row["limit_per_s"], row["is_at_least"], row["hidden_percent"]) == (200_000, False, 0)
    assert (row["rule"], row["worst_broker_id"], row["reason"]) == ("users/<default>", 1, "too high")
    assert row["history_days"] == pytest.approx(14.96, abs=0.01)


def test_a_client_that_waits_is_sized_by_its_pace(config: Path) -> None:
    row = by_user(config)["bob"]
    # It got 200 kB/s. Of each window it was muted for 5 s, and sent 2 MB in the others: 400 kB/s, in bin 264.
    assert row["demand_per_s"] == pytest.approx(1.05 ** (264 + 0.99))
    assert row["lower_per_s"] < 400_000 < row["upper_per_s"]
    assert (row["limit_per_s"], row["hidden_percent"], row["reason"]) == (200_000, 0, "too low")


def test_a_client_without_free_seconds_needs_at_least_what_it_got(config: Path) -> None:
    row = by_user(config)["erin"]
    # 12 of 36 windows have one request and 9 s of throttle: 100 kB/s, in bin 235, and no end.
    assert (row["is_at_least"], row["upper_per_s"], row["reason"]) == (
        True,
        None,
        "throttles hide the demand",
    )
    assert row["demand_per_s"] == pytest.approx(1.05**235)
    assert row["hidden_percent"] == pytest.approx(100 * 12 / 36, abs=0.1)


def test_a_history_below_two_weeks_has_a_reason_and_no_number(config: Path) -> None:
    row = by_user(config)["carol"]
    assert row["reason"] == "too short: 3.0 of 14 days"
    numbers = (
        "target_per_s",
        "is_at_least",
        "demand_per_s",
        "lower_per_s",
        "upper_per_s",
        "hidden_percent",
        "days_to_80",
    )
    assert [row[name] for name in numbers] == [None] * len(numbers)
    early = by_user(config, "--until", "2026-11-10T00:00:00Z")
    assert [row["target_per_s"] for row in early.values()] == [None] * 4


def test_people_see_the_limit_that_is_most_too_low_first(config: Path) -> None:
    text = shown("rightsize", "--config", str(config))
    users = [line.split()[1] for line in text.splitlines() if line.startswith("user ")]
    assert users == ["bob", "erin", "alice", "dave", "carol"]
    assert "5 buckets, 1 with too short a history; windows of 10 s until 2026-11-15 23:05:50 UTC" in text
    assert "user alice" not in shown("rightsize", "--config", str(config), "--user", "bob")


@pytest.mark.parametrize("user", ["alice", "bob", "erin"])
def test_a_bucket_alone_has_the_size_that_it_has_among_all(user: str, config: Path) -> None:
    assert by_user(config, "--user", user, "--type", "produce") == {user: by_user(config)[user]}
    assert by_user(config, "--user", user, "--type", "fetch") == {}


def test_csv_has_all_columns(config: Path) -> None:
    code, out, _ = run("rightsize", "--config", str(config), "--output", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (code, [row["bucket_user"] for row in rows]) == (0, ["bob", "erin", "alice", "dave", "carol"])
    assert float(rows[0]["target_per_s"]) > 400_000 and rows[4]["target_per_s"] == ""


def test_bounds_of_the_policy_cap_the_target(config: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "guards: {bounds: {producer_byte_rate: {floor: 100000, ceiling: 300000}}}\npolicies: []\n",
        encoding="utf-8",
    )
    other = tmp_path / "kquota.yaml"
    text = config.read_text(encoding="utf-8").rpartition("enforcement")[0]
    other.write_text(f"{text}enforcement: {{policy_file: {policy}}}\n", encoding="utf-8")
    row = by_user(other)["bob"]
    assert row["target_per_s"] == 300_000 < row["uncapped_per_s"]
    assert row["reason"] == "too low; capped by guards.bounds"


def test_values_of_a_default_are_compared(config: Path) -> None:
    rows = as_json("rightsize", "--config", str(config), "--defaults")["rows"]
    # alice and bob have the default of 200 kB/s and need 152 and 453 kB/s: bob does not fit it now, so under a lower
    # one only alice is newly throttled. dave and erin have overrides, and need 232 and 187 kB/s.
    found = [
        (
            row["entity"],
            row["value_per_s"],
            row["is_present"],
            row["covered"],
            row["collateral"],
            row["overrides_saved"],
        )
        for row in rows
    ]
    assert found == [
        ("users/<default>", 100_000, False, 0, 1, 0),
        ("users/<default>", 200_000, True, 2, 0, 1),
        ("users/<default>", 500_000, False, 4, 0, 2),
    ]
    code, _, err = run("rightsize", "--config", str(config), "--defaults", "--user", "bob")
    assert code == 1 and err == "kquota: rightsize: --user works only without --defaults\n"


def test_a_time_that_is_too_new_is_an_error(config: Path) -> None:
    code, _, err = run("rightsize", "--config", str(config), "--since", "2026-11-20T00:00:00Z")
    assert code == 1
    assert err.startswith(
        "kquota: --since 2026-11-20 00:00:00 UTC: nothing is that new, the tables reach 2026-11-15"
    )
