"""GOVERN: which limit each second of a client is under, and in which bucket it counts.

The one implementation is the model's own governor, asked in Arrow on the workers: by Kafka's rules or by the operator's
quota callback. A row that spans an edit comes out once per stretch, with the points that fall into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.pipeline.charges import CLIENT_KEYS
from kquota_spark.pipeline.known import Known
from kquota_spark.pipeline.packed_points import Matrix, from_columns
from kquota_spark.pipeline.sent import Sent, bucket_text, encoded, manager_text, sent_of
from kquota_spark.schema.columns import Column, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CLIENT = ("cluster_id", *CLIENT_KEYS)
GOVERNED = Table(
    "governed",
    "the points of one client in one second under one rule",
    (
        Column("manager", "string", "see `pipeline.sent.Manager`"),
        Column("bucket", "string", "see `pipeline.sent.bucket_text`"),
        Column("sent", "binary", "see `pipeline.sent.Sent`"),
        Column("second", "timestamp", "start of the second, UTC"),
    ),
)
_SCHEMA = GOVERNED.arrow_schema()


def to_governed(usage: DataFrame, load: Callable[[], Known]) -> DataFrame:
    """Rows of `GOVERNED`: those of `usage` with what governs them, split where a quota or a leader changed.

    Each task loads the present state of the tables once.
    """

    def govern(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = None
        for batch in batches:
            if batch.num_rows:
                known = known or load()
                yield governed_batch(batch, known)

    return usage.select(*_CLIENT, "second", "points").mapInArrow(govern, GOVERNED.ddl)


def governed_batch(batch: pa.RecordBatch, known: Known) -> pa.RecordBatch:
    """Govern one batch of rows of usage.

    Raises:
        CallbackError: the callback is broken; nothing is judged then.
    """
    clients = zip(*(batch.column(name).to_pylist() for name in _CLIENT), strict=True)
    in_ms = batch.column("second").cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    seconds_ms: list[Any] = in_ms.to_pylist()
    starts, points = _points_of(batch.column("points"))
    found: list[tuple[str, str, bytes, int]] = []
    for place, (row, second_ms) in enumerate(zip(clients, seconds_ms, strict=True)):
        cluster_id, broker_id, quota_type, principal_type, user, client_id = row
        asked = (broker_id, QuotaType(quota_type), Principal(principal_type or "User", user), client_id)
        manager = manager_text(cluster_id, broker_id, quota_type)
        for bucket, sent in _pieces(asked, second_ms, points[starts[place] : starts[place + 1]], known):
            found.append((manager, bucket, encoded(sent), second_ms * 1_000))
    columns = zip(*found, strict=True) if found else ((),) * len(_SCHEMA)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _points_of(points: Any) -> tuple[list[int], Matrix]:
    """Where the points of each row begin, and all points."""
    offsets = np.asarray(points.offsets)
    return (offsets - offsets[0]).tolist(), from_columns(points.flatten().flatten())


def _pieces(
    asked: tuple[int, QuotaType, Principal, str], second_ms: int, points: Matrix, known: Known
) -> Iterator[tuple[str, Sent]]:
    """The points of a second, cut at edits, each piece with its bucket."""
    broker_id, _, principal, client_id = asked
    config = known.windows.at(broker_id, second_ms)
    gaps = known.gaps_at(broker_id, second_ms, config.horizon_ms)
    while len(points):
        governed = known.governor.govern(*asked, int(points[0, 0]))
        until_ms = governed.governing.valid_to_ms
        cut = len(points) if until_ms is None else int(points[:, 0].searchsorted(until_ms))
        sent = sent_of(governed, second_ms, (principal.name, client_id), points[:cut].tobytes())
        sent.known_through_ms, sent.gaps, sent.rate_config = known.known_through_ms, gaps, config.name
        yield bucket_text(governed.bucket, has_tags=known.has_callback), sent
        points = points[cut:]
