"""Points as bytes, one by one: what `pipeline.packed_points` makes of a matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import pack


def packed_bytes(points: Iterable[Sequence[int]]) -> bytes:
    """Points with all their eight fields, in the order of `Point`."""
    return b"".join(pack("<8q", *point) for point in points)
