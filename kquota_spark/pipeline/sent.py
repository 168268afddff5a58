"""What GOVERN sends to JUDGE: the points of clients with what governs them, in MessagePack.

`Sent` is one row, for a restatement. In the job, Spark carries `Pieces`: columns of many buckets as bytes, one value
per shard. Spark does not decode them. One row per client and second would cost more on the way than its verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import numpy as np

from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.replay.causes import Governing, RuleLimit
from kquota_spark.model.replay.decision import GovernedSecond
from kquota_spark.pipeline.known import Gap
from kquota_spark.pipeline.packed_points import Matrix, points_of
from kquota_spark.pipeline.shadow.moved import Moved
from kquota_spark.pipeline.shadow.rules import Shadowed

MANAGER_KEYS = ("cluster_id", "broker_id", "quota_type")
BUCKET_KEYS = ("bucket_user", "bucket_client_id", "bucket_tags")


class Manager(NamedTuple):
    """A quota manager: a broker has one for each type of quota (Kafka's `ClientQuotaManager`)."""

    cluster_id: str
    broker_id: int
    quota_type: QuotaType


class Sent(msgspec.Struct, gc=False, array_like=True):
    """The points of one client in one second under one rule."""

    second_ms: int
    user: str
    client_id: str
    valid_from_ms: int
    valid_to_ms: int | None
    has_request_quota: bool
    points: bytes
    """See `pipeline.packed_points`."""
    rule: str | None = None
    rule_version: int | None = None
    level: int | None = None
    limit_per_s: float | None = None
    known_through_ms: int | None = None
    gaps: tuple[Gap, ...] = ()
    """Gaps of the broker's log, each extended by the time that a ring remembers."""
    rate_config: str | None = None
    """Name of the broker's `RateConfig`."""
    before: RuleLimit | None = None
    after: RuleLimit | None = None
    """Other limits around the period, see `Governing`."""


encoded = msgspec.msgpack.Encoder().encode
received = msgspec.msgpack.Decoder(Sent).decode
"""Decode a `Sent` from its bytes."""


def governed_second_of(sent: Sent) -> GovernedSecond:
    """The input of `judge_bucket` for one row."""
    governing = Governing(
        sent.limit_per_s,
        sent.valid_from_ms,
        sent.valid_to_ms,
        sent.has_request_quota,
        sent.gaps,
        sent.before,
        sent.after,
    )
    return GovernedSecond(
        sent.second_ms, sent.user, sent.client_id, governing, sent.level, sent.rule, sent.rule_version,
        points_of(sent.points),
    )  # fmt: skip


def manager_of(text: str) -> Manager:
    """A manager, from the text of its column."""
    return msgspec.json.decode(text, type=Manager)


def manager_text(cluster_id: str, broker_id: int, quota_type: str) -> str:
    """A manager as text, a key of Spark's state."""
    return msgspec.json.encode((cluster_id, broker_id, quota_type)).decode()


BucketTags = tuple[str, str, str | None]
"""User, client id, and the tags of a callback as text; they distinguish the buckets of a manager."""


def bucket_tags(bucket: Bucket, *, has_tags: bool) -> BucketTags:
    """A bucket as the tables have it; the tags of a callback are a JSON object."""
    tags = json.dumps(dict(bucket.custom_tags), ensure_ascii=False) if has_tags else None
    return bucket.user, bucket.client_id, tags


def bucket_text(tags: BucketTags) -> str:
    """A bucket as text: a JSON array."""
    return msgspec.json.encode(tags if tags[2] is not None else tags[:2]).decode()


def bucket_of(text: str) -> BucketTags:
    """A bucket, from its text."""
    user, client_id, *tags = msgspec.json.decode(text, type=list[str])
    return user, client_id, tags[0] if tags else None


class Terms(NamedTuple):
    """The terms that govern some points; many clients have the same."""

    limit_per_s: float | None
    valid_from_ms: int
    valid_to_ms: int | None
    has_request_quota: bool
    gaps: tuple[Gap, ...]
    """Gaps of the broker's log, each extended by the time that a ring remembers."""
    before: RuleLimit | None
    after: RuleLimit | None
    level: int | None
    rule: str | None
    rule_version: int | None
    rate_config: str | None
    """Name of the broker's `RateConfig`; None for that of the settings."""
    known_through_ms: int | None

    @property
    def governing(self) -> Governing:
        """The terms as the replay takes them."""
        return Governing(*self[:7])

    @property
    def named(self) -> tuple[int | None, str | None, int | None, str | None, int | None]:
        """The other fields, from `level` on."""
        return self[7:]


@dataclass(slots=True)
class Pieces:
    """Points of clients in single seconds under one rule each, and in which buckets they count; in columns.

    Attributes:
        managers: the quota managers, each once.
        terms: the terms, each once.
        manager_of: position of each piece's manager in `managers`.
        user_tags: user tag of its bucket.
        client_tags: client-id tag of its bucket.
        tags: tags of a quota callback, as the tables have them; None without a callback.
        seconds_ms: start of its second, epoch ms.
        users: user of its client.
        client_ids: client id of its client.
        terms_of: position of its terms in `terms`.
        counts: number of its points; the points are in the order of the pieces.
        shadowed: the limits by the shadow quotas, for each of `terms`; None without shadow quotas.
    """

    managers: list[Manager] = field(default_factory=list)
    terms: list[Terms] = field(default_factory=list)
    manager_of: list[int] = field(default_factory=list)
    user_tags: list[str] = field(default_factory=list)
    client_tags: list[str] = field(default_factory=list)
    tags: list[str | None] = field(default_factory=list)
    seconds_ms: list[int] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    client_ids: list[str] = field(default_factory=list)
    terms_of: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    shadowed: Shadowed | None = None

    def rows(self, points: Matrix) -> Iterator[tuple[Manager, tuple[str, str, str | None], Sent]]:
        """Each piece as a row: its manager, its bucket, and its `Sent`."""
        ends = [*accumulate(self.counts, initial=0)]
        pieces = zip(self.manager_of, self._buckets(), self.seconds_ms, self.users, self.client_ids, self.terms_of,
                     pairwise(ends), strict=True)  # fmt: skip
        for manager, bucket, second_ms, user, client_id, of_terms, (start, end) in pieces:
            terms = self.terms[of_terms]
            yield (
                self.managers[manager],
                bucket,
                Sent(
                    second_ms, user, client_id, terms.valid_from_ms, terms.valid_to_ms, terms.has_request_quota,
                    points[start:end].tobytes(), terms.rule, terms.rule_version, terms.level, terms.limit_per_s,
                    terms.known_through_ms, terms.gaps, terms.rate_config, terms.before, terms.after,
                ),
            )  # fmt: skip

    def _buckets(self) -> Iterator[tuple[str, str, str | None]]:
        return zip(self.user_tags, self.client_tags, self.tags, strict=True)

    def by_shard(self, points: Matrix, shards: int) -> dict[int, bytes]:
        """Each shard's pieces as bytes, see `Packed`.

        For each second, one more shard gets a value without a piece. So each shard is used from time to time, and
        forgets idle buckets.
        """
        seconds = set(self.seconds_ms)
        if not seconds:
            return {}
        oldest_ms = min(seconds)
        empty = encoded(Packed(oldest_ms))
        found = {_shard_of(second_ms // 1_000, shards): empty for second_ms in sorted(seconds)}
        named = zip(self.manager_of, self.user_tags, self.client_tags, self.tags, strict=True)
        shard_of = np.array(shards_of(self.managers, named, shards), np.int64)
        order = np.argsort(shard_of, kind="stable")
        in_order: list[int] = order.tolist()
        counts = np.array(self.counts, np.int64)
        starts = (np.cumsum(counts) - counts)[order]
        ends = np.cumsum(counts[order])
        moved = points[np.repeat(starts - ends + counts[order], counts[order]) + np.arange(len(points))]
        columns = [[column[place] for place in in_order] for column in self._columns()]
        bounds = [0, *(np.flatnonzero(np.diff(shard_of[order])) + 1).tolist(), len(in_order)]
        point_bounds = [0, *(int(ends[bound - 1]) for bound in bounds[1:])]
        for (begin, end), (first, last) in zip(pairwise(bounds), pairwise(point_bounds), strict=True):
            part = [column[begin:end] for column in columns]
            managers, part[0] = _each_once(self.managers, part[0])
            of_terms = [*dict.fromkeys(part[-2])]
            terms, part[-2] = _each_once(self.terms, part[-2])
            packed: list[Any] = [oldest_ms, managers, terms, *part, moved[first:last].tobytes()]
            if self.shadowed is not None:
                packed.append(self.shadowed.at(of_terms))
            found[int(shard_of[order[begin]])] = encoded(packed)
        return found

    def _columns(self) -> list[list[Any]]:
        return [
            self.manager_of, self.user_tags, self.client_tags, self.tags, self.seconds_ms, self.users, self.client_ids,
            self.terms_of, self.counts,
        ]  # fmt: skip


def shards_of(
    managers: Sequence[Manager], buckets: Iterable[tuple[int, str, str, str | None]], shards: int
) -> list[int]:
    """The shard of each bucket, out of `shards`; a bucket is the position of its manager, and its tags."""
    texts = [manager_text(*manager) for manager in managers]
    return [
        _shard_of(
            crc32(f"{texts[manager]}\0{user}\0{client_id}\0{tags}".encode(errors="surrogatepass")), shards
        )
        for manager, user, client_id, tags in buckets
    ]


def _shard_of(number: int, shards: int) -> int:
    """The shard of a number, the same in every process and release.

    With names that differ only in digits, a plain CRC would leave shards empty.
    """
    return ((number * 0x9E3779B1 & 0xFFFFFFFF) >> 8) % shards


def _each_once(values: Sequence[Any], places: Sequence[int]) -> tuple[list[Any], list[int]]:
    """The values at these places, each once, and the places of each in the new list."""
    found: dict[int, int] = {}
    moved = [found.setdefault(place, len(found)) for place in places]
    return [values[place] for place in found], moved


class Packed(msgspec.Struct, array_like=True, gc=False):
    """The columns of `Pieces` of one shard, and the points as bytes.

    No later micro-batch has a row of an older second than `oldest_ms`.
    """

    oldest_ms: int
    managers: list[Manager] = []
    terms: list[Terms] = []
    manager_of: list[int] = []
    user_tags: list[str] = []
    client_tags: list[str] = []
    tags: list[str | None] = []
    seconds_ms: list[int] = []
    users: list[str] = []
    client_ids: list[str] = []
    terms_of: list[int] = []
    counts: list[int] = []
    points: bytes = b""
    shadowed: Shadowed | None = None
    moved: Moved | None = None
    """Points that count in a bucket of this shard under the shadow quotas only."""


unpacked_pieces = msgspec.msgpack.Decoder(Packed).decode
"""Decode a `Packed` from its bytes."""
