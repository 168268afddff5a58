"""Entities and their canonical names, which are the paths of their nodes below /config."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.quotas.entities import DEFAULT, Default, Entity, IpEntity, parse_entity

_SETTINGS = settings(deadline=None, print_blob=True)


def test_an_entity_needs_a_part() -> None:
    with pytest.raises(ValueError, match="an entity needs a user or a client id"):
        Entity()


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (Entity("alice"), "users/alice"),
        (Entity(DEFAULT), "users/<default>"),
        (Entity("<default>"), "users/%3Cdefault%3E"),
        (Entity(None, "a/b"), "clients/a%2Fb"),
        (Entity(None, DEFAULT), "clients/<default>"),
        (Entity("alice", DEFAULT), "users/alice/clients/<default>"),
        (Entity(DEFAULT, "clients"), "users/<default>/clients/clients"),
        (Entity("users", "<default>"), "users/users/clients/%3Cdefault%3E"),
        (Entity(DEFAULT, DEFAULT), "users/<default>/clients/<default>"),
        (Entity("ips"), "users/ips"),
    ],
)
def test_canonical_names(entity: Entity, path: str) -> None:
    assert str(entity) == path
    assert Entity.parse(path) == entity
    assert parse_entity(path) == entity


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (IpEntity("10.0.0.1"), "ips/10.0.0.1"),
        (IpEntity("0:0:0:0:0:0:0:1"), "ips/0:0:0:0:0:0:0:1"),
        (IpEntity("gate-1.example.org"), "ips/gate-1.example.org"),
        (IpEntity(DEFAULT), "ips/<default>"),
        # Brokers do not decode these names: InetAddress knows no host %3A%3A1.
        (IpEntity("%3A%3A1"), "ips/%3A%3A1"),
    ],
)
def test_canonical_names_of_ips(entity: IpEntity, path: str) -> None:
    assert str(entity) == path
    assert parse_entity(path) == entity


@pytest.mark.parametrize(
    "path",
    ["", "alice", "users", "users/a/b", "/users/a", "clients/c/users/u", "users/a/clients", "users/%zz"],
)
def test_no_entity(path: str) -> None:
    for parse in (Entity.parse, parse_entity):
        with pytest.raises(ValueError):
            parse(path)


@pytest.mark.parametrize("path", ["ips", "ips/", "ips/a/b", "ips/1.2.3.4/clients/c"])
def test_no_ip_entity(path: str) -> None:
    with pytest.raises(ValueError):
        parse_entity(path)


def test_an_ip_is_no_entity_of_users_and_client_ids() -> None:
    with pytest.raises(ValueError, match="is not users/U, clients/C or users/U/clients/C"):
        Entity.parse("ips/1.2.3.4")


@pytest.mark.parametrize("name", ["", "<default>", "a/b"])
def test_an_ip_has_a_name_that_a_node_can_have(name: str) -> None:
    with pytest.raises(ValueError, match="is no address or host name"):
        IpEntity(name)


PARTS: st.SearchStrategy[str | Default] = st.one_of(
    st.text(max_size=12),
    st.just(DEFAULT),
    st.sampled_from(["<default>", "a/b", "%", "+", "clients", "users", "ips"]),
)
HOSTS = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=12)
ENTITIES = st.one_of(
    st.builds(Entity, PARTS),
    st.builds(Entity, st.none(), PARTS),
    st.builds(Entity, PARTS, PARTS),
    st.builds(
        IpEntity,
        st.one_of(
            HOSTS.filter(lambda name: name != "<default>"), st.just(DEFAULT), st.ip_addresses().map(str)
        ),
    ),
)


@_SETTINGS
@given(ENTITIES)
def test_entity_round_trip(entity: Entity | IpEntity) -> None:
    assert parse_entity(str(entity)) == entity


@_SETTINGS
@given(ENTITIES, ENTITIES)
def test_different_entities_have_different_names(one: Entity | IpEntity, other: Entity | IpEntity) -> None:
    assert (str(one) == str(other)) == (one == other)
