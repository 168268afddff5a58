"""Kafka that is away, a stop in the middle, a state that is no state, and options that cannot work."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from kquota_spark.cli.main import main
from kquota_spark.errors import UserError
from kquota_spark.ship.topic import Delivery, GaveUpError, KafkaTopic, KafkaUnreachableError, Topic
from tests.support.quotas.fake_topic import FakeTopic, Steps, Stop, shipper, state_of


def test_kafka_away_is_said_once_a_minute_and_waited_for() -> None:
    said: list[str] = []
    topic = FakeTopic(is_away=True, last_error="Connection refused")
    now_s = 0.0

    def elapsed_s() -> float:
        nonlocal now_s
        now_s += 0.5  # what a look at the acknowledgements takes
        topic.is_away = now_s < 130
        return now_s

    delivery = Delivery(lambda: topic, warn=said.append, elapsed_s=elapsed_s)
    delivery.send([b"1"], key=b"1", headers=[])
    delivery.wait()
    assert topic.lines == [b"1"]
    told = "topic t on nowhere takes no messages: Connection refused; retrying, nothing is lost"
    assert said == [told, told, told]  # about 5, 65 and 125 s


def test_told_to_stop_while_kafka_is_away_the_position_stays(log: Path) -> None:
    said: list[str] = []
    log.write_bytes(b"1\n")
    topic, stop = FakeTopic(is_away=True), Stop()
    delivery = Delivery(lambda: topic, warn=said.append, elapsed_s=Steps(0, 1))
    delivery.begin(stop)
    delivery.send([b"1"], key=b"1", headers=[])
    stop.set()
    with pytest.raises(
        GaveUpError, match="did not acknowledge the last lines; the next start sends them again"
    ):
        delivery.wait()

    with shipper(log, topic, warn=said.append) as one:
        one._delivery = delivery
        stop.clear()
        topic.unacknowledged = lambda timeout_s: stop.set() or 1  # type: ignore[func-returns-value, method-assign]
        assert one.run(stop).lines == 0
    assert not (log.parent / "state" / "1.json").exists()


def test_when_told_to_stop_the_round_is_finished_and_stored(log: Path) -> None:
    log.write_bytes(b"1\n2\n")
    stop = Stop()
    topic = FakeTopic(before_acknowledging=stop.set)
    with shipper(log, topic) as one:
        assert one.run(stop).lines == 2
    assert state_of(log)["position"]["offset"] == 4


def test_a_connection_that_cannot_be_opened_again_is_tried_until_it_can() -> None:
    said: list[str] = []
    answers: list[object] = [FakeTopic(), KafkaUnreachableError("no answer"), FakeTopic()]

    def connect() -> Topic:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, FakeTopic)
        return answer

    delivery = Delivery(connect, warn=said.append, elapsed_s=Steps(0, 60))
    delivery.begin(Stop())
    delivery.reconnect("lost")
    assert answers == []
    assert said == ["topic t on nowhere: lost; sending again what is not acknowledged", "no answer; retrying"]


def test_a_second_shipper_of_the_same_log_is_refused(log: Path) -> None:
    with (
        shipper(log, FakeTopic()),
        pytest.raises(UserError, match="another shipper is shipping the log of broker 1: stop it first"),
    ):
        shipper(log, FakeTopic())
    shipper(log, FakeTopic()).close()


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"position":{"offset":1,"x":2}}', b"\xff"])
def test_a_state_file_that_is_none_is_an_error(log: Path, text: bytes) -> None:
    (log.parent / "state").mkdir()
    (log.parent / "state" / "1.json").write_bytes(text)
    with pytest.raises(UserError, match=r"1\.json: not a state file of this version; delete it"):
        shipper(log, FakeTopic())


def test_a_state_directory_that_cannot_be_made_is_an_error(log: Path) -> None:
    (log.parent / "state").write_bytes(b"a file")
    with pytest.raises(UserError, match="state: cannot be made: File exists"):
        shipper(log, FakeTopic())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"acks": "1"}, "ship.options.acks: '1' could lose lines"),
        ({"enable.idempotence": "false"}, "ship.options.enable.idempotence: 'false' could lose lines"),
        ({"no.such": "1"}, 'ship.options: No such configuration property: "no.such"'),
        ({"ssl.truststore.location": "/x"}, "ship.options: Java TrustStores are not supported"),
    ],
)
def test_a_bad_producer_option_is_told(options: dict[str, str], problem: str) -> None:
    with pytest.raises(UserError) as raised:
        KafkaTopic("127.0.0.1:1", "t", client_id="c", options=options, timeout_s=1)
    assert str(raised.value).startswith(problem)


def test_a_right_that_is_found_missing_while_the_client_is_made_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # When the broker refuses depends on time: seen once in 40 runs before the first question.
    def refused(_: object) -> None:
        raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no producer id"))

    monkeypatch.setattr("kquota_spark.kafka.clients.admin", refused)
    with pytest.raises(UserError) as raised:
        KafkaTopic("127.0.0.1:1", "t", client_id="c", options={}, timeout_s=1)
    assert str(raised.value) == (
        "ship.options: no producer id: grant Write on the topic t to the user of ship.options"
    )


def test_kafka_that_does_not_answer_at_the_start_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kquota_spark.ship.topic.ANSWER_WITHIN_S", 1.0)
    # Port 1 is reserved: nothing listens there.
    code = main(["ship", "--file", "1=kafka-request.log", "--bootstrap-server", "127.0.0.1:1", "--once"])
    out, err = capfd.readouterr()
    assert (code, out) == (1, "")
    assert err.startswith("kquota: Kafka at 127.0.0.1:1 does not answer within 1 s: ")
    assert "Connection refused" in err
    assert err.count("\n") == 1


def test_the_end_alone_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["ship", "--end"])
    assert raised.value.code == 2
    assert "--end works only with --once" in capsys.readouterr().err
