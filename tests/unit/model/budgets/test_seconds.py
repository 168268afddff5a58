"""Sets of seconds count each second once, in any order, and agree with a set of Python."""

from __future__ import annotations

import zlib

from kquota_spark.model.budgets.seconds import SecondSet
from tests.support.chance import Chance

HOUR_S = 3_600


def test_a_second_counts_once_however_often_it_is_added() -> None:
    found = SecondSet()
    found.add(7_195, 7_205)
    found.add(7_200, 7_202)
    found.add(7_199, 7_200)
    assert found.count(0, 10_000) == 10
    # 7195 to 7199 are the end of hour 1, and 7200 to 7204 the beginning of hour 2.
    assert [found.count(*each) for each in ((7_195, 7_200), (7_200, 7_205), (7_205, 7_206))] == [5, 5, 0]
    assert found.first_s() == 7_195


def test_an_empty_period_and_an_empty_set_have_no_seconds() -> None:
    found = SecondSet()
    assert (found.count(0, 10), found.first_s()) == (0, None)
    found.add(5, 5)
    assert (found.count(0, 10), found.first_s()) == (0, None)
    found.add(0, 10)
    assert (found.count(3, 3), found.count(5, 3)) == (0, 0)


def test_bits_of_an_hour_begin_with_its_first_second() -> None:
    found = SecondSet()
    found.add_hour(1, int("11" + "0" * 3_597 + "1", 2))
    assert [found.count(second, second + 1) for second in (3_600, 3_601, 3_602, 7_199)] == [1, 1, 0, 1]


def test_forgetting_keeps_the_hour_that_is_not_over() -> None:
    found = SecondSet()
    found.add(0, 3 * HOUR_S)
    found.forget_before(2 * HOUR_S - 1)
    assert (found.count(0, 3 * HOUR_S), found.first_s()) == (2 * HOUR_S, HOUR_S)


def test_random_sets_count_as_sets_of_numbers_do(chance: Chance) -> None:
    for _ in range(200):
        spans = [(first, first + chance.randrange(1, 5_000)) for first in chance.sample(range(20_000), 5)]
        found, other, expected = SecondSet(), SecondSet(), set[int]()
        for number, (first, end) in enumerate(spans):
            (found if number % 2 else other).add(first, end)
            expected |= set(range(first, end))
        found.add_all(other)
        first, end = sorted(chance.sample(range(26_000), 2))
        assert found.count(first, end) == len(expected & set(range(first, end)))
        assert found.first_s() == min(expected)


def test_packed_hours_begin_with_the_one_that_is_named(chance: Chance) -> None:
    found = SecondSet()
    found.add(7_200, 7_210)
    found.add(86_399 + 7_200, 86_402 + 7_200)
    # Hours 2 to 26, the last one with the seconds after midnight: 25 times 450 bytes.
    assert (len(found), len(zlib.decompress(found.packed(7_200)))) == (13, 25 * 450)
    again = SecondSet()
    again.add_packed(7_200, found.packed(7_200))
    assert [again.count(*each) for each in ((7_200, 7_210), (93_599, 93_602), (0, 200_000))] == [10, 3, 13]
    assert SecondSet().packed(7_200) == zlib.compress(b"")
    for _ in range(50):
        drawn, other = SecondSet(), SecondSet()
        for first in chance.sample(range(86_400), 20):
            drawn.add(first, first + chance.randrange(1, 5_000))
        other.add_packed(0, drawn.packed(0))
        begin, end = sorted(chance.sample(range(100_000), 2))
        assert other.count(begin, end) == drawn.count(begin, end) == len(drawn.within(begin, end))
        assert other.within(begin, end).count(0, 200_000) == drawn.count(begin, end)
