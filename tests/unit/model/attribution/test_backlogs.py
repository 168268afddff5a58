"""Backlogs: they begin where a consumer goes back or was away, and end where it has caught up."""

from __future__ import annotations

from collections.abc import Mapping

from kquota_spark.model.attribution.backlogs import Backlog, Position, backlogs
from kquota_spark.model.attribution.counterfactuals import Request

T = 1_000_000
CLIENT = ("alice", "app")
PAUSE_MS = 11_000
Fetch = tuple[int, int, int, int | None]
"""Time (ms after T), connection, offset, end of the partition."""


def _found(*fetches: Fetch, throttles: Mapping[int, int] | None = None) -> list[Backlog]:
    requests = [
        Request(T + time_ms, order, 1, connection, CLIENT, 1_000)
        for order, (time_ms, connection, _, _) in enumerate(fetches)
    ]
    positions = {
        order: [Position("orders", 0, offset, end)] for order, (_, _, offset, end) in enumerate(fetches)
    }
    return backlogs(requests, positions, throttles or {}, PAUSE_MS)


def test_going_back_begins_a_backlog_until_the_lag_is_as_before() -> None:
    [found] = _found(
        (0, 0, 100, 101), (1_000, 0, 101, 102), (2_000, 0, 10, 103), (3_000, 0, 60, 103), (4_000, 0, 102, 103),
        (5_000, 0, 103, 104),
    )  # fmt: skip
    # 101 - 10 records back; 103 - 10 records behind. The fifth fetch is one record behind, as the first ones.
    assert found == Backlog(CLIENT, T + 2_000, 91, 93, {2, 3})


def test_falling_behind_is_no_backlog() -> None:
    assert _found((0, 0, 100, 101), (1_000, 0, 101, 180), (2_000, 0, 102, 400)) == []


def test_a_consumer_that_begins_behind_has_no_backlog() -> None:
    assert _found((0, 0, 0, 9_000), (1_000, 0, 50, 9_001)) == []


def test_a_pause_begins_a_backlog_if_the_lag_is_larger_after_it() -> None:
    [found] = _found((0, 0, 100, 101), (20_000, 0, 101, 150), (20_500, 0, 149, 150), (21_000, 0, 150, 150))
    assert found == Backlog(CLIENT, T + 20_000, 0, 49, {1})
    assert _found((0, 0, 100, 101), (20_000, 0, 101, 102)) == []


def test_a_throttle_is_no_pause() -> None:
    assert _found((0, 0, 100, 101), (20_000, 0, 101, 150), throttles={0: 15_000}) == []


def test_the_empty_answer_to_a_throttled_fetch_has_the_last_known_end() -> None:
    [found] = _found((0, 0, 100, 101), (1_000, 0, 10, None), (2_000, 0, 10, 101))
    assert found == Backlog(CLIENT, T + 1_000, 90, 91, {1, 2})


def test_a_new_connection_continues_that_of_an_ended_one() -> None:
    assert _found((0, 0, 100, 101), (1_000, 1, 101, 102)) == []
    [found] = _found((0, 0, 100, 101), (1_000, 1, 20, 102))
    assert (found.back_records, found.orders) == (80, {1})


def test_two_consumers_with_one_client_id_do_not_go_back() -> None:
    assert _found((0, 0, 100, 101), (500, 1, 40, 101), (1_000, 0, 101, 102), (1_500, 1, 41, 102)) == []


def test_a_fetch_in_a_session_without_partitions_belongs_to_the_backlog_of_its_connection() -> None:
    requests = [Request(T + 1_000 * order, order, 1, 0, CLIENT, 1_000) for order in range(3)]
    positions = {0: [Position("orders", 0, 100, 101)], 1: [Position("orders", 0, 0, 101)]}
    [found] = backlogs(requests, positions, {}, PAUSE_MS)
    assert found.orders == {1, 2}
    assert backlogs(requests, {}, {}, PAUSE_MS) == []
