"""`kquota review` has the right exit code for 21 changes, each with the delay that the replay must find."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey
from tests.support.programs.command_output import run
from tests.support.reports.reviewed_tables import (
    BASE,
    CONSUME,
    PRODUCE,
    Quotas,
    quota_file,
    sent,
    write_reviewed_tables,
)
from tests.support.tables.table_rows import write_table


class Change(NamedTuple):
    """Edits of the base, the exit code, and the total delay of the affected clients before and after (ms)."""

    name: str
    edits: dict[AnyEntity, dict[AnyKey, float] | None]
    code: int
    delay_ms: tuple[int, int] = (0, 0)
    budget: str = "10min"


ALICE, BOB, CAROL, DAVE, ZED = (Entity(name) for name in ("alice", "bob", "carol", "dave", "zed"))
CHANGES = (
    Change("nothing", {}, 0),
    Change("a raise that ends a throttle", {ALICE: {PRODUCE: 200_000}}, 0, (2_000, 0)),
    # (180 - 160) / 160 x 10 s
    Change("a raise that shortens a throttle", {ALICE: {PRODUCE: 160_000}}, 0, (2_000, 1_250)),
    Change("a cut above the traffic", {BOB: {PRODUCE: 120_000}}, 0),
    # (100 - 80) / 80 x 10 s
    Change("a cut below the traffic", {BOB: {PRODUCE: 80_000}}, 2, (0, 2_500)),
    Change("the same cut above a budget", {BOB: {PRODUCE: 80_000}}, 3, (0, 2_500), "2s"),
    # (100 - 1) / 1 x 10 s are 16.5 min
    Change("a cut above the default budget", {BOB: {PRODUCE: 1_000}}, 3, (0, 990_000)),
    # (180 - 120) / 120 x 10 s
    Change("a cut of a throttled client", {ALICE: {PRODUCE: 120_000}}, 2, (2_000, 5_000)),
    Change("the end of a limit", {BOB: None}, 2),
    Change("a first limit above the traffic", {DAVE: {PRODUCE: 100_000}}, 0),
    # (30 - 10) / 10 x 10 s
    Change("a first limit below the traffic", {DAVE: {PRODUCE: 10_000}}, 2, (0, 20_000)),
    Change("a cut without traffic", {ZED: {PRODUCE: 20_000}}, 2),
    Change("a raise without traffic", {ZED: {PRODUCE: 60_000}}, 0),
    # 900 + 200 + 50 + 50 kB/s of 1 MB/s
    Change("a raise above the capacity", {ALICE: {PRODUCE: 900_000}}, 2, (2_000, 0)),
    Change(
        "a mangled name", {Entity("CN=app"): None, Entity("CN%3Dapp"): {PRODUCE: 50_000}}, 2
    ),
    Change("a name in another case", {Entity("Bob"): {PRODUCE: 900_000}}, 2),
    Change("thread time, which has no replay", {ALICE: {PRODUCE: 150_000, QuotaKey.REQUEST_PERCENTAGE: 50}}, 2),
    Change("a limit of connections", {IpEntity("10.0.0.1"): {IpQuotaKey.CONNECTION_CREATION_RATE: 5}}, 2),
    # (50 - 40) / 40 x 10 s
    Change("a cut of a reader", {CAROL: {CONSUME: 40_000}}, 2, (0, 2_500)),
    Change("a pair with the limit of its user", {Entity("alice", "app"): {PRODUCE: 150_000}}, 0, (2_000, 2_000)),
    Change("a default above all traffic", {Entity(DEFAULT): {PRODUCE: 100_000}}, 0),
)  # fmt: skip


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reviewed_tables(tmp_path_factory.mktemp("reviewed"))


def reviewed(settings: Path, folder: Path, head: Quotas, *words: str) -> tuple[int, str]:
    """Exit code and output of the review of a change of the base."""
    base, after = quota_file(folder, "base.yaml", BASE), quota_file(folder, "head.yaml", head)
    code, out, err = run(
        "review", "--base", str(base), "--head", str(after), "--config", str(settings), *words
    )
    assert err == ""
    # Blanks in numbers do not break.
    return code, out.replace("\u00a0", " ")


def head_of(change: Change) -> Quotas:
    return {entity: values for entity, values in {**BASE, **change.edits}.items() if values is not None}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_each_of_the_changes_has_its_exit_code_and_its_delay(
    settings: Path, tmp_path: Path, change: Change
) -> None:
    words = ("--budget-delay", change.budget, "--output", "json")
    code, out = reviewed(settings, tmp_path, head_of(change), *words)
    answer: dict[str, Any] = json.loads(out)
    groups = answer.get("affected", ())
    delay_ms = tuple(sum(one[f"delay_ms_{when}"] or 0 for one in groups) for when in ("before", "after"))
    assert (code, delay_ms) == (change.code, change.delay_ms)
    assert answer["verdict"] == {0: "harmless", 2: "person", 3: "harm"}[code]


def test_the_21_changes_have_every_verdict() -> None:
    codes = [change.code for change in CHANGES]
    assert (codes.count(0), codes.count(2), codes.count(3)) == (8, 11, 2)


def test_equal_files_have_an_empty_comment(settings: Path, tmp_path: Path) -> None:
    assert reviewed(settings, tmp_path, BASE) == (0, "")


def test_clients_are_in_order_of_harm(settings: Path, tmp_path: Path) -> None:
    # bob's delay grows by 2.5 s, dave's by 20 s, and alice's shrinks by 2 s.
    edits: Quotas = {ALICE: {PRODUCE: 200_000.0}, BOB: {PRODUCE: 80_000.0}, DAVE: {PRODUCE: 10_000.0}}
    code, out = reviewed(settings, tmp_path, {**BASE, **edits})
    rows = [
        line.split(" | ")
        for line in out.splitlines()
        if (line.startswith("| user ") and "kB |" in line) or "MB |" in line
    ]
    assert code == 2
    assert [(row[0], row[2], row[4]) for row in rows] == [
        ("| user `dave`", "unlimited → 10.0 kB/s", "0 ms → 20.0 s"),
        ("| user `bob`", "200 kB/s → 80.0 kB/s", "0 ms → 2.50 s"),
        ("| user `alice`", "150 kB/s → 200 kB/s", "2.00 s → 0 ms"),
    ]
    # One request each: the same in both loops. The bound of a change is 5 % and the longest throttle wider.
    assert [row[5:8] for row in rows] == [
        ["0 ms to 41.0 s", "", "≤ 20.0 s"],
        ["0 ms to 5.12 s", "", "≤ 2.50 s"],
        ["", "", "0 ms"],
    ]
    assert out.splitlines()[2] == (
        "**3 of 4 clients get another limit, 2 of them a lower or shared one. "
        "Total delay: 2.00 s → 22.5 s if clients wait, and 22.5 s more for those that lose "
        "(at most 22.5 s in the open loop).**"
    )
    assert (
        out.splitlines()[4] == "Most harm first: user `dave`: lower; user `bob`: lower; user `alice`: higher."
    )


def test_the_comment_shows_the_sum_of_the_limits_beside_the_capacity(settings: Path, tmp_path: Path) -> None:
    _, out = reviewed(settings, tmp_path, {**BASE, ALICE: {PRODUCE: 900_000.0}})
    assert "| `producer_byte_rate` | 450 kB/s (45 %) | 1.2 MB/s (120 %) | 1.0 MB/s | 1 |" in out
    assert "- The sum of the limits of producer_byte_rate exceeds the capacity of a broker." in out


def test_without_recorded_traffic_a_change_needs_a_person(tmp_path: Path) -> None:
    settings = tmp_path / "kquota.yaml"
    (tmp_path / "tables").mkdir()
    settings.write_text(f"tables: {json.dumps(str(tmp_path / 'tables'))}\n")
    code, out = reviewed(settings, tmp_path, {**BASE, ALICE: {PRODUCE: 900_000.0}})
    assert code == 2
    assert "**1 rule changed, and no recorded traffic shows the effect.**" in out
    assert "- There is no table usage, so no recorded traffic." in out


def test_a_length_of_since_counts_back_from_the_newest_second_of_the_tables(
    settings: Path, tmp_path: Path
) -> None:
    # The tables are of 2026-11-21 05:40:00, and all requests are in their newest second.
    code, out = reviewed(
        settings, tmp_path, {**BASE, BOB: {PRODUCE: 80_000.0}}, "--since", "1s", "--output", "json"
    )
    answer = json.loads(out)
    assert (code, answer["from"], answer["to"]) == (2, "2026-11-21T05:40:00Z", "2026-11-21T05:40:01Z")


def test_a_budget_of_zero_makes_each_delay_a_harm(settings: Path, tmp_path: Path) -> None:
    head: Quotas = {**BASE, BOB: {PRODUCE: 80_000.0}}
    assert reviewed(settings, tmp_path, head, "--budget-delay", "0")[0] == 3


def test_clients_beyond_the_largest_replay_need_a_person(
    settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kquota_spark.reports.review.affected.MOST_REQUESTS", 1)
    head: Quotas = {**BASE, BOB: {PRODUCE: 80_000.0}, DAVE: {PRODUCE: 10_000.0}}
    code, out = reviewed(settings, tmp_path, head, "--budget-delay", "1h")
    assert code == 2
    assert "- 1 client with a lower or shared limit could not be replayed." in out
    assert "?: too many requests for one replay." in out


def test_linked_clients_beyond_the_largest_reading_need_a_person(
    settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kquota_spark.reports.review.affected.MOST_LINKED", 0)
    code, out = reviewed(settings, tmp_path, {**BASE, BOB: {PRODUCE: 80_000.0}}, "--budget-delay", "1h")
    assert code == 2
    assert "?: too many requests for one replay." in out


def test_a_reader_under_a_lower_limit_gets_its_bytes_later_and_is_not_throttled(
    settings: Path, tmp_path: Path
) -> None:
    # Brokers cut a fetch to 10 s of the limit, 400 kB of the 500. That is 40 kB/s in a ring of 10 s: no throttle.
    code, out = reviewed(settings, tmp_path, {**BASE, CAROL: {CONSUME: 40_000.0}})
    assert code == 2
    assert "- 100 kB of the recorded bytes would come after the end of the traffic." in out
    [row] = [line.split(" | ") for line in out.splitlines() if line.startswith("| user `carol` |")][:1]
    assert row[4:8] == ["0 ms", "", "100 kB", "≤ 2.50 s"]


SECONDS = 120


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two minutes of one connection that sends 100 kB each second and waits for every throttle."""
    root = tmp_path_factory.mktemp("steady")
    write_table(root / "tables", "usage", *(sent("bob", 100_000, at_s) for at_s in range(SECONDS)))
    write_table(root / "tables", "decisions")
    settings = root / "kquota.yaml"
    settings.write_text(f"cluster_id: demo\ntables: {json.dumps(str(root / 'tables'))}\n", encoding="utf-8")
    return settings


def test_a_client_that_simply_slows_down_is_no_harm_above_the_budget(steady: Path, tmp_path: Path) -> None:
    head: Quotas = {**BASE, BOB: {PRODUCE: 50_000.0}}
    code, out = reviewed(steady, tmp_path, head, "--budget-delay", "3min", "--output", "json")
    [group] = json.loads(out)["affected"]
    # At the recorded times the throttles of 111 requests or so are up to 12 s: (100 - 50) / 50 x 12 s.
    assert group["delay_ms_after"] > 900_000
    # One connection cannot be muted longer than the two minutes, beside its last throttle of 12 s at most.
    assert 30_000 < group["delay_ms_after_closed"] <= 132_000
    # 50 kB/s are 6 MB of the 12. A ring of 12 s lets 600 kB come earlier, and a throttle of 12 s 600 kB later.
    assert 5_400_000 <= group["deferred_bytes"] <= 6_600_000
    assert code == 2
    # The same figure above its budget is harm.
    assert reviewed(steady, tmp_path, head, "--budget-delay", "30s")[0] == 3


def test_a_usage_error_is_1_because_2_is_a_verdict(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        run("review", "--base", str(tmp_path / "x"))
    assert ended.value.code == 1
