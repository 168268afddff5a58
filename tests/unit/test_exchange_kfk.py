"""The JSON of kfk-quotas is written as the original writes it, and read in both of its spellings."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.formats.exchange.kfk import read, write
from kquota_spark.model.entities import DEFAULT, AnyEntity, Entity, IpEntity
from kquota_spark.model.quota_set import QuotaSet
from kquota_spark.model.quota_types import AnyKey, IpQuotaKey, QuotaKey

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


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nonsense", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[" * 100_000, "not JSON: maximum recursion depth exceeded"),
        ("{}", "{}, expected an array of entities with constraints"),
        ("[3]", "[0]: 3, expected clientEntity and constraints"),
        (f"[{ALICE}{{}},\"x\":1}}]", "[0]: {", ),
        (f'[{ALICE}{{"producer_byte_rate":"1"}}}}]', '[0].constraints.producer_byte_rate: "1", expected a number'),
        (f'[{ALICE}{{"producer_byte_rate":true}}}}]', "[0].constraints.producer_byte_rate: true, expected a number"),
        (f'[{ALICE}{{"producer_byte_rate":NaN}}}}]', "[0].constraints.producer_byte_rate: NaN, expected a number"),
        (f'[{ALICE}{{"produce":1}}}}]', "[0].constraints.produce: expected one of producer_byte_rate, "),
        (f"[{ALICE}[]}}]", "[0].constraints: [], expected an object"),
        (f'[{ALICE}{{"connection_creation_rate":1}}}}]', "[0].constraints.connection_creation_rate: no quota of"),
        (f'[{ALICE}{{"consumer_byte_rate":1,"consumer_byte_rate":2}}}}]', "not JSON: a key stands twice in one object"),
        (
            f'[{ALICE}{{"consumer_byte_rate":1}}}},{ALICE}{{"consumer_byte_rate":1}}}}]',
            "[1].constraints.consumer_byte_rate: stands twice for users/alice",
        ),
        ('[{"clientEntity":{}}]', "[0].clientEntity: {}, expected user, client or ip"),
        ('[{"clientEntity":{"group":{}}}]', '[0].clientEntity: {"group": {}}, expected user, client or ip'),
        ('[{"clientEntity":{"user":{"user":null}}}]', '[0].clientEntity.user: {"user": null}, expected {"user": NAME}'),
        ('[{"clientEntity":{"user":{"default":false}}}]', "[0].clientEntity.user: "),
        ('[{"clientEntity":{"ip":{"ip":"1.2.3.4"},"user":{"user":"a"}}}]', "[0].clientEntity: an ip stands alone"),
        ('[{"clientEntity":{"ip":{"ip":"a/b"}}}]', "[0].clientEntity.ip: 'a/b' is no address or host name"),
    ],
)  # fmt: skip
def test_a_problem_names_its_place(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as raised:
        read(text)
    [line] = str(raised.value).splitlines()
    assert line.startswith(problem)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ValueError) as raised:
        read('[1,{"clientEntity":{"user":{"user":"a"}},"constraints":{"x":1,"consumer_byte_rate":null}}]')
    assert [line.partition(":")[0] for line in str(raised.value).splitlines()] == [
        "[0]", "[1].constraints.x", "[1].constraints.consumer_byte_rate",
    ]  # fmt: skip


def test_what_json_has_no_number_for_is_not_written() -> None:
    with pytest.raises(ValueError, match="users/a: request_percentage inf: JSON has no such number"):
        write({Entity("a"): {PERCENT: math.inf}})


NAME = st.one_of(st.none(), st.just(DEFAULT), st.text(max_size=8))
ENTITY = st.tuples(NAME, NAME).filter(lambda parts: parts != (None, None)).map(lambda parts: Entity(*parts))
VALUES = st.dictionaries(
    st.sampled_from(QuotaKey), st.floats(allow_nan=False, allow_infinity=False), min_size=1
)


@settings(deadline=None, print_blob=True)
@given(st.dictionaries(ENTITY, VALUES, max_size=5))
def test_round_trip(quotas: dict[AnyEntity, dict[AnyKey, float]]) -> None:
    assert read(write(quotas)) == quotas
