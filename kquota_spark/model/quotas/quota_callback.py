"""Quota callbacks (KIP-257): who shares a quota, how large it is, and who led which partition when.

A callback of Kafka's brokers is the operator's own rule in Java; the auditor needs the same rule in Python. Any class
with the methods of `QuotaCallback` will do, named as `module:Class` in the settings. Source: Kafka's
`ClientQuotaCallback`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kquota_spark.model.quotas.enabled_types import EnabledTypes, type_of
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.mbean_names import bucket_tags, tagged_bucket
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import bucket_of, governing_entity


class CallbackError(Exception):
    """A callback raised or gave back something that is no answer; the text says which and what."""


class TopicPartition(NamedTuple):
    """A partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The partitions of the cluster with the broker that leads each; None where nobody does."""

    leaders: Mapping[TopicPartition, int | None] = field(default_factory=dict)


class QuotaCallback(Protocol):
    """The contract. One instance a broker serves all four quota types, and is asked by one thread at a time.

    The answers may depend on the configuration, the quotas and the cluster's metadata only: the audit makes a
    new instance for each stretch of time in which these stay as they are, and asks once for what a broker asks
    at every request. A class that inherits from this one need not have what it has nothing to say to.
    """

    def configure(self, configs: Mapping[str, str]) -> None:
        """Called first, with `broker.id` and the callback's options of the settings."""
        return

    def quota_metric_tags(
        self, quota_type: QuotaType, principal: Principal, client_id: str
    ) -> Mapping[str, str]:
        """The bucket of a request: all requests with equal tags share one quota. Any names of tags."""

    def quota_limit(self, quota_type: QuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """The limit of a bucket, in the unit of the type; None if it has none."""

    def update_quota(self, quota_type: QuotaType, quota_entity: Entity, new_value: float) -> None:
        """A quota of the cluster's own configuration has been set."""

    def remove_quota(self, quota_type: QuotaType, quota_entity: Entity) -> None:
        """A quota of the cluster's own configuration has been removed."""

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        """Polled before each answer: true, once, has all limits of the type read again."""
        return False

    def update_cluster_metadata(self, cluster: ClusterMetadata) -> bool:
        """Topics or leaders have changed: true has all limits read again."""
        return False

    def close(self) -> None:
        """No more calls."""
        return


class DefaultQuotaCallback(QuotaCallback):
    """What brokers do without a callback: the eight levels. Limits change through updates only."""

    def __init__(self) -> None:
        self._quotas: dict[QuotaType, dict[Entity, float]] = {quota_type: {} for quota_type in QuotaType}
        self._enabled = dict.fromkeys(QuotaType, EnabledTypes.NONE)

    def quota_metric_tags(
        self, quota_type: QuotaType, principal: Principal, client_id: str
    ) -> Mapping[str, str]:
        """`user` (sanitised) and `client-id`, empty where the level has none."""
        quotas = self._quotas[quota_type]
        bucket = bucket_of(principal.name, client_id, quotas.__contains__, self._enabled[quota_type])
        return bucket_tags(bucket)

    def quota_limit(self, quota_type: QuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """From the tags alone, as the broker does."""
        bucket = tagged_bucket(metric_tags)
        quotas = self._quotas[quota_type]
        entity = None if bucket is None else governing_entity(bucket, quotas.__contains__)
        return None if entity is None else quotas[entity]

    def update_quota(self, quota_type: QuotaType, quota_entity: Entity, new_value: float) -> None:
        """Set it; the bit of its kind stays for good."""
        self._quotas[quota_type][quota_entity] = new_value
        self._enabled[quota_type] |= type_of(quota_entity)

    def remove_quota(self, quota_type: QuotaType, quota_entity: Entity) -> None:
        """Remove it; the bit is set by this too."""
        self._quotas[quota_type].pop(quota_entity, None)
        self._enabled[quota_type] |= type_of(quota_entity)


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
