"""Read possible news from the tables. A table that did not change since the last read is not read again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from kquota_spark.config.owners_file import owners_of
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Event as LogEvent
from kquota_spark.enforce.changes import LogEntry
from kquota_spark.enforce.guard_settings import GuardSettings
from kquota_spark.enforce.log_state import LogState
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.enforcement.policies import load_policies
from kquota_spark.errors import UserError
from kquota_spark.notify.budgets import KIND, BudgetNews
from kquota_spark.notify.news.events import Event, Fact, Seen, Status, fact, over
from kquota_spark.notify.news.fold import Found, Known
from kquota_spark.reports.agreement.agreement import LEAST_PERCENT, percent
from kquota_spark.schema.harm import EPISODE_DELAY_MS, EPISODE_REQUESTS
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables

_HOUR_MS = 3_600_000
_AGREEMENT_EVERY_MS = 60_000
"""Minimum time between two checks of the agreement, ms: an hour of decisions has many files."""
_LEAST_VERDICTS = 100
"""Minimum number of verdicts: the agreeing share of fewer has no meaning."""
_EPISODES = f"""
select episode_id, broker_id, quota_type, bucket_user as "user", bucket_client_id as client_id, bucket_tags as tags,
  epoch_ms(start_time) as start_ms, epoch_ms(end_time) as end_ms, rule, limit_per_s, peak_rate_per_s,
  peak_quota_used_percent, {EPISODE_DELAY_MS} as delay_ms, {EPISODE_REQUESTS} as throttled_requests, users, client_ids
from violations
where cluster_id = $1 and (end_time is null or epoch_ms(last_second) >= $2 or list_contains($3, episode_id))
  and coalesce({EPISODE_DELAY_MS} >= $4, true) and coalesce(peak_quota_used_percent, 0) >= $5
order by start_time, episode_id
"""  # noqa: S608 - columns of ours
_NEWEST_EPISODE = "select epoch_ms(max(last_second)) from violations where cluster_id = ?"
_SEQUENCES = "select sequence from enforcement_log where cluster_id = ? order by sequence"
_KNOWN_THROUGH = "select epoch_ms(min(known_through)) from quota_sources where cluster_id = ?"
_AGREEING = f"""
select coalesce(sum(requests_judged), 0)::bigint as requests_judged,
  coalesce(sum(requests_agreeing), 0)::bigint as requests_agreeing
from decisions where cluster_id = ? and {FROM_LOG} and epoch_ms(second) >= ?
"""  # noqa: S608 - a condition of ours
_NEWEST = {
    "requests": "select max(record_time_ms) from requests where cluster_id = ? and record_time_ms >= ?",
    "jmx_samples": "select max(sample_time_ms) from jmx_samples where cluster_id = ? and sample_time_ms >= ?",
    "usage": """
select epoch_ms(max(usage.second)) from usage
where cluster_id = ? and usage.second >= make_timestamptz(?::bigint * 1000)
""",
    "decisions": """
