"""Waiting and work are counted in the windows in which they happened, and the memory is bounded."""

from __future__ import annotations

import pytest

from kquota_spark.model.interference.windows import (
    MOST_CLIENTS,
    MOST_WINDOWS,
    Histogram,
    Served,
    Windows,
    width_of,
)

T0_MS = 1_000_000


def _served(
    handled_ms: float, queue_ms: float, local_ms: float, user: str = "alice", client_id: str = "app"
) -> Served:
    return Served(T0_MS + handled_ms, user, client_id, queue_ms, local_ms, 0.0, 0.0, False)


def test_a_long_request_fills_all_windows_in_which_it_waits_or_works() -> None:
    windows = Windows(T0_MS, T0_MS + 5_000, T0_MS + 10_000)
    # It comes at 0.2 s, waits until 2.0 s, and is worked on until 3.5 s.
    windows.add(_served(3_500, queue_ms=1_800, local_ms=1_500))
    cells = windows.cells["alice", "app"]
    assert {window: (cell.waits, cell.mean_ms, cell.used_ms) for window, cell in cells.items()} == {
        0: (1, 1_800.0, 0.0),
        1: (1, 1_800.0, 0.0),
        2: (1, 1_800.0, 1_000.0),
        3: (0, 0.0, 500.0),
    }
    assert [cells[window].requests for window in range(4)] == [0, 0, 0, 1]


def test_a_request_counts_as_far_as_it_reaches_into_the_windows() -> None:
    windows = Windows(T0_MS, T0_MS + 1_000, T0_MS + 3_000)
    windows.add(_served(500, queue_ms=100, local_ms=1_000))  # taken 0.5 s before the first window
    windows.add(_served(9_000, queue_ms=1, local_ms=6_500))  # taken at 2.5 s
    windows.add(_served(-1, queue_ms=1, local_ms=1))  # over before the first window
    windows.add(_served(9_000, queue_ms=1, local_ms=1))  # comes after the last one
    cells = windows.cells["alice", "app"]
    assert {window: cell.used_ms for window, cell in cells.items()} == {0: 500.0, 2: 500.0}
    assert windows.requests == 2


@pytest.mark.parametrize(("length_s", "width_s"), [(10, 1), (1_200, 1), (1_201, 2), (86_400, 72)])
def test_long_periods_have_wider_windows(length_s: int, width_s: int) -> None:
    assert width_of(1_000 * length_s) == 1_000 * width_s
    windows = Windows(T0_MS, T0_MS, T0_MS + 1_000 * length_s)
    assert windows.count <= MOST_WINDOWS


def test_the_first_window_that_is_asked_about_lies_whole_in_the_period() -> None:
    assert Windows(T0_MS, T0_MS + 2_500, T0_MS + 9_000).first_asked == 3
    assert Windows(T0_MS, T0_MS + 2_000, T0_MS + 9_000).first_asked == 2


def test_clients_beyond_the_bound_share_a_row_per_user_and_then_one_row() -> None:
    windows = Windows(T0_MS, T0_MS, T0_MS + 1_000)
    for number in range(MOST_CLIENTS + 5):
        windows.add(_served(1, 0.1, 0.1, "alice", f"app-{number}"))
    for number in range(MOST_CLIENTS):
        windows.add(_served(1, 0.1, 0.1, f"user-{number}", "app"))
    # alice has 300 rows and one for 5 client ids; 299 users have the rest, and one user none.
    assert len(windows.cells) == 2 * MOST_CLIENTS + 1
    assert windows.cells["alice", None][0].requests == 5
    assert windows.cells["user-298", None][0].requests == 1
    assert windows.cells[None, None][0].requests == 1


def test_quantiles_are_exact_at_the_steps_and_near_between_them() -> None:
    histogram = Histogram()
    for value_ms in (0.0, 0.5, 4.0, 4.0, 1_024.0):
        histogram.add(value_ms)
    assert histogram.quantile(0.8) == 4.0
    assert histogram.quantile(1.0) == 1_024.0
    near = Histogram()
    near.add(100.0)
    # The nearest step to log2(100) = 6.64 is 53 / 8 = 6.625.
    assert near.quantile(0.5) == pytest.approx(2**6.625)
    assert Histogram().quantile(0.5) is None
