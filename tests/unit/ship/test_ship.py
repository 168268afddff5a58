"""The shipper against a topic that fails on demand: what arrives, and what is stored when."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.ship.selection import LogFile
from kquota_spark.ship.shipper import Shipper
from kquota_spark.ship.topic import DeliveryFailedError
from tests.support.quotas.fake_topic import Crash, FakeTopic, Message, Stop, shipper, state_of


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
