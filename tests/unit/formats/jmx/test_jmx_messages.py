"""Messages of collectors become samples: real captures, and the forms of the collectors' own sources."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest

from kquota_spark.formats.jmx.messages import read_jmx_message
from kquota_spark.formats.jmx.sample import JmxSample, Origin, addresses
from tests.support.logs.jmx_messages import TIME_MS, jolokia, telegraf
from tests.support.places import DATA

AT_1 = Origin(broker_id=1)


def lines(path: str) -> list[bytes]:
    return gzip.decompress((DATA / path).read_bytes()).splitlines()


def read(*messages: bytes, origin: Origin = AT_1) -> list[JmxSample]:
    """The samples of messages that can all be read."""
    readings = [read_jmx_message(message, origin) for message in messages]
    assert [reading.reasons for reading in readings if reading.reasons] == []
    return [sample for reading in readings for sample in reading.samples]


def reason(message: bytes, origin: Origin = AT_1) -> str:
    reading = read_jmx_message(message, origin)
    assert not reading.samples
    return reading.reasons[0]


def test_a_capture_of_telegraf_is_read_message_by_message_and_in_batches() -> None:
    # Its tag broker says which one, so nothing has to be set.
    single = read(*lines("jmx-telegraf/telegraf-kafka.jsonl.gz"), origin=Origin())
    batch = read(*lines("jmx-telegraf/telegraf-batch.jsonl.gz"), origin=Origin())
    assert Counter(sample.quota_type for sample in single) == {
        "request": 191, "produce": 135, "controller_mutation": 82, "fetch": 55,
    }  # fmt: skip
    # The same metrics, once with seconds and once with milliseconds.
    assert sorted(single, key=repr) == sorted(batch, key=repr)
    # {"fields":{"byte-rate":1095734.860005367,"throttle-time":853.8571428571429},"name":"kafka_quota_produce",
    #  "tags":{"broker":"1","client-id":"loader",...},"timestamp":1795242300}
    assert JmxSample(
        1, 1_795_242_300_000, "Produce", "produce", "", "loader",
        byte_rate=1095734.860005367, throttle_time_ms=853.8571428571429,
    ) in single  # fmt: skip
    # {"fields":{"mutation-rate":...,"tokens":101457092405402530000}: an integer beyond 64 bits.
    assert {sample.tokens for sample in single if sample.tokens is not None and sample.tokens > 1e18} == {
        1.0145709240540253e20
    }
    # A NaN is absent from its fields.
    assert {sample.throttle_time_ms for sample in single if sample.bucket_client_id == "free"} == {None}


def test_a_capture_of_jolokia_is_read_with_its_nulls_and_quoted_names() -> None:
    polls = [json.loads(line) for line in lines("zk39-levels/jmx.jsonl.gz")]
    samples = [
        sample for poll in polls for sample in read(poll["raw"].encode(), origin=Origin(poll["broker"]))
    ]
    assert len(samples) == 2_165
    buckets = {(sample.mbean_type, sample.bucket_user, sample.bucket_client_id) for sample in samples}
    assert ("Fetch", "CN=app-1,OU=x", 'a;b=c,"d"') in buckets
    assert ("Produce", "team:pay+ments@corp", "") in buckets
    assert ("Produce", "carol", "sp ace ünï") in buckets
    (bob,) = (
        sample for sample in samples
        if (sample.broker_id, sample.sample_time_ms, sample.quota_type, sample.bucket_user, sample.bucket_client_id)
        == (1, 1_795_239_685_000, "produce", "bob", "")
    )  # fmt: skip
    assert (bob.byte_rate, bob.throttle_time_ms) == (251209.60774148954, 103.58108108108108)
    (ctl,) = (sample for sample in samples if sample.tokens == 1.4710000000000008)
    assert (ctl.quota_type, ctl.bucket_user, ctl.throttle_time_ms) == (
        "controller_mutation",
        "ctl",
        662.3333333333334,
    )
    # An answer of our own collector is the same with broker and time in it.
    ours = json.loads(polls[40]["raw"]) | {"broker_id": 2, "time_ms": polls[40]["poll_ms"]}
    assert {(s.broker_id, s.sample_time_ms) for s in read(json.dumps(ours).encode(), origin=Origin())} == {
        (2, polls[40]["poll_ms"])
    }


def test_an_event_of_metricbeat() -> None:
    """Form: elastic/beats metricbeat/module/jolokia/jmx/_meta/data.json; `mbean` of a wildcard: data.go."""
    values = {"byte_rate": 1234.5, "throttle_time": None}
    fields = {"mbean": 'kafka.server:client-id="my:client",type=Fetch,user=team%3Apay', "quota": values}
    event = {
        "@timestamp": "2026-11-21T06:25:00.123Z",
        "event": {"dataset": "jolokia.kafka", "duration": 115000, "module": "jolokia"},
        "jolokia": {"kafka": fields},
        "metricset": {"name": "jmx"},
        "service": {"address": "http://kafka2:8778/jolokia", "type": "jolokia"},
        "host": {"name": "beat-1"},
    }
    origin = Origin(brokers={"kafka2:8778": 2})
    expected = JmxSample(2, TIME_MS + 123, "Fetch", "fetch", "team:pay", "my:client", byte_rate=1234.5)
    assert read(json.dumps(event).encode(), origin=origin) == [expected]
    del fields["mbean"]
    assert reason(json.dumps(event).encode(), origin).startswith("no name of one MBean")


def test_a_result_of_jmxtrans_in_its_default_form() -> None:
    """Form: jmxtrans DefaultResultSerializer: value is a text, timestamp in seconds, ( and ) become _."""
    message = (
        b'{"keyspace":"kafka.kafka1_example_net_9999.QuotaSensor.Produce.byte-rate","value":"123.4",'
        b'"timestamp":1795242300,"tags":{"typeName":"client-id=etl,type=Produce,user=alice",'
        b'"attributeName":"byte-rate"}}'
    )
    expected = JmxSample(1, TIME_MS, "Produce", "produce", "alice", "etl", byte_rate=123.4)
    assert read(message) == [expected]
    assert read(message, origin=Origin(brokers={"kafka1.example.net": 1})) == [expected]
    assert read(message.replace(b'"123.4"', b'"NaN"')) == [expected._replace(byte_rate=None)]
    without = message.replace(b'"typeName":"client-id=etl,type=Produce,user=alice",', b"")
    assert reason(without).startswith("no MBean name in it: set resultTags")


def test_a_result_of_jmxtrans_in_its_detailed_form() -> None:
    """Form: jmxtrans DetailedResultSerializer.KResult (value), and MultiValuesResult before it (values)."""
    result = {
        "alias": "1", "host": "kafka1.example.net", "port": "9999", "source": "kafka1.example.net",
        "attributeName": "throttle-time", "className": "org.apache.kafka.common.metrics.JmxReporter$KafkaMbean",
        "objDomain": "kafka.server", "typeName": 'client-id="a,b",type=Request',
        "typeNameMap": {"type": "Request", "client-id": '"a,b"'}, "epoch": TIME_MS, "valuePath": [], "value": 12.5,
    }  # fmt: skip
    expected = JmxSample(1, TIME_MS, "Request", "request", "", "a,b", throttle_time_ms=12.5)
    assert read(json.dumps(result).encode(), origin=Origin()) == [expected]
    del result["value"]
    older = result | {"values": {"throttle-time": 12.5, "request-time": "NaN"}}
    assert read(json.dumps(older).encode(), origin=Origin()) == [expected]


@pytest.mark.parametrize(
    "time", [1_795_242_300, 1_795_242_300_000, 1_795_242_300_000_000, 1_795_242_300_000_000_000]
)
def test_times_are_told_by_their_magnitude(time: int) -> None:
    (sample,) = read(telegraf("kafka_request", {"request-time": 1}, time=time))
    assert sample.sample_time_ms == TIME_MS


@pytest.mark.parametrize(
    ("name", "fields", "tags", "mbean_type"),
    [
        ("kafka_quota_produce", {"byte-rate": 1}, {}, "Produce"),
        ("kafka.ConsumerQuota", {"byte_rate": 1}, {}, "Fetch"),
        ("anything", {"tokens": -3.5}, {}, "ControllerMutation"),
        ("anything", {"byteRate": 1}, {"type": "fetch"}, "Fetch"),
        ("in", {"jmx.byte-rate": 1}, {}, "Produce"),
        ("kafka_leader_replication", {"byte-rate": 1}, {}, "LeaderReplication"),
    ],
)
def test_names_and_tags_of_telegraf_are_the_operators_choice(
    name: str, fields: dict[str, float], tags: dict[str, str], mbean_type: str
) -> None:
    (sample,) = read(telegraf(name, fields, time=TIME_MS, **tags), origin=Origin(types={"in": "Produce"}))
    assert sample.mbean_type == mbean_type


def test_a_sensor_without_a_value_is_null_however_it_is_written() -> None:
    for value in (None, "NaN", "nan", ""):
        (sample,) = read(telegraf("produce", {"byte-rate": value, "throttle-time": value}, user="a"))
        assert (sample.byte_rate, sample.throttle_time_ms) == (None, None)


def test_metrics_of_nothing_with_a_quota_are_neither_samples_nor_mistakes() -> None:
    for message in (
        telegraf("cpu", {"usage_idle": 97.0}),
        telegraf("kafka_topic", {"queue-size": 1}),
        jolokia("java.lang:type=Memory", {"HeapMemoryUsage": {"used": 1}}),
        jolokia("kafka.server:type=Produce,*", {}),
        b'{"request":{"mbean":"kafka.server:type=Fetch,*","type":"read"},"status":404,"error":"..."}',
    ):
        assert read_jmx_message(message, AT_1) == ([], [])


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"", "no message of a collector"),
        (b"[1]", "no message of a collector"),
        (b'{"a":1}', "of no collector that is known (Telegraf, Metricbeat, jmxtrans, Jolokia)"),
        (telegraf("in", {"byte-rate": 1}), "a byte-rate of produce or of fetch?"),
        (telegraf("produce", {"byte-rate": "fast"}), "byte_rate is no number"),
        (telegraf("produce", {"byte-rate": 1}, user="%zz"), "the user of the MBean is no sanitised name"),
        (telegraf("produce", {"byte-rate": 1}, client_id='"a;b=c'), "the tag client-id was cut at a comma"),
        # Of the client id a",b JMX makes "a\",b", and Telegraf keeps what stands before the comma.
        (telegraf("produce", {"byte-rate": 1}, client_id=r'"a\"'), "the tag client-id was cut at a comma"),
        (telegraf("produce", {"byte-rate": 1}, time=-5), "a time before 1970 or after 9999"),
        (
            jolokia("kafka.server:type=Produce,*", {"no name": {"byte-rate": 1}}),
            "a key of its value is no MBean name",
        ),
        (
            b'{"request":{"mbean":"kafka.server:type=Fetch,*"},"status":403}',
            "Jolokia answered with status 403",
        ),
    ],
)
def test_a_message_that_cannot_be_read_says_why(message: bytes, expected: str) -> None:
    assert reason(message).startswith(expected)


def test_without_any_word_of_the_broker_a_message_is_refused() -> None:
    message = telegraf(
        "produce", {"byte-rate": 1}, broker="kafka-1", host="h", jolokia_agent_url="http://h:8778/jolokia"
    )
    assert reason(message, Origin()).startswith("no broker id: expected a tag broker or broker_id")
    assert read(message, origin=Origin(brokers={"http://h:8778/jolokia": 4}))[0].broker_id == 4
    assert read(message, origin=Origin(broker_id=5, brokers={"h": 4}))[0].broker_id == 5


def test_one_bad_metric_of_a_batch_does_not_spoil_the_others() -> None:
    good, bad = telegraf("produce", {"byte-rate": 1}), telegraf("produce", {"byte-rate": "fast"})
    reading = read_jmx_message(b'{"metrics":[' + good + b"," + bad + b"," + good + b"]}", AT_1)
    assert (len(reading.samples), reading.reasons) == (2, ["byte_rate is no number"])


def test_tags_of_a_callback_are_kept_as_they_are() -> None:
    (sample,) = read(
        jolokia("kafka.server:type=Produce,*", {"kafka.server:group=pay,type=Produce": {"byte-rate": 1}})
    )
    assert (sample.bucket_tags, sample.bucket_user, sample.bucket_client_id) == ('{"group": "pay"}', "", "")


def test_one_address_in_the_forms_of_collectors() -> None:
    assert addresses("http://kafka1:8778/jolokia/") == ("http://kafka1:8778/jolokia", "kafka1:8778", "kafka1")
    assert addresses("kafka1:8778") == ("kafka1:8778", "kafka1:8778", "kafka1")
    assert addresses("[::1]:8778") == ("[::1]:8778", "[::1]:8778", "[::1]")
