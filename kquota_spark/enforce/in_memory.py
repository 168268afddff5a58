"""The ports in memory, for tests; they fulfil the same contract as the real ones."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from kquota_spark.enforce.changes import LogEntry, Quota
from kquota_spark.enforce.ports import Change, Frozen, Held, Holder, Image, Outcome, Written
from kquota_spark.formats.znodes.nodes import INTEGER_KEYS
from kquota_spark.model.quotas.entities import AnyEntity, IpEntity, parse_entity
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey, not_above_zero

_WHOLE: tuple[AnyKey, ...] = (*INTEGER_KEYS, *IpQuotaKey)
"""Keys of whole numbers."""


class InMemoryLeases:
    """The server of the lease: it has one holder at a time, and a fencing number that grows."""

    def __init__(self) -> None:
        self.fencing = 0
        self.holder: str | None = None
        self.last: str | None = None
        self.command = ""

    def take(self, name: str, command: str = "") -> int:
        """Give the lease to `name`, even if another one holds it, and return the fencing number."""
        self.fencing += 1
        self.command = command
        self.holder = self.last = name
        return self.fencing


class InMemoryLease:
    """The lease as one enforcer uses it."""

    def __init__(self, leases: InMemoryLeases, name: str) -> None:
        self._leases, self._name = leases, name

    def acquire(self, command: str = "") -> int | None:
        """See `ports.Lease`."""
        if self._leases.holder is None:
            return self._leases.take(self._name, command)
        return self._leases.fencing if self._leases.holder == self._name else None

    def is_held(self, fencing: int) -> bool:
        """See `ports.Lease`."""
        return self._leases.holder == self._name and self._leases.fencing == fencing

    def release(self) -> None:
        """See `ports.Lease`."""
        if self._leases.holder == self._name:
            self._leases.holder = None

    def holder(self) -> Holder | None:
        """See `ports.Lease`; there is no clock."""
        name = self._leases.last
        return None if name is None else Holder(name, 0, self._leases.holder == name, self._leases.command)


class InMemorySwitch:
    """A kill switch that can always be read."""

    def __init__(self) -> None:
        self._frozen: Frozen | None = None

    def frozen(self) -> Frozen | None:
        """See `ports.Switch`."""
        return self._frozen

    def freeze(self, frozen: Frozen) -> None:
        """See `ports.Switch`."""
        self._frozen = frozen

    def unfreeze(self) -> None:
        """See `ports.Switch`."""
        self._frozen = None


class InMemoryLedger:
    """A log that exists only as long as the object."""

    def __init__(self) -> None:
        self._entries: list[LogEntry] = []

    def append(self, entries: Sequence[LogEntry]) -> None:
        """See `ports.Ledger`."""
        self._entries += entries

    def entries(self) -> list[LogEntry]:
        """See `ports.Ledger`."""
        return list(self._entries)


Nodes = dict[str, dict[str, str]]
"""The content of a cluster: keys and their texts by the path of an entity; quotas and all other keys."""


class MemoryCluster:
    """A `Cluster` of configuration nodes; an entity without a node differs from one with an empty node."""

    def __init__(self, leases: InMemoryLeases | None = None, nodes: Nodes | None = None) -> None:
        self.nodes: Nodes = {} if nodes is None else nodes
        self._leases = InMemoryLeases() if leases is None else leases

    @property
    def origin(self) -> str:
        """See `ports.Cluster`; there is no server."""
        return "a cluster in memory"

    def image(self) -> Image:
        """See `ports.Cluster`."""
        keys = {key.value: key for key in (*QuotaKey, *IpQuotaKey)}
        found = {
            parse_entity(path): {keys[name]: float(text) for name, text in node.items() if name in keys}
            for path, node in self.nodes.items()
        }
        return Image(self.origin, {entity: values for entity, values in found.items() if values})

    def read(self, quotas: Collection[Quota]) -> Mapping[Quota, Held]:
        """See `ports.Cluster`."""
        return {quota: self._held(quota) for quota in quotas}

    def refusal(self, change: Change) -> str | None:
        """Why the KRaft controller would refuse a change (`ClientQuotaControlManager`); None if it would not."""
        for key, value in change.values.items():
            if isinstance(key, IpQuotaKey) != isinstance(change.entity, IpEntity):
                return f"Invalid configuration key {key.value}"
            if problem := not_above_zero(key, value):
                return problem
            if key in _WHOLE and value is not None and value != int(value):
                return f"{key.value} cannot be a fractional value."
        return None

    def write(self, change: Change, expect: Held | None = None, fence: int | None = None) -> Written:
        """See `ports.Cluster`.

        Args:
            change: the change.
            expect: what the cluster must still hold; None compares nothing.
            fence: number of the lease; None for a person.
        """
        if change.note is None and (refused := self.refusal(change)) is not None:
            return Written(Outcome.REFUSED, refused)
        if fence is not None and fence < self._leases.fencing:
            return Written(Outcome.FENCED)
        if expect is not None and self._held(change.quota).value != expect.value:
            return Written(Outcome.CHANGED)
        if change.note is not None:
            self._restore(change.quota, change.note)
        else:
            for key, value in change.values.items():
                self._set(change.entity, key, None if value is None else str(value))
            if fence is None and not self.nodes[str(change.entity)]:
                del self.nodes[str(change.entity)]  # as brokers leave it after an edit by a person
        return Written(Outcome.DONE)

    def set_text(self, quota: Quota, text: str | None) -> None:
        """Set or remove a key unconditionally, as any other tool could."""
        self._set(quota.entity, quota.key, text)

    def _set(self, entity: AnyEntity, key: AnyKey, text: str | None) -> None:
        node = self.nodes.setdefault(str(entity), {})
        if text is None:
            node.pop(key.value, None)
        else:
            node[key.value] = text

    def _restore(self, quota: Quota, note: str) -> None:
        was: dict[str, str | bool | None] = json.loads(note)
        text = was["text"]
        assert text is None or isinstance(text, str)
        self.set_text(quota, text)
        if not was["has_node"] and not self.nodes[str(quota.entity)]:
            del self.nodes[str(quota.entity)]

    def _held(self, quota: Quota) -> Held:
        path = str(quota.entity)
        text = self.nodes.get(path, {}).get(quota.key.value)
        note = json.dumps({"has_node": path in self.nodes, "text": text})
        return Held(None if text is None else float(text), note)
