"""Episodes in plain Python, piece by piece, as releases before had it; `audit.violations.episodes` is the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeVar

from kquota_spark.model.measure.points import CONTROLLER_ID

MAX_NAMES = 20
LOG = "log"


class BucketId(NamedTuple):
    """A quota bucket of one broker, as the tables name it."""

    cluster_id: str
    broker_id: int
    quota_type: str
    user: str
    client_id: str
    tags: str | None


class Episode(NamedTuple):
    """Consecutive violated seconds of one bucket; a single second is one too. Times in epoch ms.

    Attributes:
        start_ms: the first violated second.
        last_ms: the last one so far.
        level: precedence of the rule at the start; None where no level set the limit.
        rule: what set the limit at the start.
        limit_per_s: the smallest limit.
        peak_rate_per_s: the highest rate.
        peak_used_percent: the highest percent of the limit.
        violated_seconds: their number.
        throttled_ms: the sum of their throttles; None where the source does not tell.
        throttled_requests: likewise.
        source: that of the last second, log or jmx.
        users: at most `MAX_NAMES`, in order.
        client_ids: likewise.
        longest_throttle_ms: of one request, by the replay; None as above.
        observed_throttled_ms: as `throttled_ms`, by the broker's log.
        observed_throttled_requests: likewise.
        observed_longest_throttle_ms: likewise.
        muted_until_ms: end of the last throttle that began in it; None where that is not known.
    """

    start_ms: int
    last_ms: int
    level: int | None
    rule: str | None
    limit_per_s: float | None
    peak_rate_per_s: float | None
    peak_used_percent: float | None
    violated_seconds: int
    throttled_ms: int | None
    throttled_requests: int | None
    source: str
    users: Sequence[str]
    client_ids: Sequence[str]
    longest_throttle_ms: int | None = None
    observed_throttled_ms: int | None = None
    observed_throttled_requests: int | None = None
    observed_longest_throttle_ms: int | None = None
    muted_until_ms: int | None = None


class Violation(NamedTuple):
    """An episode of a bucket.

    `end_ms` is the end of its last second or throttle, once its gap has passed; None while it is open.
    """

    bucket: BucketId
    episode: Episode
    end_ms: int | None

    @property
    def episode_id(self) -> str:
        """Made of bucket and start: the same in every run."""
        # A NUL between the parts: no name can hold one, so two buckets never make the same text.
        parts = (*self.bucket, self.episode.start_ms)
        text = "\0".join(str(part) for part in parts if part is not None)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class Clocks:
    """How far the time of each broker has come, by the newest second of each source: the log comes later than JMX."""

    def __init__(self, newest_ms: Mapping[tuple[str, int, str], int]) -> None:
        self._newest_ms = dict(newest_ms)
        for (cluster_id, _, source), time_ms in newest_ms.items():
            # The controller's bucket is rarely used: its clock is the cluster's.
            of_cluster = (cluster_id, CONTROLLER_ID, source)
            self._newest_ms[of_cluster] = max(time_ms, self._newest_ms.get(of_cluster, time_ms))

    def end_ms(self, bucket: BucketId, episode: Episode, gap_ms: int) -> int | None:
        """The end of an episode whose gap has passed; None if it may go on."""
        newest_ms = self._newest_ms.get((bucket.cluster_id, bucket.broker_id, episode.source))
        is_over = newest_ms is not None and newest_ms - episode.last_ms > gap_ms
        return max(episode.last_ms + 1_000, episode.muted_until_ms or 0) if is_over else None


def folded(pieces: Iterable[tuple[BucketId, Episode]], clocks: Clocks, gap_ms: int) -> Iterable[Violation]:
    """The episodes that violated seconds and open episodes make; `gap_ms` without violation end one.

    The pieces come by bucket, in any order, and of one source where two tell of the same.
    """
    by_bucket: dict[BucketId, list[Episode]] = {}
    for bucket, piece in pieces:
        by_bucket.setdefault(bucket, []).append(piece)
    for bucket, of_bucket in by_bucket.items():
        for episode in joined(of_bucket, gap_ms):
            yield Violation(bucket, episode, clocks.end_ms(bucket, episode, gap_ms))


def joined(pieces: Iterable[Episode], gap_ms: int) -> list[Episode]:
    """The pieces of one bucket, joined where the time between them is at most `gap_ms`."""
    found: list[list[Episode]] = []
    last_ms = 0
    for piece in sorted(pieces, key=attrgetter("start_ms")):
        if found and piece.start_ms - last_ms <= gap_ms:
            found[-1].append(piece)
            last_ms = max(last_ms, piece.last_ms)
        else:
            found.append([piece])
            last_ms = piece.last_ms
    return [_sum(parts) for parts in found]


def _sum(parts: Sequence[Episode]) -> Episode:
    """One episode of pieces in order of their starts."""
    if len(parts) == 1 and max(len(parts[0].users), len(parts[0].client_ids)) <= MAX_NAMES:
        return parts[0]
    first, last = parts[0], max(parts, key=attrgetter("last_ms"))
    return Episode(
        first.start_ms,
        last.last_ms,
        first.level,
        first.rule,
        min(_told(part.limit_per_s for part in parts), default=None),
        max(_told(part.peak_rate_per_s for part in parts), default=None),
        max(_told(part.peak_used_percent for part in parts), default=None),
        sum(part.violated_seconds for part in parts),
        _total(part.throttled_ms for part in parts),
        _total(part.throttled_requests for part in parts),
        last.source,
        sorted({name for part in parts for name in part.users})[:MAX_NAMES],
        sorted({name for part in parts for name in part.client_ids})[:MAX_NAMES],
        max(_told(part.longest_throttle_ms for part in parts), default=None),
        _total(part.observed_throttled_ms for part in parts),
        _total(part.observed_throttled_requests for part in parts),
        max(_told(part.observed_longest_throttle_ms for part in parts), default=None),
        max(_told(part.muted_until_ms for part in parts), default=None),
    )


_Number = TypeVar("_Number", int, float)


def _told(values: Iterable[_Number | None]) -> list[_Number]:
    return [value for value in values if value is not None]


def _total(values: Iterable[int | None]) -> int | None:
    told = _told(values)
    return sum(told) if told else None
