"""The limits of JMX samples: of buckets by their tags alone, of addresses, as of the sample's time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.rules import RuleBook, rule_periods
from kquota_spark.pipeline.jmx.limits import limited_batch
from kquota_spark.pipeline.known import IpLimit, Limits
from kquota_spark.schema.broker_tables import JMX_SAMPLES
from tests.support.pipeline.governed_requests import ALL_LEVELS as LEVELS
from tests.support.spark.queries import change
from tests.support.tables.table_rows import T0_MS

IPS = {
    "ips/10.0.0.1": [IpLimit(0, T0_MS, 4.0, 1), IpLimit(T0_MS, None, 5.0, 2)],
    "ips/<default>": [IpLimit(T0_MS, None, 10.0, 3)],
}


def limited(limits: Limits, **sample: Any) -> tuple[Any, ...]:
    """Limit, level, rule and version of one sample."""
    given = {"quota_type": "produce", "bucket_user": "", "bucket_client_id": "", "sample_time_ms": T0_MS}
    batch = pa.RecordBatch.from_pylist([given | sample], schema=JMX_SAMPLES.arrow_schema())
    [row] = limited_batch(batch, limits).to_pylist()
    assert row["known_through_ms"] == limits.known_through_ms
    return tuple(row[name] for name in ("limit_per_s", "level", "rule", "rule_version"))


@pytest.mark.parametrize(
    ("user", "client_id", "expected"),
    [
        ("alice", "etl", (1.0, 1, "users/alice/clients/etl", 0)),
        ("alice", "x", (2.0, 2, "users/alice/clients/<default>", 0)),
        ("alice", "", (3.0, 3, "users/alice", 0)),
        ("bob", "etl", (4.0, 4, "users/<default>/clients/etl", 0)),
        ("bob", "x", (5.0, 5, "users/<default>/clients/<default>", 0)),
        ("bob", "", (6.0, 6, "users/<default>", 0)),
        # The tags say who shares the bucket: one of a client id is of levels 7 and 8, whoever else has a quota.
        ("", "etl", (7.0, 7, "clients/etl", 0)),
        ("", "x", (8.0, 8, "clients/<default>", 0)),
        ("", "", (None, None, None, None)),
    ],
)
def test_the_tags_of_a_bucket_lead_to_its_level(
    user: str, client_id: str, expected: tuple[object, ...]
) -> None:
    limits = Limits(RuleGovernor(RuleBook(rule_periods(LEVELS))), {}, T0_MS)
    assert limited(limits, bucket_user=user, bucket_client_id=client_id) == expected


def test_the_limit_is_the_one_of_the_samples_time_and_of_its_type() -> None:
    edits = (change("alice", None, 3.0), change("alice", None, 9.0, T0_MS + 500))
    limits = Limits(RuleGovernor(RuleBook(rule_periods(edits))), {}, None)
    assert limited(limits, bucket_user="alice", sample_time_ms=T0_MS + 499)[0] == 3.0
    assert limited(limits, bucket_user="alice", sample_time_ms=T0_MS + 500)[0] == 9.0
    assert limited(limits, bucket_user="alice", quota_type="fetch")[0] is None


def test_a_static_default_is_behind_the_levels_and_for_client_ids_only() -> None:
    limits = Limits(RuleGovernor(RuleBook(rule_periods(LEVELS[6:7])), {QuotaType.PRODUCE: 50.0}), {}, None)
    assert limited(limits, bucket_client_id="etl")[0] == 7.0
    assert limited(limits, bucket_client_id="x") == (50.0, 9, "quota.producer.default", None)
    assert limited(limits, bucket_user="alice")[0] is None


def test_connections_are_limited_by_their_address_or_the_default() -> None:
    limits = Limits(RuleGovernor(RuleBook(rule_periods(LEVELS))), IPS, None)
    of_ip = {"quota_type": "connection", "ip": "10.0.0.1"}
    assert limited(limits, **of_ip) == (5.0, None, "ips/10.0.0.1", 2)
    assert limited(limits, **of_ip, sample_time_ms=T0_MS - 1) == (4.0, None, "ips/10.0.0.1", 1)
    other = {"quota_type": "connection", "ip": "10.0.0.2"}
    assert limited(limits, **other) == (10.0, None, "ips/<default>", 3)
    assert limited(limits, **other, sample_time_ms=T0_MS - 1) == (None, None, None, None)
