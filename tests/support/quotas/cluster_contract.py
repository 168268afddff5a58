"""What every `Cluster` keeps, the real ones and that in memory: claims to run against each of them.

A module of tests calls each of `CLUSTER_CLAIMS` with a cluster and a name that no other has used there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Change, Cluster, Held, Outcome
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey
from kquota_spark.process.clock import now_ms
from kquota_spark.process.processes import wait_for
from kquota_spark.quotas.ledger import Edits, Ledger
from kquota_spark.quotas.watched_sources import WatchedSource

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
PERCENT, MUTATIONS = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE
CONNECTIONS = IpQuotaKey.CONNECTION_CREATION_RATE
Edited = tuple[AnyKey, float | None, float | None]


class ClusterUnderTest(Protocol):
    """A cluster, and what others do to it."""

    cluster: Cluster
    fencing: int
    """Under which an enforcer may write."""

    def edit(self, quota: Quota, value: float | None) -> None:
        """Set or remove a quota as another tool does."""

    def add_credential(self, user: str) -> None:
        """Give a user something that is no quota: a SCRAM credential, where the cluster keeps them together."""

    def credentials_of(self, user: str) -> object:
        """What `add_credential` put there, to the byte; compared only."""

    def all_of(self, entity: Entity) -> object:
        """Everything that the cluster keeps of an entity, quotas and the rest, to the byte; compared only."""

    def followed(self) -> WatchedSource:
        """The quotas of the cluster, to follow; not connected yet."""

    def lose_lease(self) -> None:
        """Another enforcer takes over: `fencing` is not the newest number any more."""


def quotas(cluster: ClusterUnderTest) -> QuotaSet:
    return cluster.cluster.image().quotas


def values_of(cluster: ClusterUnderTest, entity: AnyEntity) -> dict[AnyKey, float]:
    return dict(quotas(cluster).get(entity, {}))


def altered(cluster: Cluster, entity: AnyEntity, values: Mapping[AnyKey, float | None]) -> str | None:
    """A person's edit; why it was refused, None if it was done."""
    outcome, detail = cluster.write(Change(entity, values))
    assert outcome in (Outcome.DONE, Outcome.REFUSED), outcome
    assert bool(detail) is (outcome is Outcome.REFUSED)
    return detail or None


def edited(cluster: ClusterUnderTest, entity: AnyEntity, values: Mapping[AnyKey, float | None]) -> str | None:
    return altered(cluster.cluster, entity, values)


def held(cluster: ClusterUnderTest, quota: Quota) -> Held:
    return cluster.cluster.read([quota])[quota]


def written(
    cluster: ClusterUnderTest, quota: Quota, value: float | None, expect: Held | None = None
) -> Outcome:
    """The outcome of an enforcer's change; it expects what is there, if nothing else is said."""
    expect = held(cluster, quota) if expect is None else expect
    return cluster.cluster.write(Change.of(quota, value), expect, cluster.fencing).outcome


def restored(cluster: ClusterUnderTest, quota: Quota, expected: float | None, note: str) -> Outcome:
    """The outcome of an enforcer's restoration of the state in a note, if the value is the expected one."""
    return cluster.cluster.write(Change.of(quota, None, note), Held(expected, None), cluster.fencing).outcome


def keys_are_set_together_and_others_stay(cluster: ClusterUnderTest, name: str) -> None:
    entity = Entity(user=name)
    assert edited(cluster, entity, {PRODUCE: 3_000_000.0, PERCENT: 12.5}) is None
    assert edited(cluster, entity, {FETCH: 7.0, PRODUCE: 2_000_000.0}) is None
    assert values_of(cluster, entity) == {PRODUCE: 2_000_000.0, PERCENT: 12.5, FETCH: 7.0}


def keys_are_removed_and_an_entity_without_keys_is_not_there(cluster: ClusterUnderTest, name: str) -> None:
    for entity in (Entity(user=name), Entity(client_id=name), Entity(user=name, client_id=name)):
        assert edited(cluster, entity, {PRODUCE: 3e6, FETCH: 4e6}) is None
        assert edited(cluster, entity, {PRODUCE: None}) is None
        assert values_of(cluster, entity) == {FETCH: 4e6}
        assert edited(cluster, entity, {PRODUCE: None, FETCH: None}) is None
        assert entity not in quotas(cluster)


def removing_what_is_not_set_is_done(cluster: ClusterUnderTest, name: str) -> None:
    before = quotas(cluster)
    assert edited(cluster, Entity(user=name), {PRODUCE: None}) is None
    assert edited(cluster, Entity(user=name, client_id=DEFAULT), {MUTATIONS: None}) is None
    assert quotas(cluster) == before


