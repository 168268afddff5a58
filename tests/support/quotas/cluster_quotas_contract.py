"""What every `ClusterQuotas` keeps, the real ones and that in memory: claims to run against each of them.

A module of tests calls each of `CLAIMS` with a cluster and a name that no other has used there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey
from kquota_spark.quotas.cluster_quotas import ClusterQuotas

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
PERCENT, MUTATIONS = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE
CONNECTIONS = IpQuotaKey.CONNECTION_CREATION_RATE


class ClusterUnderTest(Protocol):
    """A cluster, and what only tests do to it."""

    quotas: ClusterQuotas

    def add_credential(self, user: str) -> None:
        """Give a user something that is no quota: a SCRAM credential, where the cluster keeps them together."""

    def credentials_of(self, user: str) -> object:
        """What `add_credential` put there, to the byte; compared only."""


def values_of(cluster: ClusterUnderTest, entity: AnyEntity) -> dict[AnyKey, float]:
    return dict(cluster.quotas.read().get(entity, {}))


def keys_are_set_together_and_others_stay(cluster: ClusterUnderTest, name: str) -> None:
    entity = Entity(user=name)
    assert cluster.quotas.alter(entity, {PRODUCE: 3_000_000.0, PERCENT: 12.5}) is None
    assert cluster.quotas.alter(entity, {FETCH: 7.0, PRODUCE: 2_000_000.0}) is None
    assert values_of(cluster, entity) == {PRODUCE: 2_000_000.0, PERCENT: 12.5, FETCH: 7.0}


def keys_are_removed_and_an_entity_without_keys_is_not_there(cluster: ClusterUnderTest, name: str) -> None:
    for entity in (Entity(user=name), Entity(client_id=name), Entity(user=name, client_id=name)):
        assert cluster.quotas.alter(entity, {PRODUCE: 3e6, FETCH: 4e6}) is None
        assert cluster.quotas.alter(entity, {PRODUCE: None}) is None
        assert values_of(cluster, entity) == {FETCH: 4e6}
        assert cluster.quotas.alter(entity, {PRODUCE: None, FETCH: None}) is None
        assert entity not in cluster.quotas.read()


def removing_what_is_not_set_is_done(cluster: ClusterUnderTest, name: str) -> None:
    before = cluster.quotas.read()
    assert cluster.quotas.alter(Entity(user=name), {PRODUCE: None}) is None
    assert cluster.quotas.alter(Entity(user=name, client_id=DEFAULT), {MUTATIONS: None}) is None
    assert cluster.quotas.read() == before


def each_level_is_an_entity_of_its_own(cluster: ClusterUnderTest, name: str) -> None:
    """Nothing is set for defaults before or afterwards."""
    entities: list[AnyEntity] = [
        Entity(name, name), Entity(name, DEFAULT), Entity(name), Entity(DEFAULT, name), Entity(DEFAULT, DEFAULT),
        Entity(DEFAULT), Entity(None, name), Entity(None, DEFAULT), IpEntity("10.0.0.7"), IpEntity(DEFAULT),
    ]  # fmt: skip
    key: dict[bool, AnyKey] = {True: CONNECTIONS, False: PRODUCE}
    wanted = {each: {key[isinstance(each, IpEntity)]: 1_000.0 + n} for n, each in enumerate(entities)}
    for entity, values in wanted.items():
        assert cluster.quotas.alter(entity, dict(values)) is None
    found = cluster.quotas.read()
    assert {entity: found[entity] for entity in entities} == wanted
    for entity, values in wanted.items():
        assert cluster.quotas.alter(entity, dict.fromkeys(values)) is None
    assert not cluster.quotas.read().keys() & set(entities)


def names_that_need_escaping_are_the_exact_entity(cluster: ClusterUnderTest, name: str) -> None:
    odd = f"{name} CN=a,O=b/c+*~%2F<default>ü"
    entity = Entity(user=odd, client_id="<default>")
    before = cluster.quotas.read()
    assert cluster.quotas.alter(entity, {PRODUCE: 2e6}) is None
    assert cluster.quotas.read() == {**before, entity: {PRODUCE: 2e6}}


def only_asking_changes_nothing(cluster: ClusterUnderTest, name: str) -> None:
    before = cluster.quotas.read()
    assert cluster.quotas.alter(Entity(user=name), {PRODUCE: 2e6}, validate_only=True) is None
    assert cluster.quotas.alter(Entity(user=name), {PRODUCE: 1.5}, validate_only=True)
    assert cluster.quotas.read() == before


def what_is_refused_is_refused_as_a_whole_in_words(cluster: ClusterUnderTest, name: str) -> None:
    entity = Entity(client_id=name)
    assert cluster.quotas.alter(entity, {PRODUCE: 5e6}) is None
    refused: list[tuple[AnyEntity, dict[AnyKey, float | None]]] = [
        (entity, {FETCH: 4e6, PRODUCE: 1.5}),
        (entity, {PRODUCE: None, CONNECTIONS: 3.0}),
        (IpEntity("10.0.0.8"), {PRODUCE: 3.0}),
    ]
    for each, values in refused:
        words = cluster.quotas.alter(each, values)
        assert words and "\n" not in words
    assert values_of(cluster, entity) == {PRODUCE: 5e6}
    assert IpEntity("10.0.0.8") not in cluster.quotas.read()


def a_value_of_0_is_refused_in_the_same_words(cluster: ClusterUnderTest, name: str) -> None:
    entity = Entity(f"{name}-zero")
    asked: list[dict[AnyKey, float | None]] = [{PRODUCE: 0.0}, {FETCH: 5.0, PRODUCE: 0.0}]
    for values in asked:
        for validate_only in (True, False):
            refusal = cluster.quotas.alter(entity, values, validate_only=validate_only)
            assert refusal == "Quota producer_byte_rate must be greater than 0"
    ip = IpEntity("10.0.0.9")
    assert (
        cluster.quotas.alter(ip, {CONNECTIONS: 0.0})
        == "Quota connection_creation_rate must be greater than 0"
    )
    assert not {entity, ip} & cluster.quotas.read().keys()


def credentials_of_the_user_stay(cluster: ClusterUnderTest, name: str) -> None:
    cluster.add_credential(name)
    before = cluster.credentials_of(name)
    for value in (2e6, None, 3e6, None):
        assert cluster.quotas.alter(Entity(user=name), {PRODUCE: value}) is None
        assert cluster.credentials_of(name) == before
    assert Entity(user=name) not in cluster.quotas.read()


CLAIMS: tuple[Callable[[ClusterUnderTest, str], None], ...] = (
    keys_are_set_together_and_others_stay,
    keys_are_removed_and_an_entity_without_keys_is_not_there,
    removing_what_is_not_set_is_done,
    each_level_is_an_entity_of_its_own,
    names_that_need_escaping_are_the_exact_entity,
    only_asking_changes_nothing,
    what_is_refused_is_refused_as_a_whole_in_words,
    a_value_of_0_is_refused_in_the_same_words,
    credentials_of_the_user_stay,
)
