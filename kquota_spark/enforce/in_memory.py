"""The ports in memory, for tests; they fulfil the same contract as the real ones."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from kquota_spark.enforce.changes import LogEntry, Quota
from kquota_spark.enforce.ports import Frozen, Held, Holder, Outcome, Written


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


class InMemoryTarget:
    """The configuration nodes of a cluster; an entity without a node differs from one with an empty node."""

    def __init__(self, leases: InMemoryLeases, nodes: Nodes | None = None) -> None:
        self.nodes: Nodes = {} if nodes is None else nodes
        self._leases = leases

    def read(self, quotas: Collection[Quota]) -> Mapping[Quota, Held]:
        """See `ports.QuotaTarget`."""
        return {quota: self._held(quota) for quota in quotas}

    def refusal(self, quota: Quota, value: float | None) -> str | None:
        """Why the KRaft controller would refuse a value (`ClientQuotaControlManager`): it must be above 0."""
        return None if value is None or value > 0 else f"{quota.key.value} must be greater than 0"

    def write(self, quota: Quota, value: float | None, expected: Held, fencing: int) -> Written:
        """See `ports.QuotaTarget`.

        Args:
            quota: entity and key.
            value: the limit, per second; None removes it.
            expected: the result of `read` for it.
            fencing: number of the lease.
        """
        if (refused := self.refusal(quota, value)) is not None:
            return Written(Outcome.REFUSED, refused)
        return self._put(quota, None if value is None else str(value), expected.value, fencing)

    def put_back(self, quota: Quota, expected: float | None, note: str, fencing: int) -> Written:
        """See `ports.QuotaTarget`.

        Args:
            quota: entity and key.
            expected: the limit that the enforcer has written, per second; None if it removed it.
            note: `Held.note` of the state to restore.
            fencing: number of the lease.
        """
        was: dict[str, str | bool | None] = json.loads(note)
        text = was["text"]
        assert text is None or isinstance(text, str)
        written = self._put(quota, text, expected, fencing)
        path = str(quota.entity)
        if written.outcome is Outcome.DONE and not was["has_node"] and not self.nodes[path]:
            del self.nodes[path]
        return written

    def set_text(self, quota: Quota, text: str | None) -> None:
        """Set or remove a key unconditionally, as any other tool could."""
        node = self.nodes.setdefault(str(quota.entity), {})
        if text is None:
            node.pop(quota.key.value, None)
        else:
            node[quota.key.value] = text

    def _put(self, quota: Quota, text: str | None, expected: float | None, fencing: int) -> Written:
        if fencing < self._leases.fencing:
            return Written(Outcome.FENCED)
        if self._held(quota).value != expected:
            return Written(Outcome.CHANGED)
        self.set_text(quota, text)
        return Written(Outcome.DONE)

    def _held(self, quota: Quota) -> Held:
        path = str(quota.entity)
        text = self.nodes.get(path, {}).get(quota.key.value)
        note = json.dumps({"has_node": path in self.nodes, "text": text})
        return Held(None if text is None else float(text), note)
