"""An unused limit comes down a step per period, never one that was throttled, never near to what is used."""

from __future__ import annotations

import pytest

from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.policies.observations import InForce
from kquota_spark.enforce.policies.policy import Lower
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from tests.support.enforcement.observed_uses import ALICE, DAY, NOW_MS, WRITE, only, place, seen, use, wanted

POLICY = Lower(name="lower-unused", kind="lower")


def test_an_unused_limit_goes_down_by_one_step() -> None:
    found = only(
        wanted(POLICY, seen(use(peak_rate_per_s=300_000.0), use(place(2), peak_rate_per_s=100_000.0)))
    )
    # 1,000,000 less 20 %; 300,000 x 1.5 = 450,000 would be allowed
    assert (found.before, found.after, found.expires_at_ms) == (1_000_000.0, 800_000.0, None)
    assert found.reason == (
        "highest rate 300,000 B/s, 30 % of the limit, in 2,000 seconds since 2026-11-14 05:40 UTC, none of them "
        "throttled: from 1,000,000 B/s to 800,000 B/s"
    )
    assert found.evidence.seconds == 2_000


def test_it_stays_above_the_highest_rate_by_a_margin() -> None:
    policy = Lower(name="lower", kind="lower", unused_percent=60.0)
    # 590,000 x 1.5 = 885,000 is above the step to 800,000; 700,000 x 1.5 is above the limit
    assert only(wanted(policy, seen(use(peak_rate_per_s=590_000.0)))).after == 885_000.0
    hardly = Lower(name="lower", kind="lower", unused_percent=100.0)
    assert wanted(hardly, seen(use(peak_rate_per_s=700_000.0))) == []


@pytest.mark.parametrize(("peak", "count"), [(499_999.0, 1), (500_000.0, 0)])
def test_half_of_the_limit_is_a_use(peak: float, count: int) -> None:
    assert len(wanted(POLICY, seen(use(peak_rate_per_s=peak)))) == count


def test_one_throttled_second_anywhere_in_the_period_keeps_it() -> None:
    quiet = use(peak_rate_per_s=300_000.0)
    assert wanted(POLICY, seen(quiet, use(place(2), peak_rate_per_s=1.0, throttled_seconds=1))) == []
    # by a request quota: what it wrote is as little what it wanted
    assert wanted(POLICY, seen(quiet, use(place(2), peak_rate_per_s=1.0, observed_throttled_seconds=1))) == []


def test_a_limit_stands_for_a_whole_period_before_the_next_step() -> None:
    quiet = use(peak_rate_per_s=300_000.0)
    for since_ms, count in ((NOW_MS - 7 * DAY, 1), (NOW_MS - 7 * DAY + 1, 0)):
        in_force = {Quota(ALICE, WRITE): InForce(1_000_000.0, since_ms)}
        assert len(wanted(POLICY, seen(quiet, quotas=in_force))) == count


def test_tables_that_do_not_reach_back_so_far_say_nothing() -> None:
    quiet = use(peak_rate_per_s=300_000.0)
    assert wanted(POLICY, seen(quiet, decisions_from_ms=NOW_MS - 7 * DAY))
    assert wanted(POLICY, seen(quiet, decisions_from_ms=NOW_MS - 7 * DAY + 1)) == []
    assert wanted(POLICY, seen(quiet, decisions_from_ms=None)) == []


def test_a_default_is_never_lowered() -> None:
    assert wanted(POLICY, seen(use(rule=Entity(user=DEFAULT), peak_rate_per_s=300_000.0))) == []
