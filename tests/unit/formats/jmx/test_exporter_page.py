"""Lines of jmx_exporter to MBeans, by each of the rules in use, and with names that clients chose."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kquota_spark.formats.jmx.collectors import messages
from kquota_spark.formats.jmx.exporter_page import answers_of, mbeans_of
from kquota_spark.formats.jmx.messages import read_jmx_message
from kquota_spark.formats.jmx.sample import Origin
from kquota_spark.model.quotas.mbean_names import mbean_name
from tests.support.places import DATA

PAIR = "kafka.server:type=Produce,user=alice,client-id=etl"


@pytest.mark.parametrize(
    "line",
    [
        'kafka_server_Produce_byte_rate{user="alice",client_id="etl",} 1.5E7',
        'kafka_server_Produce_byte_rate{user="alice",client_id="etl"} 1.5E7',
        'kafka_server_Produce_byte_rate{user="alice", client_id="etl"} 1.5E7 1732104000000\r',
        'kafka_server_produce_byte_rate{client_id="etl",user="alice",} 15000000',
        'kafka_server_quota_byte_rate{resource="Produce",user="alice",clientId="etl",} 1.5E7',
        'kafka_server_quota_byte_rate{type="Produce",user="alice",client_id="etl",} 1.5E7',
        # Strimzi's rule for client ids takes all that comes before for the type.
        'kafka_server_quota_byte_rate{resource="Produce, user=alice",clientId="etl",} 1.5E7',
    ],
)
def test_every_form_of_a_line_names_the_same_mbean(line: str) -> None:
    [(mbean, values)] = mbeans_of(line).items()
    [answer] = answers_of(line)
    [sample] = read_jmx_message(next(messages([answer], 1, 50)), Origin()).samples
    assert (sorted(mbean.split(",")), values) == (sorted(PAIR.split(",")), {"byte-rate": 1.5e7})
    assert (sample.quota_type, sample.bucket_user, sample.bucket_client_id, sample.byte_rate) == (
        "produce", "alice", "etl", 1.5e7,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "mbean_type", "attribute"),
    [
        ("kafka_server_Fetch_throttle_time", "Fetch", "throttle-time"),
        ("kafka_server_Request_request_time", "Request", "request-time"),
        ("kafka_server_request_exempt_request_time", "Request", "exempt-request-time"),
        ("kafka_server_ControllerMutation_mutation_rate", "ControllerMutation", "mutation-rate"),
        ("kafka_server_controllermutation_tokens", "ControllerMutation", "tokens"),
        (
            "kafka_server_socket_server_metrics_broker_connection_accept_rate",
            "socket-server-metrics",
            "broker-connection-accept-rate",
        ),
        ("kafka_server_LeaderReplication_byte_rate", "LeaderReplication", "byte-rate"),
    ],
)
def test_names_of_metrics(metric: str, mbean_type: str, attribute: str) -> None:
    assert mbeans_of(f"{metric} 1.0") == {f"kafka.server:type={mbean_type}": {attribute: 1.0}}


CLIENT_IDS = (
    'over;the "limit"', "back\\slash", "new\nline", "star*and?", "x, client-id=y", 'z",user="alice', "übung~",
    "pay} 5", "a\u2028b\x0bc\x85d", "#HELP", "\\n", '"', ",}", "kafka_server_Produce_byte_rate 1",
)  # fmt: skip


@pytest.mark.parametrize("client_id", CLIENT_IDS)
def test_a_name_of_a_client_comes_back_as_the_client_has_it(client_id: str) -> None:
    jmx = mbean_name("Produce", {"client-id": client_id}).partition("client-id=")[2]
    label = jmx.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    other = 'kafka_server_Produce_byte_rate{client_id="other",} 2.0'
    text = f'kafka_server_Produce_byte_rate{{client_id="{label}",}} 1.0\n{other}\n'
    [message] = messages(answers_of(text), 1, 50)
    reading = read_jmx_message(message, Origin())
    assert [(each.bucket_user, each.bucket_client_id, each.byte_rate) for each in reading.samples] == [
        ("", client_id, 1.0), ("", "other", 2.0),
    ]  # fmt: skip
    assert reading.reasons == []


@pytest.mark.parametrize(
    "line",
    [
        'kafka_server_Produce_byte_rate{client_id="etl} 1.0',
        'kafka_server_Produce_byte_rate{client_id="etl"}',
        'kafka_server_Produce_byte_rate{client_id="a",client_id="b"} 1.0',
        'kafka_server_Produce_byte_rate{client_id="etl"} 1_000',
        'kafka_server_Produce_byte_rate{client_id="etl"} \u0661',
        'kafka_server_Produce_byte_rate{client_id="\\"cut"} 1.0',
        # By the rule `user=(.+), client-id=(.+)`, of bob's client `x, client-id=y`
        'kafka_server_quota_byte_rate{resource="Produce",user="bob, client-id=\\"x",clientId="y\\"",} 1.0',
        'kafka_server_Produce_byte_rate{client_id="kafka.server:type=Produce,user=alice} 1.0',
    ],
)
def test_a_line_that_cannot_be_read_spoils_no_other_and_is_kept_as_unreadable(line: str) -> None:
    text = f'{line}\nkafka_server_Produce_byte_rate{{client_id="other",}} 2.0\n'
    [message] = messages(answers_of(text), 1, 50)
    reading = read_jmx_message(message, Origin())
    assert [each.bucket_client_id for each in reading.samples] == ["other"]
    assert reading.reasons == ["a key of its value is no MBean name"]


HOSTILE = "x, client-id=y"
PLACES = ("quota_type", "bucket_user", "bucket_client_id", "ip", "listener")


def places(answers: list[dict[str, Any]]) -> tuple[set[tuple[Any, ...]], set[str]]:
    """Which sensors the job finds in answers, and its reasons for what it cannot read."""
    readings = [read_jmx_message(message, Origin()) for message in messages(answers, 1, 50)]
    found = {
        tuple(getattr(each, name) for name in PLACES) for reading in readings for each in reading.samples
    }
    return found, {reason for reading in readings for reason in reading.reasons}


def page(name: str) -> list[dict[str, Any]]:
    return answers_of((DATA / "jmx-exporter" / f"{name}.txt").read_bytes().decode())


def test_pages_of_a_real_broker_have_the_buckets_that_jolokia_has() -> None:
    told, _ = places(json.loads((DATA / "jmx-exporter" / "jolokia.json").read_bytes()))
    # Jolokia was not asked for the controller's.
    assert places(page("default")) == (told | {("controller_mutation", "", "", None, None)}, set())
    assert places(page("lower")) == places(page("default"))
    assert ("produce", "alice", 'over;the "limit"', None, None) in told
    assert ("produce", "", HOSTILE, None, None) in told


def test_by_strimzis_rules_a_hostile_name_is_unreadable_and_takes_nobodys_bucket() -> None:
    told, _ = places(json.loads((DATA / "jmx-exporter" / "jolokia.json").read_bytes()))
    # Its rules keep neither buckets of users alone nor sensors without a client id.
    expected = {each for each in told if each[2] not in ("", HOSTILE)}
    assert places(page("strimzi")) == (expected, {"a key of its value is no MBean name"})


def test_other_metrics_and_a_page_without_any_give_nothing() -> None:
    text = (
        'kafka_server_BrokerTopicMetrics_Count{name="x",} 1.0\nkafka_server_byte_rate 1.0\n'
        "# TYPE kafka_server_Produce_byte_rate gauge\nkafka_server_KafkaServer_Value 1.0\n<html>"
    )
    assert answers_of(text) == answers_of("") == []


def test_a_sensor_without_a_value_has_none() -> None:
    text = 'kafka_server_Produce_byte_rate{client_id="a"} NaN\nkafka_server_Produce_throttle_time{client_id="a"} +Inf'
    [message] = messages(answers_of(text), 1, 50)
    [sample] = read_jmx_message(message, Origin()).samples
    assert (sample.byte_rate, sample.throttle_time_ms) == (None, None)
