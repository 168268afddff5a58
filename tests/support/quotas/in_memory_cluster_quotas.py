"""A cluster in memory that lists what was altered: for tests of the commands that people use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping

from kquota_spark.enforce.in_memory import MemoryCluster
from kquota_spark.enforce.ports import Change, Held, Outcome, Written
from kquota_spark.model.quotas.entities import AnyEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey


class InMemoryClusterQuotas(MemoryCluster):
    """A `Cluster`. `altered` lists what was really done; `refusals` are the words for entities not to touch."""

    def __init__(
        self, quotas: QuotaSet | None = None, *, refusals: Mapping[AnyEntity, str] | None = None
    ) -> None:
        super().__init__()
        self.quotas = quotas or {}
        self.refusals: dict[AnyEntity, str] = dict(refusals or {})
        self.altered: list[tuple[AnyEntity, dict[AnyKey, float | None]]] = []

    @property
    def quotas(self) -> MutableMapping[AnyEntity, Mapping[AnyKey, float]]:
        """The quotas as they are now, to read and to set."""
        return _Quotas(self)

    @quotas.setter
    def quotas(self, quotas: QuotaSet) -> None:
        self.nodes.clear()
        _Quotas(self).update(quotas)

    def refusal(self, change: Change) -> str | None:
        """See `Cluster`."""
        return self.refusals.get(change.entity) or super().refusal(change)

    def write(self, change: Change, expect: Held | None = None, fence: int | None = None) -> Written:
        """See `Cluster`."""
        written = super().write(change, expect, fence)
        if written.outcome is Outcome.DONE:
            self.altered.append((change.entity, dict(change.values)))
        return written


class _Quotas(MutableMapping[AnyEntity, Mapping[AnyKey, float]]):
    """The quotas of a cluster as they are now, to read and to set in tests."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    def __getitem__(self, entity: AnyEntity) -> Mapping[AnyKey, float]:
        return self._cluster.image().quotas[entity]

    def __setitem__(self, entity: AnyEntity, values: Mapping[AnyKey, float]) -> None:
        self._cluster.nodes[str(entity)] = {key.value: str(value) for key, value in values.items()}

    def __delitem__(self, entity: AnyEntity) -> None:
        del self._cluster.nodes[str(entity)]

    def __iter__(self) -> Iterator[AnyEntity]:
        return iter(self._cluster.image().quotas)

    def __len__(self) -> int:
        return len(self._cluster.image().quotas)

    def __eq__(self, other: object) -> bool:
        return dict(self) == other

    __hash__ = None  # type: ignore[assignment]
