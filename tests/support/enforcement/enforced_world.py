"""A small cluster in memory, an enforcer on it, and proposals for it: what tests of enforcement begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kquota_spark.config.rules import Duration
from kquota_spark.enforce.changes import Evidence, LogEntry, Mode, Proposal, Quota
from kquota_spark.enforce.enforcer import Enforcer
from kquota_spark.enforce.guard_settings import Bounds, Exempt, GuardSettings
from kquota_spark.enforce.guards import Situation
from kquota_spark.enforce.in_memory import (
    InMemoryLease,
    InMemoryLeases,
    InMemoryLedger,
    InMemorySwitch,
    MemoryCluster,
)
from kquota_spark.enforce.ports import Cluster, Ledger
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey

NOW_MS = 1_700_000_000_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
ALICE = Quota(Entity(user="alice"), QuotaKey.PRODUCER_BYTE_RATE)
BOB = Quota(Entity(user="bob"), QuotaKey.PRODUCER_BYTE_RATE)
NOBODY = Exempt()
SETTINGS = GuardSettings(
    bounds={"producer_byte_rate": Bounds(floor=1e6, ceiling=8e6, largest_step_percent=50.0)},
    hold_time=Duration(HOUR_MS),
    changes_per_hour=10,
    changes_per_plan=5,
    max_age=Duration(2 * MINUTE_MS),
    min_certain_percent=95.0,
    reversals_per_day=2,
)


def evidence(now_ms: int = NOW_MS, *, certain: int = 60, throttled: int = 0) -> Evidence:
    """A minute of decisions that ends ten seconds ago."""
    return Evidence(now_ms - 70_000, now_ms - 10_000, 60, certain, throttled)


def proposal(
    after: float | None = 3e6,
    before: float | None = 4e6,
    *,
    quota: Quota = ALICE,
    now_ms: int = NOW_MS,
    lasts_ms: int | None = None,
    policy: str = "penalty",
) -> Proposal:
    expires_at_ms = None if lasts_ms is None else now_ms + lasts_ms
    return Proposal(quota, before, after, policy, "because", expires_at_ms, evidence(now_ms))


def situation(now_ms: int = NOW_MS, edited_at_ms: Mapping[Quota, int] | None = None) -> Situation:
    """All is seen, and ten seconds old."""
    return Situation(now_ms - 10_000, now_ms - 10_000, True, (), edited_at_ms or {})


class World:
    """Alice and Bob may produce 4 MB/s; all policies enforce."""

    def __init__(self, settings: GuardSettings = SETTINGS, exempt: Exempt = NOBODY) -> None:
        self.settings, self.exempt = settings, exempt
        self.leases, self.ledger, self.switch = InMemoryLeases(), InMemoryLedger(), InMemorySwitch()
        self.cluster = MemoryCluster(self.leases)
        self.target: Cluster = self.cluster
        self.log_port: Ledger = self.ledger
        self.mode = Mode.ENFORCE
        self.needs_second_person = False
        for quota in (ALICE, BOB):
            self.set(quota, 4e6)

    def set(self, quota: Quota, value: float | None) -> None:
        """By an operator's hand."""
        self.cluster.set_text(quota, None if value is None else str(value))

    def value(self, quota: Quota = ALICE) -> float | None:
        return self.cluster.read([quota])[quota].value

    def enforcer(self, name: str = "enforcer") -> Enforcer:
        """A new process: it remembers nothing but the ledger."""
        return Enforcer(
            self.target,
            self.log_port,
            InMemoryLease(self.leases, name),
            self.switch,
            guards=self.settings,
            exempt=self.exempt,
            mode_of=lambda _: self.mode,
            actor=name,
            needs_second_person=self.needs_second_person,
        )

    def enforce(
        self, *wanted: Proposal, now_ms: int = NOW_MS, known: Situation | None = None
    ) -> list[LogEntry]:
        """One round; its rows."""
        report = self.enforcer().run(wanted, known or situation(now_ms), now_ms)
        return list(report.entries)

    def log(self) -> list[tuple[int, str]]:
        """Step and event of every row."""
        return [(entry.step_id.step, entry.event.value) for entry in self.ledger.entries()]


def events(rows: list[LogEntry]) -> list[str]:
    """What happened, refusals with their guard."""
    return [row.event.value if row.guard is None else f"refused by {row.guard}" for row in rows]


def with_throttled(wanted: Proposal, seconds: int) -> Proposal:
    """The same, on decisions of which so many seconds were throttled."""
    return replace(wanted, evidence=replace(wanted.evidence, throttled_seconds=seconds))
