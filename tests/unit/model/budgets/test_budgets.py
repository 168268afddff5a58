"""Budgets, burn rates and paces: the arithmetic of the objective, on seconds that the test writes down."""

from __future__ import annotations

import pytest

from kquota_spark.model.budgets.budgets import Budget, OwnSeconds, budget_of, burn_down
from kquota_spark.model.budgets.objectives import (
    BURN_RULES,
    WINDOWS_S,
    Objective,
    Spent,
    burn_rate,
    burning,
)

OBJECTIVE = Objective()
DAY_S = 86_400
MONTH_S = 30 * DAY_S
END_S = 100 * DAY_S


def own(*throttled: tuple[int, int], active: tuple[int, int] = (END_S - MONTH_S, END_S)) -> OwnSeconds:
    """Seconds of an owner: active in a span, throttled in others."""
    found = OwnSeconds()
    found.active.add(*active)
    for span in throttled:
        found.throttled.add(*span)
    found.active.add_all(found.throttled)
    return found


def budget(*throttled: tuple[int, int], **changed: tuple[int, int]) -> Budget:
    return budget_of(own(*throttled, **changed), OBJECTIVE, END_S)


def pace(found: Budget) -> str | None:
    return None if found.burning is None else found.burning.name


def pace_at(seconds: OwnSeconds, at_s: int) -> str | None:
    """The pace at a time, from the windows alone."""
    found = burning({length: seconds.spent(at_s - length, at_s) for length in WINDOWS_S.values()}, OBJECTIVE)
    return None if found is None else found.name


def begins_s(seconds: OwnSeconds, from_s: int, to_s: int, step_s: int = 1) -> list[int]:
    """The seconds at which the fast pace begins, checked every `step_s`."""
    times = range(from_s, to_s, step_s)
    is_burning = [pace_at(seconds, at_s) == "fast" for at_s in times]
    return [at_s for place, at_s in enumerate(times) if is_burning[place] and not is_burning[place - 1]]


def test_a_month_of_a_busy_owner_allows_three_and_a_half_hours() -> None:
    # 0.5 % of 30 days: 0.005 * 2,592,000 s = 12,960 s.
    found = budget((END_S - 7_200, END_S - 7_200 + 1_296))
    assert (found.budget_s, found.left_s, found.left_percent) == (12_960.0, 11_664.0, 90.0)
    assert found.period == Spent(2_592_000, 1_296)


def test_an_owner_of_little_traffic_has_a_small_budget() -> None:
    # Active for 1,000 s: 5 s may be throttled, 10 s are. What is overspent is negative.
    found = budget((END_S - 10, END_S), active=(END_S - 1_000, END_S))
    assert (found.budget_s, found.left_s, found.left_percent) == (5.0, -5.0, -100.0)


def test_an_owner_without_traffic_has_no_share_and_burns_nothing() -> None:
    found = budget(active=(0, 1))
    assert (found.left_percent, pace(found), found.spent_at_s) == (None, None, None)
    assert set(found.burns.values()) == {None}


def test_a_burn_rate_of_one_spends_the_budget_in_its_period() -> None:
    assert burn_rate(Spent(2_592_000, 12_960), OBJECTIVE) == 1.0
    assert burn_rate(Spent(3_600, 3_600), OBJECTIVE) == 200.0
    assert burn_rate(Spent(1_000, 1), Objective(percent=99.9)) == 1.0
    assert burn_rate(Spent(0, 0), OBJECTIVE) is None


def test_each_pace_burns_its_share_of_the_month_in_its_long_window() -> None:
    shares = {rule.name: rule.factor * rule.long_s / MONTH_S for rule in BURN_RULES}
    # 14.4 * 1 h / 720 h = 2 %; 6 * 6 h / 720 h = 5 %; 1 * 72 h / 720 h = 10 %.
    assert {name: round(share, 12) for name, share in shares.items()} == {
        "fast": 0.02,
        "hours": 0.05,
        "days": 0.1,
    }
    assert [(rule.long_s, rule.short_s) for rule in BURN_RULES] == [
        (3_600, 300),
        (21_600, 1_800),
        (259_200, 21_600),
    ]
    assert {length for rule in BURN_RULES for length in (rule.long_s, rule.short_s)} == set(
        WINDOWS_S.values()
    )


def test_a_blip_of_two_minutes_does_not_page() -> None:
    # 120 s of an hour are 3.3 %, 6.7 times the allowed 0.5 %: below 14.4.
    seconds = own((END_S - 3_000, END_S - 2_880))
    assert {pace_at(seconds, at_s) for at_s in range(END_S - 3_060, END_S, 10)} == {None}


def test_two_percent_of_the_month_in_an_hour_pages_within_five_minutes() -> None:
    # 2 % of 12,960 s are 259.2 s. A client that waits all the time has burnt them after 260 s.
    begin_s = END_S - 1_000
    assert begins_s(own((begin_s, END_S)), begin_s, begin_s + 400) == [begin_s + 260]