def each_level_is_an_entity_of_its_own(cluster: ClusterUnderTest, name: str) -> None:
    """Nothing is set for defaults before or afterwards."""
    entities: list[AnyEntity] = [
        Entity(name, name), Entity(name, DEFAULT), Entity(name), Entity(DEFAULT, name), Entity(DEFAULT, DEFAULT),
        Entity(DEFAULT), Entity(None, name), Entity(None, DEFAULT), IpEntity("10.0.0.7"), IpEntity(DEFAULT),
    ]  # fmt: skip
    key: dict[bool, AnyKey] = {True: CONNECTIONS, False: PRODUCE}
    wanted = {each: {key[isinstance(each, IpEntity)]: 1_000.0 + n} for n, each in enumerate(entities)}
    for entity, values in wanted.items():
        assert edited(cluster, entity, dict(values)) is None
    found = quotas(cluster)
    assert {entity: found[entity] for entity in entities} == wanted
    for entity, values in wanted.items():
        assert edited(cluster, entity, dict.fromkeys(values)) is None
    assert not quotas(cluster).keys() & set(entities)


def names_that_need_escaping_are_the_exact_entity(cluster: ClusterUnderTest, name: str) -> None:
    odd = f"{name} CN=a,O=b/c+*~%2F<default>ü"
    entity = Entity(user=odd, client_id="<default>")
    before = quotas(cluster)
    assert edited(cluster, entity, {PRODUCE: 2e6}) is None
    assert quotas(cluster) == {**before, entity: {PRODUCE: 2e6}}


def only_asking_changes_nothing(cluster: ClusterUnderTest, name: str) -> None:
    before = quotas(cluster)
    assert cluster.cluster.refusal(Change(Entity(user=name), {PRODUCE: 2e6})) is None
    assert cluster.cluster.refusal(Change(Entity(user=name), {PRODUCE: 1.5}))
    assert quotas(cluster) == before


def what_is_refused_is_refused_as_a_whole_in_words(cluster: ClusterUnderTest, name: str) -> None:
    entity = Entity(client_id=name)
    assert edited(cluster, entity, {PRODUCE: 5e6}) is None
    refused: list[tuple[AnyEntity, dict[AnyKey, float | None]]] = [
        (entity, {FETCH: 4e6, PRODUCE: 1.5}),
        (entity, {PRODUCE: None, CONNECTIONS: 3.0}),
        (IpEntity("10.0.0.8"), {PRODUCE: 3.0}),
    ]
    for each, values in refused:
        words = edited(cluster, each, values)
        assert words and "\n" not in words
    assert values_of(cluster, entity) == {PRODUCE: 5e6}
    assert IpEntity("10.0.0.8") not in quotas(cluster)


def a_value_of_0_is_refused_in_the_same_words(cluster: ClusterUnderTest, name: str) -> None:
    entity = Entity(f"{name}-zero")
    asked: list[dict[AnyKey, float | None]] = [{PRODUCE: 0.0}, {FETCH: 5.0, PRODUCE: 0.0}]
    for values in asked:
        for refusal in (cluster.cluster.refusal(Change(entity, values)), edited(cluster, entity, values)):
            assert refusal == "Quota producer_byte_rate must be greater than 0"
    ip = IpEntity("10.0.0.9")
    assert edited(cluster, ip, {CONNECTIONS: 0.0}) == "Quota connection_creation_rate must be greater than 0"
    assert not {entity, ip} & quotas(cluster).keys()


def credentials_of_the_user_stay(cluster: ClusterUnderTest, name: str) -> None:
    cluster.add_credential(name)
    before = cluster.credentials_of(name)
    for value in (2e6, None, 3e6, None):
        assert edited(cluster, Entity(user=name), {PRODUCE: value}) is None
        assert cluster.credentials_of(name) == before
    assert Entity(user=name) not in quotas(cluster)


def absent_quotas_read_as_none_with_a_way_back(cluster: ClusterUnderTest, name: str) -> None:
    quota = Quota(Entity(user=name), PRODUCE)
    found = held(cluster, quota)
    assert (found.value, found.problem, found.owner) == (None, "", "")
    assert found.note is not None


def all_quotas_asked_for_are_read_and_no_others(cluster: ClusterUnderTest, name: str) -> None:
    quotas = [Quota(Entity(user=name), PRODUCE), Quota(Entity(client_id=name), FETCH)]
    cluster.edit(quotas[0], 2_000_000.0)
    found = cluster.cluster.read(quotas)
    assert {quota: held.value for quota, held in found.items()} == {quotas[0]: 2_000_000.0, quotas[1]: None}


