"""A cluster's quotas in memory, under the contract of the real ones: for tests of the commands that people use."""

from __future__ import annotations

from collections.abc import Mapping

from kquota_spark.formats.znodes.nodes import INTEGER_KEYS
from kquota_spark.model.quotas.entities import AnyEntity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, not_above_zero


class InMemoryClusterQuotas:
    """A `ClusterQuotas`. `altered` lists what was really done; `refusals` are the words for entities not to touch."""

    def __init__(
        self, quotas: QuotaSet | None = None, *, refusals: Mapping[AnyEntity, str] | None = None
    ) -> None:
        self.quotas: dict[AnyEntity, dict[AnyKey, float]] = {
            entity: dict(values) for entity, values in (quotas or {}).items()
        }
        self.refusals: dict[AnyEntity, str] = dict(refusals or {})
        self.altered: list[tuple[AnyEntity, dict[AnyKey, float | None]]] = []

    @property
    def origin(self) -> str:
        """No server."""
        return "a cluster in memory"

    def read(self) -> QuotaSet:
        """A copy: what is altered later is not in it."""
        return {entity: dict(values) for entity, values in self.quotas.items()}

    def alter(
        self, entity: AnyEntity, values: Mapping[AnyKey, float | None], *, validate_only: bool = False
    ) -> str | None:
        """See `ClusterQuotas`."""
        refusal = self.refusals.get(entity) or _refusal(entity, values)
        if refusal is not None or validate_only:
            return refusal
        self.altered.append((entity, dict(values)))
        after = {
            key: value
            for key, value in {**self.quotas.get(entity, {}), **values}.items()
            if value is not None
        }
        if after:
            self.quotas[entity] = after
        else:
            self.quotas.pop(entity, None)
        return None


def _refusal(entity: AnyEntity, values: Mapping[AnyKey, float | None]) -> str | None:
    for key, value in values.items():
        if isinstance(key, IpQuotaKey) != isinstance(entity, IpEntity):
            return f"Invalid configuration key {key.value}"
        if problem := not_above_zero(key, value):
            return problem
        if value is not None and (key in INTEGER_KEYS or isinstance(key, IpQuotaKey)) and value != int(value):
            return f"{key.value} cannot be a fractional value."
    return None
