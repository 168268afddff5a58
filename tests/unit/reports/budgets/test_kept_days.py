"""A budget with the kept dates is the budget from all rows, to the second, whatever happened to the rows since."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kquota_spark.config.settings import Settings
from kquota_spark.model.budgets.objectives import Objective, Spent
from kquota_spark.model.owners import Owner, Owners
from kquota_spark.name_patterns import is_match
from kquota_spark.reports.budgets import day_roll_up
from kquota_spark.reports.budgets.following import FollowedBudgets
from kquota_spark.reports.budgets.grouping import Grouping, by_owner, by_user, of_tenant
from kquota_spark.schema.tables import DECISIONS, USAGE
from kquota_spark.store.delta.table import StoredTable
from kquota_spark.store.packing import pack, small_files
from kquota_spark.store.storage import delta_table
from tests.support.chance import Chance
from tests.support.reports.kept_budgets import (
    DAY_S,
    MIDNIGHT_S,
    budgets,
    kept_dates,
    roll_up,
    tables_of,
    throttle,
)
from tests.support.tables.table_rows import T0_MS, decision, usage, write_table

FIRST, SECOND, THIRD = "2026-11-21", "2026-11-22", "2026-11-23"
USERS = ("alice", "bob", "pay-1", "eve")
OF_FILE = """
objective_days: 4
owners:
  - {name: payments, users: ["pay-.*", alice], valid_to: 2026-11-22T12:00:00Z}
  - {name: search, users: [bob, alice]}
