"""Quota files of other tools as their tools write them, and what these formats cannot say."""

from __future__ import annotations

import pytest

from kquota_spark.formats.exchange import declared
from kquota_spark.formats.exchange.registry import FORMATS
from kquota_spark.model.quotas.entities import DEFAULT, Entity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey

PRODUCE, FETCH, REQUEST, MUTATION = QuotaKey
CONNECTIONS = IpQuotaKey.CONNECTION_CREATION_RATE


def problems(name: str, text: str) -> list[str]:
    with pytest.raises(ValueError, match=r".") as caught:
        FORMATS[name].read(text)
    return str(caught.value).split("\n")


def read(name: str, text: str) -> QuotaSet:
    return FORMATS[name].read(text)


def test_rpk_json_and_yaml_say_the_same() -> None:
    as_json = (
        '{"quotas":[{"entity":[{"name":"x","type":"client-id"}],"values":[{"key":"consumer_byte_rate",'
        '"values":"10000000"}]},{"entity":[{"name":"<default>","type":"client-id"},{"name":"no","type":"user"}],'
        '"values":[{"key":"request_percentage","values":"12.5"}]}]}'
    )
    as_yaml = """\
quotas:
    - entity:
        - name: x
          type: client-id
      values:
        - key: consumer_byte_rate
          values: "10000000"
    - entity:
        - name: <default>
          type: client-id
        - name: "no"
          type: user
      values:
        - key: request_percentage
          values: "12.5"
"""
    expected: QuotaSet = {
        Entity(client_id="x"): {FETCH: 10_000_000.0},
        Entity("no", DEFAULT): {REQUEST: 12.5},
    }
    assert read("rpk", as_json) == read("rpk", as_yaml) == expected
    assert read("rpk", as_json.replace('"values":"', '"value":"')) == expected, "as of rpk 25.1"
    assert read("rpk", "{}") == {}, "rpk leaves the list out where there are no quotas"


def test_rpk_finds_the_number_under_the_name_that_its_release_has_for_it() -> None:
    quotas: QuotaSet = {Entity("alice", DEFAULT): {PRODUCE: 1_048_576.0, REQUEST: 12.5}}
    text = FORMATS["rpk"].write(quotas)
    assert text == (
        '{"quotas": [\n'
        '{"entity": [{"name": "alice", "type": "user"}, {"name": "<default>", "type": "client-id"}], '
        '"values": [{"key": "producer_byte_rate", "value": "1048576", "values": "1048576"}, '
        '{"key": "request_percentage", "value": "12.5", "values": "12.5"}]}\n'
        "]}\n"
    )
    assert problems("rpk", text.replace('"value": "12.5"', '"value": "12"')) == [
        "quotas[0].values[1]: 2 numbers in value and values, expected one"
    ]
    assert problems("rpk", text.replace(', "value": "12.5", "values": "12.5"', "")) == [
        "quotas[0].values[1]: 0 numbers in value and values, expected one"
    ]


def test_kafka_configs_sentences_in_both_wordings() -> None:
    text = """\
Quota configs for user-principal 'user1', client-id 'clientA' are producer_byte_rate=1024.0, request_percentage=200.0
Quota configs for the default user-principal are consumer_byte_rate=1.048576E7
Quota configs for the default user-principal, the default client-id are producer_byte_rate=1.0
Quota configs for user-principal 'CN=o'neil, O=x', the default client-id are controller_mutation_rate=0.5
Quota configs for the default ip are connection_creation_rate=5.0
Quota configs for ip '::1' are connection_creation_rate=10.0
SCRAM credential configs for user-principal 'user1' are SCRAM-SHA-256=iterations=4096

Configs for user-principal 'old', default client-id are producer_byte_rate=1024,consumer_byte_rate=2048
Configs for default client-id are request_percentage=200
Configs for user-principal 'empty' are\x20
"""
    assert read("kafka-configs", text) == {
        Entity("user1", "clientA"): {PRODUCE: 1024.0, REQUEST: 200.0},
        Entity(DEFAULT): {FETCH: 10_485_760.0},
        Entity(DEFAULT, DEFAULT): {PRODUCE: 1.0},
        Entity("CN=o'neil, O=x", DEFAULT): {MUTATION: 0.5},
        IpEntity(DEFAULT): {CONNECTIONS: 5.0},
        IpEntity("::1"): {CONNECTIONS: 10.0},
        Entity("old", DEFAULT): {PRODUCE: 1024.0, FETCH: 2048.0},
        Entity(client_id=DEFAULT): {REQUEST: 200.0},
    }


def test_kafka_configs_writes_numbers_as_java_does() -> None:
    quotas: QuotaSet = {
        Entity("a", "c"): {PRODUCE: 9_999_999.0, FETCH: 10_000_000.0, REQUEST: 0.001, MUTATION: 0.0005},
        Entity(client_id=DEFAULT): {PRODUCE: 2.0**63, REQUEST: 0.0},
    }
    assert FORMATS["kafka-configs"].write(quotas) == (
        "Quota configs for user-principal 'a', client-id 'c' are producer_byte_rate=9999999.0, "
        "consumer_byte_rate=1.0E7, request_percentage=0.001, controller_mutation_rate=5.0E-4\n"
        "Quota configs for the default client-id are producer_byte_rate=9.223372036854776E18, "
        "request_percentage=0.0\n"
    )


