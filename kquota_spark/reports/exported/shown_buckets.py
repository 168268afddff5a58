"""Which buckets get series of their own, and their counters; all other buckets are one sum per quota type.

Every increment is counted once: in the series of its bucket, or in the sum if the bucket has no series at that refresh.
So counters never decrease, and together they are complete. A bucket that loses its series and gets it back continues
with its old counters.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kquota_spark.reports.exported.bucket_refresh import RECENT_MS, BucketKey, Counts, Refresh, SeenBucket

IDLE_MS = 300_000
"""Time (ms) without decisions after which a bucket loses its series."""
CANDIDATES = 4
"""Buckets that a refresh reads one by one, as a multiple of the maximum number of series."""
_STAYS = 1.25
"""Factor: a bucket loses its series to one with more than so many times its use."""
_HALVED_MS = 300_000
"""Time (ms) after which the former use of a bucket counts half."""
_REMEMBERED = 16
"""Buckets without series that keep their counters, as a multiple of the maximum number of series."""


@dataclass(slots=True)
class BucketSeries:
    """The values behind the series of one bucket."""

    newest: SeenBucket
    seen_at_ms: int
    """When decisions of the bucket were last read (epoch ms)."""
    use: float
    held_until_ms: int = 0
    counts: Counts = field(default_factory=Counts)
    recent: list[SeenBucket] = field(default_factory=list)

    def kept_use(self, now_ms: int) -> float:
        """The bucket's former use, halved every five minutes."""
        kept: float = self.use * 0.5 ** ((now_ms - self.seen_at_ms) / _HALVED_MS)
        return kept

    def rate_per_s(self, newest_ms: int) -> float:
        """Highest rate in the last minute before the newest decision of its broker; 0 without traffic."""
        rates = (one.rate_per_s for one in self._of_last_minute(newest_ms))
        return max((rate for rate in rates if rate is not None), default=0.0)

    def longest_throttle_ms(self, newest_ms: int) -> int:
        """Longest throttle of one request in that minute (ms)."""
        return max((one.longest_throttle_ms for one in self._of_last_minute(newest_ms)), default=0)

    def quota_used_percent(self, newest_ms: int) -> float | None:
        """Highest percent of the quota in that minute, 0 without traffic; None without a limit."""
        if self.newest.limit_per_s is None:
            return None
        used = (one.quota_used_percent for one in self._of_last_minute(newest_ms))
        return max((percent for percent in used if percent is not None), default=0.0)

    def _of_last_minute(self, newest_ms: int) -> Iterator[SeenBucket]:
        return (one for one in self.recent if one.last_ms > newest_ms - RECENT_MS)


class ShownBuckets:
    """The buckets with series, at most `most` of all quota types together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left: OrderedDict[BucketKey, Counts] = OrderedDict()
        self.series: dict[BucketKey, BucketSeries] = {}
        self.others: dict[str, Counts] = {}
        """Counts of the buckets without series, by quota type; a type is missing until it has such a bucket."""
        self.dropped: dict[str, int] = {}
        """Number of buckets without series in the last refresh, by quota type."""

    def carried(self) -> dict[BucketKey, tuple[int, int]]:
        """State to keep for the next refresh: end of the last throttle and last second of each bucket (epoch ms)."""
        return {key: (one.held_until_ms, one.newest.last_ms) for key, one in self.series.items()}

    def fold(self, refresh: Refresh, now_ms: int, *, is_counted: bool = True) -> None:
        """Take over the decisions of a refresh at that time; those from before the counters began are not counted."""
        seen = {bucket.key: bucket for bucket in refresh.buckets}
        self._choose(seen, now_ms)
        rest = {quota_type: Counts() for quota_type in refresh.types}
        for quota_type, counts in refresh.types.items():
            rest[quota_type].add(counts)
        for key, bucket in seen.items():
            if key in self.series:
                self._take_over(self.series[key], bucket, now_ms, is_counted=is_counted)
                rest[key.quota_type].add(bucket.counts, -1)
        shown = Counter(key.quota_type for key in seen if key in self.series)
        self.dropped = {
            quota_type: count - shown[quota_type] for quota_type, count in refresh.bucket_counts.items()
        }
        for quota_type, counts in rest.items():
            if is_counted and (self.dropped[quota_type] or quota_type in self.others):
                self.others.setdefault(quota_type, Counts()).add(counts)

    def forget_idle(self, now_ms: int) -> None:
        """Remove the series of buckets without decisions for `IDLE_MS`."""
        for key in [key for key, one in self.series.items() if now_ms - one.seen_at_ms > IDLE_MS]:
            self._leave(key)

    def _leave(self, key: BucketKey) -> None:
        self._left[key] = self.series.pop(key).counts
        while len(self._left) > _REMEMBERED * self._most:
            self._left.popitem(last=False)

    def _choose(self, seen: Mapping[BucketKey, SeenBucket], now_ms: int) -> None:
        uses = {key: bucket.use for key, bucket in seen.items() if key not in self.series}
        for key, one in self.series.items():
            uses[key] = _STAYS * max(one.kept_use(now_ms), seen[key].use if key in seen else 0.0)
        wanted = sorted(uses, key=lambda key: (-uses[key], key))[: self._most]
        for key in set(self.series) - set(wanted):
            self._leave(key)
        for key in wanted:
            if key not in self.series:
                counts = self._left.pop(key, None) or Counts()
                self.series[key] = BucketSeries(seen[key], now_ms, seen[key].use, counts=counts)

    @staticmethod
    def _take_over(one: BucketSeries, bucket: SeenBucket, now_ms: int, *, is_counted: bool) -> None:
        one.use = max(one.kept_use(now_ms), bucket.use)
        one.seen_at_ms = now_ms
        one.newest = max(one.newest, bucket, key=lambda seen: seen.last_ms)
        one.held_until_ms = max(one.held_until_ms, bucket.held_until_ms)
        one.recent = [seen for seen in (*one.recent, bucket) if seen.last_ms > one.newest.last_ms - RECENT_MS]
        if is_counted:
            one.counts.add(bucket.counts)