"""
OWNERS = Owners(
    [
        Owner(name="payments", users=("pay-.*", "alice"), to_ms=T0_MS + (MIDNIGHT_S + DAY_S // 2) * 1_000),
        Owner(name="search", users=("bob", "alice")),
    ],
    is_match,
    Objective(99.5, 4),
)
DAYS = [f"2026-11-{day}" for day in range(21, 27)]
"""The closed dates of `drawn` tables; the 27th is open."""


def at(offset_s: int) -> int:
    return T0_MS + offset_s * 1_000


def three_days(root: Path, **changed: Any) -> Settings:
    """alice is active for 10 s of each date, and waits over the first midnight: from 23:59:58 for five seconds."""
    settings = tables_of(root, OF_FILE)
    for begin_s in (0, MIDNIGHT_S, MIDNIGHT_S + DAY_S):
        write_table(root, "usage", *(usage(begin_s + number) for number in range(10)))
    write_table(root, "decisions", throttle(MIDNIGHT_S - 2, 5_000, **changed))
    write_table(root, "decisions", decision(MIDNIGHT_S), decision(MIDNIGHT_S + DAY_S))
    return settings


def spent(settings: Settings, grouping: Grouping, to_s: int = MIDNIGHT_S + DAY_S + 10) -> dict[str, Spent]:
    return {name: one.period for name, one in budgets(settings, at(to_s), grouping).items()}


def test_a_throttle_over_midnight_counts_once_and_wholly_from_kept_dates(tmp_path: Path) -> None:
    settings = three_days(tmp_path)
    steps = roll_up(settings, FIRST, SECOND)
    assert [(step.action, step.date, step.note) for step in steps] == [
        ("add date", FIRST, "1 owner, 1 user"),
        ("add date", SECOND, "1 owner, 1 user"),
    ]
    to_ms = at(MIDNIGHT_S + DAY_S + 10)
    assert kept_dates(settings, to_ms, by_user()) == [FIRST, SECOND]
    # 30 seconds of traffic, and two of the throttle before midnight; three of its five are in traffic.
    assert spent(settings, by_user()) == {"alice": (32, 5)}
    rows = DeltaTable(str(tmp_path / "budget_days")).to_pyarrow_table().to_pylist()
    found = sorted(
        (str(row["event_date"]), row["grouped_by"], row["name"], row["active_s"], row["time_throttled_s"])
        for row in rows
    )
    # The throttle is that of the first date, also its three seconds after midnight: 10 + 5 seconds.
    assert found == [
        (FIRST, "owner", "payments", 15, 5), (FIRST, "user", "alice", 15, 5),
        (SECOND, "owner", "payments", 10, 0), (SECOND, "user", "alice", 10, 0),
    ]  # fmt: skip


def test_dates_that_hold_are_not_computed_again(tmp_path: Path) -> None:
    settings = three_days(tmp_path)
    assert len(roll_up(settings, FIRST, SECOND)) == 2
    version = delta_table(settings, "budget_days").version()
    assert roll_up(settings, FIRST, SECOND) == []
    spent(settings, by_owner(OWNERS))
    assert delta_table(settings, "budget_days").version() == version


def test_late_rows_put_a_date_out_of_use_until_it_is_computed_again(tmp_path: Path) -> None:
    settings = three_days(tmp_path)
    roll_up(settings, FIRST, SECOND)
    to_ms = at(MIDNIGHT_S + DAY_S + 10)
    write_table(tmp_path, "usage", usage(20))
    assert kept_dates(settings, to_ms, by_user()) == [SECOND]
    assert spent(settings, by_user()) == {"alice": (33, 5)}
    assert [step.date for step in roll_up(settings, FIRST, SECOND)] == [FIRST]
    assert kept_dates(settings, to_ms, by_user()) == [FIRST, SECOND]
    assert spent(settings, by_user()) == {"alice": (33, 5)}


def test_a_restatement_with_as_many_rows_puts_its_date_out_of_use(tmp_path: Path) -> None:
    settings = three_days(tmp_path)
    roll_up(settings, FIRST, SECOND)
    restate(settings, FIRST, throttle(MIDNIGHT_S - 2, 1_000))
    assert kept_dates(settings, at(MIDNIGHT_S + DAY_S + 10), by_user()) == [SECOND]
    # One second of throttle before midnight instead of two and three.
    assert spent(settings, by_user()) == {"alice": (31, 1)}


def restate(settings: Settings, day: str, *rows: dict[str, Any]) -> None:
    """Replace the decisions of a date by these, in one commit."""
    from kquota_spark.store.rows import arrow_rows

    in_ms = [{**row, "second": round(row["second"].timestamp() * 1_000)} for row in rows]
    delta_table(settings, "decisions").replace(arrow_rows(DECISIONS, in_ms), f"event_date = '{day}'")


def test_other_owners_put_only_their_dates_out_of_use_and_objectives_none(tmp_path: Path) -> None:
    settings = three_days(tmp_path)
    roll_up(settings, FIRST, SECOND)
    to_ms = at(MIDNIGHT_S + DAY_S + 10)
    assert kept_dates(settings, to_ms, by_owner(OWNERS)) == [FIRST, SECOND]
    assert spent(settings, by_owner(OWNERS)) == {"payments": (22, 5), "search": (10, 0)}
    # Another hand-over on the 22nd, at 00:00:05: the 21st has the owners that it had.
    moved = Owners(
        [
            Owner(name="payments", users=("pay-.*", "alice"), to_ms=at(MIDNIGHT_S + 5)),
            Owner(name="search", users=("bob", "alice")),
        ],
        is_match,
        Objective(99.0, 5),
    )
    assert kept_dates(settings, to_ms, by_owner(moved)) == [FIRST]
    assert spent(settings, by_owner(moved)) == {"payments": (17, 5), "search": (15, 0)}
    renamed = Owners([Owner(name="pay", users=("alice",))], is_match)
    assert kept_dates(settings, to_ms, by_owner(renamed)) == []
    assert spent(settings, by_owner(renamed)) == {"pay": (32, 5)}
    # Users are not owners: their rows hold.
    assert kept_dates(settings, to_ms, of_tenant("alice", renamed, to_ms)) == [FIRST, SECOND]


def test_packing_the_files_of_a_date_leaves_it_in_use(tmp_path: Path) -> None:
    settings = three_days(tmp_path)
    write_table(tmp_path, "usage", usage(30))
    roll_up(settings, FIRST, SECOND)
    files = [file for file in small_files(delta_table(settings, "usage")) if file.event_date == FIRST]
    assert len(files) == 2 and pack(settings, USAGE, files)
    assert kept_dates(settings, at(MIDNIGHT_S + DAY_S), by_user()) == [FIRST, SECOND]


def test_a_throttle_over_the_start_of_the_period_does_not_count(tmp_path: Path) -> None:
    settings = three_days(tmp_path)
    roll_up(settings, FIRST, SECOND)
    # The period begins within the throttle, at 23:59:59: the first date is read from the tables.
    owners = Owners([Owner(name="all", users=(".*",))], is_match, Objective(99.5, 3))
    end_s = MIDNIGHT_S - 1 + 3 * DAY_S
    assert kept_dates(settings, at(end_s), by_user()) == [FIRST, SECOND]
    short = by_owner(owners)
    settings = settings.changed(owners=owners_file(tmp_path, "{name: all, users: ['.*']}"))
    roll_up(settings, FIRST, SECOND)
    assert kept_dates(settings, at(end_s), short) == [SECOND]
    assert spent(settings, short, end_s) == {"all": (20, 0)}
    # At 23:59:58 it begins with the throttle, and counts it.
    assert kept_dates(settings, at(end_s - 1), short) == [FIRST, SECOND]
    assert spent(settings, short, end_s - 1) == {"all": (22, 5)}


def owners_file(root: Path, entry: str) -> str:
    path = root / "others.yaml"
    path.write_text(f"owners:\n  - {entry}\n", encoding="utf-8")
    return str(path)


def test_kept_dates_outlive_the_rows_that_retention_deletes(tmp_path: Path) -> None:
    settings = three_days(tmp_path)
    roll_up(settings, FIRST, SECOND)
    to_ms, whole = at(MIDNIGHT_S + DAY_S + 10), spent(settings, by_owner(OWNERS))
    delta_table(settings, "usage").delete(f"event_date < '{SECOND}'")
    assert kept_dates(settings, to_ms, by_owner(OWNERS)) == [FIRST, SECOND]
    delta_table(settings, "decisions").delete(f"event_date < '{SECOND}'")
    assert kept_dates(settings, to_ms, by_owner(OWNERS)) == [FIRST, SECOND]
    assert spent(settings, by_owner(OWNERS)) == whole == {"payments": (22, 5), "search": (10, 0)}
    # Maintenance has nothing to compute for a date that is gone, and keeps its row.
    assert roll_up(settings, FIRST, SECOND) == []
    # With other owners the first date is unknown: only the rows of the tables count.
    renamed = Owners([Owner(name="pay", users=("alice",))], is_match)
    assert spent(settings, by_owner(renamed)) == {"pay": (20, 0)}
    # A date that is missing between others was not deleted for its age.
    delta_table(settings, "usage").delete(f"event_date = '{THIRD}'")
    write_table(tmp_path, "usage", usage(0))
    assert kept_dates(settings, to_ms, by_owner(OWNERS)) == [SECOND]


def test_throttles_of_a_date_whose_usage_is_deleted_have_no_budget(tmp_path: Path) -> None:
    settings, to_ms = three_days(tmp_path), at(MIDNIGHT_S + DAY_S + 10)
    # By default usage is kept for 30 days and decisions for 400. The throttle alone would be all that was active.
    delta_table(settings, "usage").delete(f"event_date < '{SECOND}'")
    found = [budgets(settings, to_ms, by_user(), from_rows=is_whole) for is_whole in (False, True)]
    assert [one["alice"].period for one in found] == [(20, 0), (20, 0)]


def test_a_date_with_samples_of_jmx_is_kept_as_a_whole_only(tmp_path: Path) -> None:
    settings = tables_of(tmp_path)
    sampled = {"source": "jmx", "requests": None, "amount": None}
    # The 21st has samples alone. On the 22nd the log of the same broker begins, and its samples do not count.
    write_table(tmp_path, "usage", usage(0, **sampled), usage(60, **sampled), usage(MIDNIGHT_S, **sampled))
    write_table(tmp_path, "usage", usage(MIDNIGHT_S + 7), usage(MIDNIGHT_S + 8), usage(MIDNIGHT_S + DAY_S))
    write_table(
        tmp_path, "decisions", *(decision(offset) for offset in (0, MIDNIGHT_S + 7, MIDNIGHT_S + DAY_S))
    )
    for _ in ("before", "after"):
        assert spent(settings, by_user()) == {"alice": (5, 0)}
        roll_up(settings, FIRST, SECOND)
    to_ms = at(MIDNIGHT_S + DAY_S + 10)
    assert kept_dates(settings, to_ms, by_user()) == [FIRST, SECOND]
    # Up to 00:00:05 of the 22nd there is no log yet.
    assert kept_dates(settings, at(MIDNIGHT_S + 5), by_user()) == [FIRST]
    assert spent(settings, by_user(), MIDNIGHT_S + 5) == {"alice": (3, 0)}


def test_two_writers_of_a_date_leave_each_row_once(tmp_path: Path) -> None:
    settings = three_days(tmp_path)
    roll_up(settings, SECOND)
    place = str(tmp_path / "budget_days")
    rows = DeltaTable(place).to_pyarrow_table()
    where = f"cluster_id = 'demo' AND event_date = '{SECOND}' AND grouped_by IN ('owner', 'user')"
    first, second = StoredTable.opened(place), StoredTable.opened(place)
    first.delete(where)
    first, second = StoredTable.opened(place), StoredTable.opened(place)
    # Both have read that the date is missing.
    first.replace(rows, where)
    replace_again(second, place, rows, where)
    assert DeltaTable(place).to_pyarrow_table().num_rows == rows.num_rows == 2


def replace_again(table: StoredTable, place: str, rows: Any, where: str) -> None:
    from kquota_spark.store.commits import retried

    opened = [table]
    retried(lambda: (opened.pop() if opened else StoredTable.opened(place)).replace(rows, where))


def test_a_file_of_owners_with_a_mistake_leaves_the_users(tmp_path: Path) -> None:
    settings = three_days(tmp_path)
    (tmp_path / "owners.yaml").write_text("owners: [{name: unowned, users: [a]}]\n", encoding="utf-8")
    first, second = roll_up(settings, FIRST, SECOND)
    assert first.note == (
        f"{tmp_path}/owners.yaml: owners[0].name: unowned is the name for clients without an owner, expected another "
        "name, 1 user"
    )
    assert second.note == "1 user"


def test_a_row_that_cannot_be_computed_again_goes_before_its_date_does(tmp_path: Path) -> None:
    settings = three_days(tmp_path)
    roll_up(settings, FIRST, SECOND)
    write_table(tmp_path, "usage", usage(20))
    (tmp_path / "owners.yaml").write_text("owners: 7\n", encoding="utf-8")
    assert [(step.date, step.note.endswith(", 1 user")) for step in roll_up(settings, FIRST, SECOND)] == [
        (FIRST, True)
    ]
    for name in ("usage", "decisions"):
        delta_table(settings, name).delete(f"event_date < '{SECOND}'")
    # The row by owner lacked the late second. That of the user has it: 11 + 10 + 10 and two before midnight.
    to_ms = at(MIDNIGHT_S + DAY_S + 10)
    assert kept_dates(settings, to_ms, by_owner(OWNERS)) == [SECOND]
    assert (kept_dates(settings, to_ms, by_user()), spent(settings, by_user())) == (
        [FIRST, SECOND],
        {"alice": (33, 5)},
    )


def test_a_date_of_too_many_users_is_marked_and_read_from_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = three_days(tmp_path)
    write_table(tmp_path, "usage", usage(0, user="bob"))
    monkeypatch.setattr(day_roll_up, "_MOST_USERS", 1)
    assert [step.note for step in roll_up(settings, FIRST, SECOND)] == [
        "2 owners, more than 1 user",
        "1 owner, 1 user",
    ]
    assert roll_up(settings, FIRST, SECOND) == []
    to_ms = at(MIDNIGHT_S + DAY_S + 10)
    assert (kept_dates(settings, to_ms, by_user()), kept_dates(settings, to_ms, by_owner(OWNERS))) == (
        [SECOND],
        [FIRST, SECOND],
    )
    assert spent(settings, by_user()) == {"alice": (32, 5), "bob": (1, 0)}
    # With another limit, and a late row, the users take the place of the mark.
    monkeypatch.undo()
    write_table(tmp_path, "usage", usage(1, user="bob"))
    assert [step.note for step in roll_up(settings, FIRST, SECOND)] == ["2 owners, 2 users"]
    kinds = (
        DeltaTable(str(tmp_path / "budget_days"))
        .to_pyarrow_table(columns=["grouped_by"])
        .column(0)
        .to_pylist()
    )
    assert sorted(map(str, kinds)) == ["owner", "owner", "owner", "user", "user", "user"]


def test_a_date_that_cannot_be_read_is_a_note_and_stops_no_other(tmp_path: Path) -> None:
    settings = three_days(tmp_path)
    for file in (tmp_path / "usage" / f"event_date={FIRST}").glob("*.parquet"):
        file.unlink()
    steps = roll_up(settings, FIRST, SECOND)
    assert [(step.action, step.date) for step in steps] == [("skip", FIRST), ("add date", SECOND)]
    assert steps[0].note.startswith(f"tables under {tmp_path} cannot be read (")


def test_tables_of_an_older_release_have_budgets_without_it(tmp_path: Path) -> None:
    settings = three_days(tmp_path)
    assert spent(settings, by_owner(OWNERS)) == {"payments": (22, 5), "search": (10, 0)}
    assert not (tmp_path / "budget_days").exists()


def drawn(chance: Chance, day_s: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Some seconds of a date, half of them around its end, with throttles in own and in shared buckets."""
    used, judged = [], []
    for user in USERS:
        for _ in range(chance.randrange(6)):
            offset_s = day_s + (
                chance.randrange(DAY_S) if chance.random() < 0.5 else DAY_S - chance.randrange(1, 40)
            )
            longest_ms = chance.choice((0, 900, 1_400, 31_000, 90_000))
            shared = {"bucket_user": "", "bucket_client_id": "etl", "users": [user, "alice"]}
            bucket = shared if chance.random() < 0.4 else {"bucket_user": user, "users": [user]}
            used.append(usage(offset_s, user=user, observed_throttle_ms=longest_ms))
            judged.append(
                throttle(offset_s, longest_ms, **bucket) if longest_ms else decision(offset_s, **bucket)
            )
    # Each date has a row.
    return [*used, usage(day_s + 5)], [*judged, decision(day_s + 5)]