def a_quota_is_set_changed_and_removed(cluster: ClusterUnderTest, name: str) -> None:
    for entity in (Entity(user=name), Entity(client_id=name), Entity(user=name, client_id=name)):
        quota = Quota(entity, PRODUCE)
        for value in (3_000_000.0, 2_000_000.0, None):
            assert written(cluster, quota, value) is Outcome.DONE
            assert held(cluster, quota).value == value


def names_that_need_escaping_are_the_exact_quota(cluster: ClusterUnderTest, name: str) -> None:
    odd = f"{name} CN=a,O=b/c+*~%2F<default>"
    assert written(cluster, Quota(Entity(user=odd), PRODUCE), 2_000_000.0) is Outcome.DONE
    assert held(cluster, Quota(Entity(user=odd), PRODUCE)).value == 2_000_000.0
    others = [Quota(Entity(user=name), PRODUCE), Quota(Entity(user=DEFAULT), PRODUCE)]
    assert [found.value for found in cluster.cluster.read(others).values()] == [None, None]


def what_was_absent_is_absent_again(cluster: ClusterUnderTest, name: str) -> None:
    quota = Quota(Entity(user=name), PRODUCE)
    before, note = cluster.all_of(quota.entity), held(cluster, quota).note
    assert note is not None
    assert written(cluster, quota, 2_000_000.0) is Outcome.DONE
    assert cluster.all_of(quota.entity) != before
    assert restored(cluster, quota, 2_000_000.0, note) is Outcome.DONE
    assert cluster.all_of(quota.entity) == before


def a_value_is_put_back_to_the_byte_and_other_keys_stay(cluster: ClusterUnderTest, name: str) -> None:
    quota, other = Quota(Entity(user=name), PRODUCE), Quota(Entity(user=name), FETCH)
    cluster.edit(quota, 5_000_000.0)
    cluster.edit(other, 7_000_000.0)
    before, note = cluster.all_of(quota.entity), held(cluster, quota).note
    assert note is not None
    assert written(cluster, quota, 4_000_000.0) is Outcome.DONE
    assert held(cluster, other).value == 7_000_000.0
    assert restored(cluster, quota, 4_000_000.0, note) is Outcome.DONE
    assert cluster.all_of(quota.entity) == before


def credentials_stay_when_a_quota_is_restored(cluster: ClusterUnderTest, name: str) -> None:
    cluster.add_credential(name)
    quota = Quota(Entity(user=name), PRODUCE)
    before, note = cluster.credentials_of(name), held(cluster, quota).note
    assert note is not None
    for value in (2_000_000.0, None, 3_000_000.0):
        assert written(cluster, quota, value) is Outcome.DONE
        assert cluster.credentials_of(name) == before
    assert restored(cluster, quota, 3_000_000.0, note) is Outcome.DONE
    assert cluster.credentials_of(name) == before


def what_somebody_else_changed_is_not_overwritten(cluster: ClusterUnderTest, name: str) -> None:
    quota = Quota(Entity(user=name), PRODUCE)
    cluster.edit(quota, 5_000_000.0)
    expected = held(cluster, quota)
    assert expected.note is not None
    cluster.edit(quota, 6_000_000.0)
    assert written(cluster, quota, 4_000_000.0, expected) is Outcome.CHANGED
    assert restored(cluster, quota, 4_000_000.0, expected.note) is Outcome.CHANGED
    assert held(cluster, quota).value == 6_000_000.0
    cluster.edit(quota, None)
    assert written(cluster, quota, 4_000_000.0, expected) is Outcome.CHANGED
    assert held(cluster, quota).value is None


def an_edit_of_a_person_in_between_is_not_overwritten(cluster: ClusterUnderTest, name: str) -> None:
    quota = Quota(Entity(user=name), PRODUCE)
    assert written(cluster, quota, 5_000_000.0) is Outcome.DONE
    expected = held(cluster, quota)
    assert edited(cluster, quota.entity, {PRODUCE: 6_000_000.0}) is None
    assert written(cluster, quota, 4_000_000.0, expected) is Outcome.CHANGED
    assert values_of(cluster, quota.entity) == {PRODUCE: 6_000_000.0}


