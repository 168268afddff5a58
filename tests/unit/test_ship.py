"""The shipper against a topic that loses, refuses and stalls on demand."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.cli.main import main
from kquota_spark.errors import UserError
from kquota_spark.io import ship
from kquota_spark.io.ship import Shipper
from kquota_spark.io.ship_delivery import Delivery, GaveUpError
from kquota_spark.io.ship_selection import LogFile, line_filter, log_files
from kquota_spark.io.ship_topic import (
    DeliveryFailedError,
    Headers,
    KafkaTopic,
    KafkaUnreachableError,
    Topic,
)


@dataclass(frozen=True)
class Message:
    value: bytes
    key: bytes
    headers: Headers


class Crash(BaseException):
    """kill -9."""


@dataclass
class FakeTopic:
    """Takes and acknowledges at once, unless told otherwise."""

    log: list[Message] = field(default_factory=list)
    name: str = "topic t on nowhere"
    line_limit_bytes: int = 999_000
    last_error: str = ""
    queue_limit: int = 1_000_000
    before_acknowledging: Callable[[], None] = lambda: None
    waiting: list[Message] = field(default_factory=list)
    is_away: bool = False
    is_closed: bool = False

    def connect(self) -> FakeTopic:
        """Anew: what was not acknowledged is forgotten."""
        self.waiting = []
        return self

    def send(self, values: Sequence[bytes], *, key: bytes, headers: Headers) -> int:
        taken = values[: self.queue_limit - len(self.waiting)]
        self.waiting += [Message(value, key, headers) for value in taken]
        return len(taken)

    def unacknowledged(self, timeout_s: float) -> int:
        if self.waiting and not self.is_away and timeout_s:
            self.before_acknowledging()
            self.log += self.waiting
            self.waiting = []
        return len(self.waiting)

    def close(self) -> None:
        self.is_closed = True

    @property
    def lines(self) -> list[bytes]:
        return [message.value for message in self.log if ("kind", b"heartbeat") not in message.headers]

    @property
    def heartbeats(self) -> list[dict[str, Any]]:
        found = [message for message in self.log if ("kind", b"heartbeat") in message.headers]
        return [json.loads(message.value)["kquota_heartbeat"] for message in found]


class Stop(threading.Event):
    """Waiting takes no time."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


class Steps:
    """A clock that goes on by a step with each look."""

    def __init__(self, start: int, step: int) -> None:
        self.now, self.step = start - step, step

    def __call__(self) -> int:
        self.now += self.step
        return self.now


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "kafka-request.log"


def state_of(log: Path) -> dict[str, Any]:
    return dict(json.loads((log.parent / "state" / "1.json").read_bytes()))


def shipper(log: Path, topic: Topic, **options: Any) -> Shipper:
    return Shipper([LogFile(1, log)], lambda: topic, log.parent / "state", **options)


def request(client_id: str) -> bytes:
    return (
        b'[2026-11-21 07:00:00,123] DEBUG Completed request:{"isForwarded":false,"requestHeader":{'
        b'"requestApiKey":0,"requestApiVersion":9,"correlationId":-4711,"clientId":'
        + json.dumps(client_id).encode()
        + b","
        b'"requestApiKeyName":"PRODUCE"},"request":{"transactionalId":null}} (kafka.request.logger)'
    )


def test_a_line_becomes_one_message_with_the_broker_as_key_and_header(log: Path) -> None:
    log.write_bytes(b"one\r\n\xff\xfe\n")
    topic = FakeTopic()
    with shipper(log, topic, clock_ms=lambda: 5_000) as one:
        counts = one.run_once()
    assert topic.log[:2] == [
        Message(b"one", b"1", [("broker_id", b"1")]),
        Message(b"\xff\xfe", b"1", [("broker_id", b"1")]),
    ]
    told = {"broker_id": 1, "time_ms": 5_000, "lines": 2, "excluded": 0, "is_end": False}
    assert json.loads(topic.log[2].value) == {"kquota_heartbeat": told}
    assert (topic.log[2].key, topic.log[2].headers) == (b"1", [("broker_id", b"1"), ("kind", b"heartbeat")])
    assert len(topic.log) == 3
    assert (counts.lines, counts.excluded, counts.heartbeats) == (2, 0, 1)
    assert topic.is_closed


