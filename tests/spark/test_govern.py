"""GOVERN: which rule limits each request. Literal rules, and random ones against the model."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.io.rules_tables import RulesTables
from kquota_spark.model.entities import DEFAULT, Entity
from kquota_spark.model.govern import RuleGovernor
from kquota_spark.model.principals import Principal
from kquota_spark.model.quota_types import BANDWIDTH, QuotaKey, QuotaType
from kquota_spark.model.rules import QuotaChange, RuleBook, stretches
from kquota_spark.pipeline.govern import with_governing
from kquota_spark.schema.tables import USAGE
from tests.spark.conftest import CLUSTER, change, rows_of, run_hop, settings_at, write_rules
from tests.unit.table_rows import T0_MS, usage, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FETCH, PERCENT = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
FOREVER_MS = 2**62
ALL_LEVELS = (
    change("alice", "etl", 1.0),
    change("alice", DEFAULT, 2.0),
    change("alice", None, 3.0),
    change(DEFAULT, "etl", 4.0),
    change(DEFAULT, DEFAULT, 5.0),
    change(DEFAULT, None, 6.0),
    change(None, "etl", 7.0),
    change(None, DEFAULT, 8.0),
)


def asked(
    *moments_ms: int, user: str = "alice", client_id: str = "etl", quota_type: str = "produce"
) -> dict[str, Any]:
    """A row of usage with a request at each moment of one second."""
    points = [
        {
            "record_time_ms": moment_ms,
            "log_time_ms": moment_ms,
            "connection_hash": 1,
            "correlation_id": index,
            "amount": 1,
            "observed_throttle_ms": 0,
            "kind": 0,
        }
        for index, moment_ms in enumerate(moments_ms)
    ]
    row = usage((moments_ms[0] - T0_MS) // 1_000, points=points)
    return {**row, "user": user, "client_id": client_id, "quota_type": quota_type}


class Found(NamedTuple):
    """What GOVERN says of one request."""

    level: int | None
    limit_per_s: float | None
    rule: str | None
    rule_version: int | None
    bucket: tuple[str, str]
    valid_ms: tuple[int, int]
    has_request_quota: bool


Asked = tuple[str, str, str, int]
"""Quota type, user, client id, time."""


def governed(
    spark: SparkSession,
    settings: Settings,
    rows: Iterable[dict[str, Any]],
    cluster_id: str = CLUSTER,
    static_defaults: Mapping[QuotaType, float] = MappingProxyType({}),
) -> list[tuple[Asked, Found]]:
    """Each request with what governs it, in order."""
    of_table = [tuple(row.get(name) for name in USAGE.names) for row in rows]
    rules = spark.read.format("delta").load(f"{settings.tables}/quota_rules").where(
        f"cluster_id = '{cluster_id}'"
    )  # fmt: skip
    found = []
    usage_rows = spark.createDataFrame(of_table, USAGE.ddl)
    for row in with_governing(usage_rows, rules, static_defaults).collect():
        answer = Found(
            row.level,
            row.limit_per_s,
            row.rule,
            row.rule_version,
            (row.bucket_user, row.bucket_client_id),
            (row.valid_from_ms, row.valid_to_ms),
            row.has_request_quota,
        )
        for point in row.points:
            found.append(((row.quota_type, row.user, row.client_id, point.record_time_ms), answer))
    return sorted(found, key=lambda each: each[0])


ALWAYS = (0, FOREVER_MS)


def test_the_most_specific_level_wins(spark: SparkSession, settings: Settings) -> None:
    write_rules(settings, *ALL_LEVELS)
    rows = [asked(T0_MS, user=user, client_id=name) for user in ("alice", "bob") for name in ("etl", "x", "")]
    found = {asked_for[1:3]: answer for asked_for, answer in governed(spark, settings, rows)}
    assert found == {
        ("alice", "etl"): Found(1, 1.0, "users/alice/clients/etl", 0, ("alice", "etl"), ALWAYS, False),
        ("alice", "x"): Found(2, 2.0, "users/alice/clients/<default>", 0, ("alice", "x"), ALWAYS, False),
        ("alice", ""): Found(3, 3.0, "users/alice", 0, ("alice", ""), ALWAYS, False),
        ("bob", "etl"): Found(4, 4.0, "users/<default>/clients/etl", 0, ("bob", "etl"), ALWAYS, False),
        ("bob", "x"): Found(5, 5.0, "users/<default>/clients/<default>", 0, ("bob", "x"), ALWAYS, False),
        ("bob", ""): Found(6, 6.0, "users/<default>", 0, ("bob", ""), ALWAYS, False),
    }


def test_each_level_wins_when_those_above_it_are_gone(spark: SparkSession, settings: Settings) -> None:
    # Rule n is removed at T0 + n s: in second n the levels up to n are gone, level n + 1 governs.
    removals = [
        change(edit.entity.user, edit.entity.client_id, None, T0_MS + level * 1_000)
        for level, edit in enumerate(ALL_LEVELS, 1)
    ]
    write_rules(settings, *ALL_LEVELS, *removals)
    rows = [asked(T0_MS + index * 1_000) for index in range(9)]
    found = [answer for _, answer in governed(spark, settings, rows)]
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


def test_precedence_is_per_key(spark: SparkSession, settings: Settings) -> None:
    # The pair limits producers only: its fetches fall to the user, as in Kafka.
    write_rules(settings, change("alice", "etl", 1.0), change("alice", None, 9.0, key=FETCH))
    rows = [asked(T0_MS, quota_type="fetch"), asked(T0_MS, quota_type="produce")]
    assert governed(spark, settings, rows) == [
        (("fetch", "alice", "etl", T0_MS), Found(3, 9.0, "users/alice", 0, ("alice", ""), ALWAYS, False)),
        (
            ("produce", "alice", "etl", T0_MS),
            Found(1, 1.0, "users/alice/clients/etl", 0, ("alice", "etl"), ALWAYS, False),
        ),
    ]


def test_an_edit_within_a_second_splits_it_to_the_millisecond(
    spark: SparkSession, settings: Settings
) -> None:
    write_rules(settings, change("alice", None, 10.0), change("alice", None, 20.0, T0_MS + 500))
    found = governed(spark, settings, [asked(T0_MS, T0_MS + 499, T0_MS + 500, T0_MS + 999)])
    before = Found(3, 10.0, "users/alice", 0, ("alice", ""), (0, T0_MS + 500), False)
    after = Found(3, 20.0, "users/alice", T0_MS + 500, ("alice", ""), (T0_MS + 500, FOREVER_MS), False)
    assert [(each[3] - T0_MS, answer) for each, answer in found] == [
        (0, before),
        (499, before),
        (500, after),
        (999, after),
    ]


def test_several_edits_in_one_second_and_one_at_its_edge(spark: SparkSession, settings: Settings) -> None:
    write_rules(
        settings,
        change("alice", None, 1.0, T0_MS),  # exactly at the start: nothing of this second is before it
        change("alice", None, 2.0, T0_MS + 300),
        change("alice", None, 3.0, T0_MS + 600),
        change("alice", None, 4.0, T0_MS + 1_000),  # exactly at the end: nothing of it is after it
    )
    rows = [asked(T0_MS - 1), asked(*(T0_MS + offset_ms for offset_ms in (0, 299, 300, 600, 999)))]
    found = governed(spark, settings, [*rows, asked(T0_MS + 1_000)])
    assert [(each[3] - T0_MS, answer.limit_per_s) for each, answer in found] == [
        (-1, None),
        (0, 1.0),
        (299, 1.0),
        (300, 2.0),
        (600, 3.0),
        (999, 3.0),
        (1_000, 4.0),
    ]


def test_a_stretch_without_a_request_makes_no_row(spark: SparkSession, settings: Settings) -> None:
    write_rules(
        settings,
        change("alice", None, 1.0),
        change("alice", None, 2.0, T0_MS + 300),
        change("alice", None, 3.0, T0_MS + 310),
    )
    found = governed(spark, settings, [asked(T0_MS + 299, T0_MS + 310)])
    assert [answer.limit_per_s for _, answer in found] == [1.0, 3.0]


def test_an_edit_at_a_level_that_lost_ends_the_stretch_too(spark: SparkSession, settings: Settings) -> None:
    write_rules(settings, change("alice", None, 1.0), change(None, "etl", 5.0, T0_MS + 500))
    found = governed(spark, settings, [asked(T0_MS + 499, T0_MS + 500)])
    assert [(answer.limit_per_s, answer.rule_version, answer.valid_ms) for _, answer in found] == [
        (1.0, 0, (0, T0_MS + 500)),
        (1.0, 0, (T0_MS + 500, FOREVER_MS)),
    ]


def test_without_any_rule_nothing_is_lost(spark: SparkSession, settings: Settings) -> None:
    write_rules(settings)
    rows = [asked(T0_MS), asked(T0_MS, user="", client_id="")]
    unlimited = Found(None, None, None, None, ("", "etl"), ALWAYS, False)
    assert governed(spark, settings, rows) == [
        (("produce", "", "", T0_MS), unlimited._replace(bucket=("", ""))),
        (("produce", "alice", "etl", T0_MS), unlimited),
    ]


def test_an_empty_client_id_reaches_no_client_quota(spark: SparkSession, settings: Settings) -> None:
    clients = [edit for edit in ALL_LEVELS if edit.entity.client_id is not None]
    write_rules(settings, *clients, change("carol", None, 3.0))
    rows = [asked(T0_MS, client_id=""), asked(T0_MS, user="carol", client_id="")]
    assert [answer for _, answer in governed(spark, settings, rows)] == [
        # Found through users/<default> + clients/<default> and then not limited: recorded under the user.
        Found(None, None, None, None, ("alice", ""), ALWAYS, False),
        Found(3, 3.0, "users/carol", 0, ("carol", ""), ALWAYS, False),
    ]


def test_a_name_is_not_the_default_and_case_counts(spark: SparkSession, settings: Settings) -> None:
    write_rules(
        settings, change(DEFAULT, None, 6.0), change("<default>", None, 3.0), change("Alice", None, 9.0)
    )
    rows = [asked(T0_MS, user=user) for user in ("<default>", "alice", "Alice")]
    found = {asked_for[1]: answer for asked_for, answer in governed(spark, settings, rows)}
    assert {user: (answer.level, answer.limit_per_s) for user, answer in found.items()} == {
        "<default>": (3, 3.0),
        "alice": (6, 6.0),
        "Alice": (3, 9.0),
    }


def test_a_request_quota_at_any_level_is_told(spark: SparkSession, settings: Settings) -> None:
    write_rules(
        settings,
        change("alice", None, 1.0),
        change(None, DEFAULT, 50.0, T0_MS + 500, PERCENT),
        change(None, DEFAULT, None, T0_MS + 600, PERCENT),
    )
    found = governed(spark, settings, [asked(T0_MS + 499, T0_MS + 500, T0_MS + 599, T0_MS + 600)])
    assert [(answer.has_request_quota, answer.level) for _, answer in found] == [
        (False, 3),
        (True, 3),
        (True, 3),
        (False, 3),
    ]


def test_clusters_do_not_see_each_other(spark: SparkSession, settings: Settings) -> None:
    write_rules(settings, change("alice", None, 1.0))
    write_rules(settings, change("alice", None, 2.0), change("bob", None, 3.0), cluster_id="it's other")
    of_other = {**asked(T0_MS), "cluster_id": "it's other"}
    assert [(a.level, a.limit_per_s) for _, a in governed(spark, settings, [asked(T0_MS)])] == [(3, 1.0)]
    found = governed(spark, settings, [of_other, {**of_other, "user": "bob"}], "it\\'s other")
    assert [(a.level, a.limit_per_s) for _, a in found] == [(3, 2.0), (3, 3.0)]


USERS: Sequence[str] = ("alice", "bob", "<default>", "team:pay+ments@corp", "ü ", "")
CLIENTS: Sequence[str] = ("etl", "app", "<default>", "a/b", "")


def _random_changes(chance: random.Random) -> list[QuotaChange]:
    """Edits of random entities of each level, set and removed, some at the very same millisecond."""
    names = [name for name in USERS if name]
    clients = [name for name in CLIENTS if name]
    changes = []
    for users in (names, [DEFAULT], [None]):
        for client_ids in (clients, [DEFAULT], [None]):
            for entity in {(chance.choice(users), chance.choice(client_ids)) for _ in range(3)}:
                if entity != (None, None):
                    changes += _random_edits(chance, Entity(*entity))
    return changes


def _random_edits(chance: random.Random, entity: Entity) -> list[QuotaChange]:
    edits = []
    for _ in range(chance.randrange(1, 5)):
        at_ms = chance.choice([0, T0_MS + chance.randrange(5_000), T0_MS + 1_000 * chance.randrange(5)])
        key = chance.choice(list(QuotaKey))
        value = None if chance.random() < 0.3 else float(chance.randrange(1, 10**6))
        edits.append(QuotaChange(entity, key, value, None, at_ms, at_ms))
    return edits


STATIC_DEFAULTS = {QuotaType.FETCH: 5e5}


def _expected(book: RuleBook, asked_for: Asked) -> Found:
    quota_type, user, client_id, time_ms = asked_for
    found = RuleGovernor(book, STATIC_DEFAULTS).govern(
        1, QuotaType(quota_type), Principal("User", user), client_id, time_ms
    )
    governing = found.governing
    return Found(
        found.level,
        governing.limit_per_s,
        found.rule,
        found.rule_version,
        (found.bucket.user, found.bucket.client_id),
        (governing.valid_from_ms, FOREVER_MS if governing.valid_to_ms is None else governing.valid_to_ms),
        governing.has_request_quota,
    )


def test_it_answers_as_the_model_does(spark: SparkSession, settings: Settings) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    changes = _random_changes(chance)
    RulesTables(settings.tables, CLUSTER, source="file", apply_lag_ms=0).write_file(changes, 0)
    # And a neighbour with rules of its own over all of it.
    write_rules(settings, change(DEFAULT, DEFAULT, 1.0), cluster_id="other")
    book = RuleBook(stretches(changes))
    edges = sorted({edit.changed_at_ms for edit in changes if edit.changed_at_ms})
    rows, expected = [], []
    for quota_type in BANDWIDTH:
        for user in USERS:
            for client_id in CLIENTS:
                for second_ms in range(T0_MS - 1_000, T0_MS + 6_000, 1_000):
                    inside = {second_ms + chance.randrange(1_000) for _ in range(4)}
                    inside |= {edge for edge in edges if second_ms <= edge < second_ms + 1_000}
                    moments_ms = sorted(inside)
                    rows.append(asked(*moments_ms, user=user, client_id=client_id, quota_type=quota_type))
                    expected += [(quota_type.value, user, client_id, moment_ms) for moment_ms in moments_ms]
    found = governed(spark, settings, rows, static_defaults=STATIC_DEFAULTS)
    assert [each for each, _ in found] == sorted(expected)
    wrong = [
        (each, answer, _expected(book, each)) for each, answer in found if answer != _expected(book, each)
    ]
    assert not wrong, wrong[0]
    print(f"levels {sorted({answer.level or 0 for _, answer in found})}, {len(found):,} requests")


def test_the_job_names_its_cluster_to_the_rules(spark: SparkSession, tmp_path: Path) -> None:
    # Two clusters share one root of tables; a quote in a name is data.
    settings = replace(settings_at(tmp_path), cluster_id="it's \\ one")
    write_rules(settings, change("alice", None, 1.0), cluster_id=settings.cluster_id)
    write_rules(settings, change("alice", None, 2.0), cluster_id="other")
    write_table(Path(settings.tables), "usage", {**asked(T0_MS), "cluster_id": settings.cluster_id})
    write_table(Path(settings.tables), "decisions")
    run_hop(spark, settings, "judge")
    assert [row["limit_per_s"] for row in rows_of(settings, "decisions")] == [1.0]
