"""The least limit without a throttle: the arithmetic of one window, and of the request that decides."""

from __future__ import annotations

from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.replay.least_limit import least_limit, measured, throttled_under

T0_MS = 1_795_239_600_000
FIRST = Point(T0_MS, T0_MS + 1, 1, 0, 1_800_000, 0, 0)
SECOND = Point(T0_MS + 2_000, T0_MS + 2_001, 1, 1, 200_000, 0, 0)


def test_one_unit_below_the_least_limit_a_request_is_throttled() -> None:
    measures = measured(1, [FIRST], RateConfig(), 0)
    # 1,800,000 B in a window of 10 s are 180,000 B/s. Under a limit L the throttle is (180,000 - L) / L * 10,000 ms.
    # L = 179,991: 0.50003 ms, rounded to 1. L = 179,992: 0.44446 ms, rounded to 0.
    assert least_limit(measures) == 179_992
    assert throttled_under(measures, 179_992) == []
    assert throttled_under(measures, 179_991) == measures


def test_the_highest_rate_decides_and_the_ring_remembers_earlier_requests() -> None:
    both = measured(1, [SECOND, FIRST], RateConfig(), 0)
    # The second one is measured over 10 s with the first one: 2,000,000 B, 200,000 B/s.
    # L = 199,990: 10 / 199,990 * 10,000 = 0.50003 ms, rounded to 1. L = 199,991: 0.45002 ms, rounded to 0.
    assert [each.total for each in both] == [1_800_000, 2_000_000]
    assert least_limit(both) == 199_991
    warm = measured(1, [SECOND, FIRST], RateConfig(), T0_MS + 1)
    assert [each.total for each in warm] == [2_000_000]
    assert least_limit(warm) == 199_991


def test_each_broker_measures_its_own_requests() -> None:
    apart = [*measured(1, [FIRST], RateConfig(), 0), *measured(2, [SECOND], RateConfig(), 0)]
    assert least_limit(apart) == 179_992


def test_without_bytes_the_least_limit_is_one_and_without_requests_it_is_not_known() -> None:
    assert least_limit(measured(1, [FIRST._replace(amount=0)], RateConfig(), 0)) == 1
    assert least_limit([]) is None
