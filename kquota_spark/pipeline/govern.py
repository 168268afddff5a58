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

from kquota_spark.model.govern.govern import Governed, RuleGovernor
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.pipeline.charges import CLIENT_KEYS
from kquota_spark.pipeline.known import Known
from kquota_spark.pipeline.packed_points import Matrix, from_columns
from kquota_spark.pipeline.sent import Manager, Pieces, Terms, bucket_tags, bucket_text, encoded, manager_text
from kquota_spark.pipeline.shadow.rules import Shadow, Shadowed, shadow_limit
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
    pieces, points = governed_pieces(batch, known._replace(shadow=None)).enforced
    found = [
        (manager_text(*manager), bucket_text(bucket), encoded(sent), sent.second_ms * 1_000)
        for manager, bucket, sent in pieces.rows(points)
    ]
    columns = zip(*found, strict=True) if found else ((),) * len(_SCHEMA)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def sharded_batch(batch: pa.RecordBatch, known: Known, shards: int) -> pa.RecordBatch:
    """Govern one batch of rows of usage for JUDGE; raises as `governed_batch`."""
    found = [
        each
        for pieces, points in governed_pieces(batch, known)
        for each in pieces.by_shard(points, shards).items()
    ]
    columns = zip(*found, strict=True) if found else ((), ())
    arrays: list[Any] = [
        pa.array(values, field.type) for values, field in zip(columns, _SHARDED, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SHARDED)


class GovernedPieces(NamedTuple):
    """Pieces with what governs them, and their points."""

    enforced: tuple[Pieces, Matrix]
    only: tuple[Pieces, Matrix]
    """Those that count in another bucket under the shadow quotas, in that one."""


def governed_pieces(batch: pa.RecordBatch, known: Known) -> GovernedPieces:
    """Pieces of rows of usage; raises as `governed_batch`."""
    clients = zip(*(batch.column(name).to_pylist() for name in _CLIENT), strict=True)
    in_ms = batch.column("second").cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    seconds_ms: list[Any] = in_ms.to_pylist()
    starts, points = _points_of(batch.column("points"))
    times_ms: list[int] = points[:, 0].tolist()
    governing = _Governing(known)
    beside = None if known.shadow is None else _Beside(known.shadow, governing.pieces)
    for client, second_ms, (begin, end) in zip(clients, seconds_ms, pairwise(starts), strict=True):
        start = begin
        while start < end:
            governed = governing.add(client, second_ms, times_ms[start], end - start)
            until_ms = governed.governing.valid_to_ms
            if beside is not None:
                until_ms = beside.add(client, governed, times_ms[start])
            if until_ms is None or until_ms > times_ms[end - 1]:
                break
            # An edit within the second: the points from there on are a piece of their own.
            cut = bisect_left(times_ms, until_ms, start, end)
            governing.pieces.counts[-1] = cut - start
            start = cut
    only = (Pieces(), points[:0]) if beside is None else beside.only(points, has_tags=known.has_callback)
    return GovernedPieces((governing.pieces, points), only)


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


class _Beside:
    """Adds to each piece its limit by the shadow quotas, and collects pieces that count in another bucket there."""

    def __init__(self, shadow: Shadow, pieces: Pieces) -> None:
        self._shadow, self._pieces = shadow, pieces
        self._limits: dict[tuple[Any, ...], int] = {}
        self._same: dict[int, int] = {}
        """Places of the limits that are the enforced ones, by the place of their terms."""
        self._moved: list[tuple[int, Bucket, int]] = []
        """Pieces that count elsewhere: the place of each, its bucket there, and the place of its limit."""
        self._shadowed = pieces.shadowed = Shadowed(*shadow.pin, [], [], is_only=False)
        self._governor = shadow.governor if isinstance(shadow.governor, RuleGovernor) else None
        self._strangers: dict[tuple[int, int], tuple[int, bool, bool]] = {}
        """By terms and manager: the limit of clients that no shadow quota names, and which names its buckets have."""

    def add(self, client: _Client, governed: Governed, time_ms: int) -> int | None:
        """Add the limit of the piece that was added last.

        Args:
            client: see `_Governing.add`.
            governed: what governs it in force.
            time_ms: time of its first point, epoch ms.

        Returns:
            The time (epoch ms) until which the same limits govern the client; None for no end.
        """
        _, broker_id, _, principal_type, user, client_id = client
        until_ms, terms = governed.governing.valid_to_ms, self._pieces.terms_of[-1]
        is_everyone, users, client_ids = self._shadow.differing
        if not (is_everyone or user in users or client_id in client_ids):
            place = self._same.get(terms)
            if place is None:
                place = self._same[terms] = self._place_of(governed, governed, terms)
            self._shadowed.limit_of.append(place)
            return until_ms
        if self._governor is not None and self._governor.is_stranger(user, client_id):
            self._add_stranger(client, governed, time_ms)
            return until_ms
        quota_type = self._pieces.managers[self._pieces.manager_of[-1]].quota_type
        principal = Principal(principal_type or "User", user)
        found = self._shadow.governor.govern(broker_id, quota_type, principal, client_id, time_ms)
        ends_ms = found.governing.valid_to_ms
        if ends_ms is not None:
            until_ms = ends_ms if until_ms is None else min(until_ms, ends_ms)
        place = self._place_of(found, governed, terms)
        if found.bucket == governed.bucket:
            self._shadowed.limit_of.append(place)
        else:
            self._moved.append((len(self._shadowed.limit_of), found.bucket, place))
            self._shadowed.limit_of.append(-1)
        return until_ms

    def _add_stranger(self, client: _Client, governed: Governed, time_ms: int) -> None:
        """Do `add` for a client that no shadow quota names; they hold at all times."""
        _, broker_id, _, principal_type, user, client_id = client
        pieces = self._pieces
        key = pieces.terms_of[-1], pieces.manager_of[-1]
        known = self._strangers.get(key)
        if known is None:
            quota_type = pieces.managers[key[1]].quota_type
            principal = Principal(principal_type or "User", user)
            found = self._shadow.governor.govern(broker_id, quota_type, principal, client_id, time_ms)
            place = self._place_of(found, governed, key[0])
            known = self._strangers[key] = place, bool(found.bucket.user), bool(found.bucket.client_id)
        place, has_user, has_client_id = known
        tags = user if has_user else "", client_id if has_client_id else ""
        if tags == (pieces.user_tags[-1], pieces.client_tags[-1]):
            self._shadowed.limit_of.append(place)
        else:
            self._moved.append((len(self._shadowed.limit_of), Bucket(*tags), place))
            self._shadowed.limit_of.append(-1)

    def _place_of(self, found: Governed, governed: Governed, terms: int) -> int:
        _, governing, level, rule, _, _ = found
        key = rule, level, governing[0], governing[3], terms
        place = self._limits.get(key)
        if place is None:
            place = self._limits[key] = len(self._shadowed.limits)
            self._shadowed.limits.append(shadow_limit(found, governed))
        return place

    def only(self, points: Matrix, *, has_tags: bool) -> tuple[Pieces, Matrix]:
        """The pieces that count in another bucket under the shadow quotas, in that one, and their points."""
        pieces, counts = self._pieces, np.array(self._pieces.counts, np.int64)
        places, buckets, limit_of = zip(*self._moved, strict=True) if self._moved else ((), (), ())
        tags = [bucket_tags(bucket, has_tags=has_tags) for bucket in buckets]
        users, client_ids, others = (
            (list(values) for values in zip(*tags, strict=True)) if tags else ([], [], [])
        )
        found = Pieces(
            managers=pieces.managers,
            terms=pieces.terms,
            manager_of=[pieces.manager_of[place] for place in places],
            user_tags=users,
            client_tags=client_ids,
            tags=others,
            seconds_ms=[pieces.seconds_ms[place] for place in places],
            users=[pieces.users[place] for place in places],
            client_ids=[pieces.client_ids[place] for place in places],
            terms_of=[pieces.terms_of[place] for place in places],
            counts=[pieces.counts[place] for place in places],
            shadowed=Shadowed(*self._shadow.pin, self._shadowed.limits, list(limit_of), is_only=True),
        )
        is_moved = np.zeros(len(counts), bool)
        is_moved[list(places)] = True
        return found, points[np.repeat(is_moved, counts)]
