"""What every edge of enforcement keeps, the real ones and those in memory: claims to run against each of them.

A module of tests parametrises over `TARGET_CLAIMS`, `LEDGER_CLAIMS`, `LEASE_CLAIMS` and `SWITCH_CLAIMS`:
`@pytest.mark.parametrize("claim", TARGET_CLAIMS)`, then `claim(cluster, "a name not used before")`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kquota_spark.enforce.changes import Event, Evidence, LogEntry, Mode, Proposal, Quota, StepId
from kquota_spark.enforce.ports import Frozen, Held, Lease, Ledger, Outcome, QuotaTarget, Switch
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey

PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE


class TargetUnderTest(Protocol):
    """A cluster behind a target, and what others do to it."""

    target: QuotaTarget
    fencing: int
    """Under which the target may write."""

    def edit(self, quota: Quota, value: float | None) -> None:
        """Set or remove a quota as another tool does."""

    def add_credential(self, user: str) -> None:
        """Give a user something that is no quota: a SCRAM credential, where the cluster keeps them together."""

    def all_of(self, entity: Entity) -> object:
        """Everything that the cluster keeps of an entity, quotas and the rest, to the byte; compared only."""

    def credentials_of(self, user: str) -> object:
        """What `add_credential` put there, to the byte; compared only."""

    def lose_lease(self) -> None:
        """Another enforcer takes over: `fencing` is not the newest number any more."""


def held(cluster: TargetUnderTest, quota: Quota) -> Held:
    return cluster.target.read([quota])[quota]


def write(cluster: TargetUnderTest, quota: Quota, value: float | None) -> Outcome:
    return cluster.target.write(quota, value, held(cluster, quota), cluster.fencing).outcome


def absent_quotas_read_as_none_with_a_way_back(cluster: TargetUnderTest, name: str) -> None:
    quota = Quota(Entity(user=name), PRODUCER)
    found = held(cluster, quota)
    assert (found.value, found.problem, found.owner) == (None, "", "")
    assert found.note is not None


def all_quotas_asked_for_are_read_and_no_others(cluster: TargetUnderTest, name: str) -> None:
    quotas = [Quota(Entity(user=name), PRODUCER), Quota(Entity(client_id=name), CONSUMER)]
    cluster.edit(quotas[0], 2_000_000.0)
    found = cluster.target.read(quotas)
    assert {quota: held.value for quota, held in found.items()} == {quotas[0]: 2_000_000.0, quotas[1]: None}


def a_quota_is_set_changed_and_removed(cluster: TargetUnderTest, name: str) -> None:
    for entity in (Entity(user=name), Entity(client_id=name), Entity(user=name, client_id=name)):
        quota = Quota(entity, PRODUCER)
        for value in (3_000_000.0, 2_000_000.0, None):
            assert write(cluster, quota, value) is Outcome.DONE
            assert held(cluster, quota).value == value


def names_that_need_escaping_are_the_exact_entity(cluster: TargetUnderTest, name: str) -> None:
    odd = f"{name} CN=a,O=b/c+*~%2F<default>"
    assert write(cluster, Quota(Entity(user=odd), PRODUCER), 2_000_000.0) is Outcome.DONE
    assert held(cluster, Quota(Entity(user=odd), PRODUCER)).value == 2_000_000.0
    others = [Quota(Entity(user=name), PRODUCER), Quota(Entity(user=DEFAULT), PRODUCER)]
    assert [found.value for found in cluster.target.read(others).values()] == [None, None]


def what_was_absent_is_absent_again(cluster: TargetUnderTest, name: str) -> None:
    quota = Quota(Entity(user=name), PRODUCER)
    before, note = cluster.all_of(quota.entity), held(cluster, quota).note
    assert note is not None
    assert write(cluster, quota, 2_000_000.0) is Outcome.DONE
    assert cluster.all_of(quota.entity) != before
    assert cluster.target.put_back(quota, 2_000_000.0, note, cluster.fencing).outcome is Outcome.DONE
    assert cluster.all_of(quota.entity) == before


def a_value_is_put_back_to_the_byte_and_other_keys_stay(cluster: TargetUnderTest, name: str) -> None:
    quota, other = Quota(Entity(user=name), PRODUCER), Quota(Entity(user=name), CONSUMER)
    cluster.edit(quota, 5_000_000.0)
    cluster.edit(other, 7_000_000.0)
    before, note = cluster.all_of(quota.entity), held(cluster, quota).note
    assert note is not None
    assert write(cluster, quota, 4_000_000.0) is Outcome.DONE
    assert held(cluster, other).value == 7_000_000.0
    assert cluster.target.put_back(quota, 4_000_000.0, note, cluster.fencing).outcome is Outcome.DONE
    assert cluster.all_of(quota.entity) == before


def credentials_of_the_user_stay_to_the_byte(cluster: TargetUnderTest, name: str) -> None:
    cluster.add_credential(name)
    quota = Quota(Entity(user=name), PRODUCER)
    before, note = cluster.credentials_of(name), held(cluster, quota).note
    assert note is not None
    for value in (2_000_000.0, None, 3_000_000.0):
        assert write(cluster, quota, value) is Outcome.DONE
        assert cluster.credentials_of(name) == before
    assert cluster.target.put_back(quota, 3_000_000.0, note, cluster.fencing).outcome is Outcome.DONE
    assert cluster.credentials_of(name) == before


def what_somebody_else_changed_is_not_overwritten(cluster: TargetUnderTest, name: str) -> None:
    quota = Quota(Entity(user=name), PRODUCER)
    cluster.edit(quota, 5_000_000.0)
    expected = held(cluster, quota)
    assert expected.note is not None
    cluster.edit(quota, 6_000_000.0)
    written = cluster.target.write(quota, 4_000_000.0, expected, cluster.fencing)
    assert written.outcome is Outcome.CHANGED
    put_back = cluster.target.put_back(quota, 4_000_000.0, expected.note, cluster.fencing)
    assert put_back.outcome is Outcome.CHANGED
    assert held(cluster, quota).value == 6_000_000.0
    cluster.edit(quota, None)
    assert cluster.target.write(quota, 4_000_000.0, expected, cluster.fencing).outcome is Outcome.CHANGED
    assert held(cluster, quota).value is None


def a_late_enforcer_writes_nothing(cluster: TargetUnderTest, name: str) -> None:
    """The last claim to run on a cluster: it loses the lease."""
    quota = Quota(Entity(user=name), PRODUCER)
    cluster.edit(quota, 5_000_000.0)
    expected = held(cluster, quota)
    assert expected.note is not None
    cluster.lose_lease()
    assert cluster.target.write(quota, 4_000_000.0, expected, cluster.fencing).outcome is Outcome.FENCED
    put_back = cluster.target.put_back(quota, 5_000_000.0, expected.note, cluster.fencing)
    assert put_back.outcome is Outcome.FENCED
    assert held(cluster, quota).value == 5_000_000.0


TARGET_CLAIMS: tuple[Callable[[TargetUnderTest, str], None], ...] = (
    absent_quotas_read_as_none_with_a_way_back,
    all_quotas_asked_for_are_read_and_no_others,
    a_quota_is_set_changed_and_removed,
    names_that_need_escaping_are_the_exact_entity,
    what_was_absent_is_absent_again,
    a_value_is_put_back_to_the_byte_and_other_keys_stay,
    credentials_of_the_user_stay_to_the_byte,
    what_somebody_else_changed_is_not_overwritten,
    a_late_enforcer_writes_nothing,
)
"""Each with a name that no other has used on that cluster; the order matters only for the last."""


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
