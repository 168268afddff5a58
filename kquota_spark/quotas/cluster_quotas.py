"""The quotas of a running cluster, which a person reads and alters by `describe`, `alter`, `import` and `kfk`.

Enforcement has its own port (`enforce.ports`), with lease and fencing. Here a person confirms each change and sees the
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
    """The quotas of one cluster. Keys that are not named keep their values, and a node keeps all its other content."""

    @property
    def origin(self) -> str:
        """The cluster for messages: `ZooKeeper zk1:2181/kafka`, `Kafka broker1:9092`."""

    def read(self) -> QuotaSet:
        """All quotas that are set now, including those of ips.

        Raises:
            UserError: the cluster does not answer, or does not let us read all of it.
        """

    def alter(
        self, entity: AnyEntity, values: Mapping[AnyKey, float | None], *, validate_only: bool = False
    ) -> str | None:
        """Set or remove keys of one entity in one step.

        Args:
            entity: the entity to alter.
            values: the new value of each key, in Kafka's units; None removes the key.
            validate_only: only ask whether the cluster would accept the values.

        Returns:
            The message of the cluster if it refuses; None if it succeeds.

        Raises:
            UserError: no answer; the values may have been set.
        """


class AdminQuotas:
    """`ClusterQuotas` over the Admin API (KIP-546): with KRaft, and with ZooKeeper through brokers from Kafka 2.6."""

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
    """A connection to a cluster, opened at the first request. Errors are those of `QuotaAdmin`.

    Args:
        bootstrap_servers: one or more brokers, `host:port,host:port`.
        properties: client properties for the login.
        timeout_ms: limit of connecting, and again of each request.
        named: settings that gave the address and the login, for errors.
    """
    with closing(QuotaAdmin(bootstrap_servers, properties, timeout_ms=timeout_ms, named=named)) as admin:
        yield AdminQuotas(admin, bootstrap_servers)
