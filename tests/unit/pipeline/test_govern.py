"""GOVERN: which rule limits each request. Literal rules."""

from __future__ import annotations

from dataclasses import replace

from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.points import Point
from kquota_spark.model.quotas.entities import DEFAULT
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook
from kquota_spark.pipeline.govern import governed_batch
from kquota_spark.pipeline.sent import governed_second_of, received
from tests.support.pipeline.governed_requests import (
    ALL_LEVELS,
    ALWAYS,
    Found,
    asked,
    governed,
    known,
    usage_batch,
)
from tests.support.spark.queries import change
from tests.support.tables.table_rows import T0_MS

FETCH, PERCENT = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE


def test_the_most_specific_level_wins() -> None:
    rules = [*ALL_LEVELS]
    rows = [asked(T0_MS, user=user, client_id=name) for user in ("alice", "bob") for name in ("etl", "x", "")]
    found = {asked_for[1:3]: answer for asked_for, answer in governed(rules, rows)}
    assert found == {
        ("alice", "etl"): Found(1, 1.0, "users/alice/clients/etl", 0, ("alice", "etl"), ALWAYS, False),
        ("alice", "x"): Found(2, 2.0, "users/alice/clients/<default>", 0, ("alice", "x"), ALWAYS, False),
        ("alice", ""): Found(3, 3.0, "users/alice", 0, ("alice", ""), ALWAYS, False),
        ("bob", "etl"): Found(4, 4.0, "users/<default>/clients/etl", 0, ("bob", "etl"), ALWAYS, False),
        ("bob", "x"): Found(5, 5.0, "users/<default>/clients/<default>", 0, ("bob", "x"), ALWAYS, False),
        ("bob", ""): Found(6, 6.0, "users/<default>", 0, ("bob", ""), ALWAYS, False),
    }


def test_each_level_wins_when_those_above_it_are_gone() -> None:
    # Rule n is removed at T0 + n s: in second n the levels up to n are gone, level n + 1 governs.
    removals = [
        replace(edit, value=None, changed_at_ms=T0_MS + level * 1_000, version=T0_MS + level * 1_000)
        for level, edit in enumerate(ALL_LEVELS, 1)
    ]
    rules = [*ALL_LEVELS, *removals]
    rows = [asked(T0_MS + index * 1_000) for index in range(9)]
    found = [answer for _, answer in governed(rules, rows)]
    assert [(each.level, each.limit_per_s, each.bucket) for each in found] == [
        (1, 1.0, ("alice", "etl")),
        (2, 2.0, ("alice", "etl")),
        (3, 3.0, ("alice", "")),
        (4, 4.0, ("alice", "etl")),
        (5, 5.0, ("alice", "etl")),
        (6, 6.0, ("alice", "")),
        (7, 7.0, ("", "etl")),
        (8, 8.0, ("", "etl")),
        (None, None, ("", "etl")),  # recorded all the same, under its client id
    ]


def test_precedence_is_per_key() -> None:
    # The pair limits producers only: its fetches fall to the user, as in Kafka.
    rules = [change("alice", "etl", 1.0), change("alice", None, 9.0, key=FETCH)]
    rows = [asked(T0_MS, quota_type="fetch"), asked(T0_MS, quota_type="produce")]
    assert governed(rules, rows) == [
        (("fetch", "alice", "etl", T0_MS), Found(3, 9.0, "users/alice", 0, ("alice", ""), ALWAYS, False)),
        (
            ("produce", "alice", "etl", T0_MS),
            Found(1, 1.0, "users/alice/clients/etl", 0, ("alice", "etl"), ALWAYS, False),
        ),
    ]


def test_an_edit_within_a_second_splits_it_to_the_millisecond() -> None:
    rules = [change("alice", None, 10.0), change("alice", None, 20.0, T0_MS + 500)]
    found = governed(rules, [asked(T0_MS, T0_MS + 499, T0_MS + 500, T0_MS + 999)])
    before = Found(3, 10.0, "users/alice", 0, ("alice", ""), (0, T0_MS + 500), False)
    after = Found(3, 20.0, "users/alice", T0_MS + 500, ("alice", ""), (T0_MS + 500, None), False)
    assert [(each[3] - T0_MS, answer) for each, answer in found] == [
        (0, before),
        (499, before),
        (500, after),
        (999, after),
    ]


def test_several_edits_in_one_second_and_one_at_its_edge() -> None:
    rules = [
        change("alice", None, 1.0, T0_MS),  # exactly at the start: nothing of this second is before it
        change("alice", None, 2.0, T0_MS + 300),
        change("alice", None, 3.0, T0_MS + 600),
        change("alice", None, 4.0, T0_MS + 1_000),
    ]
    rows = [asked(T0_MS - 1), asked(*(T0_MS + offset_ms for offset_ms in (0, 299, 300, 600, 999)))]
    found = governed(rules, [*rows, asked(T0_MS + 1_000)])
    assert [(each[3] - T0_MS, answer.limit_per_s) for each, answer in found] == [
        (-1, None),
        (0, 1.0),
        (299, 1.0),
        (300, 2.0),
        (600, 3.0),
        (999, 3.0),
        (1_000, 4.0),
    ]


