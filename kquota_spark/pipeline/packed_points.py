"""Points as bytes: eight little-endian numbers of 64 bits, in the order of `Point`; and the compression of bytes.

Spark and its state carry the bytes without decoding them. Workers read a whole batch as one matrix, one row per point.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from struct import iter_unpack
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kquota_spark.model.measure.points import Point

Matrix = npt.NDArray[np.int64]
"""One row per point, one column per field."""

_WIDTH = len(Point._fields)
_POINT_BYTES = 8 * _WIDTH
_FORMAT = f"<{_WIDTH}q"
_NUMBER = np.dtype("<i8")
_point = partial(tuple.__new__, Point)


def from_columns(columns: Sequence[Any]) -> Matrix:
    """A matrix from Arrow arrays of whole numbers, one per field."""
    matrix = np.empty((len(columns[0]), _WIDTH), _NUMBER)
    for place, column in enumerate(columns):
        matrix[:, place] = column
    return matrix


def packed(matrix: Matrix, offsets: Any) -> Any:
    """An Arrow array of bytes; `offsets` (in points, from 0 on) are the beginnings of its values and the last end."""
    starts: Any = (np.asarray(offsets) * _POINT_BYTES).astype(np.int32)
    data: Any = matrix
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, *map(pa.py_buffer, (starts, data))])


def unpacked(values: Any) -> tuple[Matrix, npt.NDArray[np.int64]]:
    """The points of an Arrow array of bytes without nulls, and how many each value has."""
    _, starts, data = values.buffers()
    bounds = np.frombuffer(starts, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    numbers = np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]].view(_NUMBER)
    return numbers.reshape(-1, _WIDTH), np.diff(bounds) // _POINT_BYTES


_CODEC = pa.Codec("zstd", compression_level=1)
_SIZE_BYTES = 8


def compressed(data: Any) -> bytes:
    """Any bytes, compressed, after their original length: times and names repeat, so a fifth of the size is left."""
    return len(data).to_bytes(_SIZE_BYTES, "little") + _CODEC.compress(data, asbytes=True)


def decompressed(data: Any) -> Any:
    """The original bytes of `compressed`, as an Arrow buffer."""
    size = int.from_bytes(data[:_SIZE_BYTES], "little")
    return _CODEC.decompress(data[_SIZE_BYTES:], size)


def points_of(data: bytes) -> list[Point]:
    """The points of one value."""
    return list(map(_point, iter_unpack(_FORMAT, data)))
