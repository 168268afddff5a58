"""The JSON of kfk-quotas is written as the original writes it, and read in both of its spellings."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.formats.exchange.kfk import as_line, read, write
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
PERCENT, MUTATIONS = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE
CONNECTIONS = IpQuotaKey.CONNECTION_CREATION_RATE
EVERY_KIND: QuotaSet = {
    IpEntity(DEFAULT): {CONNECTIONS: 9.0},
    IpEntity("10.0.0.1"): {CONNECTIONS: 5.0},
    Entity(None, DEFAULT): {FETCH: 7.0},
    Entity(DEFAULT): {MUTATIONS: 2.5, PERCENT: 25.5, FETCH: 2.0, PRODUCE: 1.0},
    Entity("alice", "app"): {PRODUCE: 5_000_000.0},
}


def test_one_compact_line_most_specific_first_and_absent_parts_left_out() -> None:
    assert write(EVERY_KIND) == (
        '[{"clientEntity":{"user":{"user":"alice"},"client":{"client-id":"app"}},'
        '"constraints":{"producer_byte_rate":5000000.0}},'
        '{"clientEntity":{"user":{"default":true}},"constraints":{"producer_byte_rate":1.0,'
        '"consumer_byte_rate":2.0,"request_percentage":25.5,"controller_mutation_rate":2.5}},'
        '{"clientEntity":{"client":{"default":"true"}},"constraints":{"consumer_byte_rate":7.0}},'
        '{"clientEntity":{"ip":{"ip":"10.0.0.1"}},"constraints":{"connection_creation_rate":5.0}},'
        '{"clientEntity":{"ip":{"default":true}},"constraints":{"connection_creation_rate":9.0}}]\n'
    )
    assert write({}) == "[]\n"


@pytest.mark.parametrize("spelling", ["true", '"true"'])
def test_both_spellings_of_a_default_are_read_everywhere(spelling: str) -> None:
    for part, entity, key in (
        ("user", Entity(DEFAULT), FETCH),
        ("client", Entity(None, DEFAULT), FETCH),
        ("ip", IpEntity(DEFAULT), CONNECTIONS),
    ):
        text = f'[{{"clientEntity":{{"{part}":{{"default":{spelling}}}}},"constraints":{{"{key.value}":3}}}}]'
        assert read(text) == {entity: {key: 3.0}}


def test_a_client_id_called_true_is_no_default() -> None:
    quotas: QuotaSet = {Entity(None, "true"): {FETCH: 1.0}, Entity("<default>"): {FETCH: 2.0}}
    assert read(write(quotas)) == quotas


def test_a_key_that_kfk_quotas_does_not_know_is_kept() -> None:
    assert json.loads(write({Entity("a"): {MUTATIONS: 0.5}}))[0]["constraints"] == {
        "controller_mutation_rate": 0.5
    }


ALICE = '{"clientEntity":{"user":{"user":"alice"}},"constraints":'
OF_USERS = "producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate"
TWO_NAMES = 'expected {"user": NAME} or {"default": true}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nonsense", "line 1: not JSON: Expecting value"),
        ("[" * 100_000, "nested too deeply, expected quotas"),
        ("{}", "a mapping, expected an array of entities with constraints"),
        ("[3]", "[0]: 3, expected clientEntity and constraints"),
        (f'[{ALICE}{{}},"x":1}}]', "[0]: a mapping, expected clientEntity and constraints"),
        (
            f'[{ALICE}{{"producer_byte_rate":true}}}}]',
            "[0].constraints: producer_byte_rate True, expected a whole number of bytes per second, 0 or more",
        ),
        (f'[{ALICE}{{"producer_byte_rate":NaN}}}}]', "NaN is not JSON, expected a number"),
        (f'[{ALICE}{{"produce":1}}}}]', f"[0].constraints: 'produce', expected one of {OF_USERS}"),
        (f"[{ALICE}[]}}]", "[0].constraints: a list, expected a mapping"),
        (
            f'[{ALICE}{{"connection_creation_rate":1}}}}]',
            f"[0].constraints: 'connection_creation_rate', expected one of {OF_USERS}",
        ),
        (
            f'[{ALICE}{{"consumer_byte_rate":1,"consumer_byte_rate":2}}}}]',
            "key 'consumer_byte_rate' stands twice in one object, expected once",
        ),
        (
            f'[{ALICE}{{"consumer_byte_rate":1}}}},{ALICE}{{"consumer_byte_rate":1}}}}]',
            "[1].constraints: users/alice consumer_byte_rate is given twice, expected once",
        ),
        ('[{"clientEntity":{}}]', "[0].clientEntity: a mapping, expected user, client, ip"),
        ('[{"clientEntity":{"group":{}}}]', "[0].clientEntity: a mapping, expected user, client, ip"),
        ('[{"clientEntity":{"user":{"user":null}}}]', f"[0].clientEntity: user: {TWO_NAMES}"),
        ('[{"clientEntity":{"user":{"default":false}}}]', f"[0].clientEntity: user: {TWO_NAMES}"),
        ('[{"clientEntity":{"user":{"default":true,"user":"a"}}}]', f"[0].clientEntity: user: {TWO_NAMES}"),
        (
            '[{"clientEntity":{"ip":{"ip":"1.2.3.4"},"user":{"user":"a"}}}]',
            "[0].clientEntity: an ip beside a user or client-id, expected it alone",
        ),
        ('[{"clientEntity":{"ip":{"ip":"a/b"}}}]', "[0].clientEntity: 'a/b' is no address or host name"),
    ],
)
def test_a_problem_names_its_place(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as raised:
        read(text)
    assert str(raised.value) == problem


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ValueError) as raised:
        read('[1,{"clientEntity":{"user":{"user":"a"}},"constraints":{"x":1,"consumer_byte_rate":null}}]')
    assert [line.partition(",")[0] for line in str(raised.value).splitlines()] == [
        "[0]: 1", "[1].constraints: 'x'", "[1].constraints: consumer_byte_rate None",
    ]  # fmt: skip


def test_what_nothing_can_hold_is_not_written_but_what_a_cluster_holds_is_shown() -> None:
    alice = Entity("alice")
    with pytest.raises(ValueError, match=r"users/alice consumer_byte_rate -1\.0: expected a whole number"):
        write({alice: {FETCH: -1.0}})
    assert json.loads(as_line({alice: {FETCH: -1.0}}, [alice]))[0]["constraints"] == {
        "consumer_byte_rate": -1.0
    }
    with pytest.raises(ValueError, match="users/alice: request_percentage inf: JSON has no such number"):
        as_line({alice: {PERCENT: math.inf}}, [alice])


NAME = st.one_of(
    st.none(), st.just(DEFAULT), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
)
ENTITY = st.tuples(NAME, NAME).filter(lambda parts: parts != (None, None)).map(lambda parts: Entity(*parts))
VALUES = st.dictionaries(st.sampled_from(QuotaKey), st.integers(0, 2**53).map(float), min_size=1)


@settings(deadline=None, print_blob=True)
@given(st.dictionaries(ENTITY, VALUES, max_size=5))
def test_round_trip(quotas: dict[AnyEntity, dict[AnyKey, float]]) -> None:
    assert read(write(quotas)) == quotas