def day_begin_s(day: str) -> int:
    return round(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) - T0_MS // 1_000


def test_random_days_have_the_budget_of_their_rows_whatever_happens_to_them(
    tmp_path: Path, chance: Chance
) -> None:
    settings = tables_of(tmp_path, OF_FILE)
    for day in [*DAYS, "2026-11-27"]:
        for name, rows in zip(("usage", "decisions"), drawn(chance, day_begin_s(day)), strict=True):
            write_table(tmp_path, name, *rows)
    roll_up(settings, *DAYS)
    used = set[int]()
    for change in ("none", "late", "restated", "packed", "computed again"):
        day = chance.choice(DAYS)
        late, judged = drawn(chance, day_begin_s(day))
        if change == "late":
            write_table(tmp_path, "usage", *late)
            write_table(tmp_path, "decisions", *judged)
        elif change == "restated":
            restate(settings, day, *judged)
        elif change == "packed":
            for declared in (USAGE, DECISIONS):
                files = small_files(delta_table(settings, declared.name))
                same = [file for file in files if file.event_date == files[0].event_date]
                assert len(same) == 1 or pack(settings, declared, same)
        elif change == "computed again":
            assert roll_up(settings, *DAYS) != []
        to_ms = at(day_begin_s("2026-11-27") + chance.randrange(-DAY_S, DAY_S))
        for grouping in (by_owner(OWNERS), by_user(), of_tenant(chance.choice(USERS), OWNERS, to_ms)):
            used.add(len(kept_dates(settings, to_ms, grouping)))
            assert budgets(settings, to_ms, grouping) == budgets(settings, to_ms, grouping, from_rows=True)
    # The comparisons are of budgets with kept dates: with all of a period, and with fewer.
    assert max(used) >= 4 and len(used) > 1


def test_an_exporter_that_starts_has_the_budget_of_all_rows(tmp_path: Path, chance: Chance) -> None:
    settings = tables_of(tmp_path, OF_FILE)
    for day in DAYS:
        for name, rows in zip(("usage", "decisions"), drawn(chance, day_begin_s(day)), strict=True):
            write_table(tmp_path, name, *rows)
    roll_up(settings, *DAYS[:-1])
    followed = FollowedBudgets(settings, by_owner(OWNERS))
    assert followed.read() and followed.to_ms is not None
    expected = budgets(settings, followed.to_ms, by_owner(OWNERS), from_rows=True)
    assert len(kept_dates(settings, followed.to_ms, by_owner(OWNERS))) >= 3
    assert {one.name: one.budget for one in followed.at()} == expected
    followed.close()