def test_a_cut_line_says_how_long_it_was(log: Path) -> None:
    log.write_bytes(b"a\n" + b"x" * 2_000_000 + b"\nb\n")
    topic = FakeTopic()
    with shipper(log, topic) as one:
        assert one.run_once().cut == 1
    headers = [message.headers for message in topic.log[:3]]
    broker = ("broker_id", b"1")
    assert headers == [[broker], [broker, ("truncated", b"2000000")], [broker]]
    assert [len(line) for line in topic.lines] == [1, 256 << 10, 1]


def test_a_topic_of_small_messages_gets_lines_cut_to_its_limit(log: Path) -> None:
    log.write_bytes(b"x" * 10_001 + b"\n" + b"y" * 10_000 + b"\n")
    topic = FakeTopic(line_limit_bytes=10_000)
    with shipper(log, topic) as one:
        one.run_once()
    assert [len(line) for line in topic.lines] == [10_000, 10_000]
    assert topic.log[0].headers[1] == ("truncated", b"10001")


def test_nothing_is_shipped_twice_over_a_restart_and_the_counts_go_on(log: Path) -> None:
    topic = FakeTopic()
    for lines in (b"1\n2\n", b"3\n", b""):
        with log.open("ab") as file:
            file.write(lines)
        with shipper(log, topic) as one:
            one.run_once()
    assert topic.lines == [b"1", b"2", b"3"]
    assert [heartbeat["lines"] for heartbeat in topic.heartbeats] == [2, 3, 3]


def test_the_position_is_stored_only_when_all_before_it_is_acknowledged(log: Path) -> None:
    stored: list[int] = []

    def look() -> None:
        exists = (log.parent / "state" / "1.json").exists()
        stored.append(state_of(log)["position"]["offset"] if exists else -1)

    log.write_bytes(b"one\n")
    topic = FakeTopic(before_acknowledging=look)
    with shipper(log, topic) as one:
        one.run_once()
        log.write_bytes(b"one\ntwo\n")
        one.run_once()
    # Before: line one, heartbeat, line two, heartbeat.
    assert stored == [-1, 4, 4, 8]


def test_a_crash_between_sending_and_storing_sends_again_and_loses_nothing(log: Path) -> None:
    def crash() -> None:
        topic.log += topic.waiting
        raise Crash

    log.write_bytes(b"1\n2\n")
    topic = FakeTopic(before_acknowledging=crash)
    with pytest.raises(Crash), shipper(log, topic) as one:
        one.run_once()
    topic.before_acknowledging, topic.waiting = lambda: None, []
    with shipper(log, topic) as one:
        assert one.run_once().lines == 2
    assert topic.lines == [b"1", b"2", b"1", b"2"]
    assert [heartbeat["lines"] for heartbeat in topic.heartbeats] == [2]


@dataclass
class FailingOnce(FakeTopic):
    """What happens to the first messages: they arrive, all or some of them, but we do not get to know."""

    fate: str = "ok"

    def unacknowledged(self, timeout_s: float) -> int:
        if self.waiting and self.fate != "ok":
            fate, self.fate = self.fate, "ok"
            arrived = {"crash": 1.0, "half": 0.5, "lost": 0.0}[fate]
            self.log += self.waiting[: int(len(self.waiting) * arrived)]
            if fate == "crash":
                raise Crash
            raise DeliveryFailedError("gone")
        return super().unacknowledged(timeout_s)


