"""The quotas of a running cluster, read and altered by a person: what `describe`, `alter`, `import` and `kfk` work on.

Enforcement has a port of its own (`enforce.ports`), with lease and fencing; here a person is asked, and sees the
answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Protocol

from kquota_spark.errors import UnreachableError
from kquota_spark.kafka.quota_admin import Named, QuotaAdmin
from kquota_spark.model.quotas.entities import AnyEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, not_above_zero


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


class AdminQuotas:
    """By the Admin API (KIP-546): with KRaft, and with ZooKeeper by way of brokers from 2.6 on."""

    def __init__(self, admin: QuotaAdmin, bootstrap_servers: str) -> None:
        self._admin = admin
        self.origin = f"Kafka {bootstrap_servers}"

    def read(self) -> QuotaSet:
        """See `ClusterQuotas`."""
        return self._admin.quota_set()

    def alter(
        self, entity: AnyEntity, values: Mapping[AnyKey, float | None], *, validate_only: bool = False
    ) -> str | None:
        """See `ClusterQuotas`; one request."""
        for key, value in values.items():
            if problem := not_above_zero(key, value):
                return problem
        by_name = {key.value: value for key, value in values.items()}
        try:
            refusal = self._admin.alter(entity, by_name, validate_only=validate_only)
        except UnreachableError as error:
            if validate_only:
                raise  # nothing can have been altered
            raise UnreachableError(f"{error}; whether {entity} was altered is not known") from error
        if refusal is None:
            if not validate_only:
                self._admin.wait_for(entity, values)
            return None
        if refusal.is_unsure and not validate_only:
            raise UnreachableError(
                f"{self.origin} does not say whether {entity} was altered: {refusal.words}: see its quotas"
            )
        return refusal.words


@contextmanager
def admin_quotas(
    bootstrap_servers: str, properties: Mapping[str, str], *, timeout_ms: int, named: Named
) -> Iterator[AdminQuotas]:
    """A connection to a cluster, made at the first question. Arguments and errors are those of `QuotaAdmin`."""
    with closing(QuotaAdmin(bootstrap_servers, properties, timeout_ms=timeout_ms, named=named)) as admin:
        yield AdminQuotas(admin, bootstrap_servers)
