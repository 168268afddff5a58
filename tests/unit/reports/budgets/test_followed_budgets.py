"""The budget of a month that is followed commit by commit is the budget that is recomputed from the whole tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.model.budgets.objectives import Objective, Spent
from kquota_spark.model.owners import Owner, Owners
from kquota_spark.name_patterns import is_match
from kquota_spark.reports.budgets.following import FollowedBudgets
from kquota_spark.reports.budgets.grouping import by_owner, by_user, of_tenant
from kquota_spark.reports.budgets.owned_budgets import OwnedBudget, budgets_at
from kquota_spark.store.reading import Tables
from tests.support.chance import Chance
from tests.support.tables.table_rows import T0_MS, decision, usage, write_table

DAY_S = 86_400
USERS = ("alice", "bob", "carol", "pay-1", "pay-2", "eve")
OWNERS = Owners(
    [
        Owner(name="payments", users=("pay-.*|alice",), to_ms=T0_MS + 3 * DAY_S * 1_000),
        Owner(name="search", users=("bob|alice",), objective=Objective(99.0, 4)),
    ],
    is_match,
    Objective(99.5, 30),
)


def recomputed(settings: Settings, to_ms: int) -> dict[str, OwnedBudget]:
    with Tables(settings) as tables:
        return {one.name: one for one in budgets_at(tables, "demo", to_ms, by_owner(OWNERS)).found}


def throttle(offset_s: int, longest_ms: int, **changed: Any) -> dict[str, Any]:
    figures = {"observed_throttle_ms": longest_ms, "observed_throttled_requests": 1,
               "observed_total_throttle_ms": longest_ms}  # fmt: skip
    return decision(offset_s, **figures, **changed)


def drawn_rows(chance: Chance, begin_s: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Some seconds of traffic of all users, with throttles, some of them in a bucket that all users share."""
    used, judged = [], []
    for user in USERS:
        for _ in range(chance.randrange(12)):
            offset_s, longest_ms = (
                begin_s + chance.randrange(300),
                chance.choice((0, 0, 0, 90, 1_400, 31_000)),
            )
            is_shared = chance.random() < 0.3
            used.append(
                usage(offset_s, user=user, observed_throttle_ms=longest_ms, broker_id=chance.randrange(1, 4))
            )
            bucket = {"bucket_user": "", "bucket_client_id": "etl", "users": [user, "alice"]} if is_shared else \
                {"bucket_user": user, "users": [user]}  # fmt: skip
            row = throttle if longest_ms else lambda at_s, _, **changed: decision(at_s, **changed)
            judged.append(row(offset_s, longest_ms, broker_id=used[-1]["broker_id"], **bucket))
    return used, judged


def test_the_budget_of_a_month_is_the_same_followed_and_recomputed(tmp_path: Path, chance: Chance) -> None:
    settings = Settings(tables=str(tmp_path), cluster_id="demo")
    followed = FollowedBudgets(settings, by_owner(OWNERS))
    assert (followed.read(), followed.at()) == (False, [])
    # 5-minute pieces: in the first days a few, then after gaps of hours and days, up to day 31.
    begins = sorted(chance.sample(range(0, 5 * DAY_S, 300), 8)) + sorted(
        chance.sample(range(5 * DAY_S, 31 * DAY_S, 300), 8)
    )
    for begin_s in begins:
        used, judged = drawn_rows(chance, begin_s)
        # Each piece comes in two commits per table: a second can be in both.
        for half in (0, 1):
            write_table(tmp_path, "usage", *used[half::2])
            write_table(tmp_path, "decisions", *judged[half::2])
            followed.read()
    # The period of search has four days: one throttle in it is sure.
    write_table(tmp_path, "usage", usage(begins[-1] + 300, user="bob"))
    write_table(tmp_path, "decisions", throttle(begins[-1] + 300, 1_400, bucket_user="bob", users=["bob"]))
    assert followed.read()
    assert followed.to_ms is not None
    found = {one.name: one for one in followed.at()}
    expected = recomputed(settings, followed.to_ms)
    assert set(found) == {"payments", "search", "unowned"}
    assert {name: one.budget for name, one in found.items()} == {
        name: one.budget for name, one in expected.items()
    }
    assert all(one.budget.period.throttled_s for one in found.values())
    followed.close()


def test_the_first_read_has_the_seconds_of_the_period_alone(tmp_path: Path) -> None:
    """A throttle that began in the second before the period does not count, also while it holds (seed 71804)."""
    settings = Settings(tables=str(tmp_path), cluster_id="demo")
    before, first, last = -1, 100, 30 * DAY_S - 1
    write_table(tmp_path, "usage", *(usage(at_s) for at_s in (before, first, last)))
    write_table(tmp_path, "decisions", throttle(before, 90_000), throttle(first, 2_000), decision(last))
    followed = FollowedBudgets(settings, by_owner(OWNERS))
    assert followed.read() and followed.to_ms == T0_MS + 30 * DAY_S * 1_000
    # Seconds 100 and 101 of the second throttle, and the last one. The first throttle holds from -1 to 88 s.
    assert {one.name: one.budget.period for one in followed.at()} == {
        "payments": Spent(active_s=2, throttled_s=2),
        "search": Spent(active_s=1, throttled_s=0),
    }
    followed.close()


