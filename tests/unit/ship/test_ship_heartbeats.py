"""When the shipper says that it has read to the end of a log, and when it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.errors import UserError
from kquota_spark.ship import shipper as ship
from kquota_spark.ship.selection import LogFile
from kquota_spark.ship.shipper import Shipper
from tests.support.quotas.fake_topic import FakeTopic, Steps, Stop, shipper


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
