"""GOVERN with a quota callback: the callback's buckets and limits, as of the event."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kquota_spark.model.govern.callback_governor import CallbackGovernor
from kquota_spark.model.quotas.group_callbacks import PartitionBasedCallback
from kquota_spark.model.quotas.quota_callback import (
    CallbackError,
    LeaderBook,
    LeaderChange,
    QuotaCallback,
    TopicPartition,
)
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, rule_periods
from kquota_spark.pipeline.govern import governed_batch
from kquota_spark.pipeline.packed_points import points_of
from kquota_spark.pipeline.sent import manager_of, received
from tests.support.pipeline.governed_requests import asked, known, usage_batch
from tests.support.spark.broken_callback import Broken
from tests.support.spark.queries import change
from tests.support.tables.table_rows import T0_MS

RULE = "module:Callback"
# Broker 1 leads three of four partitions, and from 2.5 s on one of four.
LEADERS = tuple(
    LeaderChange(TopicPartition(topic, number), leader, T0_MS + at_ms)
    for topic, number, leader, at_ms in (
        ("pay_x", 0, 1, -50), ("pay_x", 1, 1, -50), ("pay_y", 0, 1, -50), ("pay_y", 1, 2, -50),
        ("pay_x", 0, 2, 2_500), ("pay_x", 1, 2, 2_500),
    )
)  # fmt: skip


def governed(
    rows: list[dict[str, Any]],
    *changes: QuotaChange,
    callback: type[QuotaCallback] = PartitionBasedCallback,
) -> list[dict[str, Any]]:
    """The pieces that GOVERN sends."""
    book = RuleBook(rule_periods(changes))
    governor = CallbackGovernor(callback, RULE, book, LeaderBook(LEADERS), {})
    batch: pa.RecordBatch = governed_batch(usage_batch(rows), known(governor, has_callback=True))
    return [
        {
            **row,
            "bucket": tuple(json.loads(row["bucket"])),
            "sent": received(row["sent"]),
            "manager": manager_of(row["manager"]),
        }
        for row in batch.to_pylist()
    ]


def used(user: str, *moments_ms: int, **changed: Any) -> dict[str, Any]:
    return asked(*(T0_MS + moment_ms for moment_ms in moments_ms), user=user, client_id="c", **changed)


def tags(**given: str) -> tuple[str, str, str]:
    """The bucket of a group: neither user nor client id."""
    return "", "", json.dumps(given)


def test_groups_share_buckets_that_move_with_the_leaders() -> None:
    found = governed(
        [
            used("pay_1", 100),
            used("pay_2", 200),  # the same bucket as pay_1
            used("pay_1", 100, broker_id=2),
            used("pay_1", 2_100, 2_900),  # one before, one after the leaders moved
            used("ops_1", 3_100, 3_900),  # one before, one after the default group got a quota
            used("pay_1", 3_100, quota_type="fetch"),  # has no quota
        ],
        change("pay_", None, 800.0),
        change("_", None, 90.0, at_ms=T0_MS + 3_500),
    )
    pay, ops, none = tags(group="pay"), tags(group="ops"), tags()
    assert [
        (
            row["manager"].broker_id,
            row["manager"].quota_type.value,
            row["bucket"],
            row["sent"].limit_per_s,
            [point.record_time_ms - T0_MS for point in points_of(row["sent"].points)],
            row["sent"].rule,
        )
        for row in found
    ] == [
        (1, "produce", pay, 600.0, [100], RULE),  # 800 * 3 / 4
        (1, "produce", pay, 600.0, [200], RULE),
        (2, "produce", pay, 200.0, [100], RULE),  # 800 * 1 / 4
        (1, "produce", pay, 600.0, [2_100], RULE),
        (1, "produce", pay, 200.0, [2_900], RULE),
        (1, "produce", none, None, [3_100], None),
        (1, "produce", ops, 90.0, [3_900], RULE),
        (1, "fetch", none, None, [3_100], None),
    ]
    assert {row["sent"].level for row in found} == {None}


def test_tags_are_written_as_they_are() -> None:
    [row] = governed([used("zürich_1", 100)], change("zürich_", None, 800.0))
    assert row["bucket"] == ("", "", '{"group": "zürich"}')


def test_a_request_quota_of_the_group_is_told() -> None:
    percent = change("pay_", None, 5.0, key=QuotaKey.REQUEST_PERCENTAGE)
    found = governed([used("pay_1", 100), used("ops_1", 100)], change("pay_", None, 800.0), percent)
    assert [(row["sent"].user, row["sent"].has_request_quota) for row in found] == [
        ("pay_1", True),
        ("ops_1", False),
    ]


def test_a_broken_callback_is_an_error_with_its_reason() -> None:
    with pytest.raises(CallbackError) as raised:
        governed([used("pay_1", 100)], change("pay_", None, 800.0), callback=Broken)
    assert str(raised.value) == (
        f"quota callback {RULE}: quota_limit(produce, {{'group': 'pay'}}) raised KeyError: 'no such group'"
    )