def test_usage_far_ahead_of_decisions_is_counted_when_these_follow(tmp_path: Path) -> None:
    settings = Settings(tables=str(tmp_path), cluster_id="demo")
    followed = FollowedBudgets(settings, by_owner(OWNERS))
    ahead_s = 2_400
    write_table(tmp_path, "usage", *(usage(at_s) for at_s in range(0, ahead_s, 60)))
    for begin_s in range(0, 1_800, 300):
        write_table(tmp_path, "usage", *(usage(ahead_s + at_s) for at_s in range(begin_s, begin_s + 300, 60)))
        write_table(tmp_path, "decisions", *(decision(at_s) for at_s in range(begin_s, begin_s + 300, 60)))
        assert followed.read()
    [one] = followed.at()
    # Until second 1,740: 30 seconds of usage.
    assert (one.name, one.budget.period) == ("payments", Spent(30, 0))
    followed.close()


def test_samples_beside_an_idle_log_do_not_count(tmp_path: Path) -> None:
    """An hour of samples after ten minutes of log: the date has rows of the log, so none of its samples count."""
    settings = Settings(tables=str(tmp_path), cluster_id="demo")
    followed = FollowedBudgets(settings, by_owner(OWNERS))
    write_table(tmp_path, "usage", *(usage(at_s) for at_s in range(600)))
    write_table(tmp_path, "decisions", throttle(0, 6_000), decision(599))
    assert followed.read()
    sample: dict[str, Any] = {"source": "jmx", "requests": None, "amount": None, "observed_throttle_ms": 0}
    for begin_s in range(600, 4_200, 600):
        at = range(begin_s, begin_s + 600, 60)
        write_table(tmp_path, "usage", *(usage(at_s, **sample) for at_s in at))
        write_table(tmp_path, "decisions", *(decision(at_s, **sample) for at_s in at))
        assert followed.read()
    assert followed.to_ms is not None
    found = {one.name: one.budget for one in followed.at()}
    assert found["payments"].period == Spent(600, 6)
    assert found == {name: one.budget for name, one in recomputed(settings, followed.to_ms).items()}
    followed.close()


def test_a_tenant_alone_has_the_seconds_that_it_has_among_all_users(tmp_path: Path, chance: Chance) -> None:
    settings = Settings(tables=str(tmp_path), cluster_id="demo")
    for begin_s in (0, 200, 400):
        used, judged = drawn_rows(chance, begin_s)
        write_table(tmp_path, "usage", *used)
        write_table(tmp_path, "decisions", *judged)
    to_ms = T0_MS + 1_000_000
    with Tables(settings) as tables:
        of_all = {one.name: one.budget for one in budgets_at(tables, "demo", to_ms, by_user()).found}
    assert set(of_all) == set(USERS)
    for user in USERS:
        with Tables(settings) as tables:
            [alone] = budgets_at(tables, "demo", to_ms, of_tenant(user, None, to_ms)).found
        assert (alone.name, alone.budget) == (user, of_all[user])


def test_rows_that_are_read_again_count_once_and_nothing_new_is_no_read(tmp_path: Path) -> None:
    settings = Settings(tables=str(tmp_path), cluster_id="demo")
    write_table(tmp_path, "usage", usage(0), usage(1))
    write_table(tmp_path, "decisions", decision(0), throttle(1, 500))
    followed = FollowedBudgets(settings, by_owner(OWNERS))
    assert [followed.read(), followed.read()] == [True, False]
    write_table(tmp_path, "usage", usage(1, broker_id=2), usage(5))
    write_table(tmp_path, "decisions", throttle(1, 900, broker_id=2), decision(5))
    assert followed.read()
    [one] = followed.at()
    assert (one.name, one.budget.period) == ("payments", Spent(3, 1))


def test_counters_begin_with_the_first_read_and_never_fall(tmp_path: Path) -> None:
    settings = Settings(tables=str(tmp_path), cluster_id="demo")
    short = Owners(
        [Owner(name="a", users=(".*",), objective=Objective(99.0, 3))], is_match, Objective(99.0, 3)
    )
    followed = FollowedBudgets(settings, by_owner(short))
    write_table(tmp_path, "usage", usage(0))
    write_table(tmp_path, "decisions", throttle(0, 500))
    followed.read()
    counts = [followed.since_begun("a")]
    for at_s in (1, 2, 2 * DAY_S, 5 * DAY_S, 9 * DAY_S):
        write_table(tmp_path, "usage", usage(at_s), usage(at_s + 1))
        write_table(tmp_path, "decisions", throttle(at_s, 500), decision(at_s + 1))
        followed.read()
        counts.append(followed.since_begun("a"))
    # Second 2 comes twice. The rest adds two active seconds and a throttled one each, also after the period is over.
    assert counts == [Spent(0, 0), Spent(2, 1), Spent(3, 2), Spent(5, 3), Spent(7, 4), Spent(9, 5)]
    assert followed.since_begun("nobody") == Spent(0, 0)
    [one] = followed.at()
    assert one.budget.period == Spent(2, 1)
