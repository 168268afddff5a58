"""MEASURE without Spark: the points of a second in replay order, each once, whatever way they came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from kquota_spark.model.measure.points import Point
from kquota_spark.pipeline.measure import TILE_POINTS, usage_batch
from kquota_spark.pipeline.packed_points import from_columns, packed, points_of, unpacked
from tests.support.chance import Chance
from tests.support.pipeline.packed import packed_bytes
from tests.support.tables.table_rows import T0_MS

Points = Sequence[Point]


def seconds(*rows: Sequence[Points]) -> pa.RecordBatch:
    """Rows of `to_seconds`, each with the parts that its points came in."""
    count = len(rows)
    columns: dict[str, Any] = {
        "broker_id": pa.array([1] * count, pa.int32()),
        **{name: ["x"] * count for name in ("quota_type", "principal_type", "user", "client_id")},
        "second": pa.array([T0_MS * 1_000] * count, pa.timestamp("us", tz="UTC")),
        "points": pa.array([[packed_bytes(part) for part in row] for row in rows], pa.list_(pa.binary())),
    }
    return pa.RecordBatch.from_pydict(columns)


def stored(usage: pa.RecordBatch) -> list[list[Point]]:
    rows: list[Any] = usage["points"].to_pylist()
    return [[Point(**point) for point in row] for row in rows]


def _row(chance: Chance) -> list[Points]:
    """Requests of few milliseconds, so that many share one; a third of them comes twice."""
    points = [
        Point._make([T0_MS + chance.randrange(4), T0_MS + chance.randrange(2), *_numbers(chance, 5), 0])
        for _ in range(chance.choice([1, 2, 30]))
    ]
    points += [point for point in points if chance.random() < 0.3]
    chance.shuffle(points)
    cut = chance.randrange(len(points) + 1)
    return [points[:cut], points[cut:]]


def _numbers(chance: Chance, count: int) -> list[int]:
    return [chance.choice([0, 1, 2**31 - 1]) for _ in range(count)]


def test_points_are_the_sorted_set_of_all_copies(chance: Chance) -> None:
    rows = [_row(chance) for _ in range(200)]
    # A part of a longer array: Spark's batches begin anywhere in their buffers.
    usage = usage_batch(seconds(*rows).slice(50), "demo")
    whole = [[point for part in row for point in part] for row in rows[50:]]
    assert stored(usage) == [sorted(set(points)) for points in whole]
    assert usage["duplicates"].to_pylist() == [len(points) - len(set(points)) for points in whole]
    assert usage["amount"].to_pylist() == [sum(point.amount for point in set(points)) for points in whole]


def test_no_rows_are_no_rows() -> None:
    assert usage_batch(seconds(), "demo").num_rows == 0


@pytest.mark.parametrize(("count", "tiles"), [(TILE_POINTS, 1), (TILE_POINTS + 1, 2)])
def test_only_the_row_that_is_too_long_is_cut(count: int, tiles: int) -> None:
    long = [Point(T0_MS + index // 100, T0_MS, 1, index, 1, 0, 0) for index in range(count)]
    short = [Point(T0_MS, T0_MS, 1, 7, 1, 0, 0)]
    usage = usage_batch(seconds([short], [long], [short]), "demo")
    assert usage["tile"].to_pylist() == [0, *range(tiles), 0]
    assert usage["requests"].to_pylist() == [1, *[TILE_POINTS, 1][:tiles], 1]


def test_packed_points_are_read_back() -> None:
    points = [Point(T0_MS + n, T0_MS, 2**32 - 1, -1, 2**40, 2**31 - 1, 11, 2**40) for n in range(5)]
    columns = [pa.array(column, pa.int64()) for column in zip(*points, strict=True)]
    values = packed(from_columns(columns), pa.array([0, 2, 2, 5]))
    assert [points_of(value) for value in values.to_pylist()] == [points[:2], [], points[2:]]
    matrix, counts = unpacked(values.slice(1))
    assert (counts.tolist(), matrix[:, 0].tolist()) == ([0, 3], [T0_MS + 2, T0_MS + 3, T0_MS + 4])
