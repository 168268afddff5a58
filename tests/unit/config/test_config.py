"""A settings file is read whole or refused with every mistake in it, each in one line."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml

from kquota_spark.config.client_properties import client_properties
from kquota_spark.config.loader import load_settings
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Broker, EnvelopeFields, Kafka, Quotas, Settings, Ship, Stream, Tables
from kquota_spark.errors import UserError
from kquota_spark.kafka.client_properties import PYTHON_NAMES
from tests.support.places import CONF

CONF = CONF / "kquota.yaml"
DURATION = "expected a number with a unit (ms, s, min, h, d), e.g. 10 s"


def written(directory: Path, text: str | bytes) -> Path:
    path = directory / "kquota.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def problems(directory: Path, text: str | bytes) -> list[str]:
    path = written(directory, text)
    with pytest.raises(UserError) as raised:
        load_settings(path)
    lines = str(raised.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    return [line.removeprefix(f"{path}: ") for line in lines]


SECTIONS = (
    "cluster_id, tables, checkpoints, storage_options, kafka, quotas, broker, stream, ship, maintain, metrics, "
    "collect, enforcement, notifications, serve, owners"
)
MISTAKES = [
    ("clusterid: a", "clusterid: unknown key, did you mean cluster_id?"),
    ("kafka: {topix: a}", "kafka.topix: unknown key, did you mean topic?"),
    ("kafka: {topics: a}", "kafka.topics: 'a', expected a list"),
    (
        "kafka: {topic: a, topics: [b]}",
        "kafka.topics: stands beside topic, expected one of topic, topics, topic_pattern: delete the others",
    ),
    (
        "kafka: {topics: [b], topic_pattern: c.*}",
        "kafka.topic_pattern: stands beside topics, expected one of topic, topics, topic_pattern: delete the others",
    ),
    (
        "kafka: {topic: ''}",
        "kafka.topic: no topic, expected one of topic, topics, topic_pattern, or jmx_topic",
    ),
    (
        "kafka: {topic_pattern: 'a('}",
        "kafka.topic_pattern: 'a(' is no regular expression (missing ), unterminated subpattern at position 1)",
    ),
    (
        "kafka: {broker_in_topic: 'log-\\d+'}",
        "kafka.broker_in_topic: 'log-\\\\d+' has 0 groups, expected one in brackets for the broker's id or name",
    ),
    (
        "kafka: {envelope: fluentbit}",
        (
            "kafka.envelope: 'fluentbit', expected one of "
            "auto, raw, filebeat, fluent-bit, fluentd, vector, logstash, rsyslog, json"
        ),
    ),
    (
        "kafka: {envelope_fields: {msg: a}}",
        "kafka.envelope_fields.msg: unknown key, did you mean message?",
    ),
    (
        "kafka: {broker_from: [host]}",
        "kafka.broker_from[0]: 'host', expected one of header, key, field, topic",
    ),
    (
        "kafka: {broker_from: []}",
        "kafka.broker_from: empty, expected one or more of header, key, field, topic",
    ),
    ("kafka: {broker_ids: [a]}", "kafka.broker_ids: a list, expected a mapping of names to whole numbers"),
    ("kafka: {broker_ids: {a.b: x}}", "kafka.broker_ids.a.b: 'x', expected a whole number"),
    ("kafka: {broker_ids: {a.b: -1}}", "kafka.broker_ids.a.b: -1, expected the id of a broker, 0 or more"),
    (
        "zzz: 1",
        f"zzz: unknown key, expected one of {SECTIONS}",
    ),
    (
        "1: 1",
        f"1: unknown key, expected one of {SECTIONS}",
    ),
    ("cluster_id: 5", "cluster_id: 5, expected a text"),
    ("cluster_id:", "cluster_id: nothing, expected a text"),
    ("cluster_id: [a]", "cluster_id: a list, expected a text"),
    ("tables: {location: [a]}", "tables.location: a list, expected a text"),
    ("tables: {path: a}", "tables.path: unknown key, expected one of location, requests"),
    ("tables: {requests: some}", "tables.requests: 'some', expected one of all, throttled, unreadable"),
    ("kept_requests: throttled", f"kept_requests: unknown key, expected one of {SECTIONS}"),
    ("broker: {version: 3.9}", "broker.version: 3.9, expected a text"),
    ("broker: {quota_window_num: many}", "broker.quota_window_num: 'many', expected a whole number"),
    ("broker: {quota_window_num: true}", "broker.quota_window_num: True, expected a whole number"),
    ("broker: {quota_window_num: 1.5}", "broker.quota_window_num: 1.5, expected a whole number"),
    ("broker: {quota_window_num: 0}", "broker.quota_window_num: 0, expected 1 or more"),
    ("metrics: {port: 70000}", "metrics.port: 70000, expected 0 to 65535"),
    ("stream: {trigger: 10}", f"stream.trigger: 10, {DURATION}"),
    ("stream: {trigger: 10 sec}", f"stream.trigger: '10 sec', {DURATION}"),
    ("stream: {trigger: -10 s}", f"stream.trigger: '-10 s', {DURATION}"),
    ("stream: {trigger: }", f"stream.trigger: nothing, {DURATION}"),
    ("stream: {trigger: 0 s}", "stream.trigger: '0 s', expected 1 ms or more"),
    ("stream: {trigger: 0.0001 s}", "stream.trigger: '0.0001 s', expected 1 ms or more"),
    ("enforcement: {lease_time: 0 s}", "enforcement.lease_time: '0 s', expected 1 ms or more"),
    ("maintain: {file_retention: 59 min}", "maintain.file_retention: '59 min', expected 24 h or more"),
    ("maintain: {file_retention: 23.99 h}", "maintain.file_retention: '23.99 h', expected 24 h or more"),
    ("quotas: {source: kafka}", "quotas.source: 'kafka', expected one of zookeeper, admin, file"),
    (
        "broker: {version: three}",
        "broker.version: 'three' is no version, expected e.g. 3.9 or 3.7.2",
    ),
    (
        "broker: {log_time_zone: Mars/Base}",
        "broker.log_time_zone: 'Mars/Base' is no time zone, expected a name such as UTC or Europe/Berlin",
    ),
    (
        "broker: {log_time_zone: ../etc/passwd}",
        "broker.log_time_zone: '../etc/passwd' is no time zone, expected a name such as UTC or Europe/Berlin",
    ),
    (
        "broker: {log_time_zones: {3: CEST}}",
        "broker.log_time_zones.3: 'CEST' is no time zone, expected a name such as UTC or Europe/Berlin",
    ),
    (
        "broker: {log_time_zones: {kafka-3: UTC}}",
        "broker.log_time_zones.kafka-3: 'kafka-3' is no broker id, expected a number",
    ),
    ("kafka: fast", "kafka: 'fast', expected a mapping of keys"),
    ("kafka:", "kafka: nothing, expected a mapping of keys"),
    ("kafka: {options: [a]}", "kafka.options: a list, expected a mapping of names to texts"),
    ("kafka: {options: {client.id: [b]}}", "kafka.options.client.id: a list, expected a text"),
    (
        "kafka: {options: {sasl.pasword: x}}",
        "kafka.options.sasl.pasword: unknown client property, did you mean sasl.password?",
    ),
    (
        "ship: {options: {a: b}}",
        "ship.options.a: unknown client property, expected one of Kafka's Java client or of librdkafka",
    ),
    (
        "collect: {jmx: {options: {linger: 5}}}",
        "collect.jmx.options.linger: unknown client property, did you mean linger.ms?",
    ),
    ("ship: {files: 1=a.log}", "ship.files: '1=a.log', expected a list"),
    ("ship: {files: [a, 2]}", "ship.files[1]: 2, expected a text"),
    ("- a", "file: a list, expected a mapping of keys"),
    ("sasl.password=canary\nsecurity.protocol=SASL_SSL", "file: a text, expected a mapping of keys"),
    ("tables: a\nkafka: {}\ntables: b", "line 3: key 'tables' is given twice"),
    ("kafka:\n  topic: a\n  topic: b", "line 3: key 'topic' is given twice"),
    ("tables: &a x\ncheckpoints: *a", "line 2: aliases are not allowed"),
    ("tables: &a [*a]", "line 1: aliases are not allowed"),
    ("[a, b]: 1", "line 1: a key is a list or mapping, expected a name"),
    ("tables: 'a\n", "line 2: found unexpected end of stream"),
    (
        "tables: !!python/object/apply:os.system [id]",
        "line 1: a value that begins with ! is a tag, expected it in quotes",
    ),
    ("tables: 2026-13-01", "month must be in 1..12"),
    ("tables: " + "[" * 3_000, "line 1: nested deeper than 50"),
    (b"tables: \xff", "not YAML in UTF-8"),
    ("tables: \x01", "not YAML in UTF-8"),
    ("#" * 1_000_001, "larger than 1000000 bytes, expected a settings file"),
]


@pytest.mark.parametrize(("text", "problem"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes(tmp_path: Path, text: str | bytes, problem: str) -> None:
    assert problems(tmp_path, text) == [problem]


def test_every_property_that_kafka_python_gets_is_known() -> None:
    assert sorted({*PYTHON_NAMES, "sasl.jaas.config", "ssl.truststore.location"} - client_properties()) == []


def test_all_mistakes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KQUOTA_TEST_LINES", "many")
    text = """
