"""A shipper that lost lines says between which times, and goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.support.logs.followed_log import append, tail_of
from tests.support.quotas.fake_topic import FakeTopic, shipper


def gaps_of(topic: FakeTopic) -> list[dict[str, Any]]:
    told = [json.loads(m.value) for m in topic.log if ("kind", b"gap") in m.headers]
    return [each["kquota_gap"] for each in told]


def test_a_truncated_log_is_a_gap(log: Path) -> None:
    topic = FakeTopic()
    append(log, b"1\n2\n", 1_000)
    with shipper(log, topic, clock_ms=lambda: 1_000_500) as one:
        one.run_once()
    log.write_bytes(b"3\n")
    os.utime(log, (1_007.5, 1_007.5))
    with shipper(log, topic, clock_ms=lambda: 1_010_000) as one:
        one.run_once()
        assert [m.value for m in topic.log if len(m.headers) == 1] == [b"1", b"2", b"3"]
        assert gaps_of(topic) == [{"broker_id": 1, "from_ms": 1_000_000, "to_ms": 1_007_500}]
        # It comes before the line that follows it, and once.
        assert [dict(m.headers).get("kind") for m in topic.log] == [
            None,
            None,
            b"heartbeat",
            b"gap",
            None,
            b"heartbeat",
        ]
        append(log, b"4\n", 1_012)
        one.run_once()
    assert len(gaps_of(topic)) == 1


def test_the_oldest_third_of_the_files_is_deleted_while_we_are_behind(log: Path) -> None:
    topic = FakeTopic()
    append(log, b"0\n", 1_000)
    with shipper(log, topic) as one:
        one.run_once()
    for n in range(9):
        log.rename(log.with_name(f"kafka-request.log.2026-11-21-0{n}"))
        append(log, b"%d\n" % (n + 1), 1_060 + 60 * n)
    for n in range(3):
        log.with_name(f"kafka-request.log.2026-11-21-0{n}").unlink()
    with shipper(log, topic) as one:
        one.run_once()
    shipped = [m.value for m in topic.log if len(m.headers) == 1]
    assert shipped == [b"0", *(b"%d" % n for n in range(3, 10))]
    assert gaps_of(topic) == [{"broker_id": 1, "from_ms": 1_000_000, "to_ms": 1_180_000}]


def test_after_a_gap_that_was_not_acknowledged_it_is_told_again(log: Path) -> None:
    append(log, b"1\n", 1_000)
    tail = tail_of(log)
    assert tail.read().lost is None
    log.write_bytes(b"")
    os.utime(log, (1_001, 1_001))
    # Only with the next line is the new place known, and stored.
    again = tail_of(log, tail.position)
    assert again.read().lost == (1_000_000, 1_001_000)
    assert tail_of(log, tail.position).read().lost == (1_000_000, 1_001_000)
    assert again.read().lost is None


def test_nothing_is_said_of_a_rotation_that_loses_nothing(log: Path) -> None:
    topic = FakeTopic()
    append(log, b"1\n", 1_000)
    with shipper(log, topic) as one:
        one.run_once()
        log.rename(log.with_name("kafka-request.log.2026-11-21-07"))
        append(log, b"2\n", 1_060)
        one.run_once()
    assert gaps_of(topic) == []
