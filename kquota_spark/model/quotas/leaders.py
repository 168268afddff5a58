"""Who led which partition when: what partition-based quota callbacks depend on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kquota_spark.model.quotas.quota_callback import ClusterMetadata, TopicPartition


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """A partition has another leader from `changed_at_ms` on.

    `leader` is a broker id, or None while nobody leads; `is_deleted` says that the partition is gone.
    """

    partition: TopicPartition
    leader: int | None
    changed_at_ms: int
    is_deleted: bool = False


class LeaderBook:
    """Leadership over time, in memory. Before the first change it is as after it: nothing else is known."""

    __slots__ = ("_changes", "starts_ms")

    def __init__(self, changes: Iterable[LeaderChange] = ()) -> None:
        self._changes = sorted(changes, key=lambda change: (change.changed_at_ms, change.partition))
        self.starts_ms: Sequence[int] = sorted({change.changed_at_ms for change in self._changes})[1:]
        """Times at which the metadata became another, in order."""

    def at(self, time_ms: int) -> ClusterMetadata:
        """The metadata as of a time."""
        leaders: dict[TopicPartition, int | None] = {}
        first_ms = self._changes[0].changed_at_ms if self._changes else 0
        count = bisect_right(self._changes, max(time_ms, first_ms), key=lambda change: change.changed_at_ms)
        for change in self._changes[:count]:
            if change.is_deleted:
                leaders.pop(change.partition, None)
            else:
                leaders[change.partition] = change.leader
        return ClusterMetadata(leaders)