def test_a_slow_leak_of_two_percent_pages_when_it_has_been_burnt() -> None:
    # 22 s of every 300 s are 7.3 %: after an hour 264 s are more than 259.2 s. Twelve bursts reach 14.4 in the last.
    bursts = [(END_S - 3_600 + 300 * number, END_S - 3_600 + 300 * number + 22) for number in range(12)]
    [begun_s] = begins_s(own(*bursts), END_S - 600, END_S)
    # 11 bursts have 242 s; the twelfth begins 300 s before the end, and 18 s of it make 260 s.
    assert begun_s == END_S - 300 + 18


def test_recovery_arms_it_again_once() -> None:
    first, second = (END_S - 20_000, END_S - 19_700), (END_S - 9_000, END_S - 8_600)
    seconds = own(first, second)
    # One page per burn: after 260 s of each.
    assert begins_s(seconds, END_S - 20_100, END_S, 20) == [first[0] + 260, second[0] + 260]
    # The first is over when 5 minutes hold less than 7.2 %, 21.6 s: 300 - 21 = 279 s after its end.
    paces = [pace_at(seconds, first[1] + later) for later in (277, 278, 279, 280)]
    assert paces == ["fast", "fast", None, None]


def test_a_client_of_little_traffic_does_not_page_for_a_blip() -> None:
    # Active for 200 s of the hour, and throttled in 120 of them: a burn of 120, and yet no page. One more second is.
    for throttled_s, expected in ((120, None), (121, "fast")):
        found = budget((END_S - throttled_s, END_S), active=(END_S - 200, END_S))
        assert pace(found) == expected
        assert found.burns["1h"] == throttled_s / 200 / 0.005


def test_an_owner_has_the_most_urgent_pace_alone() -> None:
    # 20 minutes ago it was throttled for 30 minutes: 1,800 s of 6 h are 8.3 %, 16.7 times; 5 minutes have none.
    assert pace(budget((END_S - 3_000, END_S - 1_200))) == "hours"
    assert pace(budget((END_S - 3_000, END_S))) == "fast"
    # 1,400 s of 3 days are 0.54 %, 1.08 times; of 6 h 130 s are 0.6 %, 1.2 times: too slow for the others.
    assert pace(budget((END_S - 100_000, END_S - 98_730), (END_S - 20_000, END_S - 19_870))) == "days"


def test_a_budget_is_spent_at_the_pace_of_the_last_six_hours() -> None:
    # 216 s of 21,600 s are twice the allowed 108 s: 12,744 s are left, and 216 s go in six hours.
    found = budget((END_S - 5_000, END_S - 4_784))
    assert (found.left_s, found.burns["6h"]) == (12_744.0, 2.0)
    assert found.spent_at_s == END_S + 12_744 * 100
    # Exactly the allowed pace lasts for ever, because as much comes back.
    assert budget((END_S - 5_000, END_S - 4_892)).spent_at_s is None


def test_a_budget_that_is_spent_has_no_time_when_it_is() -> None:
    # One hour of data: 18 s may be throttled, 40 s are.
    found = budget((END_S - 40, END_S), active=(END_S - 3_600, END_S))
    assert (found.left_s, found.spent_at_s) == (-22.0, None)


def test_a_burn_down_goes_from_all_to_what_is_left() -> None:
    seconds = own((END_S - 10 * DAY_S, END_S - 10 * DAY_S + 6_480))
    found = burn_down(seconds, budget_of(seconds, OBJECTIVE, END_S), 3)
    # Steps of ten days; half of 12,960 s was spent at the beginning of the third.
    assert [(point.at_s, point.left_percent) for point in found] == [
        (END_S - MONTH_S, 100.0), (END_S - 20 * DAY_S, 100.0), (END_S - 10 * DAY_S, 100.0), (END_S, 50.0),
    ]  # fmt: skip
    assert burn_down(OwnSeconds(), budget_of(OwnSeconds(), OBJECTIVE, END_S), 3) == ()


@pytest.mark.parametrize(
    ("percent", "ratio"), [(99.5, 0.005), (99.9, 0.001), (99.99, 0.0001), (95.0, 0.05), (99.999, 0.00001)]
)
def test_the_allowed_share_is_the_decimal_number_that_a_person_expects(percent: float, ratio: float) -> None:
    assert Objective(percent=percent).allowed_ratio == ratio


def test_the_first_active_second_is_one_of_the_period() -> None:
    # Two seconds: an hour before the period, and an hour after its begin.
    seconds, begin_s = OwnSeconds(), END_S - MONTH_S
    seconds.active.add(begin_s - 3_600, begin_s - 3_599)
    seconds.active.add(begin_s + 3_600, begin_s + 3_601)
    assert budget_of(seconds, OBJECTIVE, END_S).first_active_s == begin_s + 3_600
    assert budget_of(seconds, OBJECTIVE, begin_s + 3_600).first_active_s == begin_s - 3_600
    assert budget_of(seconds, OBJECTIVE, END_S + MONTH_S).first_active_s is None
    assert budget_of(seconds, OBJECTIVE, begin_s - 3_600).first_active_s is None
