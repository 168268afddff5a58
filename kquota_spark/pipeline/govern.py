"""GOVERN: the limit for each second of a client, and the bucket in which the second counts.

The only implementation is the governor of the model, called over Arrow on the workers: by Kafka's rules or by the
operator's quota callback. A row that spans an edit is returned once per period, with the points of that period.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from kquota_spark.model.govern.govern import Governed
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.pipeline.charges import CLIENT_KEYS
from kquota_spark.pipeline.known import Known
from kquota_spark.pipeline.packed_points import Matrix, from_columns
from kquota_spark.pipeline.sent import (
    Manager,
    Packed,
    Pieces,
    Terms,
    bucket_tags,
    bucket_text,
    encoded,
    manager_text,
    shards_of,
)
from kquota_spark.pipeline.shadow.beside import Beside
from kquota_spark.pipeline.shadow.moved import MovedPieces
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
SHARDED = Table(
    "sharded",
    "the points of many clients whose buckets are in one shard",
    (
        Column("shard", "int", "see `pipeline.sent`"),
        Column("pieces", "binary", "see `pipeline.sent.Packed`"),
    ),
)
_SCHEMA = GOVERNED.arrow_schema()
_SHARDED = SHARDED.arrow_schema()


def to_governed(usage: DataFrame, load: Callable[[], Known]) -> DataFrame:
    """Rows of `GOVERNED`: those of `usage` with what governs them, split where a quota or a leader changed.

    Each task loads the current state of the tables once.
    """
    return _governed(usage, load, governed_batch, GOVERNED)


def to_sharded(usage: DataFrame, load: Callable[[], Known], shards: int) -> DataFrame:
    """Rows of `SHARDED`: the same for JUDGE, by the shard of its state."""
    return _governed(usage, load, partial(sharded_batch, shards=shards), SHARDED)


def _governed(
    usage: DataFrame,
    load: Callable[[], Known],
    of_batch: Callable[[pa.RecordBatch, Known], pa.RecordBatch],
    table: Table,
) -> DataFrame:
    def govern(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = None
        for batch in batches:
            if batch.num_rows:
                known = known or load()
                yield of_batch(batch, known)

    return usage.select(*_CLIENT, "second", "points").mapInArrow(govern, table.ddl)


def governed_batch(batch: pa.RecordBatch, known: Known) -> pa.RecordBatch:
    """Govern one batch of rows of usage.

    Raises:
        CallbackError: the callback is broken; nothing is judged then.
    """
    pieces, points, _ = governed_pieces(batch, known._replace(shadow=None))
    found = [
        (manager_text(*manager), bucket_text(bucket), encoded(sent), sent.second_ms * 1_000)
        for manager, bucket, sent in pieces.rows(points)
    ]
    columns = zip(*found, strict=True) if found else ((),) * len(_SCHEMA)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def sharded_batch(batch: pa.RecordBatch, known: Known, shards: int) -> pa.RecordBatch:
    """Govern one batch of rows of usage for JUDGE; raises as `governed_batch`."""
    pieces, points, moved = governed_pieces(batch, known)
    found = [*pieces.by_shard(points, shards).items()]
    if moved is not None and pieces.shadowed is not None:
        oldest_ms, shadowed = min(pieces.seconds_ms), pieces.shadowed.at(())
        shards_of_buckets = shards_of(pieces.managers, moved.buckets, shards)
        found += [
            (shard, encoded(Packed(oldest_ms, shadowed=shadowed, moved=part)))
            for shard, part in moved.by_shard(shards_of_buckets)
        ]
    columns = zip(*found, strict=True) if found else ((), ())
    arrays: list[Any] = [
        pa.array(values, field.type) for values, field in zip(columns, _SHARDED, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SHARDED)


class GovernedPieces(NamedTuple):
    """Pieces with what governs them, and their points."""

    enforced: Pieces
    points: Matrix
    moved: MovedPieces | None
    """Those that count in another bucket under the shadow quotas, in that one; None for none."""


def governed_pieces(batch: pa.RecordBatch, known: Known) -> GovernedPieces:
    """Pieces of rows of usage; raises as `governed_batch`."""
    clients = zip(*(batch.column(name).to_pylist() for name in _CLIENT), strict=True)
    in_ms = batch.column("second").cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    seconds_ms: list[Any] = in_ms.to_pylist()
    starts, points = _points_of(batch.column("points"))
    times_ms: list[int] = points[:, 0].tolist()
    governing = _Governing(known)
    beside = None if known.shadow is None else Beside(known.shadow, governing.pieces)
    tags_of = partial(bucket_tags, has_tags=known.has_callback)
    changing = beside if beside is not None and not beside.is_lasting else None
    for client, second_ms, (begin, end) in zip(clients, seconds_ms, pairwise(starts), strict=True):
        start = begin
        while start < end:
            governed = governing.add(client, second_ms, times_ms[start], end - start)
            until_ms = governed.governing.valid_to_ms
            if changing is not None:
                until_ms = changing.add(client, governed, times_ms[start], tags_of)
            if until_ms is None or until_ms > times_ms[end - 1]:
                break
            # An edit within the second: the points from there on are a piece of their own.
            cut = bisect_left(times_ms, until_ms, start, end)
            governing.pieces.counts[-1] = cut - start
            start = cut
    texts = [manager_text(*manager) for manager in governing.pieces.managers]
    moved = None if beside is None else beside.finish(points, texts)
    return GovernedPieces(governing.pieces, points, moved)


def _points_of(points: Any) -> tuple[list[int], Matrix]:
    """Where the points of each row begin, and all points."""
    offsets = np.asarray(points.offsets)
    return (offsets - offsets[0]).tolist(), from_columns(points.flatten().flatten())


_Client = tuple[str, int, str, str | None, str, str]


class _Governing:
    """Adds pieces with what governs them; values that many pieces share are computed once."""

    def __init__(self, known: Known) -> None:
        self._known, self.pieces = known, Pieces()
        self._managers: dict[tuple[str, int, str], tuple[int, QuotaType]] = {}
        self._of_broker: dict[tuple[int, int], tuple[Any, ...]] = {}
        self._terms: dict[tuple[Any, ...], int] = {}

    def add(self, client: _Client, second_ms: int, time_ms: int, count: int) -> Governed:
        """Add consecutive points of a client in one second as a piece.

        Args:
            client: cluster, broker, quota type, principal type, user and client id.
            second_ms: start of the second, epoch ms.
            time_ms: time of the first point, epoch ms.
            count: number of points.

        Returns:
            What governs them.
        """
        cluster_id, broker_id, quota_type, principal_type, user, client_id = client
        pieces, manager = self.pieces, self._managers.get((cluster_id, broker_id, quota_type))
        if manager is None:
            manager = self._add_manager(cluster_id, broker_id, quota_type)
        asked = Principal(principal_type or "User", user)
        governed = self._known.governor.govern(broker_id, manager[1], asked, client_id, time_ms)
        bucket = governed.bucket
        if self._known.has_callback:
            user_tag, client_tag, tags = bucket_tags(bucket, has_tags=True)
        else:
            user_tag, client_tag, tags = bucket.user, bucket.client_id, None
        pieces.manager_of.append(manager[0])
        pieces.user_tags.append(user_tag)
        pieces.client_tags.append(client_tag)
        pieces.tags.append(tags)
        pieces.seconds_ms.append(second_ms)
        pieces.users.append(user)
        pieces.client_ids.append(client_id)
        pieces.terms_of.append(self._terms_of(governed, broker_id, second_ms))
        pieces.counts.append(count)
        return governed

    def _add_manager(self, cluster_id: str, broker_id: int, quota_type: str) -> tuple[int, QuotaType]:
        found = len(self.pieces.managers), QuotaType(quota_type)
        self.pieces.managers.append(Manager(cluster_id, broker_id, found[1]))
        self._managers[cluster_id, broker_id, quota_type] = found
        return found

    def _terms_of(self, governed: Governed, broker_id: int, second_ms: int) -> int:
        of_broker = self._of_broker.get((broker_id, second_ms))
        if of_broker is None:
            config = self._known.windows.at(broker_id, second_ms)
            gaps = self._known.gaps_at(broker_id, second_ms, config.horizon_ms)
            of_broker = self._of_broker[broker_id, second_ms] = gaps, config.name
        _, governing, level, rule, rule_version, certain_from_ms = governed
        key = governing, level, rule, rule_version, certain_from_ms, of_broker
        found = self._terms.get(key)
        if found is None:
            found = self._terms[key] = len(self.pieces.terms)
            gaps, name = of_broker
            relied = governed.relied_on._replace(gaps=gaps)
            terms = Terms(*relied, level, rule, rule_version, name, self._known.known_through_ms)
            self.pieces.terms.append(terms)
        return found
