"""Which quota governs, and which bucket it makes: the eight levels."""

from __future__ import annotations

import pytest

from kquota_spark.model.quotas.enabled_types import EnabledTypes, QuotaMetadata, enabled_types
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket, Resolution, Standing, Step, candidates, resolve
from kquota_spark.model.quotas.rules import QuotaChange

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE

Rules = dict[Entity, dict[QuotaKey, float]]


def resolved(rules: Rules, key: QuotaKey, user: str, client_id: str) -> Resolution:
    return resolve(user, client_id, key, rules.get)


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
    ("entity", "bucket", "limit"),
    [
        (Entity("u", DEFAULT), Bucket("u", ""), None),  # the walk finds it, the look-up by (u, "") does not
        (Entity("u"), Bucket("u", ""), 5.0),
        (Entity(DEFAULT, DEFAULT), Bucket("u", ""), None),
        (Entity(DEFAULT), Bucket("u", ""), 5.0),
        (Entity(None, DEFAULT), Bucket("", ""), None),
    ],
)
def test_an_empty_client_id_only_reaches_quotas_of_users(
    entity: Entity, bucket: Bucket, limit: float | None
) -> None:
    found = resolved({entity: {PRODUCE: 5.0}}, PRODUCE, "u", "")
    assert (found.bucket, found.limit) == (bucket, limit)
    assert [step.standing for step in found.walk if step.entity == entity] == [
        Standing.NOT_REACHED if limit is None else Standing.GOVERNS
    ]


def test_the_walk_says_what_became_of_each_candidate() -> None:
    found = resolve("alice", "etl", FETCH, EXAMPLE.get, static_default=7e6)
    assert found.walk == (
        Step(1, Entity("alice", "etl"), Standing.ABSENT, None),
        Step(2, Entity("alice", DEFAULT), Standing.ABSENT, None),
        Step(3, Entity("alice"), Standing.OTHER_KEYS, None),
        Step(4, Entity(DEFAULT, "etl"), Standing.ABSENT, None),
        Step(5, Entity(DEFAULT, DEFAULT), Standing.ABSENT, None),
        Step(6, Entity(DEFAULT), Standing.OTHER_KEYS, None),
        Step(7, Entity(None, "etl"), Standing.GOVERNS, 8e6),
        Step(8, Entity(None, DEFAULT), Standing.OVERRIDDEN, 4e6),
        Step(9, None, Standing.OVERRIDDEN, 7e6),
    )


@pytest.mark.parametrize(
    ("user", "client_id", "expected"),
    [
        ("nobody", "x", Resolution(Bucket("", "x"), 9, None, 7e6)),
        ("nobody", "", Resolution(Bucket("", ""))),  # only looked at for a client id that is not empty
        ("u", "x", Resolution(Bucket("u", ""), 3, Entity("u"), 1e6)),
    ],
)
def test_the_static_default_is_a_ninth_level(user: str, client_id: str, expected: Resolution) -> None:
    rules: Rules = {Entity("u"): {PRODUCE: 1e6}}
    assert resolve(user, client_id, PRODUCE, rules.get, static_default=7e6) == expected


ALL_LEVELS: Rules = {entity: {PRODUCE: float(level)} for level, (entity, _) in enumerate(LEVELS, start=1)}


