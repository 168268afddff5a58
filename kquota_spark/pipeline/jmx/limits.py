"""The limits of JMX samples as of their time: of a bucket by its tags, of connections by their address (KIP-612).

Source: Kafka's `ClientQuotaManager`, `ConnectionQuotas`. Addresses are compared as they are spelled: a quota for an
IPv6 address in a spelling other than the broker's own, or for a host name, is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from kquota_spark.model.quotas.entities import DEFAULT, IpEntity
from kquota_spark.model.quotas.quota_types import CONNECTION, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.pipeline.known import Limits
from kquota_spark.schema.broker_tables import JMX_SAMPLES
from kquota_spark.schema.columns import Column, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ASKED = ("quota_type", "bucket_user", "bucket_client_id", "ip", "sample_time_ms")


class _Limit(NamedTuple):
    """The first of the added columns."""

    limit_per_s: float | None = None
    level: int | None = None
    rule: str | None = None
    rule_version: int | None = None


LIMITED = Table(
    "limited",
    "a sample with the limit of its bucket or address",
    (
        *JMX_SAMPLES.columns,
        Column("limit_per_s", "double", "limit in force; null if none"),
        Column("level", "int", "place in the precedence; null for addresses"),
        Column("rule", "string", "the entity whose quota it is"),
        Column("rule_version", "bigint", "version of that entity's quotas"),
        Column("known_through_ms", "bigint", "all edits up to here were known"),
    ),
)
_ADDED = LIMITED.arrow_schema().names[len(JMX_SAMPLES.columns) :]


def with_limits(samples: DataFrame, load: Callable[[], Limits]) -> DataFrame:
    """Rows of `LIMITED` from samples that have a bucket or an address; each task loads the quotas once."""

    def limit(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        limits = None
        for batch in batches:
            if batch.num_rows:
                limits = limits or load()
                yield limited_batch(batch, limits)

    return samples.select(*JMX_SAMPLES.names).mapInArrow(limit, LIMITED.ddl)


def limited_batch(batch: pa.RecordBatch, limits: Limits) -> pa.RecordBatch:
    """The limits of one batch of samples."""
    schema = LIMITED.arrow_schema()
    rows = zip(*(batch.column(name).to_pylist() for name in _ASKED), strict=True)
    found = [(*_limit_of(limits, *row), limits.known_through_ms) for row in rows]
    added = [
        pa.array(values, schema.field(name).type)
        for name, values in zip(_ADDED, zip(*found, strict=True), strict=True)
    ]
    return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)


def _limit_of(
    limits: Limits, quota_type: str, user: str, client_id: str, ip: str | None, time_ms: int
) -> _Limit:
    if ip is not None:
        return _limit_of_ip(limits, ip, time_ms)
    if quota_type == CONNECTION:
        return _Limit()
    found = limits.governor.limit_of(QuotaType(quota_type), Bucket(user, client_id), time_ms)
    return _Limit(found.governing.limit_per_s, found.level, found.rule, found.rule_version)


def _limit_of_ip(limits: Limits, ip: str, time_ms: int) -> _Limit:
    """The quota of the address, else of the default."""
    for rule in (f"ips/{ip}", str(IpEntity(DEFAULT))):
        for held in limits.ips.get(rule, ()):
            if held.from_ms <= time_ms and (held.to_ms is None or time_ms < held.to_ms):
                return _Limit(held.limit_per_s, None, rule, held.version)
    return _Limit()