cluster: a
kafka: {topic: 1, max_lines_per_trigger: "${KQUOTA_TEST_LINES}", options: {acks: "${KQUOTA_NOT_SET}"}}
quotas: {source: etcd, apply_lag: 95}
broker: {quota_window_size_seconds: 0, log_time_zone: CEST}
ship: {files: [1, [2]]}
"""
    assert problems(tmp_path, text) == [
        "cluster: unknown key, did you mean cluster_id?",
        "kafka.topic: 1, expected a text",
        "kafka.max_lines_per_trigger: '${KQUOTA_TEST_LINES}', expected a whole number",
        "quotas.source: 'etcd', expected one of zookeeper, admin, file",
        f"quotas.apply_lag: 95, {DURATION}",
        "broker.quota_window_size_seconds: 0, expected 1 or more",
        "broker.log_time_zone: 'CEST' is no time zone, expected a name such as UTC or Europe/Berlin",
        "ship.files[0]: 1, expected a text",
        "ship.files[1]: a list, expected a text",
    ]


def test_a_duration_beyond_all_measure(tmp_path: Path) -> None:
    text = "9" * 400 + " s"
    assert problems(tmp_path, f"stream: {{trigger: {text}}}") == [
        f"stream.trigger: {repr(text)[:60]}, {DURATION}"
    ]


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path, problem in (
        (tmp_path / "gone.yaml", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(UserError) as raised:
            load_settings(path)
        assert str(raised.value) == f"{path}: cannot be read: {problem}"


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "kafka: {}\nship: {}\n"])
def test_an_empty_file_means_the_defaults(tmp_path: Path, text: str) -> None:
    assert load_settings(written(tmp_path, text)) == Settings()


def test_every_kind_of_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KQUOTA_TEST_ROOT", "/data")
    monkeypatch.setenv("KQUOTA_TEST_LAG", "1.5 s")
    text = r"""
