"""What a worker knows of brokers: their windows at each time, and the gaps of their logs."""

from __future__ import annotations

from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.points import CONTROLLER_ID
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.model.quotas.rules import RuleBook
from kquota_spark.pipeline.known import BrokerWindows, ReportedWindows
from tests.support.pipeline.governed_requests import known

TOLD = {
    1: [ReportedWindows(0, None, "3.8+", 5, 1)],
    3: [ReportedWindows(0, 2_000, "<=3.7", 11, 1), ReportedWindows(2_000, None, "3.8+", 6, 2)],
    4: [ReportedWindows(5_000, None, None, None, 3)],
}


def test_each_broker_has_its_own_windows_at_its_time() -> None:
    windows = BrokerWindows(RateConfig(), TOLD)
    assert [windows.at(broker_id, time_ms).name for broker_id, time_ms in ((1, 0), (2, 0), (3, 1_999))] == [
        "3.8+/5x1000ms",
        "3.8+/11x1000ms",
        "<=3.7/11x1000ms",
    ]
    assert windows.at(3, 2_000) == RateConfig(6, 2_000)
    # What a broker did not tell, or not yet, is as in the settings.
    assert windows.at(4, 4_999) == RateConfig()
    assert windows.at(4, 5_000) == RateConfig(11, 3_000)
    assert windows.at(CONTROLLER_ID, 0) == RateConfig()


def test_what_the_file_sets_wins_for_all_brokers() -> None:
    given = {"quota_window_num", "log_time_zone"}
    windows = BrokerWindows(RateConfig(7, 3_000), TOLD, given)
    assert [windows.at(broker_id, 0).name for broker_id in (1, 2, 3)] == [
        "3.8+/7x1000ms",
        "3.8+/7x3000ms",
        "<=3.7/7x1000ms",
    ]
    all_given = BrokerWindows(RateConfig(7, 3_000), TOLD, {*given, "version", "quota_window_size_seconds"})
    assert all_given.at(3, 0) == RateConfig(7, 3_000, RingVariant.FROM_3_8)


def test_a_gap_reaches_into_seconds_until_the_ring_is_full_again() -> None:
    knows = known(RuleGovernor(RuleBook()), gaps={1: [(2_500, 4_000)]})
    # 4 s and the 12 s of N + 1 windows are 16 s.
    reaching = [second for second in range(20) if knows.gaps_at(1, second * 1_000, 12_000)]
    assert reaching == list(range(2, 16))
    assert knows.gaps_at(1, 2_000, 12_000) == ((2_500, 16_000),)
    assert knows.gaps_at(2, 2_000, 12_000) == ()