def followed_edits(
    cluster: ClusterUnderTest, name: str, source: WatchedSource, ledger: Ledger
) -> list[Edited]:
    """Key, value and previous value of the edits of a user since the last call, by key; it waits for one."""
    found: list[Edited] = []

    def is_there() -> bool:
        answer = source.changes(ledger)
        assert answer is None or not (answer.edits.refused or answer.edits.vanished)
        changes = [] if answer is None else answer.edits.changes
        found.extend((each.key, each.value, each.previous) for each in changes if each.entity == Entity(name))
        return bool(found)

    # A broker follows its controller, and a watch its server, some milliseconds behind.
    assert wait_for(is_there, within_s=60)
    return sorted(found, key=lambda edit: edit[0].value)


def each_edit_is_followed_once_whoever_makes_it(cluster: ClusterUnderTest, name: str) -> None:
    quota, source, ledger = Quota(Entity(user=name), PRODUCE), cluster.followed(), Ledger([], {})
    source.start()
    try:
        assert edited(cluster, quota.entity, {PRODUCE: 5_000_000.0, PERCENT: 12.5}) is None
        first = followed_edits(cluster, name, source, ledger)
        assert first == [(PRODUCE, 5_000_000.0, None), (PERCENT, 12.5, None)]
        assert written(cluster, quota, 4_000_000.0) is Outcome.DONE
        assert followed_edits(cluster, name, source, ledger) == [(PRODUCE, 4_000_000.0, 5_000_000.0)]
        cluster.edit(quota, 3_000_000.0)
        assert followed_edits(cluster, name, source, ledger) == [(PRODUCE, 3_000_000.0, 4_000_000.0)]
        assert edited(cluster, quota.entity, {PRODUCE: None, PERCENT: None}) is None
        assert followed_edits(cluster, name, source, ledger) == [
            (PRODUCE, None, 3_000_000.0),
            (PERCENT, None, 12.5),
        ]
        last = source.changes(ledger)
        assert last is not None
        assert last.edits == Edits()
    finally:
        source.stop()


def quotas_from_before_are_followed_and_all_is_known_since(cluster: ClusterUnderTest, name: str) -> None:
    assert edited(cluster, Entity(user=name), {FETCH: 7.0}) is None
    source, ledger, before_ms = cluster.followed(), Ledger([], {}), now_ms()
    source.start()
    try:
        assert followed_edits(cluster, name, source, ledger) == [(FETCH, 7.0, None)]
        answer = source.changes(ledger)
        assert answer is not None
        assert answer.known_through_ms is not None
        # Brokers of a KRaft cluster answer from a copy that may be 100 ms old.
        assert before_ms - 100 <= answer.known_through_ms <= now_ms()
    finally:
        source.stop()
    assert edited(cluster, Entity(user=name), {FETCH: None}) is None


def a_late_enforcer_writes_nothing(cluster: ClusterUnderTest, name: str) -> None:
    """The last claim to run on a cluster: it loses the lease."""
    quota = Quota(Entity(user=name), PRODUCE)
    cluster.edit(quota, 5_000_000.0)
    expected = held(cluster, quota)
    assert expected.note is not None
    cluster.lose_lease()
    assert written(cluster, quota, 4_000_000.0, expected) is Outcome.FENCED
    assert restored(cluster, quota, 5_000_000.0, expected.note) is Outcome.FENCED
    assert held(cluster, quota).value == 5_000_000.0
    assert edited(cluster, quota.entity, {PRODUCE: None}) is None, "a person needs no lease"


CLUSTER_CLAIMS: tuple[Callable[[ClusterUnderTest, str], None], ...] = (
    keys_are_set_together_and_others_stay,
    keys_are_removed_and_an_entity_without_keys_is_not_there,
    removing_what_is_not_set_is_done,
    each_level_is_an_entity_of_its_own,
    names_that_need_escaping_are_the_exact_entity,
    only_asking_changes_nothing,
    what_is_refused_is_refused_as_a_whole_in_words,
    a_value_of_0_is_refused_in_the_same_words,
    credentials_of_the_user_stay,
    absent_quotas_read_as_none_with_a_way_back,
    all_quotas_asked_for_are_read_and_no_others,
    a_quota_is_set_changed_and_removed,
    names_that_need_escaping_are_the_exact_quota,
    what_was_absent_is_absent_again,
    a_value_is_put_back_to_the_byte_and_other_keys_stay,
    credentials_stay_when_a_quota_is_restored,
    what_somebody_else_changed_is_not_overwritten,
    an_edit_of_a_person_in_between_is_not_overwritten,
    each_edit_is_followed_once_whoever_makes_it,
    quotas_from_before_are_followed_and_all_is_known_since,
    a_late_enforcer_writes_nothing,
)
"""The order matters only for the last."""
