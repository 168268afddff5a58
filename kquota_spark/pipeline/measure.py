"""MEASURE: turns charges into rows of `usage`, one per second and (broker, principal, client id, quota type)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark people expect

from kquota_spark.model.measure.points import UNSIZED_KINDS, Point
from kquota_spark.pipeline.charges import CLIENT_KEYS, unpacked_charges
from kquota_spark.pipeline.packed_points import Matrix, unpacked
from kquota_spark.schema.tables import USAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TILE_POINTS = 10_000
"""Maximum number of points in a row of `usage`; a longer second is split, as a row must fit into one Arrow batch."""
_MOST_BYTES = 4_000_000
"""Maximum bytes of charges that are processed at once; a point takes 10 to 20 bytes of them."""
_SCHEMA = USAGE.arrow_schema()
_POINT: Any = _SCHEMA.field("points").type.value_type
_AMOUNT, _OBSERVED_THROTTLE_MS, _KIND = map(Point._fields.index, ("amount", "observed_throttle_ms", "kind"))
Numbers = npt.NDArray[np.int64]


def to_seconds(charged: DataFrame, allowed_lateness: str) -> DataFrame:
    """All charges of a second, one row per place, appended when the watermark closes the second.

    Heartbeats advance the watermark and create empty seconds. These are dropped only after the aggregation, because the
    optimiser would push an earlier filter below the watermark.

    Args:
        charged: rows of `pipeline.charges.CHARGED`.
        allowed_lateness: delay of the watermark, e.g. `30 seconds`.

    Returns:
        Rows with place, second, and charges: an array of `pipeline.charges.packed_charges`.
    """
    return (
        charged.withWatermark("record_time", allowed_lateness)
        .groupBy("place", F.window("record_time", "1 second"))
        .agg(F.collect_list("charges").alias("charges"))
        .where(F.size("charges") > 0)
        .select("place", F.col("window.start").alias("second"), "charges")
    )


def to_usage(seconds: DataFrame, cluster_id: str) -> DataFrame:
    """Rows of `usage` from rows of `to_seconds`."""

    def measure(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (usage_batch(each, cluster_id) for batch in batches for each in client_seconds(batch))

    return seconds.mapInArrow(measure, USAGE.ddl)


def client_seconds(seconds: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """All charges of a client in one second as one row, from rows of `to_seconds`; in batches of limited size.

    Returns:
        Rows with `CLIENT_KEYS`, second, and points: an array of `pipeline.packed_points`.
    """
    packed: Any = seconds.column("charges")
    whole, parts_of = packed.flatten(), np.diff(np.asarray(packed.offsets))
    seconds_us = np.repeat(np.asarray(seconds.column("second").cast(pa.int64())), parts_of)
    sizes = np.asarray(pc.binary_length(whole))
    # All parts of a place and second stay together.
    ends = np.cumsum(parts_of)
    filled = np.cumsum(sizes)[ends - 1] // _MOST_BYTES
    cuts = [0, *ends[np.flatnonzero(np.diff(filled))].tolist(), len(whole)]
    for begin, end in pairwise(cuts):
        if begin < end:
            yield _of_clients([each.as_buffer() for each in whole[begin:end]], seconds_us[begin:end])


def _of_clients(packed: Sequence[Any], seconds_us: Numbers) -> pa.RecordBatch:
    parts = [unpacked_charges(each) for each in packed]
    second = pa.array(np.repeat(seconds_us, [part.num_rows for part in parts]), _SCHEMA.field("second").type)
    rows = pa.Table.from_batches(parts).append_column("second", second)
    found = rows.group_by([*CLIENT_KEYS, "second"], use_threads=False).aggregate([("points", "list")])
    [batch] = found.rename_columns([*CLIENT_KEYS, "second", "points"]).combine_chunks().to_batches()
    return batch


def usage_batch(seconds: pa.RecordBatch, cluster_id: str) -> pa.RecordBatch:
    """Rows of `usage` from rows of `client_seconds`: points in replay order, in tiles, with the sums for charts."""
    points, row_of, duplicates = _ordered(seconds.column("points"))
    counts = np.bincount(row_of, minlength=seconds.num_rows)
    tiles_of = -(-counts // TILE_POINTS)
    places = np.repeat(np.arange(seconds.num_rows), tiles_of)
    tiles = np.arange(len(places)) - np.repeat(np.cumsum(tiles_of) - tiles_of, tiles_of)
    starts = np.repeat(np.cumsum(counts) - counts, tiles_of) + tiles * TILE_POINTS
    of_second = seconds.select([*CLIENT_KEYS, "second"]).take(places)
    columns: dict[str, Any] = {name: of_second.column(name) for name in of_second.schema.names}
    amounts = _sums(points[:, _AMOUNT], starts)
    columns |= {
        "cluster_id": pa.repeat(cluster_id, len(places)),
        "event_date": columns["second"].cast(pa.date32()),
        "tile": tiles,
        "amount": amounts,
        "requests": np.diff(starts, append=len(points)),
        "duplicates": np.where(tiles == 0, duplicates[places], 0),
        "rate_per_s": amounts.astype(np.float64),
        "observed_throttle_ms": _sums(points[:, _OBSERVED_THROTTLE_MS], starts),
        "points": _points_array(points, starts),
        "source": pa.repeat("log", len(places)),
        "unsized_requests": _sums(np.isin(points[:, _KIND], UNSIZED_KINDS).astype(np.int64), starts),
    }
    arrays = [pa.array(columns[field.name], field.type) for field in _SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _ordered(parts: Any) -> tuple[Matrix, Numbers, Numbers]:
    """The points of all rows, row by row in replay order and each once.

    A line that was delivered twice is one request. Copies have all fields in common.

    Returns:
        The points, the row of each, and how many copies were left out of each row.
    """
    copies, counts = unpacked(parts.flatten())
    in_parts = np.diff(np.asarray(parts.offsets))
    row_of = np.repeat(np.repeat(np.arange(len(parts)), in_parts), counts)
    order = np.lexsort((copies[:, 0], row_of))
    points, rows = copies[order], row_of[order]
    # Few requests share a millisecond, and only these need the other fields.
    is_tied = (np.diff(rows) == 0) & (np.diff(points[:, 0]) == 0)
    if not is_tied.any():
        return points, rows, np.zeros(len(parts), np.int64)
    tied = np.flatnonzero(np.append(is_tied, False) | np.insert(is_tied, 0, False))
    of_tied = points[tied]
    points[tied] = of_tied[np.lexsort((*of_tied.T[::-1], rows[tied]))]
    is_copy = np.zeros(len(points), bool)
    is_copy[1:][is_tied] = (points[1:][is_tied] == points[:-1][is_tied]).all(axis=1)
    duplicates = np.bincount(rows[is_copy], minlength=len(parts))
    return points[~is_copy], rows[~is_copy], duplicates


def _sums(values: Numbers, starts: Numbers) -> Numbers:
    return np.add.reduceat(values, starts) if len(starts) else np.zeros(0, np.int64)


def _points_array(points: Matrix, starts: Numbers) -> Any:
    offsets = pa.array(np.append(starts, len(points)), pa.int32())
    fields = [pa.array(points[:, place]).cast(field.type) for place, field in enumerate(_POINT)]
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(fields, fields=list(_POINT)))
