"""The quotas of a cluster by the Admin API (KIP-546): with KRaft, and with ZooKeeper by way of brokers from 2.6 on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kquota_spark.errors import UnreachableError
from kquota_spark.kafka.quota_admin import Named, QuotaAdmin
from kquota_spark.model.quotas.entities import AnyEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey


class AdminQuotas:
    """A `ClusterQuotas`."""

    def __init__(self, admin: QuotaAdmin, bootstrap_servers: str) -> None:
        self._admin, self._bootstrap_servers = admin, bootstrap_servers

    @property
    def origin(self) -> str:
        """`Kafka broker1:9092`."""
        return f"Kafka {self._bootstrap_servers}"

    def read(self) -> QuotaSet:
        """All that are set.

        Raises:
            UserError: no broker answers, or it does not let us see them.
        """
        found: dict[AnyEntity, dict[AnyKey, float]] = {}
        for entity, key, value in self._admin.describe():
            found.setdefault(entity, {})[key] = value
        return found

    def alter(
        self, entity: AnyEntity, values: Mapping[AnyKey, float | None], *, validate_only: bool = False
    ) -> str | None:
        """Set or remove keys of one entity in one request; the broker's words if it refuses.

        Raises:
            UserError: no answer, or one that does not tell: it may have been done.
        """
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
    """A connection to a cluster, which is made at the first question.

    Args:
        bootstrap_servers: one or more brokers, `host:port,host:port`.
        properties: client properties for the login.
        timeout_ms: limit of connecting, and again of each request.
        named: what errors call them by.

    Raises:
        UserError: the address or the properties are none.
    """
    admin = QuotaAdmin(bootstrap_servers, properties, timeout_ms=timeout_ms, named=named)
    try:
        yield AdminQuotas(admin, bootstrap_servers)
    finally:
        admin.close()
