"""Most brokers ahead of this machine's clock: it is behind. One of several: its own clock is wrong."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kquota_spark.audit.own_clock import OwnClock
from kquota_spark.audit.task_reports import Ahead, TaskReport
from kquota_spark.errors import UserError
from kquota_spark.pipeline.ingest import are_ahead_of_reading
from tests.support.tables.table_rows import T0_MS


def report(heard: list[int], *ahead: int) -> TaskReport:
    lines = [Ahead(broker_id, T0_MS, T0_MS + 2_000) for broker_id in ahead]
    return TaskReport("requests", [], {}, heard=heard, ahead=lines)


@pytest.mark.parametrize(
    ("batches", "is_behind"),
    [
        ([[report([1, 2, 3])]], False),
        ([[report([1, 2, 3], 1)]], False),
        ([[report([1, 2], 1)]], False),  # one of two: nobody knows which clock it is
        ([[report([1, 2, 3], 1, 2)]], True),
        ([[report([1], 1)]], True),  # no other broker says that it is the broker's
        ([[report([1], 1), report([2], 2), report([3])]], True),  # three tasks
        ([[report([1, 2, 3])], [report([1], 1)]], False),  # the others were in time when they were heard last
        ([[report([1, 2, 3])], [report([1], 1)], [report([2], 2)]], True),
        ([[report([1, 2, 3], 1)], [report([1])], [report([2], 2)]], False),
        ([[report([1], 1)], [report([1])]], True),  # what was set aside stays so
    ],
)
def test_the_clock_is_behind_if_most_brokers_are_ahead(
    batches: list[list[TaskReport]], is_behind: bool
) -> None:
    clock = OwnClock(print)
    for reports in batches:
        clock.add(reports, T0_MS)
    if not is_behind:
        clock.require()
        return
    with pytest.raises(UserError, match="ahead of the clock of this machine"):
        clock.require()


def test_the_line_says_what_to_do() -> None:
    clock = OwnClock(print)
    clock.add([report([1, 2, 3], 1, 3)], T0_MS)
    with pytest.raises(UserError) as said:
        clock.require()
    assert str(said.value) == (
        "lines of 2 of 3 brokers are ahead of the clock of this machine, so it is behind: set it (NTP) and start "
        "again; lines that were set aside are judged by kquota restate --from '2026-11-21 05:40:00 UTC' "
        "--to '2026-11-21 05:40:03 UTC'"
    )


def test_the_line_tells_of_all_that_was_set_aside_since() -> None:
    clock = OwnClock(print)
    clock.add([report([1], 1)], T0_MS)
    later = Ahead(2, T0_MS + 60_000, T0_MS + 62_000)
    clock.add([TaskReport("requests", [], {}, heard=[1, 2], ahead=[later])], T0_MS + 5_000)
    with pytest.raises(UserError, match="--from '2026-11-21 05:40:00 UTC' --to '2026-11-21 05:41:03 UTC'"):
        clock.require()


def test_a_micro_batch_that_runs_again_when_the_clock_is_set_tells_what_it_set_aside() -> None:
    said: list[str] = []
    clock = OwnClock(said.append)
    # Its time is that of its first attempt; the newest line is of T0 + 2 s.
    clock.add([report([1, 2, 3], 1, 3)], T0_MS + 2_000)
    clock.require()
    (warning,) = said
    assert warning == (
        "warning: lines of broker 1, 3 were set aside while the clock of this machine was behind, or theirs ahead: "
        "judge them by kquota restate --from '2026-11-21 05:40:00 UTC' --to '2026-11-21 05:40:03 UTC'"
    )
    # Those brokers have no vote left: one of three is ahead.
    clock.add([report([2], 2)], T0_MS)
    clock.require()


def test_lines_ahead_of_their_messages_are_no_sign_of_this_clock() -> None:
    columns: dict[str, list[Any]] = {
        "kind": ["request", "request", "request", "heartbeat", "unreadable"],
        "is_out_of_time": [True, True, False, True, False],
        # Of the messages: 3,500 ms and 3,501 ms ahead, in time, an end heartbeat of 0 ms, and none.
        "record_time_ms": [T0_MS + 3_500, T0_MS + 3_501, T0_MS, T0_MS + 9_000, None],
        "log_time_ms": [T0_MS + 3_500, T0_MS + 3_501, T0_MS, T0_MS, None],
        "kafka_timestamp_ms": [T0_MS] * 5,
    }
    found = are_ahead_of_reading(pa.RecordBatch.from_pydict(columns), 3_500)
    assert found.to_pylist() == [True, False, False, True, False]
