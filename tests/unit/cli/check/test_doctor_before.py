"""Before the first run: a missing server or a wrong file is a finding, and so is a log topic that is not well."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from kquota_spark.config.settings import Broker
from kquota_spark.embedded.servers import free_ports
from kquota_spark.formats.messages.messages import LogMessages, MessageFormat
from kquota_spark.kafka.broker_checks import stamp_check
from kquota_spark.kafka.client_properties import connection_options
from kquota_spark.kafka.log_topic_checks import Message, message_checks
from kquota_spark.process.check import Status
from tests.support.tables.table_rows import T0_MS, run


def test_before_the_first_run_missing_servers_are_findings_in_bounded_time(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kquota_spark.kafka.broker_checks.TIMEOUT_MS", 500)
    config = tmp_path / "kquota.yaml"
    kafka, zookeeper = free_ports(2)
    config.write_text(
        f"tables: {tmp_path}/new/tables\ncheckpoints: {config}/none\n"
        f"kafka: {{bootstrap_servers: '127.0.0.1:{kafka}', options: {{sasl.password: canary}}}}\n"
        f"quotas: {{zookeeper_connect: '127.0.0.1:{zookeeper}', connect_timeout: 1 s}}\n",
        encoding="utf-8",
    )
    started_s = time.monotonic()
    assert run("doctor", "--before", "--config", str(config), "--output", "json") == 2
    assert time.monotonic() - started_s < 30
    printed = capfd.readouterr()
    assert printed.err == ""
    assert "canary" not in printed.out
    rows = {row["what"]: row for row in json.loads(printed.out)["rows"]}
    assert rows["settings"]["evidence"] == f"{config} is valid"
    assert rows["tables"] == {
        "status": "ok",
        "what": "tables",
        "evidence": f"{tmp_path}/new/tables can be written",
        "advice": "",
    }
    assert (rows["checkpoints"]["status"], rows["checkpoints"]["evidence"]) == (
        "fail",
        f"{config}/none: {config} cannot be written",
    )
    assert (rows["ZooKeeper"]["status"], rows["ZooKeeper"]["evidence"]) == (
        "fail",
        f"ZooKeeper 127.0.0.1:{zookeeper} did not answer (connection refused)",
    )
    assert rows["Kafka"]["status"] == "fail"
    assert re.fullmatch(
        rf"127\.0\.0\.1:{kafka} does not answer as expected \(\w+\)", rows["Kafka"]["evidence"]
    )


def test_before_the_first_run_a_folder_without_settings_names_init(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kquota_spark.doctor.preflight.before_checks", lambda *_: iter(()))
    assert run("doctor", "--before", "--output", "csv") == 0
    assert capfd.readouterr().out.splitlines()[1:] == [
        "warn,settings,no conf/kquota.yaml: built-in defaults,kquota init --bootstrap-server HOST:PORT writes it"
    ]


def test_before_the_first_run_a_wrong_file_is_a_finding_per_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kquota.yaml"
    config.write_text("cluster: x\nbroker: {quota_window_num: 0}\n", encoding="utf-8")
    assert run("doctor", "--before", "--config", str(config), "--output", "csv") == 2
    assert capsys.readouterr().out.splitlines() == [
        "status,what,evidence,advice",
        f'fail,settings,"{config}: cluster: unknown key, did you mean cluster_id?",correct the file',
        f'fail,settings,"{config}: broker.quota_window_num: 0, expected 1 or more",correct the file',
    ]


def test_connection_options_are_taken_from_javas_or_librdkafkas_names() -> None:
    jaas = 'org.apache.kafka...PlainLoginModule required username="ann" password="p=\'w";'
    java = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    assert connection_options({**java, "fetch.max.wait.ms": "1"}) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "p='w",
    }
    librdkafka = {"sasl.username": "ann", "ssl.ca.location": "ca.pem"}
    assert connection_options(librdkafka) == librdkafka


def test_stores_that_stand_in_the_settings_themselves_are_left_to_java() -> None:
    assert connection_options({"ssl.keystore.type": "PEM", "ssl.keystore.key": "-----BEGIN"}) == {}
    assert (
        connection_options({"ssl.truststore.type": "pem", "ssl.truststore.certificates": "-----BEGIN"}) == {}
    )


_LINE = (
    b'[2026-11-21 05:40:00,000] DEBUG Completed request:{"isForwarded":false,"requestHeader":{"requestApiKey":3,'
    b'"requestApiVersion":12,"correlationId":1,"clientId":"a"},"request":{},"connection":"c","principal":"User:a",'
    b'"localTimeMs":1.0,"remoteTimeMs":0.0,"responseQueueTimeMs":0.0,"sendTimeMs":0.0,"throttleTimeMs":0,'
    b'"response":{}} (kafka.request.logger)'
)
_BEAT = b'{"kquota_heartbeat":{"time_ms":1795239600000}}'


def _of_messages(
    *messages: Message, zone: str = "UTC", now_ms: int = T0_MS + 500
) -> list[tuple[str, str, str]]:
    checks = message_checks(
        messages, LogMessages(MessageFormat()), Broker(log_time_zone=zone), [1, 2], now_ms
    )
    return [(check.status.value, check.what, check.evidence) for check in checks]


def test_a_log_topic_that_is_well() -> None:
    messages = (Message(_LINE, b"1", T0_MS), Message(_BEAT, b"1", T0_MS), Message(_BEAT, b"2", T0_MS + 100))
    assert _of_messages(*messages) == [
        ("ok", "lines", "the newest message is 0.4 s old"),
        ("ok", "clock", "this machine and the newest message differ by 400 ms"),
        ("ok", "format", "1 recent lines can be read"),
        ("ok", "heartbeats", "from broker 1, 2"),
    ]


def test_a_log_topic_in_the_wrong_zone_with_garbage_and_a_silent_broker() -> None:
    messages = (Message(_LINE, b"1", T0_MS), Message(b"garbage", b"1", T0_MS), Message(_BEAT, b"1", T0_MS))
    # 05:40 in Tokyo is 20:40 UTC of the day before.
    assert _of_messages(*messages, zone="Asia/Tokyo") == [
        ("ok", "lines", "the newest message is 0.5 s old"),
        ("ok", "clock", "this machine and the newest message differ by 500 ms"),
        ("fail", "time zone", "log times differ from Kafka's by -9.00 h"),
        ("warn", "format", "1 of 2 recent lines: no 'Completed request:' near the start"),
        ("warn", "heartbeats", "none in the last seconds from broker 2"),
    ]


def test_a_log_topic_that_stands_still_or_is_ahead() -> None:
    old = _of_messages(Message(_BEAT, b"1", T0_MS), now_ms=T0_MS + 90_000)
    assert old[0] == ("warn", "lines", "the newest message is 90.0 s old")
    assert old[-1] == ("warn", "heartbeats", "none in the last seconds from broker 1, 2")
    ahead = _of_messages(Message(_LINE, b"1", T0_MS), now_ms=T0_MS - 7_000)
    assert ahead[1] == ("warn", "clock", "the newest message is 7.0 s ahead of this machine's clock")


def test_a_log_topic_in_envelopes_that_do_not_say_the_broker() -> None:
    filebeat = json.dumps({"message": _LINE.decode(), "host": {"name": "kafka-1"}}).encode()
    beats = (Message(_BEAT, b"1", T0_MS), Message(_BEAT, b"2", T0_MS))
    checks = message_checks(
        (Message(filebeat, None, T0_MS), *beats), LogMessages(MessageFormat()), Broker(), [1, 2], T0_MS
    )
    assert [(check.status.value, check.what, check.evidence, check.advice) for check in checks][2:3] == [
        (
            "fail",
            "format",
            (
                "1 of 1 recent lines: no broker id in header broker_id, key or a field of the envelope "
                "(expected a number, or a name in kafka.broker_ids)"
            ),
            "let the shipper say the broker, or set kafka.broker_from and kafka.broker_ids",
        )
    ]
    named = LogMessages(MessageFormat(broker_ids={"kafka-1": 1}))
    checks = message_checks((Message(filebeat, None, T0_MS), *beats), named, Broker(), [1, 2], T0_MS)
    assert checks[2].evidence == "1 recent lines can be read"


def test_hosts_that_stamp_the_messages_themselves_are_a_failing_check() -> None:
    by_kafka, by_hosts = (
        stamp_check("log", stamp, is_allowed=False) for stamp in ("LogAppendTime", "CreateTime")
    )
    assert (by_kafka.status, by_kafka.evidence) == (
        Status.OK,
        "log: message.timestamp.type is LogAppendTime",
    )
    assert (by_hosts.status, by_hosts.what) == (Status.FAIL, "log topic clock")
    assert by_hosts.advice == (
        "a host whose clock is wrong stamps lines and messages alike: kafka-configs.sh --alter --topic log "
        "--add-config message.timestamp.type=LogAppendTime"
    )
    assert stamp_check("log", "CreateTime", is_allowed=True).status == Status.WARN


@pytest.mark.parametrize(
    ("serve", "mistake"),
    [
        (
            "hosts: ['http://x']",
            (
                "serve.hosts[0]: 'http://x' is no host name, expected one without scheme, port and path, "
                "e.g. quotas.example.com"
            ),
        ),
        (
            "user_header: X-User",
            (
                "serve.proxy_secret: shorter than 16 characters: make one with openssl rand -hex 32, and let the proxy "
                "send it as X-Kquota-Proxy-Secret; without it serve.user_header cannot be trusted"
            ),
        ),
        ("token: '${KQUOTA_NO_TOKEN}'", ""),  # set where serve runs: a warning of its own
        ("hosts: [quotas.example.com]", ""),
    ],
)
def test_before_the_first_run_settings_that_serve_would_refuse_are_a_finding(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    serve: str,
    mistake: str,
) -> None:
    monkeypatch.setattr(
        "kquota_spark.doctor.preflight.before_checks", lambda *_: iter(())
    )  # they ask servers
    config = tmp_path / "kquota.yaml"
    config.write_text(f"serve: {{{serve}}}\n", encoding="utf-8")
    code = run("doctor", "--before", "--config", str(config), "--output", "json")
    row = json.loads(capfd.readouterr().out)["rows"][0]
    assert (code, row["status"], row["evidence"]) == (
        (2, "fail", f"{config}: {mistake}") if mistake else (0, "ok", f"{config} is valid")
    )
