"""Files that are no quota files: one line a problem with its place, never a traceback, and nothing of them is taken."""

from __future__ import annotations

import time

import pytest

from kquota_spark.formats.exchange.checks import MOST_CHARACTERS
from kquota_spark.formats.exchange.registry import FORMATS, guess
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey

READ = [name for name in FORMATS if name != "kafka-configs-commands"]
BYTES = "expected a whole number of bytes per second, 0 or more"
KEYS = "producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate"
FIELDS = "producerByteRate, consumerByteRate, requestPercentage, controllerMutationRate"
WHO = "expected user-principal 'NAME', client-id 'NAME', ip 'NAME' or a default of these"
LANGUAGE = (
    "Terraform's language is not read, expected the output of terraform show -json (of a state or a plan)"
)
KAFKA_USER = "apiVersion: kafka.strimzi.io/v1\nkind: KafkaUser\n"


def problems(name: str, text: str) -> list[str]:
    with pytest.raises(ValueError, match=r".") as caught:
        FORMATS[name].read(text)
    return str(caught.value).split("\n")


def rpk(name: str = '"a"', value: str = '"1"', key: str = "producer_byte_rate", kind: str = "user") -> str:
    return (
        f'{{"quotas": [{{"entity": [{{"name": {name}, "type": "{kind}"}}], '
        f'"values": [{{"key": "{key}", "values": {value}}}]}}]}}'
    )


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ok\nab\0c", "line 2: a NUL character, expected text"),
        ("x" * (MOST_CHARACTERS + 1), "longer than 16,000,000 characters, expected quotas"),
    ],
    ids=["NUL", "too long"],
)
def test_what_is_no_text_or_too_long_is_refused_in_every_format(name: str, text: str, problem: str) -> None:
    assert problems(name, text) == [problem]


@pytest.mark.parametrize("name", READ)
def test_an_empty_file_is_no_quotas_or_a_problem_but_no_traceback(name: str) -> None:
    try:
        assert FORMATS[name].read("") == {}
    except ValueError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("nested", ["[" * 100_000, '{"a":' * 100_000, "- " * 100_000, 'a "b" {' * 100_000])
def test_deep_nesting_is_a_problem_told_at_once(name: str, nested: str) -> None:
    started_s = time.process_time()  # of this process: whatever else the machine does
    assert 1 <= len(problems(name, nested)) <= 2
    assert time.process_time() - started_s < 5


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (rpk(value='"NaN"'), [f"quotas[0].values[0]: producer_byte_rate 'NaN', {BYTES}"]),
        (
            rpk(value='"inf"', key="request_percentage"),
            ["quotas[0].values[0]: request_percentage 'inf', expected a number, 0 or more"],
        ),
        (rpk(value='"-1"'), [f"quotas[0].values[0]: producer_byte_rate '-1', {BYTES}"]),
        (rpk(value="1.5"), [f"quotas[0].values[0]: producer_byte_rate 1.5, {BYTES}"]),
        (
            rpk(value="1e19"),
            [
                f"quotas[0].values[0]: producer_byte_rate 1e+19, {BYTES.replace('0 or more', f'{2**63} or less')}"
            ],
        ),
        (rpk(value="NaN"), ["NaN is not JSON, expected a number"]),
        (rpk(value="true"), ["quotas[0]: Expected `float | str`, got `bool` - at `$.values[0].values`"]),
        (rpk(value="1" * 5000), [f"quotas[0].values[0]: producer_byte_rate inf, {BYTES}"]),
        (rpk(name="7"), ["quotas[0]: Expected `str`, got `int` - at `$.entity[0].name`"]),
        (rpk(name='""'), ["quotas[0].entity: user '': expected a name"]),
        (
            rpk(name='"\\ud800"'),
            ["quotas[0].entity: user '\\ud800': not UTF-8, as every name on the wire is"],
        ),
        (rpk(kind="group"), ["quotas[0].entity: 'group', expected one of user, client-id, ip"]),
        (rpk(key="byte_rate"), [f"quotas[0].values[0]: 'byte_rate', expected one of {KEYS}"]),
        (rpk(kind="ip"), ["quotas[0].values[0]: 'producer_byte_rate', expected connection_creation_rate"]),
        ('{"quotas": [], "quotas": []}', ["key 'quotas' stands twice in one object, expected once"]),
        ('{"quotas": 1}', ["quotas: expected a list"]),
        ("quotas: &a [*a]", ["line 1: an alias, expected it written out"]),
        (
            "quotas: !!python/object:os.system x",
            ["line 1: the tag 'tag:yaml.org,2002:python/object:os.system', expected a plain value"],
        ),
        ("quotas: []\nquotas: []", ["line 2: key 'quotas' is given twice, expected once"]),
        ("quotas: [\n", ["line 2: did not find expected node content"]),
        ("{\n oops", ["line 2: not JSON: Expecting property name enclosed in double quotes"]),
    ],
)
def test_documents(text: str, found: list[str]) -> None:
    assert problems("rpk", text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("hello", ["line 1: expected a sentence such as Quota configs for user-principal 'alice' are ..."]),
        ("Quota configs for topic 't' are x=1", [f"line 1: \"topic 't'\", {WHO}"]),
        ("Quota configs for ip '' are x=1", [f"line 1: \"ip ''\", {WHO}"]),
        (
            "Quota configs for ip 'a/b' are connection_creation_rate=1",
            ["line 1: 'a/b' is no address or host name"],
        ),
        (
            "Quota configs for user-principal 'a' are producer_byte_rate",
            ["line 1: expected key=value, key=value after are"],
        ),
        (
            "Quota configs for user-principal 'a' are producer_byte_rate=1.0, producer_byte_rate=2.0",
            ["line 1: users/a producer_byte_rate is given twice, expected once"],
        ),
        (
            "Quota configs for user-principal 'a' are producer_byte_rate=1.0\n" * 2,
            ["line 2: users/a producer_byte_rate is given twice, expected once"],
        ),
        (
            "Quota configs for user-principal 'a' are producer_byte_rate=Infinity",
            [f"line 1: producer_byte_rate 'Infinity', {BYTES}"],
        ),
    ],
)
def test_sentences(text: str, found: list[str]) -> None:
    assert problems("kafka-configs", text) == found


