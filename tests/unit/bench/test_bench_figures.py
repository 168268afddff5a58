"""The arithmetic of the benchmark: percentiles, rounding, and latencies of seconds that were seen."""

from __future__ import annotations

import pytest

from tests.bench.load import Seen, latencies_s
from tests.bench.report import percentile, three_digits
from tests.bench.rounds import Round, cpu_cells


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (1, 1), (50, 50), (95, 95), (99, 99), (100, 100)])
def test_percentile_is_the_nearest_rank(percent: int, expected: float) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == expected


def test_percentile_of_few_values_is_one_of_them() -> None:
    assert [percentile([3.0, 1.0, 2.0], percent) for percent in (50, 95)] == [2.0, 3.0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (51_093, "51,100"), (999.9, "1,000"), (9.999, "10"), (0.23456, "0.235"), (1, "1"),
        (-17.25, "-17.2"), (100_000, "100,000"), (0.5, "0.5"),
    ],
)  # fmt: skip
def test_numbers_have_at_most_three_significant_digits(value: float, text: str) -> None:
    assert three_digits(value) == text


def test_latency_counts_from_the_times_of_requests() -> None:
    # Seconds 6 and 7 are new at 10.5 s: requests from 6.0 to 7.9 s.
    found = latencies_s([Seen(5_000, 9_000), Seen(7_000, 10_500)])
    assert len(found) == 20
    assert (max(found), min(found)) == (4.5, 2.6)


def test_the_first_second_seen_has_no_latency() -> None:
    assert latencies_s([Seen(5_000, 9_000)]) == []


def test_rate_cpu_per_line_and_busy_cores_are_of_the_same_seconds() -> None:
    found = Round(1_000, 2.0, {"jvm": 1.5, "workers": 1.75, "broker": 0.25})
    assert (found.lines_per_s, found.cores) == (500, 1.75)  # 3.5 s of CPU in 2 s
    assert found.cpu_us() == 3_500  # 3.5 s / 1,000
    assert found.lines_per_s * found.cpu_us() / 1e6 == found.cores
    assert found.cpu_us("jvm") == 1_500


def test_a_row_has_the_medians_of_the_rounds() -> None:
    rounds = [Round(1_000, 1.0, {"jvm": cpu_s, "broker": 1.0}) for cpu_s in (3.0, 1.0, 2.0)]
    assert cpu_cells(rounds) == {
        "cpu_us": (3_000, 2_000, 4_000),
        "jvm_us": 2_000,
        "broker_us": 1_000,
        "cores": (3.0, 2.0, 4.0),
    }
