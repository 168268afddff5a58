"""Replication rates are not padded: the numbers are those of Kafka 3.9.1's SimpleRate."""

from __future__ import annotations

import pytest

from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.measure.simple_rate import ReplicationRate


@pytest.mark.parametrize(
    ("time_ms", "rate"),
    [
        (0, 2_000_000.0),  # at once: the window is at least one second
        (500, 2_000_000.0),
        (1_000, 2_000_000.0),
        (3_000, 666_666.6666666666),  # 2 MB / 3 s
        (10_999, 181_834.71224656785),  # 2 MB / 10.999 s
        (11_000, 0.0),  # purged
    ],
)
def test_two_megabytes_at_once(time_ms: int, rate: float) -> None:
    replication = ReplicationRate(RateConfig())
    replication.record(2_000_000, 0)
    assert replication.rate_per_s(time_ms) == rate


def test_nothing_recorded_is_a_rate_of_nothing() -> None:
    assert ReplicationRate(RateConfig()).rate_per_s(500) == 0.0


def test_the_limit_itself_is_allowed() -> None:
    replication = ReplicationRate(RateConfig())
    replication.record(2_000_000, 0)
    assert not replication.is_exceeded(1_000, 2_000_000)
    assert replication.is_exceeded(1_000, 1_999_999)
    # 2 MB / 2 s from then on.
    assert not replication.is_exceeded(2_000, 1_000_000)


def test_windows_of_two_seconds() -> None:
    replication = ReplicationRate(RateConfig(5, 2_000))
    replication.record(2_000_000, 0)
    assert replication.rate_per_s(500) == 1_000_000.0  # 2 MB / 2 s
    replication.record(1_000_000, 4_000)
    assert replication.rate_per_s(4_000) == 750_000.0  # 3 MB / 4 s