def test_a_period_without_a_request_makes_no_row() -> None:
    rules = [
        change("alice", None, 1.0),
        change("alice", None, 2.0, T0_MS + 300),
        change("alice", None, 3.0, T0_MS + 310),
    ]
    found = governed(rules, [asked(T0_MS + 299, T0_MS + 310)])
    assert [answer.limit_per_s for _, answer in found] == [1.0, 3.0]


def test_an_edit_at_a_level_that_lost_ends_the_period_too() -> None:
    rules = [change("alice", None, 1.0), change(None, "etl", 5.0, T0_MS + 500)]
    found = governed(rules, [asked(T0_MS + 499, T0_MS + 500)])
    assert [(answer.limit_per_s, answer.rule_version, answer.valid_ms) for _, answer in found] == [
        (1.0, 0, (0, T0_MS + 500)),
        (1.0, 0, (T0_MS + 500, None)),
    ]


def test_without_any_rule_nothing_is_lost() -> None:
    rules: list[QuotaChange] = []
    rows = [asked(T0_MS), asked(T0_MS, user="", client_id="")]
    unlimited = Found(None, None, None, None, ("", "etl"), ALWAYS, False)
    assert governed(rules, rows) == [
        (("produce", "", "", T0_MS), unlimited._replace(bucket=("", ""))),
        (("produce", "alice", "etl", T0_MS), unlimited),
    ]


def test_an_empty_client_id_reaches_no_client_quota() -> None:
    clients = [edit for edit in ALL_LEVELS if "clients/" in str(edit.entity)]
    rules = [*clients, change("carol", None, 3.0)]
    rows = [asked(T0_MS, client_id=""), asked(T0_MS, user="carol", client_id="")]
    assert [answer for _, answer in governed(rules, rows)] == [
        # Found through users/<default> + clients/<default> and then not limited: recorded under the user.
        Found(None, None, None, None, ("alice", ""), ALWAYS, False),
        Found(3, 3.0, "users/carol", 0, ("carol", ""), ALWAYS, False),
    ]


def test_a_name_is_not_the_default_and_case_counts() -> None:
    rules = [change(DEFAULT, None, 6.0), change("<default>", None, 3.0), change("Alice", None, 9.0)]
    rows = [asked(T0_MS, user=user) for user in ("<default>", "alice", "Alice")]
    found = {asked_for[1]: answer for asked_for, answer in governed(rules, rows)}
    assert {user: (answer.level, answer.limit_per_s) for user, answer in found.items()} == {
        "<default>": (3, 3.0),
        "alice": (6, 6.0),
        "Alice": (3, 9.0),
    }


def test_a_request_quota_at_any_level_is_told() -> None:
    rules = [
        change("alice", None, 1.0),
        change(None, DEFAULT, 50.0, T0_MS + 500, PERCENT),
        change(None, DEFAULT, None, T0_MS + 600, PERCENT),
    ]
    found = governed(rules, [asked(T0_MS + 499, T0_MS + 500, T0_MS + 599, T0_MS + 600)])
    assert [(answer.has_request_quota, answer.level) for _, answer in found] == [
        (False, 3),
        (True, 3),
        (True, 3),
        (False, 3),
    ]


def test_what_a_poll_found_is_sure_from_that_poll_on() -> None:
    found_by_poll = replace(change("alice", None, 5.0, T0_MS + 500), changed_before_ms=T0_MS + 1_500)
    rules = [change(DEFAULT, None, 9.0), found_by_poll]
    rows = [asked(T0_MS + offset_ms) for offset_ms in (400, 600, 2_600)]
    # The points are cut at the earliest moment of the edit; the validity begins with the latest one.
    sure = (T0_MS + 1_500, None)
    assert [(at[-1] - T0_MS, found.limit_per_s, found.valid_ms) for at, found in governed(rules, rows)] == [
        (400, 9.0, (0, T0_MS + 500)),
        (600, 5.0, sure),
        (2_600, 5.0, sure),
    ]


def test_points_come_to_the_judge_as_they_were() -> None:
    given = [Point(T0_MS + n, T0_MS + n + 1, 2**32 - n, n, 2**40 + n, 30 + n, 4, 77 + n) for n in range(2)]
    row = {**asked(T0_MS), "points": [point._asdict() for point in given]}
    [sent] = governed_batch(usage_batch([row]), known(RuleGovernor(RuleBook()))).to_pylist()
    assert governed_second_of(received(sent["sent"])).points == given