@settings(max_examples=100, deadline=None, print_blob=True)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["ok", "crash", "lost", "half"])), max_size=12
    )
)
def test_whatever_fails_every_line_arrives_in_order(steps: list[tuple[int, str]]) -> None:
    """Duplicates go away when each line is taken where it stands first: what is left is the log."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "kafka-request.log"
        log.touch()
        wire: list[Message] = []
        written = 0
        for count, fate in [*steps, (0, "ok")]:
            with log.open("ab") as file:
                file.writelines(b"%d\n" % number for number in range(written, written + count))
            written += count
            topic = FailingOnce(log=wire, fate=fate)
            try:
                with Shipper([LogFile(1, log)], topic.connect, log.parent / "state", warn=print) as one:
                    one.run_once(stop=Stop())
            except Crash:
                pass
        lines = [message.value for message in wire if ("kind", b"heartbeat") not in message.headers]
        assert list(dict.fromkeys(lines)) == [b"%d" % number for number in range(written)]


def test_failed_messages_are_sent_again_from_the_stored_position(log: Path) -> None:
    topics: list[FakeTopic] = []
    said: list[str] = []

    def connect() -> FakeTopic:
        topics.append(FakeTopic())
        return topics[-1]

    def fail() -> None:
        raise DeliveryFailedError("broker lost its sequence numbers")

    log.write_bytes(b"1\n")
    with Shipper([LogFile(1, log)], connect, log.parent / "state", warn=said.append) as one:
        one.run_once(stop=Stop())
        log.write_bytes(b"1\n2\n")
        topics[0].before_acknowledging = fail
        assert one.run_once(stop=Stop()).lines == 2
    assert [topic.lines for topic in topics] == [[b"1"], [b"2"]]
    assert topics[0].is_closed
    assert said == [
        "topic t on nowhere: broker lost its sequence numbers; sending again what is not acknowledged"
    ]


def test_a_full_queue_stops_reading_and_loses_nothing(log: Path) -> None:
    log.write_bytes(b"".join(b"%d\n" % number for number in range(100)))
    topic = FakeTopic(queue_limit=7)
    with shipper(log, topic) as one:
        one.run_once()
    assert topic.lines == [b"%d" % number for number in range(100)]


def test_there_is_no_heartbeat_while_there_is_more_to_read(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ship, "_CHUNKS_PER_ROUND", 1)
    line = b"x" * 1023
    log.write_bytes((line + b"\n") * 3_000)  # three rounds of 1 MiB, the last one not full
    topic, stop = FakeTopic(), Stop()
    topic.before_acknowledging = lambda: stop.set() if topic.heartbeats else None
    with shipper(log, topic, clock_ms=Steps(10_000, 1_000)) as one:
        one.run(stop)
    kinds = ["heartbeat" if len(m.headers) == 2 else "line" for m in topic.log]
    assert kinds[:3_001] == ["line"] * 3_000 + ["heartbeat"]
    # The third round began at 12 s.
    assert topic.heartbeats[0]["time_ms"] == 12_000


def test_the_heartbeat_tells_the_time_before_the_end_was_read(log: Path) -> None:
    """The broker writes in the very moment after the clock was read: that line is not promised."""
    times = iter(range(1_000, 9_000, 1_000))

    def clock_ms() -> int:
        now_ms = next(times)
        with log.open("ab") as file:
            file.write(b"written after %d\n" % now_ms)
        return now_ms

    log.write_bytes(b"")
    topic, stop = FakeTopic(), Stop()
    topic.before_acknowledging = lambda: stop.set() if len(topic.heartbeats) >= 2 else None
    with shipper(log, topic, clock_ms=clock_ms) as one:
        one.run(stop)
    assert [heartbeat["time_ms"] for heartbeat in topic.heartbeats[:2]] == [1_000, 2_000]
    first = next(i for i, message in enumerate(topic.log) if len(message.headers) == 2)
    assert [message.value for message in topic.log[:first]] == [b"written after 1000"]


def test_heartbeats_come_once_in_an_interval(log: Path) -> None:
    log.write_bytes(b"1\n")
    topic, stop = FakeTopic(), Stop()
    clock = Steps(0, 300)
    topic.before_acknowledging = lambda: stop.set() if clock.now > 4_000 else None
    with shipper(log, topic, clock_ms=clock, heartbeat_interval_ms=1_000) as one:
        one.run(stop)
    assert [heartbeat["time_ms"] for heartbeat in topic.heartbeats[:4]] == [0, 1_200, 2_400, 3_600]


def test_there_is_no_heartbeat_for_a_log_that_is_not_there(log: Path) -> None:
    other = log.with_name("other.log")
    other.write_bytes(b"1\n")
    topic, stop, said = FakeTopic(), Stop(), list[str]()
    topic.before_acknowledging = lambda: stop.set() if len(topic.heartbeats) >= 3 else None
    files = [LogFile(1, log), LogFile(2, other)]
    with Shipper(
        files, lambda: topic, log.parent / "state", clock_ms=Steps(0, 1_000), warn=said.append
    ) as one:
        one.run(stop)
    assert {heartbeat["broker_id"] for heartbeat in topic.heartbeats} == {2}
    assert said == [f"{log}: does not exist, waiting for it"]


def test_once_the_end_heartbeat_follows_everything(log: Path) -> None:
    log.write_bytes(b"1\nhalf")
    topic = FakeTopic()
    with shipper(log, topic, clock_ms=lambda: 7) as one:
        assert one.run_once(end=True).half_line_bytes == 4
    assert topic.lines == [b"1"]
    told = {"broker_id": 1, "time_ms": 7, "lines": 1, "excluded": 0, "is_end": True}
    assert topic.heartbeats == [told]


def test_once_a_log_that_is_not_there_is_an_error_and_the_others_are_shipped(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ship, "_ROTATION_GRACE_S", -1)
    other = log.with_name("other.log")
    other.write_bytes(b"1\n")
    topic = FakeTopic()
    files = [LogFile(1, log), LogFile(2, other)]
    with (
        Shipper(files, lambda: topic, log.parent / "state", warn=print) as one,
        pytest.raises(UserError, match="no such log; check the path of broker 1"),
    ):
        one.run_once(end=True)
    assert (topic.lines, topic.heartbeats) == ([b"1"], [])


IDS = ["kquota-ship", 'a"b\\c', "für"]


@pytest.mark.parametrize(
    ("client_id", "is_ours"),
    [
        ("kquota-ship", True),
        ("kquota-ship-7", True),
        ("kquota-ship-", True),
        ("kquota-shipper", False),
        ("kquota-shi", False),
        ("Kquota-ship", False),
        ('kquota-ship"', False),
        ("kquota-ship\\", False),
        (" kquota-ship", False),
        ("", False),
        ('a"b\\c', True),
        ('a"b\\c-1', True),
        ('a"b', False),
        ('x","clientId":"kquota-ship', False),
        ('x"},"requestHeader":{"clientId":"kquota-ship"', False),
    ],
)
def test_lines_of_our_own_clients_are_known_by_the_header(client_id: str, is_ours: bool) -> None:
    assert line_filter(IDS)(request(client_id)) is is_ours


def test_a_client_id_that_is_not_ascii_is_known() -> None:
    assert line_filter(IDS)(request("X").replace(b'"X"', '"für"'.encode()))


@pytest.mark.parametrize(
    "line",
    [
        # A header of version 0 has no client id; the request has something that looks like one.
        b'[t] DEBUG Completed request:{"requestHeader":{"id":1},"request":{"clientId":"kquota-ship"}}',
        b'[t] DEBUG Completed request:{"request":{"requestHeader":{"clientId":"kquota-ship"}}}',
        b'"clientId":"kquota-ship"',
        b"",
        b'{"requestHeader":{' + b'"a":1,' * 200 + b'"clientId":"kquota-ship"}}',
    ],
)
def test_a_client_id_elsewhere_is_none(line: bytes) -> None:
    assert not line_filter(IDS)(line)


def test_lines_of_our_own_clients_are_counted_not_shipped(log: Path) -> None:
    log.write_bytes(b"\n".join([request("app"), request("kquota-audit-3"), request("app"), b""]))
    topic = FakeTopic()
    with shipper(log, topic, exclude_client_ids=["kquota-ship", "kquota-audit"]) as one:
        counts = one.run_once()
    assert topic.lines == [request("app"), request("app")]
    assert (counts.lines, counts.excluded) == (2, 1)
    assert (topic.heartbeats[0]["lines"], topic.heartbeats[0]["excluded"]) == (2, 1)


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
    ("texts", "problem"),
    [
        ([], "no log to ship"),
        (["kafka-request.log"], "'kafka-request.log', expected <broker id>=<path>"),
        (["x=/a"], "'x=/a', expected"),
        (["-1=/a"], "'-1=/a', expected"),
        (["1="], "'1=', expected"),
        (["1=/a", "1=/b"], "'1=/b': the broker or the path is there twice"),
        (["1=/a", "2=/a"], "'2=/a': the broker or the path is there twice"),
    ],
)
def test_a_bad_file_option_is_told(texts: list[str], problem: str) -> None:
    with pytest.raises(UserError, match=f"^--file: {problem}"):
        log_files(texts, "--file")


def test_a_path_may_hold_an_equals_sign() -> None:
    assert log_files(["7=/a=b"], "--file") == [LogFile(7, Path("/a=b"))]


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


def test_kafka_that_does_not_answer_at_the_start_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kquota_spark.io.ship_topic.ANSWER_WITHIN_S", 1.0)
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
