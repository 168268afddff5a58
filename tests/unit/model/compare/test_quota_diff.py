"""Two sets of quotas by effect: who gets another limit or another bucket, and names that a migration mangles."""

from __future__ import annotations

import pytest

from kquota_spark.findings.idle_rules import mangled_names
from kquota_spark.model.compare.observed_clients import Seen
from kquota_spark.model.compare.quota_diff import EffectChange, Identity, effect_changes, text_edits
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, parse_entity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket, resolve
from tests.support.chance import Chance

PRODUCE, REQUEST = QuotaType.PRODUCE, QuotaType.REQUEST
KEY = QuotaKey.PRODUCER_BYTE_RATE


def produce(**limits: float) -> QuotaSet:
    """Produce limits by entity; `__` stands for a slash, `_` alone for the default."""
    return {_entity(name): {KEY: limit} for name, limit in limits.items()}


def _entity(name: str) -> AnyEntity:
    return parse_entity("/".join("<default>" if part == "_" else part for part in name.split("__")))


def told(changes: list[EffectChange]) -> list[tuple[object, ...]]:
    """(user, client id, limit before, rule before, limit after, rule after)."""
    return [
        (*change.identity[:2], change.before.limit, _name(change.before.rule), change.after.limit,
         _name(change.after.rule))
        for change in changes
    ]  # fmt: skip


def _name(rule: AnyEntity | None) -> str | None:
    return None if rule is None else str(rule)


def test_equal_sets_have_no_difference() -> None:
    quotas = produce(users__alice=1e6, users___=2e6, clients__app=3e6)
    assert effect_changes(quotas, dict(quotas), [Seen("alice", "etl", PRODUCE, 5)]) == []
    assert text_edits(quotas, dict(quotas)) == []


def test_a_removed_rule_falls_to_the_default() -> None:
    before, after = produce(users__alice=5e6, users___=1e6), produce(users___=1e6)
    seen = [Seen("alice", "etl", PRODUCE, 700, 30), Seen("bob", "app", PRODUCE, 900)]
    changes = effect_changes(before, after, seen)
    # bob was under the default before; any other client id of alice gets what etl gets.
    assert told(changes) == [
        ("alice", "etl", 5e6, "users/alice", 1e6, "users/<default>"),
        ("alice", None, 5e6, "users/alice", 1e6, "users/<default>"),
    ]
    assert [(change.is_seen, change.amount, change.throttled_ms) for change in changes] == [
        (True, 700, 30), (False, 0, 0),
    ]  # fmt: skip
    assert not changes[0].is_other_bucket, "a bucket of user alice, before and after"


def test_those_seen_come_first_by_what_they_used() -> None:
    before, after = produce(users___=1e6), produce(users___=2e6)
    seen = [Seen("alice", "etl", PRODUCE, 10), Seen("bob", "app", PRODUCE, 900)]
    assert [change.identity for change in effect_changes(before, after, seen)] == [
        Identity("bob", "app"), Identity("alice", "etl"), Identity(None, None),
    ]  # fmt: skip


def test_another_bucket_is_a_difference_though_the_number_stays() -> None:
    # One bucket of 1 MB/s for all of alice's clients, then one for each of them.
    [seen, other] = effect_changes(
        produce(users__alice=1e6), produce(users__alice__clients___=1e6), [Seen("alice", "etl", PRODUCE, 9)]
    )[:2]
    assert (seen.before.limit, seen.after.limit, seen.is_other_bucket) == (1e6, 1e6, True)
    assert (seen.before.bucket, seen.after.bucket) == (Bucket("alice", ""), Bucket("alice", "etl"))
    assert (other.identity, other.is_other_bucket) == (Identity("alice", None), True)


def test_a_default_of_client_ids_loses_the_empty_client_id() -> None:
    changes = effect_changes(produce(users__alice=1e6), produce(users__alice__clients___=1e6))
    # KAFKA-13341: no default of client ids reaches an empty one.
    assert told(changes) == [
        ("alice", None, 1e6, "users/alice", 1e6, "users/alice/clients/<default>"),
        ("alice", "", 1e6, "users/alice", None, None),
    ]


def test_another_rule_with_the_same_limit_and_bucket_is_no_difference() -> None:
    before, after = produce(users__alice=1e6, users___=1e6), produce(users___=1e6)
    assert effect_changes(before, after, [Seen("alice", "etl", PRODUCE, 9)]) == []
    assert len(text_edits(before, after)) == 1


def test_a_rule_that_others_come_before_is_a_difference_of_text_only() -> None:
    before = produce(users__alice__clients__etl=1e6, clients__etl=2e6, users___=3e6)
    after = produce(users__alice__clients__etl=1e6, clients__etl=9e6, users___=3e6)
    assert effect_changes(before, after, [Seen("alice", "etl", PRODUCE, 9)]) == []


def test_everybody_who_sends_is_under_a_request_quota() -> None:
    before: QuotaSet = {}
    after: QuotaSet = {Entity(DEFAULT): {QuotaKey.REQUEST_PERCENTAGE: 50.0}}
    [first, *_] = effect_changes(before, after, [Seen("alice", "etl", PRODUCE, 9)])
    assert (first.identity, first.quota_type, first.after.limit) == (
        Identity("alice", "etl"),
        "request",
        50.0,
    )