@pytest.mark.parametrize(
    ("enabled", "client_id", "expected"),
    [
        (EnabledTypes.NONE, "x", Resolution(Bucket("", "x"), 8, Entity(None, DEFAULT), 8.0)),
        (EnabledTypes.CLIENT_ID, "c", Resolution(Bucket("", "c"), 7, Entity(None, "c"), 7.0)),
        (EnabledTypes.CLIENT_ID, "", Resolution(Bucket("", ""))),
        (EnabledTypes.USER, "c", Resolution(Bucket("u", ""), 3, Entity("u"), 3.0)),
        (EnabledTypes.USER, "", Resolution(Bucket("u", ""), 3, Entity("u"), 3.0)),
        (EnabledTypes.USER_CLIENT_ID, "c", Resolution(Bucket("u", "c"), 1, Entity("u", "c"), 1.0)),
        (EnabledTypes.USER_CLIENT_ID, "x", Resolution(Bucket("u", "x"), 2, Entity("u", DEFAULT), 2.0)),
        (EnabledTypes.USER_CLIENT_ID, "", Resolution(Bucket("u", ""), 3, Entity("u"), 3.0)),
        (
            EnabledTypes.USER | EnabledTypes.CLIENT_ID,
            "c",
            Resolution(Bucket("u", "c"), 1, Entity("u", "c"), 1.0),
        ),
    ],
)
def test_a_broker_with_one_kind_of_quotas_takes_a_short_cut(
    enabled: EnabledTypes, client_id: str, expected: Resolution
) -> None:
    # Every level has a quota; the short cut decides which of them the broker looks at.
    assert resolve("u", client_id, PRODUCE, ALL_LEVELS.get, enabled=enabled) == expected


def edit(entity: Entity, key: QuotaKey, value: float | None, version: int) -> QuotaChange:
    return QuotaChange(entity, key, value, None, version, version)


HISTORY = [
    edit(Entity("u"), QuotaKey.PRODUCER_BYTE_RATE, 5.0, 1),
    edit(Entity(None, "c"), QuotaKey.CONSUMER_BYTE_RATE, 5.0, 2),
    edit(Entity("u"), QuotaKey.PRODUCER_BYTE_RATE, None, 3),
]


@pytest.mark.parametrize(
    ("quota_type", "metadata", "is_sticky", "expected"),
    [
        (QuotaType.PRODUCE, QuotaMetadata.ZOOKEEPER, True, EnabledTypes.USER | EnabledTypes.CLIENT_ID),
        (QuotaType.REQUEST, QuotaMetadata.ZOOKEEPER, True, EnabledTypes.USER | EnabledTypes.CLIENT_ID),
        (QuotaType.PRODUCE, QuotaMetadata.KRAFT, True, EnabledTypes.USER),
        (QuotaType.FETCH, QuotaMetadata.KRAFT, True, EnabledTypes.CLIENT_ID),
        (QuotaType.REQUEST, QuotaMetadata.KRAFT, True, EnabledTypes.NONE),
        (QuotaType.PRODUCE, QuotaMetadata.KRAFT, False, EnabledTypes.NONE),  # cleared with the last entity
        (QuotaType.FETCH, QuotaMetadata.KRAFT, False, EnabledTypes.CLIENT_ID),
    ],
)
def test_bits_stay_until_the_restart_or_the_last_entity(
    quota_type: QuotaType, metadata: QuotaMetadata, is_sticky: bool, expected: EnabledTypes
) -> None:
    assert enabled_types(HISTORY, quota_type, metadata, is_sticky=is_sticky) == expected


def test_a_static_default_sets_the_bit_of_client_ids() -> None:
    found = enabled_types([], QuotaType.PRODUCE, QuotaMetadata.ZOOKEEPER, has_static_default=True)
    assert found == EnabledTypes.CLIENT_ID


def test_candidates_of_a_client_called_default() -> None:
    # A client whose id is the text "<default>" is no default: the text and DEFAULT are different names.
    assert len(set(candidates("<default>", "<default>"))) == 8
    rules: Rules = {Entity("<default>"): {PRODUCE: 1.0}, Entity(DEFAULT): {PRODUCE: 2.0}}
    assert resolved(rules, PRODUCE, "<default>", "c").limit == 1.0
    assert resolved(rules, PRODUCE, "u", "c").limit == 2.0


def test_no_entity_has_an_empty_name() -> None:
    # Kafka refuses a quota of an empty user or client id, so neither can govern. Defaults can.
    assert [entity.level for entity in candidates("", "c")] == [4, 5, 6, 7, 8]
    assert [entity.level for entity in candidates("u", "")] == [2, 3, 5, 6, 8]
    assert candidates("", "") == (Entity(DEFAULT, DEFAULT), Entity(DEFAULT), Entity(None, DEFAULT))


def test_the_key_of_a_type() -> None:
    assert (QuotaType.PRODUCE.key, QuotaType.FETCH.key) == (PRODUCE, FETCH)
