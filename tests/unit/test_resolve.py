"""Which quota governs, and which bucket it makes: the eight levels."""

from __future__ import annotations

import pytest

from kquota_spark.model.entities import DEFAULT, Entity
from kquota_spark.model.quota_types import QuotaKey, QuotaType
from kquota_spark.model.resolve import Bucket, Resolution, candidates, resolve

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE

Rules = dict[Entity, dict[QuotaKey, float]]


def resolved(rules: Rules, key: QuotaKey, user: str, client_id: str) -> Resolution:
    return resolve(user, client_id, lambda entity: rules.get(entity, {}).get(key))


EXAMPLE: Rules = {
    Entity("alice"): {PRODUCE: 2e6},
    Entity(DEFAULT): {PRODUCE: 1e6},
    Entity(None, "etl"): {PRODUCE: 5e6, FETCH: 8e6},
    Entity(None, DEFAULT): {FETCH: 4e6},
}


@pytest.mark.parametrize(
    ("user", "client_id", "key", "expected"),
    [
        ("alice", "etl", PRODUCE, Resolution(Bucket("alice", ""), 3, Entity("alice"), 2e6)),
        ("alice", "etl", FETCH, Resolution(Bucket("", "etl"), 7, Entity(None, "etl"), 8e6)),
        ("bob", "etl", PRODUCE, Resolution(Bucket("bob", ""), 6, Entity(DEFAULT), 1e6)),
        ("bob", "etl", FETCH, Resolution(Bucket("", "etl"), 7, Entity(None, "etl"), 8e6)),  # alice's bucket
        ("bob", "x", PRODUCE, Resolution(Bucket("bob", ""), 6, Entity(DEFAULT), 1e6)),
        ("bob", "x", FETCH, Resolution(Bucket("", "x"), 8, Entity(None, DEFAULT), 4e6)),
        ("bob", "", PRODUCE, Resolution(Bucket("bob", ""), 6, Entity(DEFAULT), 1e6)),
        ("bob", "", FETCH, Resolution(Bucket("", ""))),
    ],
)
def test_example(user: str, client_id: str, key: QuotaKey, expected: Resolution) -> None:
    assert resolved(EXAMPLE, key, user, client_id) == expected


LEVELS = [
    (Entity("u", "c"), Bucket("u", "c")),
    (Entity("u", DEFAULT), Bucket("u", "c")),
    (Entity("u"), Bucket("u", "")),
    (Entity(DEFAULT, "c"), Bucket("u", "c")),
    (Entity(DEFAULT, DEFAULT), Bucket("u", "c")),
    (Entity(DEFAULT), Bucket("u", "")),
    (Entity(None, "c"), Bucket("", "c")),
    (Entity(None, DEFAULT), Bucket("", "c")),
]


@pytest.mark.parametrize("level", range(1, 9))
def test_each_level_wins_over_those_behind_it(level: int) -> None:
    rules: Rules = {entity: {PRODUCE: 100.0 + i} for i, (entity, _) in enumerate(LEVELS) if i >= level - 1}
    entity, bucket = LEVELS[level - 1]
    assert entity.level == level
    assert resolved(rules, PRODUCE, "u", "c") == Resolution(bucket, level, entity, 99.0 + level)


@pytest.mark.parametrize("level", range(1, 9))
def test_each_level_alone(level: int) -> None:
    entity, bucket = LEVELS[level - 1]
    rules: Rules = {entity: {PRODUCE: 5.0}}
    assert resolved(rules, PRODUCE, "u", "c") == Resolution(bucket, level, entity, 5.0)
    assert resolved(rules, FETCH, "u", "c") == Resolution(Bucket("", "c"))


def test_precedence_is_per_key() -> None:
    rules: Rules = {
        Entity("u", "c"): {PRODUCE: 1.0},
        Entity("u"): {FETCH: 2.0},
        Entity(None, "c"): {FETCH: 3.0},
    }
    assert resolved(rules, PRODUCE, "u", "c").level == 1
    assert resolved(rules, FETCH, "u", "c") == Resolution(Bucket("u", ""), 3, Entity("u"), 2.0)


def test_a_limit_of_zero_is_a_limit() -> None:
    rules: Rules = {Entity("u"): {PRODUCE: 0.0}, Entity(DEFAULT): {PRODUCE: 9.0}}
    assert resolved(rules, PRODUCE, "u", "c") == Resolution(Bucket("u", ""), 3, Entity("u"), 0.0)


def test_names_of_others_do_not_match() -> None:
    rules: Rules = {
        Entity("u2"): {PRODUCE: 1.0},
        Entity("u", "c2"): {PRODUCE: 1.0},
        Entity(None, "C"): {PRODUCE: 1.0},
    }
    assert resolved(rules, PRODUCE, "u", "c") == Resolution(Bucket("", "c"))


@pytest.mark.parametrize(
    ("entity", "bucket"),
    [
        (Entity("u", DEFAULT), None),
        (Entity("u"), Bucket("u", "")),
        (Entity(DEFAULT, DEFAULT), None),
        (Entity(DEFAULT), Bucket("u", "")),
        (Entity(None, DEFAULT), None),
    ],
)
def test_an_empty_client_id_only_reaches_quotas_of_users(entity: Entity, bucket: Bucket | None) -> None:
    found = resolved({entity: {PRODUCE: 5.0}}, PRODUCE, "u", "")
    if bucket is None:
        assert found == Resolution(Bucket("", ""))
    else:
        assert found == Resolution(bucket, entity.level, entity, 5.0)


def test_candidates_of_a_client_called_default() -> None:
    # A client whose id is the text "<default>" is no default: the text and DEFAULT are different names.
    assert len(set(candidates("<default>", "<default>"))) == 8
    rules: Rules = {Entity("<default>"): {PRODUCE: 1.0}, Entity(DEFAULT): {PRODUCE: 2.0}}
    assert resolved(rules, PRODUCE, "<default>", "c").limit == 1.0
    assert resolved(rules, PRODUCE, "u", "c").limit == 2.0


def test_the_key_of_a_type() -> None:
    assert (QuotaType.PRODUCE.key, QuotaType.FETCH.key) == (PRODUCE, FETCH)
