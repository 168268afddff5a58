"""What every edge of enforcement keeps, the real ones and those in memory: claims to run against each of them.

A module of tests parametrises over `LEDGER_CLAIMS`, `LEASE_CLAIMS` and `SWITCH_CLAIMS`. The claims of a cluster are in
`tests.support.quotas.cluster_contract`.
"""

from __future__ import annotations

from collections.abc import Callable

from kquota_spark.enforce.changes import Event, Evidence, LogEntry, Mode, Proposal, Quota, StepId
from kquota_spark.enforce.ports import Frozen, Lease, Ledger, Switch
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey

PRODUCER = QuotaKey.PRODUCER_BYTE_RATE


def _entry(
    step: int,
    event: Event,
    *,
    fencing: int | None = None,
    note: str | None = None,
    refusal: tuple[str, str] | None = None,
) -> LogEntry:
    quota = Quota(Entity(user="müller, O=x", client_id=DEFAULT), PRODUCER)
    evidence = Evidence(1_700_000_000_000, 1_700_000_060_000, 60, 59, 3, {"peak_rate_per_s": 1.5e6})
    reason = "three violations\nin an hour"
    proposal = Proposal(quota, None, 4e6, "penalty", reason, 1_700_003_600_000, evidence, "twice", True)
    guard, detail = refusal or (None, "")
    step_id, at_ms = StepId("p-0123abcd", step), 1_700_000_061_000 + step
    return LogEntry(step_id, event, at_ms, proposal, Mode.APPROVE, "ann", guard, fencing, note, detail)


def rows_come_back_as_they_were_in_their_order(open_ledger: Callable[[], Ledger]) -> None:
    rows = [
        _entry(1, Event.PLANNED),
        _entry(2, Event.REFUSED, refusal=("hold", "changed 3 min ago")),
        _entry(1, Event.SENDING, fencing=7, note='{"text": null}'),
        _entry(1, Event.APPLIED, fencing=7),
    ]
    ledger = open_ledger()
    assert ledger.entries() == []
    ledger.append(rows[:3])
    ledger.append(rows[3:])
    assert ledger.entries() == rows
    assert open_ledger().entries() == rows, "another process reads the same"


LEDGER_CLAIMS: tuple[Callable[[Callable[[], Ledger]], None], ...] = (
    rows_come_back_as_they_were_in_their_order,
)
"""Each with a function that opens the same ledger, empty at first."""


def fencing_of(lease: Lease) -> int:
    """The number of a lease that nobody else holds."""
    fencing = lease.acquire()
    assert fencing is not None
    return fencing


def one_holds_the_lease_and_the_number_grows(first: Lease, second: Lease) -> None:
    fencing = first.acquire()
    assert fencing is not None
    assert (first.acquire(), second.acquire()) == (fencing, None)
    assert first.is_held(fencing)
    assert not second.is_held(fencing)
    first.release()
    assert not first.is_held(fencing)
    later = second.acquire()
    assert later is not None
    assert later > fencing
    assert (first.acquire(), second.is_held(later), second.is_held(fencing)) == (None, True, False)
    second.release()


LEASE_CLAIMS: tuple[Callable[[Lease, Lease], None], ...] = (one_holds_the_lease_and_the_number_grows,)
"""Each with the ends of two enforcers; nobody holds it before nor afterwards."""


def a_freeze_is_seen_by_everybody_until_it_is_taken_back(one: Switch, other: Switch) -> None:
    assert other.frozen() is None
    frozen = Frozen(1_700_000_000_000, "ann", "what is it doing?")
    one.freeze(frozen)
    assert (one.frozen(), other.frozen()) == (frozen, frozen)
    one.freeze(frozen)
    other.unfreeze()
    assert (one.frozen(), other.frozen()) == (None, None)
    one.unfreeze()


SWITCH_CLAIMS: tuple[Callable[[Switch, Switch], None], ...] = (
    a_freeze_is_seen_by_everybody_until_it_is_taken_back,
)
"""Each with two connections to the same switch, which is off before and afterwards."""
