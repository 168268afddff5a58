"""Who owns a client: the first owner that matches in that second, for any name that a client may choose."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from kquota_spark.model.budgets.objectives import Objective
from kquota_spark.model.owners import UNOWNED, Owner, Owners
from kquota_spark.name_patterns import is_match

NOON_MS = 1_795_089_600_000


def owners(*entries: Owner) -> Owners:
    return Owners(entries, is_match)


def test_two_overlapping_patterns_at_an_edge_give_one_owner_per_second() -> None:
    moved = owners(
        Owner(name="payments", users=("pay-.*",), to_ms=NOON_MS),
        Owner(name="platform", users=("pay-eu|ops",)),
        Owner(name="search", users=("pay-.*",), from_ms=NOON_MS),
    )
    times_ms = [NOON_MS - 1_000, NOON_MS - 1, NOON_MS, NOON_MS + 999, NOON_MS + 1_000]
    # pay-eu matches payments and platform before noon, platform and search after it: always the first of the list.
    assert [moved.of("pay-eu", "etl", at_ms).name for at_ms in times_ms] == [
        "payments", "payments", "platform", "platform", "platform",
    ]  # fmt: skip
    assert [moved.of("pay-us", "etl", at_ms).name for at_ms in times_ms] == [
        "payments", "payments", "search", "search", "search",
    ]  # fmt: skip
    assert moved.edges_ms == [NOON_MS]


def test_a_part_of_a_second_has_the_owner_of_the_whole_second() -> None:
    whole = owners(Owner(name="payments", users=("alice",), to_ms=NOON_MS))
    assert [whole.of("alice", "", at_ms) is UNOWNED for at_ms in (NOON_MS - 1, NOON_MS)] == [False, True]


def test_every_session_of_an_assumed_role_has_the_owner_of_the_role() -> None:
    role = "arn:aws:sts::123456789012:assumed-role/orders/"
    of_role = owners(Owner(name="orders", users=(r"arn:aws:sts::\d+:assumed-role/orders/.*",)))
    sessions = [f"{role}i-0{number}" for number in range(3)] + [f"{role}botocore-session-1795089600"]
    assert {of_role.of(session, "app", 0).name for session in sessions} == {"orders"}
    assert of_role.of("arn:aws:sts::123456789012:assumed-role/orders-2/i-0", "app", 0) is UNOWNED


@pytest.mark.parametrize(
    ("user", "client_id", "name"),
    [
        ("alice", "etl-1", "both"),
        ("alice", "web", "user"),
        ("bob", "etl-1", "client"),
        ("bob", "web", "unowned"),
        ("alice2", "web", "unowned"),
        ("", "", "unowned"),
    ],
)
def test_users_and_client_ids_must_both_match_and_an_empty_list_matches_all(
    user: str, client_id: str, name: str
) -> None:
    found = owners(
        Owner(name="both", users=("alice",), client_ids=("etl-.*",)),
        Owner(name="user", users=("alice",)),
        Owner(name="client", client_ids=("etl-.*",)),
    )
    assert found.of(user, client_id, 0).name == name
    assert found.names == ["both", "user", "client", "unowned"]


def test_a_client_id_that_makes_engines_go_back_takes_milliseconds() -> None:
    hostile = owners(Owner(name="a", client_ids=(r"(\w+-?)*svc", r"(a*)*b")))
    began_s = time.process_time()
    assert hostile.of("", "a" * 32_767, 0) is UNOWNED
    assert time.process_time() - began_s < 1.0
    assert hostile.of("", "pay-svc", 0).name == "a"


def test_random_client_ids_do_not_fill_the_memory() -> None:
    found = owners(Owner(name="a", client_ids=("x",)))
    for number in range(50_001):
        found.of("", str(number), 0)
    assert len(found._of_client) == 1


def test_what_decides_who_owns_a_client_in_a_period_is_one_text() -> None:
    def text(*owners: Owner, percent: float = 99.5) -> str:
        return Owners(owners, is_match, Objective(percent)).matching_in(1_000_000, 2_000_000)

    old, new = Owner(name="a", users=("x",), to_ms=1_500_000), Owner(name="b", users=("x",))
    same = (replace(old, from_ms=1_000_000), replace(new, to_ms=2_000_000))
    assert text(old, new) == text(*same) == text(old, new, percent=99.0)
    # Contacts, and owners before and after the period, decide nothing in it.
    gone, planned = replace(old, to_ms=1_000_000), replace(new, from_ms=2_000_000)
    assert text(replace(old, contact="a@example.com"), gone, new, planned) == text(old, new)
    others = [
        (new, old), (old,), (replace(old, name="c"), new), (replace(old, users=("y",)), new),
        (replace(old, client_ids=("x",)), new), (replace(old, to_ms=1_501_000), new),
        (replace(old, from_ms=1_001_000), new),
    ]  # fmt: skip
    assert len({text(old, new), *(text(*owners) for owners in others)}) == 1 + len(others)
