"""Ports that fail as servers and processes do, at the calls where somebody asks them to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum

from kquota_spark.enforce.changes import LogEntry, Quota
from kquota_spark.enforce.ports import Change, Cluster, Held, Image, Ledger, Outcome, Written
from kquota_spark.errors import UserError


class Trouble(Enum):
    """What goes wrong with one call; the last four with writes only."""

    CRASH_BEFORE = "the enforcer dies before it"
    CRASH_AFTER = "the enforcer dies after it"
    UNREACHABLE = "the server is not there"
    REFUSED = "the cluster refuses it"
    LOST = "it is done, and the answer is lost"
    DROPPED = "it is not done, and there is no answer"
    LATE = "it is done later, and there is no answer"


class CrashError(Exception):
    """The enforcer died: nothing of it is left but the ledger and the cluster."""


Ask = Callable[[str], Trouble | None]
"""What goes wrong with the call of this name: `read`, `write`, `put_back`, or `append` and its last event.

`put_back` is a write with a note.
"""
Later = Callable[[Callable[[], Written]], None]
"""Takes what is to be done later."""


def _called(ask: Ask, name: str) -> Trouble | None:
    trouble = ask(name)
    if trouble is Trouble.CRASH_BEFORE:
        raise CrashError(name)
    if trouble is Trouble.UNREACHABLE:
        raise UserError(f"{name}: the server does not answer")
    return trouble


class TroubledCluster:
    """A cluster with troubles."""

    def __init__(self, cluster: Cluster, ask: Ask, later: Later) -> None:
        self._cluster, self._ask, self._later = cluster, ask, later

    @property
    def origin(self) -> str:
        """See `ports.Cluster`."""
        return self._cluster.origin

    def image(self) -> Image:
        """See `ports.Cluster`."""
        return self._cluster.image()

    def read(self, quotas: Collection[Quota]) -> Mapping[Quota, Held]:
        """See `ports.Cluster`."""
        trouble = _called(self._ask, "read")
        found = self._cluster.read(quotas)
        if trouble is Trouble.CRASH_AFTER:
            raise CrashError("read")
        return found

    def refusal(self, change: Change) -> str | None:
        """See `ports.Cluster`."""
        return self._cluster.refusal(change)

    def write(self, change: Change, expect: Held | None = None, fence: int | None = None) -> Written:
        """See `ports.Cluster`."""
        name = "write" if change.note is None else "put_back"
        return self._write(name, lambda: self._cluster.write(change, expect, fence))

    def _write(self, name: str, write: Callable[[], Written]) -> Written:
        trouble = _called(self._ask, name)
        if trouble is Trouble.REFUSED:
            return Written(Outcome.REFUSED, "not today")
        if trouble is Trouble.DROPPED:
            return Written(Outcome.UNKNOWN)
        if trouble is Trouble.LATE:
            self._later(write)
            return Written(Outcome.UNKNOWN)
        written = write()
        if trouble is Trouble.CRASH_AFTER:
            raise CrashError(name)
        return Written(Outcome.UNKNOWN) if trouble is Trouble.LOST else written


class TroubledLedger:
    """A ledger with troubles; what it did write is whole."""

    def __init__(self, ledger: Ledger, ask: Ask) -> None:
        self._ledger, self._ask = ledger, ask

    def append(self, entries: Sequence[LogEntry]) -> None:
        """See `ports.Ledger`."""
        name = f"append {entries[-1].event.value}"
        trouble = _called(self._ask, name)
        self._ledger.append(entries)
        if trouble is Trouble.CRASH_AFTER:
            raise CrashError(name)

    def entries(self) -> list[LogEntry]:
        """See `ports.Ledger`."""
        return self._ledger.entries()
