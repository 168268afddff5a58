"""A notifier over small real tables: what each read of them makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from kquota_spark.config.owners_file import owners_of
from kquota_spark.config.routes import Notifications, Slack
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Event, Evidence, LogEntry, Mode, Proposal, Quota, StepId
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.notify.budgets import with_contacts
from kquota_spark.notify.job import Notifier
from tests.support.tables.table_rows import T0_MS

OPS = Slack(kind="slack", url="http://127.0.0.1:1/ops")
NEVER = Duration(365 * 86_400_000)


class Told:
    """The events of each read, as `id status` by route."""

    def __init__(
        self, root: Path, routes: dict[str, Any] | None = None, owners: str = "", **changed: float
    ) -> None:
        given = {"behind_after": NEVER, "routes": routes or {"ops": OPS}, **changed}
        notifications = Notifications(**given)  # type: ignore[arg-type]
        self.settings = Settings(
            cluster_id="demo", tables=str(root), notifications=notifications, owners=owners
        )
        self.said: list[str] = []
        self.notifier = Notifier(self.settings, self.said.append)
        self._routes = [*with_contacts(self.settings, owners_of(self.settings)).notifications.routes]

    def read(self, at_s: int = 60) -> dict[str, list[str]]:
        """What one read adds; routes without news are left out."""
        self.notifier.state.keep_routes(self._routes)
        self.notifier.find(T0_MS + at_s * 1_000)
        found = {}
        for name, lane in self.notifier.state.lanes.items():
            if lane.waiting:
                found[name] = [f"{event.event_id} {event.status}" for event in lane.waiting]
                lane.waiting = []
        return found


def logged(settings: Settings, *entries: LogEntry) -> None:
    EnforcementLog(settings).append(entries)


def entry(event: Event, step: int = 1, user: str = "alice", mode: Mode = Mode.APPROVE) -> LogEntry:
    """A row of a plan that halves alice's limit for a day."""
    evidence = Evidence(T0_MS, T0_MS + 60_000, 60, 60, 0)
    quota = Quota(Entity(user), QuotaKey.PRODUCER_BYTE_RATE)
    proposal = Proposal(quota, 1e6, 5e5, "penalty", "six violations", T0_MS + 86_400_000, evidence)
    row = LogEntry(StepId("p-1", step), event, T0_MS, proposal, mode, "enforcer")
    return row if event is Event.PLANNED else replace(row, fencing=7)
