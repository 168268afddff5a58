"""The right sizes that policies use: those of the last midnight, so that each bucket is read once per day.

The enforcer checks every few seconds, and a right size needs four weeks of tables. So a check reads only the buckets
that a raise is about and that were not read since midnight. All checks of a day, and the commands of people, then have
the same value. If a read takes longer than its limit, policies use the other estimate for the rest of the day.
"""

from __future__ import annotations

from collections.abc import Collection

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Mode
from kquota_spark.enforce.policies.observations import Period
from kquota_spark.enforce.policies.policy import Policies, Raise
from kquota_spark.enforce.policies.raise_policy import throttled_buckets
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.rightsize.target import RightSize
from kquota_spark.rightsize.bounded import MOST_BUCKETS, sized
from kquota_spark.rightsize.buckets import BucketKey
from kquota_spark.store.dated_files import DAY_MS
from kquota_spark.store.reading import Tables

_MOST_S = 10.0
"""Time limit of a read, s."""
Sizes = dict[tuple[QuotaType, Bucket], RightSize]


class DaySizes:
    """The right sizes of one day. An enforcer that runs for days keeps one, and a command makes its own."""

    def __init__(self, most_s: float = _MOST_S) -> None:
        """Hold no size yet; `most_s` is the time limit of a read, s."""
        self._most_s = most_s
        self._midnight_ms = 0
        self._is_slow = False
        self._found: dict[BucketKey, RightSize | None] = {}

    def of(self, settings: Settings, buckets: Collection[tuple[QuotaType, Bucket]], to_ms: int) -> Sizes:
        """The right sizes of the first buckets, without those that have too short a history.

        Args:
            settings: where the tables are.
            buckets: the most important first.
            to_ms: end of the period of the policies, epoch ms; the history ends at the midnight (UTC) before it.

        Raises:
            UserError: a table cannot be read.
        """
        self._begin(to_ms // DAY_MS * DAY_MS)
        wanted = {
            BucketKey(quota_type.value, bucket.user, bucket.client_id): (quota_type, bucket)
            for quota_type, bucket in dict.fromkeys(buckets)
            if quota_type in BANDWIDTH and not bucket.custom_tags
        }
        chosen = list(wanted)[:MOST_BUCKETS]
        self._read(settings, [key for key in chosen if key not in self._found])
        sizes = ((key, self._found.get(key)) for key in chosen)
        return {wanted[key]: size for key, size in sizes if size is not None}

    def _begin(self, midnight_ms: int) -> None:
        if midnight_ms != self._midnight_ms:
            self._midnight_ms, self._is_slow = midnight_ms, False
            self._found.clear()

    def _read(self, settings: Settings, keys: list[BucketKey]) -> None:
        if not keys or self._is_slow:
            return
        with Tables(settings, self._most_s) as tables:
            read = sized(tables, settings.cluster_id, self._midnight_ms, keys)
        self._is_slow = read.is_slow
        if not read.is_slow:
            self._found |= {key: read.found[key].size if key in read.found else None for key in keys}


def raised_buckets(policies: Policies, periods: dict[int, Period]) -> list[tuple[QuotaType, Bucket]]:
    """The buckets that a policy of the kind `raise` may raise, in order of the policies.

    Args:
        policies: those that are off need no sizes.
        periods: by their length, ms.
    """
    return [
        bucket
        for policy in policies.policies
        if isinstance(policy, Raise) and policies.mode_of(policy.name) is not Mode.OFF
        for bucket in throttled_buckets(policy, periods[policy.within])
    ]
