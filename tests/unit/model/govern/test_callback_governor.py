"""Hosting a quota callback (KIP-257): the contract that brokers keep, moments of the past, and broken ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kquota_spark.config.governor import load_callback, make_governor
from kquota_spark.config.settings import Broker, Quotas, Settings
from kquota_spark.errors import UserError
from kquota_spark.model.govern.callback_governor import CallbackGovernor
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.quotas.entities import DEFAULT
from kquota_spark.model.quotas.group_callbacks import GroupedUserCallback, PartitionBasedCallback
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_callback import (
    CallbackError,
    DefaultQuotaCallback,
    LeaderBook,
    LeaderChange,
    TopicPartition,
)
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.quotas.rules import RuleBook
from tests.support.quotas.callback_quotas import book, user

PRODUCE, FETCH = QuotaType.PRODUCE, QuotaType.FETCH
PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
GROUPS = "kquota_spark.model.quotas.group_callbacks"


def moved(
    topic: str, number: int, leader: int | None, at_ms: int, *, is_deleted: bool = False
) -> LeaderChange:
    return LeaderChange(TopicPartition(topic, number), leader, at_ms, is_deleted)


def test_quotas_and_leaders_are_those_of_the_moment() -> None:
    rules = book(
        ("pay_", None, PRODUCER, 100.0, 0),
        ("pay_", None, PRODUCER, 80.0, 300),
    )
    led = LeaderBook(
        [
            moved("pay_a", 0, 1, 50),
            moved("pay_a", 1, 1, 50),
            moved("pay_a", 1, 2, 200),
            moved("pay_a", 0, None, 400, is_deleted=True),
        ]
    )
    governor = CallbackGovernor(PartitionBasedCallback, "mine", rules, led, {})
    # Asked out of order: the moment decides, not what was asked before.
    asked = {
        at_ms: governor.govern(1, PRODUCE, user("pay_1"), "c", at_ms)
        for at_ms in (450, 10, 250, 350, 199, 300)
    }
    found = {at_ms: (answer.governing.limit_per_s, *answer.governing[1:3]) for at_ms, answer in asked.items()}
    assert found == {
        10: (100.0, 0, 200),  # before the first poll it is as at the first poll: 2 of 2
        199: (100.0, 0, 200),
        250: (50.0, 200, 300),  # 1 of 2
        300: (40.0, 300, 400),
        350: (40.0, 300, 400),
        450: (80.0, 400, None),  # one partition left, led by the other: 80 / 1
    }
    assert asked[10].bucket == Bucket("", "", (("group", "pay"),))
    assert (asked[10].level, asked[10].rule, asked[10].rule_version) == (None, "mine", 0)
    other = governor.govern(2, PRODUCE, user("pay_9"), "x", 250)
    assert (other.bucket, other.governing.limit_per_s) == (asked[10].bucket, 50.0)


def test_more_moments_than_instances_are_kept() -> None:
    edits = [("pay_", None, PRODUCER, float(at_ms), at_ms) for at_ms in range(1, 101)]
    governor = CallbackGovernor(GroupedUserCallback, "mine", book(*edits), LeaderBook(), {})
    for at_ms in (*range(1, 101), *range(100, 0, -7)):
        assert governor.govern(1, PRODUCE, user("pay_1"), "", at_ms).governing.limit_per_s == at_ms
    governor.close()


def test_the_default_callback_governs_as_none_does() -> None:
    # kafka-facts 3.6: alice's own level 3, etl's level 7, the default of client ids, nothing.
    quotas = book(
        ("alice", None, PRODUCER, 2e6, 0),
        (DEFAULT, None, PRODUCER, 1e6, 0),
        (None, "etl", CONSUMER, 8e6, 0),
        (None, DEFAULT, CONSUMER, 4e6, 0),
    )
    governor = CallbackGovernor(DefaultQuotaCallback, "mine", quotas, LeaderBook(), {})
    asked = [
        (PRODUCE, "alice", "etl"),
        (PRODUCE, "bob", ""),
        (FETCH, "alice", "etl"),
        (FETCH, "b", "x"),
        (FETCH, "b", ""),
    ]
    found = [governor.govern(1, of_type, user(name), client, 5) for of_type, name, client in asked]
    assert [governed.governing.limit_per_s for governed in found] == [2e6, 1e6, 8e6, 4e6, None]
    assert [governed.bucket.custom_tags for governed in found] == [
        (("user", "alice"),), (("user", "bob"),), (("client-id", "etl"),), (("client-id", "x"),), (),
    ]  # fmt: skip
    assert DefaultQuotaCallback().quota_limit(PRODUCE, {"group": "pay"}) is None


class _Counted(GroupedUserCallback):
    """Counts its instances."""

    made = 0
    closed = 0

    def __init__(self) -> None:
        super().__init__()
        _Counted.made += 1

    def close(self) -> None:
        _Counted.closed += 1


def test_many_brokers_asked_in_turn_have_one_instance_each() -> None:
    governor = CallbackGovernor(_Counted, "mine", book(("pay_", None, PRODUCER, 5.0, 10)), LeaderBook(), {})
    for _ in range(3):
        for broker_id in range(50):
            assert governor.govern(broker_id, PRODUCE, user("pay_1"), "", 20).governing.limit_per_s == 5.0
    assert (_Counted.made, _Counted.closed) == (50, 0)
    governor.close()
    assert _Counted.closed == 50


def test_every_instance_is_closed_once() -> None:
    closed: list[int] = []

    class Counting(GroupedUserCallback):
        def close(self) -> None:
            closed.append(id(self))

    edits = [("pay_", None, PRODUCER, float(at_ms), at_ms) for at_ms in range(1, 21)]
    governor = CallbackGovernor(Counting, "mine", book(*edits), LeaderBook(), {})
    for at_ms in range(1, 21):
        governor.govern(1, PRODUCE, user("pay_1"), "", at_ms)
    assert len(closed) == 20 - 16  # sixteen are kept
    governor.close()
    governor.close()
    assert len(closed) == 20


class _ResetOnce(GroupedUserCallback):
    """Its limit changes by itself, and it says so when polled."""

    def __init__(self) -> None:
        super().__init__()
        self.polls = 0

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        self.polls += quota_type is PRODUCE
        return self.polls == 3

    def quota_limit(self, quota_type: QuotaType, metric_tags: Mapping[str, str]) -> float | None:
        return 5.0 if self.polls < 3 else 6.0


def test_limits_are_read_again_when_a_poll_asks_for_it() -> None:
    governor = CallbackGovernor(_ResetOnce, "mine", RuleBook(), LeaderBook(), {})
    found = [governor.govern(1, PRODUCE, user("pay_1"), "", 5).governing.limit_per_s for _ in range(4)]
    assert found == [5.0, 5.0, 6.0, 6.0]


class _Broken(GroupedUserCallback):
    answer: Any = None
    tags: Any = {"group": "a"}  # noqa: RUF012

    def quota_metric_tags(
        self, quota_type: QuotaType, principal: Principal, client_id: str
    ) -> Mapping[str, str]:
        return self.tags  # type: ignore[no-any-return]

    def quota_limit(self, quota_type: QuotaType, metric_tags: Mapping[str, str]) -> float | None:
        if self.answer is ZeroDivisionError:
            return 1 / 0
        return self.answer  # type: ignore[no-any-return]


ASKED, TAGGED = "quota_limit(produce, {'group': 'a'})", "quota_metric_tags(produce, User:pay_1, c)"


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (
            {"answer": ZeroDivisionError},
            f"{ASKED} raised ZeroDivisionError: division by zero",
        ),
        ({"answer": "5"}, f"{ASKED} gave '5', expected a number or None"),
        ({"answer": True}, f"{ASKED} gave True, expected a number or None"),
        (
            {"answer": float("nan")},
            f"{ASKED} gave nan, expected a number or None",
        ),
        ({"tags": None}, f"{TAGGED} gave None, expected a mapping of texts"),
        (
            {"tags": {"group": 5}},
            f"{TAGGED} gave {{'group': 5}}, expected a mapping of texts",
        ),
    ],
)
def test_a_broken_callback_gives_an_error_and_no_decision(attributes: dict[str, Any], text: str) -> None:
    broken = type("Broken", (_Broken,), attributes)
    governor = CallbackGovernor(broken, "mine:Broken", RuleBook(), LeaderBook(), {})
    with pytest.raises(CallbackError) as raised:
        governor.govern(1, PRODUCE, user("pay_1"), "c", 5)
    assert str(raised.value) == f"quota callback mine:Broken: {text}"


def test_the_settings_choose_the_governor() -> None:
    named = Settings(
        quotas=Quotas(callback=f"{GROUPS}:GroupedUserCallback", callback_options={"separator": "-"})
    )
    governor = make_governor(named, book(("pay-", None, PRODUCER, 9.0, 0)), LeaderBook())
    found = governor.govern(1, PRODUCE, user("pay-1"), "", 5)
    assert (found.bucket.custom_tags, found.governing.limit_per_s) == ((("group", "pay"),), 9.0)
    assert found.rule == f"{GROUPS}:GroupedUserCallback"
    assert isinstance(make_governor(Settings(), RuleBook(), LeaderBook()), RuleGovernor)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nothing_here:X", "No module named 'nothing_here'"),
        (f"{GROUPS}:Missing", "has no attribute 'Missing'"),
        (GROUPS, "AttributeError"),
        (
            "collections:Counter",
            "has no configure, quota_metric_tags, quota_limit, update_quota, remove_quota",
        ),
    ],
)
def test_a_name_that_is_no_callback_is_refused(name: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem) as raised:
        load_callback(name)
    assert str(raised.value).startswith(f"quotas.callback: '{name}' ")


def test_both_bandwidth_types_have_their_own_limits() -> None:
    rules = book(
        ("pay_", None, PRODUCER, 9.0, 0),
        ("pay_", None, CONSUMER, 4.0, 0),
    )
    governor = CallbackGovernor(GroupedUserCallback, "mine", rules, LeaderBook(), {})
    found = [governor.govern(1, quota_type, user("pay_1"), "", 5) for quota_type in BANDWIDTH]
    assert [each.governing.limit_per_s for each in found] == [9.0, 4.0]
    assert [each.governing.has_request_quota for each in found] == [False, False]


def test_static_defaults_are_for_brokers_that_have_them() -> None:
    old = Settings(broker=Broker(version="2.8", quota_producer_default=7))
    governor = make_governor(old, RuleBook(), LeaderBook())
    assert governor.govern(1, PRODUCE, user("u"), "c", 5).governing.limit_per_s == 7.0
    new = Settings(broker=Broker(version="3.0", quota_consumer_default=7))
    with pytest.raises(UserError, match=r"^quota\.consumer\.default: brokers have these up to 2\.8 only"):
        make_governor(new, RuleBook(), LeaderBook())