tables: ${KQUOTA_TEST_ROOT}/tables${KQUOTA_TEST_ROOT}
kafka:
  max_lines_per_trigger: 7
  options: {check.crcs: true, retries: 5, config.providers.a: 1.5, acks: text, log.queue: false}
  topics: [one, two]
  envelope: filebeat
  envelope_fields: {broker: kubernetes.pod_name}
  broker_from: [field]
  broker_ids: {kafka-0: 1, 17: 2}
  broker_in_topic: log-(\d+)
quotas: {source: file, apply_lag: "${KQUOTA_TEST_LAG}", session_timeout: 250ms}
broker: {version: "3.7", log_time_zone: Europe/Berlin, log_time_zones: {3: UTC}}
stream: {trigger: 2 min, episode_gap: 1 d, allowed_lateness: 1 ms}
ship: {files: [1=a.log, 2=b.log], exclude_client_ids: []}
"""
    assert load_settings(written(tmp_path, text)) == Settings(
        tables="/data/tables/data",
        kafka=Kafka(
            max_lines_per_trigger=7,
            options={
                "check.crcs": "true", "retries": "5", "config.providers.a": "1.5", "acks": "text", "log.queue": "false"
            },
            topics=("one", "two"),
            envelope="filebeat",
            envelope_fields=EnvelopeFields(broker="kubernetes.pod_name"),
            broker_from=("field",),
            broker_ids={"kafka-0": 1, "17": 2},
            broker_in_topic=r"log-(\d+)",
        ),
        quotas=Quotas(source="file", apply_lag=Duration(1_500), session_timeout=Duration(250)),
        broker=Broker(version="3.7", log_time_zone="Europe/Berlin", log_time_zones={"3": "UTC"}),
        stream=Stream(
            trigger=Duration(120_000), episode_gap=Duration(86_400_000),
            allowed_lateness=Duration(1),
        ),
        ship=Ship(files=("1=a.log", "2=b.log"), exclude_client_ids=()),
    )  # fmt: skip


def test_a_value_from_the_environment_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KQUOTA_TEST_SECRET", "${HOME}: [*a")
    path = written(tmp_path, "kafka: {options: {sasl.password: '${KQUOTA_TEST_SECRET}'}}")
    assert load_settings(path).kafka.options == {"sasl.password": "${HOME}: [*a"}


@pytest.mark.parametrize(
    ("text", "location", "kept"),
    [
        ("tables: s3a://bucket/a", "s3a://bucket/a", "all"),
        ("tables: {location: '${HOME}/a'}", "/root/a", "all"),
        ("tables: {location: a, requests: throttled}", "a", "throttled"),
        ("tables: {requests: unreadable}", ".kquota/tables", "unreadable"),
    ],
)
def test_tables_are_a_location_or_a_mapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, location: str, kept: str
) -> None:
    monkeypatch.setenv("HOME", "/root")
    settings = load_settings(written(tmp_path, text))
    assert (settings.tables, settings.kept_requests) == (location, kept)


def test_the_shipped_file_has_the_defaults() -> None:
    assert load_settings(CONF) == Settings()


def keys_of(kind: type[Any]) -> dict[str, Any]:
    """Names of the settings, nested."""
    hints = get_type_hints(kind)
    return {
        f.name: keys_of(hints[f.name]) if is_dataclass(hints[f.name]) else None
        for f in fields(kind)
        if f.compare
    }


def test_the_shipped_file_mentions_every_key_in_order() -> None:
    written_keys = yaml.safe_load(CONF.read_text(encoding="utf-8"))
    expected = keys_of(Settings)
    # `Tables` is no part of `Settings`: most files give the location alone.
    expected["tables"] = keys_of(Tables)
    del expected["kept_requests"]
    assert list(written_keys) == list(expected)
    for name, inner in expected.items():
        if inner is not None:
            assert list(written_keys[name]) == list(inner), name
