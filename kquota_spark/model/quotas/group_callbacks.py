"""Two quota callbacks ready for use: one quota for a group of users, fixed or scaled by partition leaders.

They follow the example in Kafka's own tests (`GroupedUserQuotaCallback`): the names of users and topics of a group
share the part before a separator. Option: `separator` (default `_`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_callback import ClusterMetadata, QuotaCallback
from kquota_spark.model.quotas.quota_types import QuotaType

GROUP_TAG = "group"


class GroupedUserCallback(QuotaCallback):
    """One bucket for all users of a group, whatever their client ids.

    The limit of a group is the quota of a user entity with a name that begins with the group, e.g. `pay_`. The quota of
    the entity named by the separator alone, `_`, holds for groups without one. A user with no separator in the name is
    in no group and has no limit. The callback ignores quotas of all entities except users by name.
    """

    def __init__(self) -> None:
        self._separator = "_"
        self._quotas: dict[tuple[QuotaType, str], float] = {}

    def configure(self, configs: Mapping[str, str]) -> None:
        """Read the option `separator`."""
        self._separator = configs.get("separator", self._separator)

    def quota_metric_tags(
        self, quota_type: QuotaType, principal: Principal, client_id: str
    ) -> Mapping[str, str]:
        """The tag `group`, or no tag if there is no limit: all unlimited traffic shares one bucket."""
        group = self._group_of(principal.name)
        if group is None or self.quota_limit(quota_type, {GROUP_TAG: group}) is None:
            return {}
        return {GROUP_TAG: group}

    def quota_limit(self, quota_type: QuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """The group's quota, else the default group's."""
        group = metric_tags.get(GROUP_TAG)
        if group is None:
            return None
        limit = self._quotas.get((quota_type, group))
        return self._quotas.get((quota_type, "")) if limit is None else limit

    def update_quota(self, quota_type: QuotaType, quota_entity: Entity, new_value: float) -> None:
        """Set the quota of a user as the quota of its group."""
        group = self._group_of_entity(quota_entity)
        if group is not None:
            self._quotas[quota_type, group] = new_value

    def remove_quota(self, quota_type: QuotaType, quota_entity: Entity) -> None:
        """Remove the quota of the user's group."""
        group = self._group_of_entity(quota_entity)
        if group is not None:
            self._quotas.pop((quota_type, group), None)

    def _group_of(self, name: str) -> str | None:
        group, separator, _ = name.partition(self._separator)
        return group if separator else None

    def _group_of_entity(self, entity: Entity) -> str | None:
        is_user = isinstance(entity.user, str) and entity.client_id is None
        return self._group_of(str(entity.user)) if is_user else None


class PartitionBasedCallback(GroupedUserCallback):
    """A callback that limits a group to a share of a cluster-wide quota, by the partitions that this broker leads.

    The names of the group's topics begin like the names of its users. A broker that leads none of n partitions gets a
    share of 1/n, so that its clients are not locked out. The request quota is not scaled.
    """

    def __init__(self) -> None:
        super().__init__()
        self._broker_id = -1
        self._share: dict[str, float] = {}

    def configure(self, configs: Mapping[str, str]) -> None:
        """Read `broker.id` and the option `separator`."""
        super().configure(configs)
        self._broker_id = int(configs["broker.id"])

    def quota_limit(self, quota_type: QuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """The group's quota times the share of this broker."""
        limit = super().quota_limit(quota_type, metric_tags)
        if limit is None or quota_type is QuotaType.REQUEST:
            return limit
        return limit * self._share.get(metric_tags[GROUP_TAG], 1.0)

    def update_cluster_metadata(self, cluster: ClusterMetadata) -> bool:
        """Count partitions and leaders again; true if any share changed."""
        partitions: Counter[str] = Counter()
        led: Counter[str] = Counter()
        for (topic, _), leader in cluster.leaders.items():
            group = self._group_of(topic)
            if group is not None:
                partitions[group] += 1
                led[group] += leader == self._broker_id
        share = {group: max(led[group], 1) / count for group, count in partitions.items()}
        is_other = share != self._share
        self._share = share
        return is_other
