"""Quota callbacks (KIP-257): which clients share a quota, how large it is, and which broker led a partition when.

A callback of Kafka's brokers is the operator's own rule in Java, and the auditor needs the same rule in Python. Any
class with the methods of `QuotaCallback` will do; the settings name it as `module:Class`.

Source: Kafka's `ClientQuotaCallback`.
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
    """A callback raised, or returned an invalid answer; the text names the method and the problem."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The partitions of the cluster, each with the id of the broker that leads it; None if no broker does."""

    leaders: Mapping[TopicPartition, int | None] = field(default_factory=dict)


class QuotaCallback(Protocol):
    """The contract. Each broker has one instance, which serves all four quota types, for one thread at a time.

    The answers may depend only on the configuration, the quotas and the cluster's metadata. The audit makes a new
    instance for each period in which these do not change. It asks once where a broker asks at every request. A class
    that inherits from this one may leave out the methods that it does not need.
    """

    def configure(self, configs: Mapping[str, str]) -> None:
        """Called first, with `broker.id` and the callback's options from the settings."""
        return

    def quota_metric_tags(
        self, quota_type: QuotaType, principal: Principal, client_id: str
    ) -> Mapping[str, str]:
        """The bucket of a request: all requests with equal tags share one quota. Tags may have any names."""

    def quota_limit(self, quota_type: QuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """The limit of a bucket, in the unit of the type; None if it has none."""

    def update_quota(self, quota_type: QuotaType, quota_entity: Entity, new_value: float) -> None:
        """Called when a quota in the cluster's own configuration has been set."""

    def remove_quota(self, quota_type: QuotaType, quota_entity: Entity) -> None:
        """Called when a quota in the cluster's own configuration has been removed."""

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        """Polled before each answer: if true, once, all limits of the type are read again."""
        return False

    def update_cluster_metadata(self, cluster: ClusterMetadata) -> bool:
        """Called when topics or leaders have changed: if true, all limits are read again."""
        return False

    def close(self) -> None:
        """Called last: no more calls follow."""
        return


class DefaultQuotaCallback(QuotaCallback):
    """The brokers' own behaviour without a callback: the eight levels. Limits change only through updates."""

    def __init__(self) -> None:
        self._quotas: dict[QuotaType, dict[Entity, float]] = {quota_type: {} for quota_type in QuotaType}
        self._enabled = dict.fromkeys(QuotaType, EnabledTypes.NONE)

    def quota_metric_tags(
        self, quota_type: QuotaType, principal: Principal, client_id: str
    ) -> Mapping[str, str]:
        """The tags `user` (sanitised) and `client-id`, empty where the level has none."""
        quotas = self._quotas[quota_type]
        bucket = bucket_of(principal.name, client_id, quotas.__contains__, self._enabled[quota_type])
        return bucket_tags(bucket)

    def quota_limit(self, quota_type: QuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """The limit by the tags alone, as the broker finds it."""
        bucket = tagged_bucket(metric_tags)
        quotas = self._quotas[quota_type]
        entity = None if bucket is None else governing_entity(bucket, quotas.__contains__)
        return None if entity is None else quotas[entity]

    def update_quota(self, quota_type: QuotaType, quota_entity: Entity, new_value: float) -> None:
        """Set the quota, and the bit of the entity's kind, which is never cleared."""
        self._quotas[quota_type][quota_entity] = new_value
        self._enabled[quota_type] |= type_of(quota_entity)

    def remove_quota(self, quota_type: QuotaType, quota_entity: Entity) -> None:
        """Remove the quota; this also sets the bit of the entity's kind."""
        self._quotas[quota_type].pop(quota_entity, None)
        self._enabled[quota_type] |= type_of(quota_entity)


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """A change of a partition's leader at `changed_at_ms` (epoch ms).

    `leader` is a broker id, or None while no broker leads; `is_deleted` is true if the partition was deleted.
    """

    partition: TopicPartition
    leader: int | None
    changed_at_ms: int
    is_deleted: bool = False


class LeaderBook:
    """Leadership over time, in memory. Before the first change it is the same as after it: nothing else is known."""

    __slots__ = ("_changes", "starts_ms")

    def __init__(self, changes: Iterable[LeaderChange] = ()) -> None:
        self._changes = sorted(changes, key=lambda change: (change.changed_at_ms, change.partition))
        self.starts_ms: Sequence[int] = sorted({change.changed_at_ms for change in self._changes})[1:]
        """Times at which the metadata changed, in order (epoch ms)."""

    def at(self, time_ms: int) -> ClusterMetadata:
        """The metadata at a time (epoch ms)."""
        leaders: dict[TopicPartition, int | None] = {}
        first_ms = self._changes[0].changed_at_ms if self._changes else 0
        count = bisect_right(self._changes, max(time_ms, first_ms), key=lambda change: change.changed_at_ms)
        for change in self._changes[:count]:
            if change.is_deleted:
                leaders.pop(change.partition, None)
            else:
                leaders[change.partition] = change.leader
        return ClusterMetadata(leaders)