def test_ips() -> None:
    key = IpQuotaKey.CONNECTION_CREATION_RATE
    before: QuotaSet = {parse_entity("ips/10.0.0.1"): {key: 5.0}, parse_entity("ips/<default>"): {key: 20.0}}
    after: QuotaSet = {parse_entity("ips/<default>"): {key: 20.0}, parse_entity("ips/::1"): {key: 20.0}}
    [change] = effect_changes(before, after)
    assert (change.identity.ip, change.before.limit, change.after.limit) == ("10.0.0.1", 5.0, 20.0)
    # Two spellings of one address.
    long: QuotaSet = {
        parse_entity("ips/0:0:0:0:0:0:0:1"): {key: 20.0},
        parse_entity("ips/<default>"): {key: 20.0},
    }
    short: QuotaSet = {parse_entity("ips/::1"): {key: 20.0}, parse_entity("ips/<default>"): {key: 20.0}}
    assert text_edits(long, short) == [] == effect_changes(long, short)


DN = "CN=app,OU=x"
ENCODED = "CN%3Dapp%2COU%3Dx"


@pytest.mark.parametrize(
    ("meant", "stands", "why"),
    [
        (Entity(DN), Entity(ENCODED), "KAFKA-16222"),
        (Entity(DN, "my app"), Entity(ENCODED, "my%20app"), "KAFKA-16222"),
        (Entity(DEFAULT), Entity(""), "KAFKA-16411"),
        (Entity(DEFAULT), Entity("<default>"), "KAFKA-16411"),
        (Entity(None, DEFAULT), Entity(None, "%3Cdefault%3E"), "KAFKA-16411"),
        (Entity("alice", DEFAULT), Entity("alice", ""), "KAFKA-16411"),
    ],
)
def test_a_migration_that_mangles_names_is_caught(meant: Entity, stands: Entity, why: str) -> None:
    before: QuotaSet = {meant: {KEY: 1e6}, Entity("bob"): {KEY: 2e6}}
    after: QuotaSet = {stands: {KEY: 1e6}, Entity("bob"): {KEY: 2e6}}
    [found] = mangled_names(before, after)
    assert (found.meant, found.stands) == (meant, stands)
    assert why in found.why
    seen = [Seen(DN, "my app", PRODUCE, 9), Seen("alice", "etl", PRODUCE, 9), Seen("bob", "app", PRODUCE, 9)]
    lost = [change for change in effect_changes(before, after, seen) if change.is_seen]
    assert lost and all((change.before.limit, change.after.limit) == (1e6, None) for change in lost)
    assert "bob" not in {change.identity.user for change in lost} or meant == Entity(None, DEFAULT)


def test_names_that_only_look_mangled_are_not() -> None:
    # Both were there before: somebody may really be called that.
    before: QuotaSet = {Entity(DN): {KEY: 1e6}, Entity(ENCODED): {KEY: 2e6}}
    assert list(mangled_names(before, before)) == []
    assert list(mangled_names({}, {Entity(ENCODED): {KEY: 1e6}})) == []
    assert list(mangled_names({Entity("a"): {KEY: 1e6}}, {Entity("a%"): {KEY: 1e6}})) == []


@pytest.mark.parametrize("seed", [472, 1130, 2056, 2076, 2522])
def test_no_client_of_these_worlds_that_resolves_differently_is_missed(seed: int) -> None:
    _no_client_is_missed(Chance(seed), is_partial=seed % 2 == 1)


def test_no_client_that_resolves_differently_is_missed(chance: Chance) -> None:
    for number in range(50):
        _no_client_is_missed(chance, is_partial=number % 2 == 1)


def _no_client_is_missed(chance: Chance, *, is_partial: bool) -> None:
    """Every client of a small world that gets another limit is told, itself or as one of its kind."""
    users, clients = ["alice", "bob", "carol"], ["app", "etl", "dash"]
    entities: list[AnyEntity] = [
        Entity(user, client_id)
        for user in (*users[:2], DEFAULT, None)
        for client_id in (*clients[:2], DEFAULT, None)
        if (user, client_id) != (None, None)
    ]
    keys: list[AnyKey] = [KEY]

    def some() -> QuotaSet:
        return {
            entity: {key: chance.choice([1e6, 2e6]) for key in keys} for entity in chance.sample(entities, 5)
        }

    before = some()
    after = {**before, **some()} if is_partial else some()
    changes = effect_changes(before, after)
    kinds = {(*c.before[:2], *c.after[:2]) for c in changes}
    alike = {(was, _level(by), now, _level(then)) for was, by, now, then in kinds}
    for user in users:
        for client_id in (*clients, ""):
            was, now = (resolve(user, client_id, KEY, quotas.get) for quotas in (before, after))
            if was.limit != now.limit:
                assert (was.limit, was.level, now.limit, now.level) in alike, (user, client_id)


def _level(rule: AnyEntity | None) -> int | None:
    return None if rule is None else rule.level
