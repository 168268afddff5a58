"""Requests that count in another bucket under the shadow quotas: how GOVERN sends them to JUDGE, in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kquota_spark.model.loops.shadow_bucket import ShadowLimit
from kquota_spark.model.measure.points import Point
from kquota_spark.model.quotas.quota_types import QuotaType

Place = tuple[str, int, QuotaType]
"""Cluster, broker and quota type: a quota manager."""
Bucket = tuple[str, str, str | None]
"""User tag, client-id tag, and tags of a callback."""
Numbers = npt.NDArray[np.int64]
POINT_FIELDS = len(Point._fields)
_PIECE_FIELDS = 4
_SORTED_ABOVE = 8
"""Times the number of values that a table of all numbers up to the largest may have."""


class MovedTerms(NamedTuple):
    """What many requests that are moved have in common."""

    limit: ShadowLimit
    rate_config: str | None
    """Name of the broker's windows; None for those of the settings."""
    has_gap: bool
    """Whether a gap of the log makes the ring incomplete."""


class Moved(msgspec.Struct, array_like=True, gc=False):
    """The moved requests of one shard; each bucket has a manager and three tags."""

    managers: list[str]
    """Their texts."""
    manager_of: list[int]
    user_tags: list[str]
    client_tags: list[str]
    tags: list[str | None]
    terms: list[MovedTerms]
    pieces: bytes
    """Rows of four numbers: bucket, terms, start of the second (epoch ms), number of points."""
    points: bytes

    @property
    def buckets(self) -> Iterator[tuple[int, Bucket]]:
        """Each bucket with the position of its manager."""
        return zip(
            self.manager_of, zip(self.user_tags, self.client_tags, self.tags, strict=True), strict=True
        )

    @property
    def piece_columns(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Bucket, terms, second and number of points of each piece."""
        found = np.frombuffer(self.pieces, np.int64).reshape(-1, _PIECE_FIELDS)
        return found[:, 0], found[:, 1], found[:, 2], found[:, 3]

    @property
    def matrix(self) -> Numbers:
        """The points."""
        return np.frombuffer(self.points, np.int64).reshape(-1, POINT_FIELDS)

    def pieces_of(self, bucket: int) -> list[tuple[int, list[Point], MovedTerms]]:
        """Start of the second (epoch ms), requests and terms of each piece of one bucket."""
        buckets, terms_of, seconds_ms, counts = self.piece_columns
        ends = np.cumsum(counts).tolist()
        return [
            (
                int(seconds_ms[at]),
                [Point(*point) for point in self.matrix[ends[at] - counts[at] : ends[at]].tolist()],
                self.terms[terms_of[at]],
            )
            for at in np.flatnonzero(buckets == bucket).tolist()
        ]


class MovedPieces(NamedTuple):
    """Moved requests of one batch in columns, before they are divided into shards.

    Attributes:
        managers: texts of the quota managers.
        buckets: the position of a manager and the tags, each once.
        terms: each once.
        pieces: rows of bucket, terms, second, number of points.
        starts: where the points of each piece begin.
        points: all points of the batch.
    """

    managers: Sequence[str]
    buckets: Sequence[tuple[int, str, str, str | None]]
    terms: Sequence[MovedTerms]
    pieces: Numbers
    starts: Numbers
    points: Any

    def by_shard(self, shard_of: Sequence[int]) -> Iterator[tuple[int, Moved]]:
        """Each shard with its part.

        Args:
            shard_of: the shard of each bucket.
        """
        shards: Numbers = np.array(shard_of, np.int64)[self.pieces[:, 0]]
        order = np.argsort(shards, kind="stable")
        pieces, starts, in_order = self.pieces[order], self.starts[order], shards[order]
        ends = np.cumsum(pieces[:, 3])
        counts = pieces[:, 3]
        points = self.points[np.repeat(starts - ends + counts, counts) + np.arange(ends[-1])]
        bounds = [0, *(np.flatnonzero(np.diff(in_order)) + 1).tolist(), len(pieces)]
        firsts = [0, *(int(ends[bound - 1]) for bound in bounds[1:])]
        for (begin, end), (first, last) in zip(pairwise(bounds), pairwise(firsts), strict=True):
            yield int(in_order[begin]), self._part(pieces[begin:end], points[first:last])

    def _part(self, pieces: Numbers, points: Any) -> Moved:
        buckets, of_bucket = numbered(pieces[:, 0])
        terms, of_terms = numbered(pieces[:, 1])
        renumbered = np.column_stack((of_bucket, of_terms, pieces[:, 2], pieces[:, 3])).astype(np.int64)
        managers, users, client_ids, tags = zip(
            *(self.buckets[place] for place in buckets.tolist()), strict=True
        )
        return Moved(
            [*self.managers], [*managers], [*users], [*client_ids], [*tags],
            [self.terms[place] for place in terms.tolist()], renumbered.tobytes(), points.tobytes(),
        )  # fmt: skip


def numbered(values: Numbers) -> tuple[Numbers, Numbers]:
    """The different values, ascending, and the position of each value among them.

    The same as `numpy.unique`, without a sort if the values are small whole numbers.
    """
    most = int(values.max(initial=0))
    if most > _SORTED_ABOVE * len(values):
        found, places = np.unique(values, return_inverse=True)
        return found, places
    found = np.flatnonzero(np.bincount(values))
    place_of = np.zeros(most + 1, np.int64)
    place_of[found] = np.arange(len(found))
    return found, place_of[values]