def test_credentials_of_the_old_wording_are_passed_over_and_never_quoted() -> None:
    keys = "SCRAM-SHA-256=salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"
    for values in (f"{keys},producer_byte_rate=5", f"producer_byte_rate=5,{keys}"):
        assert read("kafka-configs", f"Configs for user-principal 'a' are {values}") == {
            Entity("a"): {PRODUCE: 5.0}
        }
    [problem] = problems(
        "kafka-configs", "Configs for user-principal 'a' are SCRAM-SHA-256=salt=c2FsdA==,oh no"
    )
    assert "c2FsdA" not in problem


def test_a_sentence_that_reads_in_several_ways_is_a_problem() -> None:
    text = "Quota configs for user-principal 'a', client-id 'b', client-id 'c' are producer_byte_rate=1.0"
    assert problems("kafka-configs", text) == ["line 1: names with quotes that read in several ways"]
    with pytest.raises(ValueError, match="escapes nothing"):
        FORMATS["kafka-configs"].write({Entity("a', client-id 'b"): {PRODUCE: 1.0}})


def test_strimzi_resources_of_users_with_and_without_certificates() -> None:
    text = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaTopic
metadata: {name: orders}
spec: {partitions: 3}
---
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaUser
metadata:
  name: my-user
  labels: {strimzi.io/cluster: my-cluster}
spec:
  authentication: {type: tls}
  quotas: {producerByteRate: 1048576, consumerByteRate: 2097152, requestPercentage: 55, controllerMutationRate: 0.5}
---
apiVersion: v1
kind: List
items:
- apiVersion: kafka.strimzi.io/v1
  kind: KafkaUser
  metadata: {name: other}
  spec: {authentication: {type: scram-sha-512}, quotas: {producerByteRate: 1}}
- {apiVersion: kafka.strimzi.io/v1, kind: KafkaUser, metadata: {name: without}, spec: {}}
"""
    assert read("strimzi", text) == {
        Entity("CN=my-user"): {PRODUCE: 1_048_576.0, FETCH: 2_097_152.0, REQUEST: 55.0, MUTATION: 0.5},
        Entity("other"): {PRODUCE: 1.0},
    }


def test_strimzi_names_whom_it_cannot_say() -> None:
    quotas: QuotaSet = {
        Entity("alice", "etl"): {PRODUCE: 1.0},
        Entity(DEFAULT): {PRODUCE: 1.0},
        Entity("Alice"): {PRODUCE: 1.0},
        Entity("bob"): {REQUEST: 12.5},
        Entity("carol"): {FETCH: 2.0**31},
        IpEntity("10.0.0.1"): {CONNECTIONS: 1.0},
        Entity("fine"): {PRODUCE: 2.0**31 - 1, MUTATION: 1e20},
    }
    with pytest.raises(ValueError, match=r".") as caught:
        FORMATS["strimzi"].write(quotas)
    assert [line.partition(":")[0] for line in str(caught.value).split("\n")] == [
        "users/alice/clients/etl", "users/Alice", "users/bob", "users/carol", "users/<default>", "ips/10.0.0.1",
    ]  # fmt: skip
    assert (
        "users/carol: consumer_byte_rate 2147483648: a KafkaUser takes whole numbers up to 2147483647 only\n"
        in str(caught.value)
    )


def test_a_kafka_user_is_written_in_the_version_that_strimzi_has_since_1_0() -> None:
    quotas: QuotaSet = {Entity("CN=my-user"): {PRODUCE: 2_147_483_647.0, REQUEST: 55.0, MUTATION: 0.5}}
    assert (
        FORMATS["strimzi"].write(quotas).partition("---\n")[2]
        == """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata:
  name: "my-user"
  labels:
    strimzi.io/cluster: my-cluster
spec:
  authentication:
    type: tls-external
  quotas:
    producerByteRate: 2147483647
    requestPercentage: 55
    controllerMutationRate: 0.5
"""
    )


def test_our_own_file_says_what_holds_at_a_moment_or_in_the_end() -> None:
    text = """\
- {user: alice, type: producer_byte_rate, value: 1, from_ms: null, to_ms: 1000}
- {user: alice, type: producer_byte_rate, value: 2, from_ms: 1000, to_ms: null}
- {user: bob, type: producer_byte_rate, value: 3, from_ms: 1000, to_ms: 2000}
- {ip: 10.0.0.1, type: connection_creation_rate, value: 4, from_ms: null, to_ms: null}
"""
    ip: QuotaSet = {IpEntity("10.0.0.1"): {CONNECTIONS: 4.0}}
    assert read("declared", text) == {Entity("alice"): {PRODUCE: 2.0}, **ip}
    assert declared.read_at(text, 999) == {Entity("alice"): {PRODUCE: 1.0}, **ip}
    assert declared.read_at(text, 1_999) == {
        Entity("alice"): {PRODUCE: 2.0},
        Entity("bob"): {PRODUCE: 3.0},
        **ip,
    }
    assert declared.read_at(text, 2_000) == read("declared", text)