def terraform(values: str) -> str:
    resource = f'{{"address": "kafka_quota.a", "type": "kafka_quota", "values": {values}}}'
    return f'{{"format_version": "1.0", "values": {{"root_module": {{"resources": [{resource}]}}}}}}'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('resource "kafka_quota" "a" {\n', [LANGUAGE]),
        ("", [LANGUAGE]),
        ("{}", ["Object missing required field `format_version`"]),
        (
            '{"format_version": "1.0", "values": []}',
            ["Expected `object | null`, got `array` - at `$.values`"],
        ),
        (terraform("{}"), ["kafka_quota.a: Object missing required field `entity_type` - at `$.values`"]),
        (
            terraform('{"entity_type": "topic"}'),
            ["kafka_quota.a: 'topic', expected one of user, client-id, ip"],
        ),
        (
            terraform('{"entity_type": "user", "entity_name": ""}'),
            ["kafka_quota.a: user '': expected a name"],
        ),
        (
            terraform('{"entity_type": "user", "config": {"producer_byte_rate": -1}}'),
            [f"kafka_quota.a: producer_byte_rate -1.0, {BYTES}"],
        ),
        (
            terraform(
                '{"entity_type": "user", "config": {"producer_byte_rate": 1, "producer_byte_rate": 2}}'
            ),
            ["key 'producer_byte_rate' stands twice in one object, expected once"],
        ),
    ],
)
def test_terraform(text: str, found: list[str]) -> None:
    assert problems("terraform", text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1", ["documents: no KafkaUser of kafka.strimzi.io/* among them"]),
        ("- 1", ["document 1: a list, expected a resource with apiVersion and kind"]),
        (
            KAFKA_USER + "metadata: {name: 7}",
            ["document 1: Expected `str`, got `int` - at `$.metadata.name`"],
        ),
        (KAFKA_USER + "metadata: {name: A}", ["document 1: metadata.name: 'A' is no name of a resource"]),
        (
            KAFKA_USER + "metadata: {name: a}\nspec: {quotas: {producerByteRate: '1'}}",
            ["document 1: Expected `float`, got `str` - at `$.spec.quotas[...]`"],
        ),
        (
            KAFKA_USER + "metadata: {name: a}\nspec: {quotas: {rate: 1}}",
            [f"document 1: spec.quotas: 'rate', expected one of {FIELDS}"],
        ),
    ],
)
def test_resources(text: str, found: list[str]) -> None:
    assert problems("strimzi", text) == found


def test_of_many_problems_fifty_are_told_and_the_others_counted() -> None:
    found = problems("kafka-configs", "?\n" * 1_234)
    assert len(found) == 51
    assert found[-1] == "... and 1,184 more problems"


def test_a_file_with_one_wrong_line_gives_nothing() -> None:
    text = FORMATS["kafka-configs"].write({Entity("a"): {QuotaKey.PRODUCER_BYTE_RATE: 1.0}})
    assert problems("kafka-configs", f"{text}?") == [
        "line 2: expected a sentence such as Quota configs for user-principal 'alice' are ..."
    ]


def test_a_format_is_guessed_by_its_sign_then_by_the_suffix() -> None:
    assert guess("hello", "quotas.txt") == []
    assert [each.name for each in guess("# nothing yet", "quotas.TF")] == ["terraform"]
    assert [each.name for each in guess("quotas:\n- entity: []", "x.yaml")] == ["rpk"]


_HEAD = "Configs for user-principal '"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kafka-configs", f"{_HEAD}a' are " + "SCRAM-SHA-256=salt=" * 20_000),
        ("kafka-configs", _HEAD + "', client-id '" * 20_000 + " are x=1"),
        ("kafka-configs", _HEAD + "a, client-id '" * 20_000 + "' are x=1"),
        ("kafka-configs", _HEAD + " are x=1" * 20_000 + " are"),
    ],
)
def test_no_file_takes_the_time_of_its_length_squared(name: str, text: str) -> None:
    """Read in under 0.1 s; the square of these lengths would take minutes."""
    started_s = time.process_time()
    assert len(problems(name, text)) <= 2
    assert time.process_time() - started_s < 3
