"""What enforcement needs of the world. Each port has one real edge in `io/` and one in memory, under one contract."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from kquota_spark.enforce.changes import LogEntry, Quota


@dataclass(frozen=True, slots=True)
class Held:
    """A quota as the cluster holds it now.

    `note` says how to put it back to the byte, absence included: kept in the log, given to `put_back`. None where
    that is not possible; `problem` then says why, and nothing may be written.
    """

    value: float | None
    note: str | None
    problem: str = ""
    owner: str = ""
    """Who else manages it, where the cluster can say so."""


class Outcome(Enum):
    """What became of a write."""

    DONE = "done"
    REFUSED = "the cluster refused it"
    CHANGED = "it is not what was expected any more: somebody else changed it"
    FENCED = "another enforcer holds the lease"
    UNKNOWN = "no answer: it may have been done"


class Written(NamedTuple):
    """Outcome and, where there is more to say, the cluster's words."""

    outcome: Outcome
    detail: str = ""


class QuotaTarget(Protocol):
    """The cluster's quotas. Nothing is ever written that is not named, and no other key of a node changes."""

    def read(self, quotas: Collection[Quota]) -> Mapping[Quota, Held]:
        """What is there now, for each quota asked for.

        Raises:
            UserError: the cluster does not answer, or does not let us see all of it.
        """

    def refusal(self, quota: Quota, value: float | None) -> str | None:
        """Why the cluster would refuse this value (validate-only); None if it would take it."""

    def write(self, quota: Quota, value: float | None, expected: Held, fencing: int) -> Written:
        """Set, or remove with None, if the cluster still holds what is expected and nobody took the lease.

        Args:
            quota: entity and key.
            value: the limit, per second; None removes it.
            expected: what `read` has returned for it.
            fencing: number of the lease.
        """

    def put_back(self, quota: Quota, expected: float | None, note: str, fencing: int) -> Written:
        """Restore exactly what the note says, if the cluster still holds the value that we had written.

        Args:
            quota: entity and key.
            expected: the limit that the enforcer has written, per second; None if it removed it.
            note: of the state before that, `Held.note`.
            fencing: number of the lease.
        """


class Ledger(Protocol):
    """`enforcement_log`: durable when `append` returns."""

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Add rows in this order."""

    def entries(self) -> list[LogEntry]:
        """All rows in the order in which they were written."""


class Holder(NamedTuple):
    """Who took the lease last, for people."""

    name: str
    since_ms: int
    """When it was taken, by the clock of the server."""
    is_holding: bool
    """Whether it is held still."""


class Lease(Protocol):
    """Who may act. The fencing number grows with every holder; targets refuse an older one."""

    def acquire(self) -> int | None:
        """The fencing number if it is ours, now or already; None while another enforcer holds it."""

    def is_held(self, fencing: int) -> bool:
        """Whether the lease is still ours, asked of the server and not of memory."""

    def release(self) -> None:
        """Give it up at once."""

    def holder(self) -> Holder | None:
        """Who took it last; None where nobody ever did.

        Raises:
            UserError: the server does not answer.
        """


class Frozen(NamedTuple):
    """The kill switch is on."""

    since_ms: int
    actor: str
    reason: str


class Reading(NamedTuple):
    """What an enforcer found when it read the switch last."""

    reader: str
    """`host:pid` of the enforcer."""
    switch: str
    """Where it reads the switch."""
    at_ms: int
    frozen_since_ms: int | None
    """Of the freeze that it obeys; None where the switch was off."""


class Switch(Protocol):
    """The kill switch, read last before every send."""

    def frozen(self) -> Frozen | None:
        """None only if it is sure to be off: a switch that cannot be read counts as on."""

    def freeze(self, frozen: Frozen) -> None:
        """Stop all of our own enforcement."""

    def unfreeze(self) -> None:
        """Let it go on."""
