"""The ports of enforcement: each has real implementations in `enforcement.edges` and one in memory.

All implementations of a port fulfil the same contract.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from kquota_spark.enforce.changes import LogEntry, Quota


@dataclass(frozen=True, slots=True)
class Held:
    """A quota as the cluster holds it now.

    `note` holds the exact state, to the byte, also if the key is absent. It is kept in the log, and `put_back` restores
    from it. It is None if the state could not be restored; then `problem` has the reason, and nothing may be written.
    """

    value: float | None
    note: str | None
    problem: str = ""
    owner: str = ""
    """Another tool that manages it, if the cluster can report one."""


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


class QuotaTarget(Protocol):
    """The cluster's quotas. A write changes only the named key, and no other key of a node."""

    def read(self, quotas: Collection[Quota]) -> Mapping[Quota, Held]:
        """The present state of each requested quota.

        Raises:
            UserError: the cluster does not answer, or does not let us read all of it.
        """

    def refusal(self, quota: Quota, value: float | None) -> str | None:
        """Why the cluster would refuse this value (validate-only); None if it would accept it."""

    def write(self, quota: Quota, value: float | None, expected: Held, fencing: int) -> Written:
        """Set or remove a quota, if the cluster still holds the expected state and nobody took the lease.

        Args:
            quota: entity and key.
            value: the limit, per second; None removes it.
            expected: the result of `read` for it.
            fencing: number of the lease.
        """

    def put_back(self, quota: Quota, expected: float | None, note: str, fencing: int) -> Written:
        """Restore the exact state of the note, if the cluster still holds the value that we had written.

        Args:
            quota: entity and key.
            expected: the limit that the enforcer has written, per second; None if it removed it.
            note: `Held.note` of the state to restore.
            fencing: number of the lease.
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
