"""MEASURE: charges to rows of `usage`, one row a second of a (broker, principal, client id, quota type)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark people expect

from kquota_spark.model.points import Point
from kquota_spark.pipeline.charges import CLIENT_KEYS, decoded_points
from kquota_spark.schema.tables import USAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TILE_POINTS = 10_000
"""A second with more requests is split into rows of this many: a row must fit into one Arrow batch."""
_SCHEMA = USAGE.arrow_schema()
_POINT: Any = _SCHEMA.field("points").type.value_type


def to_seconds(charged: DataFrame, allowed_lateness: str) -> DataFrame:
    """All charges of a client in one second in one row, appended when the watermark closes the second.

    Heartbeats go through the watermark and make empty seconds, which are dropped only after the aggregation: a filter
    on them any earlier would be pushed below the watermark by the optimiser.

    Args:
        charged: rows of `pipeline.charges.CHARGED`.
        allowed_lateness: delay of the watermark, e.g. `30 seconds`.

    Returns:
        Rows with `CLIENT_KEYS`, second, and points: an array of what `encoded_points` gives.
    """
    return (
        charged.withWatermark("record_time", allowed_lateness)
        .groupBy(*CLIENT_KEYS, F.window("record_time", "1 second"))
        .agg(F.collect_list("points").alias("points"))
        .where(F.size("points") > 0)
        .select(*CLIENT_KEYS, F.col("window.start").alias("second"), "points")
    )


def to_usage(seconds: DataFrame, cluster_id: str) -> DataFrame:
    """Rows of `usage` from rows of `to_seconds`."""

    def measure(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (usage_batch(batch, cluster_id) for batch in batches if batch.num_rows)

    return seconds.mapInArrow(measure, USAGE.ddl)


def usage_batch(seconds: pa.RecordBatch, cluster_id: str) -> pa.RecordBatch:
    """Rows of `usage` from rows of `to_seconds`: points in replay order, cut into tiles, with the sums for charts."""
    found: list[tuple[int, int, int, Sequence[tuple[int, ...]]]] = []
    parts_of: list[Any] = seconds.column("points").to_pylist()
    for place, parts in enumerate(parts_of):
        copies = list(chain.from_iterable(map(decoded_points, parts)))
        # A set: a line that was delivered twice is one request. Told apart by all its fields.
        points = sorted(set(copies))
        duplicates = len(copies) - len(points)
        for tile, start in enumerate(range(0, len(points), TILE_POINTS)):
            found.append((place, tile, duplicates if tile == 0 else 0, points[start : start + TILE_POINTS]))
    places, tiles, duplicates_of, points_of = zip(*found, strict=True) if found else ((),) * 4
    of_second = seconds.select([*CLIENT_KEYS, "second"]).take(pa.array(places, pa.int64()))
    amounts = pa.array([sum(point[4] for point in points) for points in points_of], pa.int64())
    columns: dict[str, Any] = {name: of_second.column(name) for name in of_second.schema.names}
    columns |= {
        "cluster_id": pa.repeat(cluster_id, len(found)),
        "event_date": columns["second"].cast(pa.date32()),
        "tile": pa.array(tiles, pa.int32()),
        "amount": amounts,
        "requests": pa.array(map(len, points_of), pa.int64()),
        "duplicates": pa.array(duplicates_of, pa.int64()),
        "rate_per_s": pc.cast(amounts, pa.float64()),
        "observed_throttle_ms": pa.array(
            [sum(point[5] for point in points) for points in points_of], pa.int64()
        ),
        "points": _points_array(points_of),
        "source": pa.repeat("log", len(found)),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in _SCHEMA.names], schema=_SCHEMA)


def _points_array(points_of: Sequence[Sequence[tuple[int, ...]]]) -> Any:
    """Points column by column: one conversion for a whole batch."""
    offsets = [0]
    for points in points_of:
        offsets.append(offsets[-1] + len(points))
    fields: Any = list(zip(*chain.from_iterable(points_of), strict=True)) or [()] * len(Point._fields)
    arrays = [pa.array(values, field.type) for values, field in zip(fields, _POINT, strict=True)]
    structs = pa.StructArray.from_arrays(arrays, fields=list(_POINT))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs)
