"""GOVERN with a quota callback: the same rows as `pipeline.govern`, from the operator's own Python code.

A callback can be asked for one request only, so this is the third place with Python on rows, in Arrow, and
used only where `quotas.callback` is set. Each worker holds the quotas and the partitions' leaders, and asks
once for a client and a stretch of time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from kquota_spark.model.govern import Governed, Governor
from kquota_spark.model.principals import Principal
from kquota_spark.model.quota_types import QuotaType
from kquota_spark.schema.columns import Column, Table
from kquota_spark.schema.key_columns import BROKER_ID, BUCKET, CLIENT_ID, CLUSTER_ID, QUOTA_TYPE, USER
from kquota_spark.schema.tables import FOREVER_MS, USAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FROM_USAGE = tuple(column for column in USAGE.columns if column.name in ("second", "points"))
_GOVERNED = Table(
    "governed",
    "usage of one stretch of time under one rule",
    (
        CLUSTER_ID,
        BROKER_ID,
        QUOTA_TYPE,
        USER,
        CLIENT_ID,
        *_FROM_USAGE,
        *BUCKET,
        Column("second_ms", "bigint", "start of the second"),
        Column("level", "int", "null: a callback has no levels"),
        Column("limit_per_s", "double", "limit in force; null if none"),
        Column("rule", "string", "the callback"),
        Column("rule_version", "bigint", "newest version of any quota it knew"),
        Column("valid_from_ms", "bigint", "start of the stretch"),
        Column("valid_to_ms", "bigint", "its end, exclusive"),
        Column("has_request_quota", "boolean", "a request quota covers the client too"),
        Column("known_through_ms", "bigint", "all edits up to here were known"),
    ),
)


class Known(NamedTuple):
    """What a worker governs by: the callback with its quotas, and through when these are known."""

    governor: Governor
    known_through_ms: int | None


def with_callback_governing(usage: DataFrame, load: Callable[[], Known]) -> DataFrame:
    """Rows of `usage` with what governs them, split where a quota or a leader changed.

    Args:
        usage: rows of `usage`.
        load: called on the workers for each Arrow batch; gives the tables' present state.
    """
    picked = usage.select(
        "cluster_id", "broker_id", "quota_type", "principal_type", "user", "client_id", "second", "points"
    )
    return picked.mapInArrow(_governing(load), _GOVERNED.ddl)


def _governing(load: Callable[[], Known]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def govern(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield governed_batch(batch, load())

    return govern


def governed_batch(batch: pa.RecordBatch, known: Known) -> pa.RecordBatch:
    """Govern one batch of rows of usage.

    Raises:
        CallbackError: the callback is broken; nothing is judged then.
    """
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name != "second"}
    seconds_ms: list[Any] = (
        batch.column("second").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
    )
    rows: list[dict[str, Any]] = []
    places: list[int] = []
    for place, second_ms in enumerate(seconds_ms):
        row = {name: values[place] for name, values in columns.items()}
        for governed, points in _pieces(row, second_ms, known.governor):
            rows.append(_governed_row(row, second_ms, governed, points, known.known_through_ms))
            places.append(place)
    schema = _GOVERNED.arrow_schema()
    arrays = [
        batch.column("second").take(pa.array(places, pa.int64())).cast(field.type)
        if field.name == "second"
        else pa.array([row[field.name] for row in rows], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _pieces(
    row: dict[str, Any], second_ms: int, governor: Governor
) -> Iterator[tuple[Governed, list[dict[str, Any]]]]:
    """The points of a second, cut at edits."""
    left = row["points"]
    principal = Principal(row["principal_type"] or "User", row["user"])
    while left:
        asked = (row["broker_id"], QuotaType(row["quota_type"]), principal, row["client_id"])
        governed = governor.govern(*asked, left[0]["record_time_ms"])
        until_ms = governed.governing.valid_to_ms
        if until_ms is None or second_ms + 1_000 <= until_ms:
            yield governed, left
            return
        inside = [point for point in left if point["record_time_ms"] < until_ms]
        yield governed, inside
        left = left[len(inside) :]


def _governed_row(
    row: dict[str, Any],
    second_ms: int,
    governed: Governed,
    points: list[dict[str, Any]],
    known_through_ms: int | None,
) -> dict[str, Any]:
    bucket, governing = governed.bucket, governed.governing
    return {
        **row,
        "points": points,
        "second_ms": second_ms,
        "bucket_user": bucket.user,
        "bucket_client_id": bucket.client_id,
        "bucket_tags": json.dumps(dict(bucket.custom_tags), ensure_ascii=False),
        "level": governed.level,
        "limit_per_s": governing.limit_per_s,
        "rule": governed.rule,
        "rule_version": governed.rule_version,
        "valid_from_ms": governed.relied_on.valid_from_ms,
        "valid_to_ms": FOREVER_MS if governing.valid_to_ms is None else governing.valid_to_ms,
        "has_request_quota": governing.has_request_quota,
        "known_through_ms": known_through_ms,
    }
