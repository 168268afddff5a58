"""The quotas of a running cluster, read and altered by a person: what `describe`, `alter`, `import` and `kfk` work on.

Enforcement has a port of its own (`enforce.ports`), with lease and fencing; here a person is asked, and sees the
answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kquota_spark.model.quotas.entities import AnyEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey


class ClusterQuotas(Protocol):
    """One cluster. Values of keys that are not named stay as they are, and so does all else that a node holds."""

    @property
    def origin(self) -> str:
        """The cluster as people call it: `ZooKeeper zk1:2181/kafka`, `Kafka broker1:9092`."""

    def read(self) -> QuotaSet:
        """All quotas that are set now, those of ips too.

        Raises:
            UserError: the cluster does not answer, or does not let us see all of it.
        """

    def alter(
        self, entity: AnyEntity, values: Mapping[AnyKey, float | None], *, validate_only: bool = False
    ) -> str | None:
        """Set keys of one entity at once, or remove those with None.

        Args:
            entity: whose.
            values: in Kafka's units.
            validate_only: only ask whether the cluster would take them.

        Returns:
            The cluster's words if it refuses; None if it is done.

        Raises:
            UserError: no answer: it may have been done.
        """
