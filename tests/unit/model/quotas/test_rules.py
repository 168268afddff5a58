"""Edits fold into periods that cover all time, and a book finds the one in force."""

from __future__ import annotations

import pickle
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, RulePeriod, rule_periods

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, BOB, CLIENTS = Entity("alice"), Entity("bob"), Entity(None, DEFAULT)


def edit(value: float | None, at_ms: int, version: int, key: QuotaKey = PRODUCE) -> QuotaChange:
    return QuotaChange(ALICE, key, value, None, at_ms, version)


def test_no_quotas_before_the_first_edit_and_after_a_removal() -> None:
    assert rule_periods([edit(5.0, 100, 1), edit(None, 200, 2)]) == [
        RulePeriod(ALICE, {}, 0, 100, None),
        RulePeriod(ALICE, {PRODUCE: 5.0}, 100, 200, 1),
        RulePeriod(ALICE, {}, 200, None, 2),
    ]


def test_keys_change_on_their_own() -> None:
    assert rule_periods([edit(5.0, 100, 1), edit(7.0, 200, 2, FETCH), edit(None, 300, 3)])[1:] == [
        RulePeriod(ALICE, {PRODUCE: 5.0}, 100, 200, 1),
        RulePeriod(ALICE, {PRODUCE: 5.0, FETCH: 7.0}, 200, 300, 2),
        RulePeriod(ALICE, {FETCH: 7.0}, 300, None, 3),
    ]


def test_edits_are_ordered_by_time_then_version() -> None:
    changes = [edit(3.0, 200, 9), edit(2.0, 100, 8), edit(1.0, 100, 7)]
    assert rule_periods(changes) == [
        RulePeriod(ALICE, {}, 0, 100, None),
        RulePeriod(ALICE, {PRODUCE: 2.0}, 100, 200, 8),
        RulePeriod(ALICE, {PRODUCE: 3.0}, 200, None, 9),
    ]


def test_the_apply_lag_moves_edits_but_not_the_beginning() -> None:
    assert rule_periods([edit(5.0, 100, 1)], apply_lag_ms=95)[1].valid_from_ms == 195
    assert rule_periods([edit(5.0, 0, 1)], apply_lag_ms=95) == [RulePeriod(ALICE, {PRODUCE: 5.0}, 0, None, 1)]


def test_folding_an_edit_twice_changes_nothing() -> None:
    once = [edit(5.0, 100, 1), edit(6.0, 200, 2)]
    assert rule_periods(once + once) == rule_periods(once)


def test_entities_do_not_mix() -> None:
    bob = QuotaChange(BOB, PRODUCE, 1.0, None, 50, 1)
    book = RuleBook(rule_periods([edit(5.0, 100, 1), bob]))
    assert (list(book), len(book), CLIENTS in book) == ([ALICE, BOB], 2, False)
    assert book.at(BOB, 100) == RulePeriod(BOB, {PRODUCE: 1.0}, 50, None, 1)
    assert book.at(CLIENTS, 100) is None
    assert [rule.version for rule in book.of(ALICE)] == [None, 1]


def test_the_end_of_a_period_is_not_in_it() -> None:
    book = RuleBook(rule_periods([edit(5.0, 100, 1)]))
    found = [book.at(ALICE, time_ms) for time_ms in (-1, 0, 99, 100)]
    assert [rule and rule.version for rule in found] == [None, None, None, 1]
    assert found[0] is None


def test_behind_the_last_period_nothing_is_known() -> None:
    book = RuleBook([RulePeriod(ALICE, {PRODUCE: 5.0}, 100, 200, 1)])
    assert [book.at(ALICE, time_ms) is None for time_ms in (99, 100, 199, 200)] == [True, False, False, True]


def test_a_book_can_be_sent_to_workers() -> None:
    book = pickle.loads(pickle.dumps(RuleBook(rule_periods([edit(5.0, 100, 1)]))))
    assert book.at(ALICE, 100).values == {PRODUCE: 5.0}


EDITS = st.lists(
    st.builds(
        QuotaChange,
        st.sampled_from([ALICE, BOB, CLIENTS]),
        st.sampled_from(list(QuotaKey)),
        st.one_of(st.none(), st.integers(0, 9).map(float)),
        st.none(),
        st.integers(0, 40),
        st.integers(1, 6),
    ),
    max_size=25,
    unique_by=lambda change: (change.entity, change.key, change.changed_at_ms, change.version),
)


@given(EDITS, st.integers(0, 3))
def test_periods_partition_all_time(changes: list[QuotaChange], lag_ms: int) -> None:
    found = rule_periods(changes, apply_lag_ms=lag_ms)
    for entity in {change.entity for change in changes}:
        own = [rule for rule in found if rule.entity == entity]
        assert (own[0].valid_from_ms, own[-1].valid_to_ms) == (0, None)
        assert all(earlier.valid_to_ms == later.valid_from_ms for earlier, later in pairwise(own))
        assert all(rule.valid_to_ms is None or rule.valid_from_ms < rule.valid_to_ms for rule in own)


@given(EDITS, st.integers(0, 45))
def test_a_book_agrees_with_replaying_all_edits(changes: list[QuotaChange], time_ms: int) -> None:
    book = RuleBook(rule_periods(changes))
    for entity in (ALICE, BOB, CLIENTS):
        values: dict[AnyKey, float | None] = {}
        for change in sorted(changes, key=lambda change: (change.changed_at_ms, change.version)):
            if change.entity == entity and change.changed_at_ms <= time_ms:
                values[change.key] = change.value
        rule = book.at(entity, time_ms)
        expected = {key: value for key, value in values.items() if value is not None}
        assert (dict(rule.values) if rule else {}) == expected


@given(EDITS, st.integers(-1, 45))
def test_a_book_agrees_with_a_scan_of_the_periods(changes: list[QuotaChange], time_ms: int) -> None:
    found = rule_periods(changes)
    book = RuleBook(reversed(found))
    for entity in (ALICE, BOB, CLIENTS):
        holding = [
            rule
            for rule in found
            if rule.entity == entity
            and rule.valid_from_ms <= time_ms
            and (rule.valid_to_ms is None or time_ms < rule.valid_to_ms)
        ]
        assert book.at(entity, time_ms) == (holding[0] if holding else None)


def test_a_polled_edit_is_certain_only_from_the_poll_that_found_it() -> None:
    polled = [
        QuotaChange(ALICE, PRODUCE, 1.0, None, 0, 50, 50),  # there at the first poll
        QuotaChange(ALICE, PRODUCE, 2.0, 1.0, 100, 150, 150),
        QuotaChange(ALICE, PRODUCE, 3.0, 2.0, 150, 200, 200),
        QuotaChange(ALICE, PRODUCE, 4.0, 3.0, 150, 260, 260),  # after an answer that was not believed
    ]
    assert rule_periods(polled, apply_lag_ms=5) == [
        RulePeriod(ALICE, {PRODUCE: 1.0}, 0, 105, 50, 55),
        RulePeriod(ALICE, {PRODUCE: 2.0}, 105, 155, 150, 155),
        RulePeriod(ALICE, {PRODUCE: 4.0}, 155, None, 260, 265),
    ]
