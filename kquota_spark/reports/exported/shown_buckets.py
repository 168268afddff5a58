"""Which buckets get series of their own, and what those count; all the others are one sum a quota type.

Every increment is counted once, in the series of the bucket or in the sum, whichever the bucket belongs to at that
look; so neither ever goes backwards, and together they are all of it. A bucket that leaves and comes back goes on from
where its counters were.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kquota_spark.reports.exported.bucket_looks import RECENT_MS, BucketKey, Counts, Look, SeenBucket

IDLE_MS = 300_000
"""A bucket without decisions for so long loses its series."""
CANDIDATES = 4
"""So many times the largest number of series are looked at one by one in a look."""
_STAYS = 1.25
"""A bucket gives its series up to one that is used more than so many times as much."""
_HALVED_MS = 300_000
"""The use that a bucket once had counts half after so long."""
_REMEMBERED = 16
"""So many times the largest number of series, counters of buckets that left are kept."""


@dataclass(slots=True)
class BucketSeries:
    """What the series of one bucket say."""

    newest: SeenBucket
    seen_at_ms: int
    """When decisions of it were last read."""
    use: float
    held_until_ms: int = 0
    counts: Counts = field(default_factory=Counts)
    recent: list[SeenBucket] = field(default_factory=list)

    def kept_use(self, now_ms: int) -> float:
        """What is left of the use that it once had."""
        kept: float = self.use * 0.5 ** ((now_ms - self.seen_at_ms) / _HALVED_MS)
        return kept

    def rate_per_s(self, newest_ms: int) -> float:
        """Highest rate of the last minute before the newest decision of its broker; 0 without traffic."""
        rates = (one.rate_per_s for one in self._of_last_minute(newest_ms))
        return max((rate for rate in rates if rate is not None), default=0.0)

    def longest_throttle_ms(self, newest_ms: int) -> int:
        """Of one request in that minute."""
        return max((one.longest_throttle_ms for one in self._of_last_minute(newest_ms)), default=0)

    def quota_used_percent(self, newest_ms: int) -> float | None:
        """Highest of that minute, 0 without traffic; None without a limit."""
        if self.newest.limit_per_s is None:
            return None
        used = (one.quota_used_percent for one in self._of_last_minute(newest_ms))
        return max((percent for percent in used if percent is not None), default=0.0)

    def _of_last_minute(self, newest_ms: int) -> Iterator[SeenBucket]:
        return (one for one in self.recent if one.last_ms > newest_ms - RECENT_MS)


class ShownBuckets:
    """The buckets with series, so many at most, of all quota types together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left: OrderedDict[BucketKey, Counts] = OrderedDict()
        self.series: dict[BucketKey, BucketSeries] = {}
        self.others: dict[str, Counts] = {}
        """By quota type: what buckets without series have counted; a type is missing until there is one."""
        self.dropped: dict[str, int] = {}
        """By quota type: buckets of the last look that have no series."""

    def carried(self) -> dict[BucketKey, tuple[int, int]]:
        """What the next look has to know of each: until when a throttle holds, and when it was last seen, ms."""
        return {key: (one.held_until_ms, one.newest.last_ms) for key, one in self.series.items()}

    def fold(self, look: Look, now_ms: int, *, is_counted: bool = True) -> None:
        """Take over a look that was made then; what was there before the counters began is not counted."""
        seen = {bucket.key: bucket for bucket in look.buckets}
        self._choose(seen, now_ms)
        rest = {quota_type: Counts() for quota_type in look.types}
        for quota_type, counts in look.types.items():
            rest[quota_type].add(counts)
        for key, bucket in seen.items():
            if key in self.series:
                self._take_over(self.series[key], bucket, now_ms, is_counted=is_counted)
                rest[key.quota_type].add(bucket.counts, -1)
        shown = Counter(key.quota_type for key in seen if key in self.series)
        self.dropped = {
            quota_type: count - shown[quota_type] for quota_type, count in look.bucket_counts.items()
        }
        for quota_type, counts in rest.items():
            if is_counted and (self.dropped[quota_type] or quota_type in self.others):
                self.others.setdefault(quota_type, Counts()).add(counts)

    def forget_idle(self, now_ms: int) -> None:
        """Let go of the series whose buckets have had no decisions for so long."""
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
