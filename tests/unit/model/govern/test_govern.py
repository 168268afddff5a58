"""What governs at a moment, and for how long the answer holds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.govern.govern import Governed, RuleGovernor
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, rule_periods
from kquota_spark.model.replay.causes import Governing, RuleLimit

PRODUCE, FETCH, REQUEST = (
    QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE,
)  # fmt: skip
ALICE, USERS, PAIR = Entity("alice"), Entity(DEFAULT), Entity("alice", "etl")
NO_LIMIT = RuleLimit(None)
FIVE, SIX = RuleLimit(5.0, 3, "users/alice", 1), RuleLimit(6.0, 3, "users/alice", 2)


def govern(rules: RuleBook, quota_type: QuotaType, user: str, client_id: str, time_ms: int) -> Governed:
    return RuleGovernor(rules).govern(1, quota_type, Principal("User", user), client_id, time_ms)


def book(*edits: tuple[Entity, QuotaKey, float | None, int], lag_ms: int = 0) -> RuleBook:
    changes = [
        QuotaChange(entity, key, value, None, at_ms, version)
        for version, (entity, key, value, at_ms) in enumerate(edits, 1)
    ]
    return RuleBook(rule_periods(changes, apply_lag_ms=lag_ms))


def test_no_rules_at_all() -> None:
    assert govern(RuleBook(), QuotaType.PRODUCE, "alice", "etl", 5) == Governed(
        Bucket("", "etl"), Governing(None), None, None, None
    )


def test_before_between_and_after_edits() -> None:
    rules = book((ALICE, PRODUCE, 5.0, 100), (ALICE, PRODUCE, 6.0, 200), (ALICE, PRODUCE, None, 300))
    found = [govern(rules, QuotaType.PRODUCE, "alice", "etl", at_ms) for at_ms in (99, 100, 299, 300)]
    alone, alices = Bucket("", "etl"), Bucket("alice", "")
    assert found == [
        Governed(alone, Governing(None, 0, 100), None, None, None),
        Governed(alices, Governing(5.0, 100, 200, before=NO_LIMIT, after=SIX), 3, "users/alice", 1),
        Governed(alices, Governing(6.0, 200, 300, before=FIVE, after=NO_LIMIT), 3, "users/alice", 2),
        Governed(alone, Governing(None, 300, None), None, None, None),
    ]


def test_an_edit_at_a_more_specific_level_ends_the_validity() -> None:
    rules = book((USERS, PRODUCE, 5.0, 100), (PAIR, PRODUCE, 6.0, 200))
    assert govern(rules, QuotaType.PRODUCE, "alice", "etl", 150) == Governed(
        Bucket("alice", ""), Governing(5.0, 100, 200, before=NO_LIMIT), 6, "users/<default>", 1
    )
    assert govern(rules, QuotaType.PRODUCE, "alice", "etl", 200) == Governed(
        Bucket("alice", "etl"), Governing(6.0, 200, None, before=NO_LIMIT), 1, "users/alice/clients/etl", 2
    )
    # Another client id never looks at the pair.
    assert govern(rules, QuotaType.PRODUCE, "alice", "x", 150).governing == Governing(
        5.0, 100, before=NO_LIMIT
    )


def test_a_request_quota_at_any_level_is_seen() -> None:
    rules = book((PAIR, PRODUCE, 5.0, 0), (USERS, REQUEST, 1.0, 50), (USERS, REQUEST, None, 80))
    seen = [
        govern(rules, QuotaType.PRODUCE, "alice", "etl", at_ms).governing.has_request_quota
        for at_ms in (49, 50, 79, 80)
    ]
    assert seen == [False, True, True, False]
    assert not govern(rules, QuotaType.FETCH, "", "", 10).governing.has_request_quota


def test_a_throttle_of_a_request_may_be_another_quotas_wherever_the_client_has_one() -> None:
    def is_shared(static: dict[QuotaType, float], *edits: tuple[Entity, QuotaKey, float | None, int]) -> bool:
        governor = RuleGovernor(book(*edits), static)
        asked = (1, QuotaType.REQUEST, Principal("User", "alice"), "etl", 10)
        return governor.govern(*asked).governing.has_request_quota

    alone = (USERS, REQUEST, 1.0, 0)
    assert not is_shared({}, alone)
    assert is_shared({}, alone, (ALICE, FETCH, 5.0, 0))
    # It need not win: the throttle in the log is the largest of all.
    assert is_shared({}, (PAIR, REQUEST, 1.0, 0), (USERS, PRODUCE, 5.0, 0))
    assert not is_shared({}, alone, (Entity("bob"), FETCH, 5.0, 0))
    # A broker's own default is everybody's.
    assert is_shared({QuotaType.FETCH: 5e5}, alone)


def test_an_answer_knows_how_long_it_holds() -> None:
    rules = book((ALICE, PRODUCE, 5.0, 100), (ALICE, FETCH, 6.0, 200))
    first = govern(rules, QuotaType.PRODUCE, "alice", "etl", 150)
    assert [first.holds_at(at_ms) for at_ms in (99, 100, 199, 200)] == [False, True, True, False]
    later = govern(rules, QuotaType.PRODUCE, "alice", "etl", 200)
    assert [later.holds_at(at_ms) for at_ms in (199, 200, 10**12)] == [False, True, True]


def test_the_period_of_a_limit_ignores_edits_that_it_does_not_depend_on() -> None:
    alice, pair = Entity("alice"), Entity("alice", "etl")
    rules = book(
        (alice, PRODUCE, 5.0, 1_000),
        (Entity(DEFAULT), PRODUCE, 9.0, 2_000),
        (Entity(DEFAULT), PRODUCE, 8.0, 3_000),
        (pair, PRODUCE, 7.0, 4_000),
        (pair, PRODUCE, None, 5_000),
        (alice, PRODUCE, 6.0, 6_000),
    )

    def period(time_ms: int, client_id: str = "etl") -> tuple[int, int | None]:
        governed = govern(rules, QuotaType.PRODUCE, "alice", client_id, time_ms)
        return RuleGovernor(rules).period_of(governed, QuotaType.PRODUCE, "alice", client_id)

    # The edits of the default at 2,000 and 3,000 do not end the limit of 5 of alice; that of the pair does.
    assert [period(time_ms) for time_ms in (1_000, 2_500, 3_999)] == [(1_000, 4_000)] * 3
    assert [period(time_ms) for time_ms in (0, 4_500, 5_500, 9_000)] == [
        (0, 1_000), (4_000, 5_000), (5_000, 6_000), (6_000, None),
    ]  # fmt: skip
    assert period(3_000, "other") == (1_000, 6_000)


def test_the_apply_lag_moves_the_edge() -> None:
    rules = book((ALICE, PRODUCE, 5.0, 100), lag_ms=95)
    assert govern(rules, QuotaType.PRODUCE, "alice", "", 194).governing == Governing(None, 0, 195)
    assert govern(rules, QuotaType.PRODUCE, "alice", "", 195).governing == Governing(
        5.0, 195, before=NO_LIMIT
    )


NAMES = st.sampled_from(["a", "b", "c", ""])
EDITS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                Entity(u, c)
                for u in ("a", DEFAULT, None)
                for c in ("b", DEFAULT, None)
                if (u, c) != (None, None)
            ]
        ),
        st.sampled_from([PRODUCE, FETCH, REQUEST]),
        st.one_of(st.none(), st.integers(0, 5).map(float)),
        st.integers(0, 30),
    ),
    max_size=12,
)


@settings(deadline=None, print_blob=True, max_examples=200)
@given(EDITS, st.sampled_from(BANDWIDTH), NAMES, NAMES)
def test_while_it_holds_the_answer_is_the_same(
    edits: list[tuple[Entity, QuotaKey, float | None, int]], quota_type: QuotaType, user: str, client_id: str
) -> None:
    rules = book(*edits)
    for at_ms in range(0, 32, 3):
        found = govern(rules, quota_type, user, client_id, at_ms)
        assert found.holds_at(at_ms)
        for other_ms in range(32):
            if found.holds_at(other_ms):
                assert govern(rules, quota_type, user, client_id, other_ms) == found


def test_what_a_poll_found_can_be_relied_on_from_that_poll_on() -> None:
    changes = [
        QuotaChange(USERS, PRODUCE, 9.0, None, 20, 30, 30),
        QuotaChange(ALICE, PRODUCE, 5.0, None, 100, 150, 150),
    ]
    found = govern(RuleBook(rule_periods(changes)), QuotaType.PRODUCE, "alice", "etl", 120)
    nine = RuleLimit(9.0, 6, "users/<default>", 30)
    assert found.governing == Governing(5.0, 100, before=nine)
    assert found.relied_on == Governing(5.0, 150, before=nine)
    before = govern(RuleBook(rule_periods(changes)), QuotaType.PRODUCE, "alice", "etl", 99)
    five = RuleLimit(5.0, 3, "users/alice", 150)
    assert before.relied_on == Governing(9.0, 30, 100, before=NO_LIMIT, after=five)


@settings(deadline=None, print_blob=True, max_examples=200)
@given(
    EDITS,
    st.lists(
        st.tuples(st.sampled_from(QuotaType), NAMES, st.sampled_from(["b", "c", "d", ""]), st.integers(0, 31))
    ),
)
def test_one_governor_answers_everybody_as_the_walk_does(
    edits: list[tuple[Entity, QuotaKey, float | None, int]], asked: list[tuple[QuotaType, str, str, int]]
) -> None:
    governor = RuleGovernor(book(*edits))
    for quota_type, user, client_id, at_ms in asked:
        found = governor.govern(1, quota_type, Principal("User", user), client_id, at_ms)
        walked, _ = governor.explain(quota_type, user, client_id, at_ms)
        assert (found.bucket, found.governing.limit_per_s, found.level, found.rule, found.rule_version) == (
            walked.bucket, walked.governing.limit_per_s, walked.level, walked.rule, walked.rule_version
        )  # fmt: skip
        assert found.holds_at(at_ms)