select epoch_ms(max(decisions.second)) from decisions
where cluster_id = ? and decisions.second >= make_timestamptz(?::bigint * 1000)
""",
}
_ONCE = {LogEvent.APPLIED: "applied", LogEvent.RESTORED: "rolled_back", LogEvent.FAILED: "failed"}


class _Log(NamedTuple):
    """The enforcement log, as of the last read."""

    entries: list[tuple[int, LogEntry]]
    state: LogState


class NewsTables:
    """The tables of one cluster, for repeated reads."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._cluster_id = settings, settings.cluster_id
        self._switch = FreezeSwitch(settings)
        self._owners = owners_of(settings)
        self._budgets = None if self._owners is None else BudgetNews(settings, self._owners)
        self._tables: Tables | None = None
        self._log = _Log([], LogState())
        self._agreed_ms: int | None = None

    def close(self) -> None:
        """Free the resources for reading; the next read opens the tables again."""
        if self._tables is not None:
            self._tables.close()
        self._tables = None
        if self._budgets is not None:
            self._budgets.close()

    def read(self, known: Known, now_ms: int) -> Found:
        """The conditions that hold or have ended, and the events that happened once.

        Raises:
            UserError: a table cannot be read; the next read finds the news since the last one.
        """
        found = Found(ended_from_ms=known.ended_from_ms, log_sequence=known.log_sequence)
        try:
            self._tables = self._tables or Tables(self._settings)
            self._violations(self._tables, known, found)
            self._enforcement(self._tables, known, found, now_ms)
            self._behind(self._tables, found, now_ms)
            self._disagreeing(self._tables, found, now_ms)
            self._burning(found)
        except BaseException:
            self.close()
            raise
        self._frozen(found)
        return found

    def _violations(self, tables: Tables, known: Known, found: Found) -> None:
        if tables.location("violations") is None or not tables.follow("violations", _HOUR_MS):
            return
        found.kinds.add("violation")
        newest_ms = tables.query(_NEWEST_EPISODE, [self._cluster_id]).rows[0][0]
        found.ended_from_ms = max(known.ended_from_ms, (newest_ms or 0) - _HOUR_MS)
        from_ms = known.ended_from_ms if known.is_begun else found.ended_from_ms
        ids = [one.removeprefix("violation/") for one in known.active]
        least = self._settings.notifications
        asked = [self._cluster_id, from_ms, ids, least.least_delay, least.least_used_percent]
        for row in tables.query(_EPISODES, asked).dicts():
            seen = self._episode(row)
            (found.ended if seen.event.status == "over" else found.holding).append(seen)

    def _episode(self, row: dict[str, Any]) -> Seen:
        episode_id, start_ms, end_ms = (row.pop(name) for name in ("episode_id", "start_ms", "end_ms"))
        # An empty tag is not a tag.
        users, client_ids = (
            [*(row.pop(inside) or ()), *([row[tag]] if row[tag] else [])]
            for inside, tag in (("users", "user"), ("client_ids", "client_id"))
        )
        facts = {name: fact(value) for name, value in row.items()}
        if facts["tags"] != row["tags"]:  # JSON that was cut is not valid any more
            facts["tags"] = json.dumps({"tags": facts["tags"]})
        begun = self._event("violation", episode_id, start_ms, facts)
        event = begun if end_ms is None else over(begun, end_ms)
        return Seen(
            f"violation/{episode_id}", event, users, client_ids, self._owners_of(users, client_ids, start_ms)
        )

    def _owners_of(self, users: Sequence[str], client_ids: Sequence[str], at_ms: int) -> Sequence[str]:
        """The owners of the clients that these names can be of."""
        if self._owners is None:
            return ()
        clients = product(dict.fromkeys(users) or [""], dict.fromkeys(client_ids) or [""])
        return sorted({self._owners.of(user, client_id, at_ms).name for user, client_id in clients})

    def _burning(self, found: Found) -> None:
        if self._budgets is None:
            return
        found.holding += self._budgets.read()
        if self._budgets.is_known:
            found.kinds.add(KIND)

    def _enforcement(self, tables: Tables, known: Known, found: Found, now_ms: int) -> None:
        if not self._follow(tables, "enforcement_log", self._read_log):
            return
        found.kinds.add("plan_waiting")
        for sequence, entry in self._log.entries:
            if sequence > known.log_sequence and entry.event in _ONCE:
                found.once.append(self._step(_ONCE[entry.event], entry, entry.at_ms, f"/{sequence}"))
        found.log_sequence = max((sequence for sequence, _ in self._log.entries), default=0)
        waiting = [step for step in self._log.state.steps.values() if step.needs_approval]
        within_ms = self._approve_within_ms() if waiting else 0
        found.holding += [
            self._step("plan_waiting", step.planned, step.planned.at_ms)
            for step in waiting
            if step.overdue(now_ms, within_ms) is None
        ]

    def _read_log(self, tables: Tables) -> None:
        sequences = [sequence for (sequence,) in tables.query(_SEQUENCES, [self._cluster_id]).rows]
        entries = EnforcementLog(self._settings).entries()
        # Rows that were written after the numbers were read wait for the next read.
        numbered = list(zip(sequences, entries, strict=False))
        self._log = _Log(numbered, LogState.of(entry for _, entry in numbered))

    def _approve_within_ms(self) -> int:
        try:
            return load_policies(Path(self._settings.enforcement.policy_file)).guards.approve_within
        except UserError:  # the notifier may run on a machine without the policy file
            return GuardSettings().approve_within

    def _step(self, kind: str, entry: LogEntry, at_ms: int, number: str = "") -> Seen:
        proposal, (plan_id, step) = entry.proposal, entry.step_id
        entity = proposal.quota.entity
        names = {
            name: value
            for name, value in (("user", entity.user), ("client_id", entity.client_id))
            if isinstance(value, str)
        }
        values: dict[str, Fact] = {
            "plan_id": plan_id, "step": step, "entity": str(entity), "key": proposal.quota.key.value,
            "value_before": proposal.before, "value_after": proposal.after, "policy": proposal.policy,
            "reason": proposal.reason, "actor": entry.actor, "detail": entry.detail,
            "expires_ms": proposal.expires_at_ms, **names,
        }  # fmt: skip
        facts = {name: fact(value) for name, value in values.items()}
        status: Status = "once" if kind in _ONCE.values() else "begins"
        event = self._event(kind, f"{plan_id}/{step}{number}", at_ms, facts, status)
        users, client_ids = ([names[name]] if name in names else [] for name in ("user", "client_id"))
        owners = self._owners_of(users, client_ids, at_ms) if names else ()
        return Seen(f"{kind}/{plan_id}/{step}", event, users, client_ids, owners)

    def _frozen(self, found: Found) -> None:
        frozen = self._switch.frozen()
        if frozen is not None and not frozen.since_ms:
            return  # the switch cannot be read: its last known state stays
        found.kinds.add("frozen")
        if frozen is not None:
            facts: dict[str, Fact] = {"actor": fact(frozen.actor), "reason": fact(frozen.reason)}
            event = self._event("frozen", str(frozen.since_ms), frozen.since_ms, facts)
            found.holding.append(Seen(f"frozen/{frozen.since_ms}", event))

    def _behind(self, tables: Tables, found: Found, now_ms: int) -> None:
        found.kinds.add("audit_behind")
        for part, newest_ms, should_be_ms in self._parts(tables, now_ms):
            if should_be_ms - newest_ms > self._settings.notifications.behind_after:
                facts: dict[str, Fact] = {"part": part, "newest_ms": newest_ms}
                # The id has a time, because the condition may begin again.
                event = self._event("audit_behind", f"{part}/{now_ms}", now_ms, facts)
                found.holding.append(Seen(f"audit_behind/{part}", event))

    def _parts(self, tables: Tables, now_ms: int) -> Iterator[tuple[str, int, int]]:
        """Parts of the audit, each with its newest time and the time that it should have reached, epoch ms."""
        lines = ("log", "requests") if self._settings.kafka.has_log else ("jmx", "jmx_samples")
        newest = {name: self._newest(tables, name) for name in (lines[1], "usage", "decisions")}
        if (lines_ms := newest[lines[1]]) is not None:
            yield lines[0], lines_ms, now_ms
        if newest["usage"] is not None and newest["decisions"] is not None:
            yield "verdicts", newest["decisions"], newest["usage"]
        # All edits of a quota file are always known.
        if self._settings.quotas.source != "file" and self._follow(tables, "quota_rules"):
            through_ms = tables.query(_KNOWN_THROUGH, [self._cluster_id]).rows[0][0]
            if through_ms is not None:
                yield "quotas", through_ms, now_ms

    def _newest(self, tables: Tables, name: str) -> int | None:
        """The newest time of this cluster (epoch ms), at least an hour before that of all clusters; None if unknown."""
        of_all_ms = tables.newest_ms(name) if self._follow(tables, name) else None
        if of_all_ms is None:
            return None
        # If the cluster is not behind, the last minutes are enough; an hour may be millions of rows.
        for last_ms in (self._settings.notifications.behind_after, _HOUR_MS):
            own_ms = tables.query(_NEWEST[name], [self._cluster_id, of_all_ms - last_ms]).rows[0][0]
            if own_ms is not None:
                return int(own_ms)
        return of_all_ms - _HOUR_MS

    def _disagreeing(self, tables: Tables, found: Found, now_ms: int) -> None:
        newest_ms = self._newest(tables, "decisions")
        is_soon = self._agreed_ms is not None and 0 <= now_ms - self._agreed_ms < _AGREEMENT_EVERY_MS
        if newest_ms is None or is_soon or not self._settings.kafka.has_log:
            return
        self._agreed_ms = now_ms
        found.kinds.add("audit_disagreeing")
        [row] = tables.query(_AGREEING, [self._cluster_id, newest_ms - _HOUR_MS]).dicts()
        share, judged = percent(row), row["requests_judged"]
        if share is not None and judged >= _LEAST_VERDICTS and share < LEAST_PERCENT:
            facts: dict[str, Fact] = {"agreement_percent": share, "requests_judged": judged}
            event = self._event("audit_disagreeing", str(now_ms), now_ms, facts)
            found.holding.append(Seen("audit_disagreeing", event))

    def _follow(self, tables: Tables, name: str, changed: Callable[[Tables], None] | None = None) -> bool:
        """Whether a table exists; calls `changed` if it has changed since the last read."""
        if tables.location(name) is None:
            return False
        if tables.follow(name, _HOUR_MS) and changed is not None:
            changed(tables)
        return True

    def _event(
        self, kind: str, name: str, at_ms: int, facts: dict[str, Fact], status: Status = "begins"
    ) -> Event:
        return Event(f"{self._cluster_id}/{kind}/{name}", kind, status, at_ms, at_ms, facts)
