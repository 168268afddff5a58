"""Rows of usage with a request at each moment, and what GOVERN says of each request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from kquota_spark.model.govern.govern import Governor, RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import DEFAULT
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, rule_periods
from kquota_spark.pipeline.govern import governed_batch
from kquota_spark.pipeline.known import BrokerWindows, Known
from kquota_spark.pipeline.packed_points import points_of
from kquota_spark.pipeline.sent import manager_of, received
from kquota_spark.schema.tables import USAGE
from tests.support.spark.queries import change
from tests.support.tables.table_rows import T0_MS, usage

ALWAYS = (0, None)
ALL_LEVELS = (
    change("alice", "etl", 1.0),
    change("alice", DEFAULT, 2.0),
    change("alice", None, 3.0),
    change(DEFAULT, "etl", 4.0),
    change(DEFAULT, DEFAULT, 5.0),
    change(DEFAULT, None, 6.0),
    change(None, "etl", 7.0),
    change(None, DEFAULT, 8.0),
)
"""A rule of each level; its limit is the number of the level."""


def asked(
    *moments_ms: int, user: str = "alice", client_id: str = "etl", quota_type: str = "produce", **changed: Any
) -> dict[str, Any]:
    """A row of usage with a request at each moment of one second."""
    points = [
        {
            "record_time_ms": moment_ms,
            "log_time_ms": moment_ms,
            "connection_hash": 1,
            "correlation_id": index,
            "amount": 1,
            "observed_throttle_ms": 0,
            "kind": 0,
            "network_time_us": 0,
        }
        for index, moment_ms in enumerate(moments_ms)
    ]
    row = usage((moments_ms[0] - T0_MS) // 1_000, points=points)
    return {**row, "user": user, "client_id": client_id, "quota_type": quota_type, **changed}


class Found(NamedTuple):
    """What GOVERN says of one request."""

    level: int | None
    limit_per_s: float | None
    rule: str | None
    rule_version: int | None
    bucket: tuple[str, ...]
    valid_ms: tuple[int, int | None]
    has_request_quota: bool


Asked = tuple[str, str, str, int]
"""Quota type, user, client id, time."""


def known(governor: Governor, **given: Any) -> Known:
    """A worker that knows these quotas, and of the brokers what Kafka's defaults are."""
    return Known(governor, 2**60, BrokerWindows(RateConfig()), {})._replace(**given)


def governed(
    changes: Iterable[QuotaChange],
    rows: Iterable[dict[str, Any]],
    static_defaults: Mapping[QuotaType, float] = MappingProxyType({}),
) -> list[tuple[Asked, Found]]:
    """Each request with what governs it, in order."""
    return governed_by(known(RuleGovernor(RuleBook(rule_periods(changes)), static_defaults)), rows)


def governed_by(knows: Known, rows: Iterable[dict[str, Any]]) -> list[tuple[Asked, Found]]:
    """Each request with what governs it by what a worker knows, in order."""
    found = []
    for row in governed_batch(usage_batch(rows), knows).to_pylist():
        sent, manager = received(row["sent"]), manager_of(row["manager"])
        answer = Found(
            sent.level,
            sent.limit_per_s,
            sent.rule,
            sent.rule_version,
            tuple(msgspec.json.decode(row["bucket"])),
            (sent.valid_from_ms, sent.valid_to_ms),
            sent.has_request_quota,
        )
        for point in points_of(sent.points):
            found.append(
                ((manager.quota_type.value, sent.user, sent.client_id, point.record_time_ms), answer)
            )
    return sorted(found, key=lambda each: each[0])


def usage_batch(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    """Rows of usage as they come to a worker."""
    data = [{name: row.get(name) for name in USAGE.names} for row in rows]
    table = pa.Table.from_pylist(data, schema=USAGE.arrow_schema()).combine_chunks()
    [batch] = table.to_batches()
    return batch
