"""The ports to a cluster's quotas and of enforcement: each has real implementations and one in memory.

All implementations of a port fulfil the same contract. A `Cluster` is in `quotas`, the others in `enforcement.edges`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from kquota_spark.enforce.changes import LogEntry, Quota
from kquota_spark.model.quotas.entities import AnyEntity, Entity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey


@dataclass(frozen=True, slots=True)
class Held:
    """A quota as the cluster holds it now.

    `note` holds the exact state, to the byte, also if the key is absent. It is kept in the log, and a `Change` with it
    restores that state. It is None if the state could not be restored; then `problem` has the reason, and nothing may
    be written.
    """

    value: float | None
    note: str | None
    problem: str = ""
    owner: str = ""
    """Another tool that manages it, if the cluster can report one."""


@dataclass(frozen=True, slots=True)
class Image:
    """The quotas of a cluster at one time, from the cluster itself, from the tables or from a file.

    Attributes:
        origin: the source for messages: `ZooKeeper zk1:2181/kafka`, `Kafka broker1:9092`, `file quotas.yaml`.
        quotas: the values of each entity that has any, including ips.
        problems: content that brokers do not read as quotas: the problem by its place.
        unreadable: why a place could not be read; quotas may be missing then.
        versions: the version of each entity, if the cluster has one.
        cluster_id: the cluster of these quotas in the tables; empty for another source.
        known_through_ms: epoch ms after which edits are not in it; None if none are missing.
        is_stale: whether the record of the quotas ends too long before the requested time.
    """

    origin: str
    quotas: QuotaSet
    problems: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[AnyEntity, int] = field(default_factory=dict)
    cluster_id: str = ""
    known_through_ms: int | None = None
    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A write to one entity, in one step. Keys that it does not name keep their values.

    Attributes:
        entity: the entity to write.
        values: the new value of each key, in Kafka's units; None removes the key.
        note: `Held.note` of the only key, to restore exactly that state; None for a plain change.
    """

    entity: AnyEntity
    values: Mapping[AnyKey, float | None]
    note: str | None = None

    @classmethod
    def of(cls, quota: Quota, value: float | None, note: str | None = None) -> Change:
        """The change of one quota.

        Args:
            quota: entity and key.
            value: the limit, per second; None removes it.
            note: `Held.note` of the state to restore; None for a plain change.
        """
        return cls(quota.entity, {quota.key: value}, note)

    @property
    def quota(self) -> Quota:
        """Entity and key of a change of a single key of a user or a client id."""
        [key] = self.values
        assert isinstance(self.entity, Entity)
        assert isinstance(key, QuotaKey)
        return Quota(self.entity, key)


class Outcome(Enum):
    """The outcome of a write."""

    DONE = "done"
    REFUSED = "the cluster refused it"
    CHANGED = "it is not what was expected any more: somebody else changed it"
    FENCED = "another enforcer holds the lease"
    UNKNOWN = "no answer: it may have been done"


class Written(NamedTuple):
    """The outcome of a write and, if there is one, the message of the cluster."""

    outcome: Outcome
    detail: str = ""


class Cluster(Protocol):
    """The quotas of one cluster, for people and for the enforcer.

    A write changes only the named keys, and a node keeps all its other content.
    """

    @property
    def origin(self) -> str:
        """The cluster for messages, see `Image`."""

    def image(self) -> Image:
        """All quotas now.

        Raises:
            UserError: the cluster does not answer, or does not let us read all of it.
        """

    def read(self, quotas: Collection[Quota]) -> Mapping[Quota, Held]:
        """The present state of each requested quota, from which it can be restored.

        Raises:
            UserError: the cluster does not answer, or does not let us read all of it.
        """

    def refusal(self, change: Change) -> str | None:
        """Why the cluster would refuse a change (validate-only); None if it would accept it.

        Raises:
            UserError: the cluster does not answer.
        """

    def write(self, change: Change, expect: Held | None = None, fence: int | None = None) -> Written:
        """Make a change. A person's edit has neither `expect` nor `fence`, an enforcer's has both.

        Args:
            change: the change.
            expect: the result of `read` for its only key; the change is made only if the cluster still holds that.
                A change with a note compares only the value. None compares nothing.
            fence: number of the lease; the change is made only if nobody took the lease since. None for a person.

        Raises:
            UserError: no answer before anything was sent.
        """


class Ledger(Protocol):
    """`enforcement_log`: durable when `append` returns."""

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Append rows in this order."""

    def entries(self) -> list[LogEntry]:
        """All rows in the order in which they were written."""


class Holder(NamedTuple):
    """The last holder of the lease, for people."""

    name: str
    since_ms: int
    """When it was taken, epoch ms by the clock of the server."""
    is_holding: bool
    """Whether it still holds the lease."""
    command: str = ""
    """A person's command that took it, e.g. `kquota override set`; empty for the enforcer."""


class Lease(Protocol):
    """The right to act. The fencing number grows with every holder; targets refuse an older one."""

    def acquire(self, command: str = "") -> int | None:
        """Take the lease, unless we hold it already; its fencing number, None if another enforcer holds it.

        Args:
            command: a person's command, for `holder`; empty for the enforcer.
        """

    def is_held(self, fencing: int) -> bool:
        """Whether we still hold the lease, according to the server and not to memory."""

    def release(self) -> None:
        """Release the lease immediately."""

    def holder(self) -> Holder | None:
        """The last holder; None if nobody ever took the lease.

        Raises:
            UserError: the server does not answer.
        """


class Frozen(NamedTuple):
    """A freeze: the kill switch is on."""

    since_ms: int
    actor: str
    reason: str


class Reading(NamedTuple):
    """The last reading of the switch by an enforcer."""

    reader: str
    """`host:pid` of the enforcer."""
    switch: str
    """Where it reads the switch."""
    at_ms: int
    frozen_since_ms: int | None
    """Start of the freeze that it obeys, epoch ms; None if the switch was off."""


class Switch(Protocol):
    """The kill switch, read last before every send."""

    def frozen(self) -> Frozen | None:
        """The freeze; None only if the switch is certainly off. A switch that cannot be read counts as on."""

    def freeze(self, frozen: Frozen) -> None:
        """Stop all of our enforcement."""

    def unfreeze(self) -> None:
        """Let enforcement continue."""
