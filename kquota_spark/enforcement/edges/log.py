"""The table `enforcement_log`: written with deltalake, read with DuckDB; no Spark, no JVM.

The number of the last row is kept as the Delta transaction of the cluster. Two simultaneous writers would write the
same number, so Delta refuses the second one, which then continues after the last row of the first one.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Event, Evidence, LogEntry, Mode, Proposal, Quota, StepId
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.schema.quota_tables import ENFORCEMENT_LOG
from kquota_spark.store.delta.errors import committed, delta_errors
from kquota_spark.store.reading import Tables
from kquota_spark.store.storage import delta_table, local_place_of, place_of

if TYPE_CHECKING:
    from kquota_spark.store.delta.table import StoredTable

_log = logging.getLogger(__name__)

_DAY_MS = 86_400_000
_ATTEMPTS = 20
_MANY_FILES = 50
"""Files per day above which they are compacted into one.

Each append adds a file, and each file costs a reader a few tenths of a millisecond.
"""
_TIMES = ("at", "expires_at")
_PROPOSAL = (
    "entity", "key", "value_before", "value_after", "policy", "reason", "expires_at", "evidence",
    "would_have", "is_penalty",
)  # fmt: skip
_STEP = (
    "plan_id", "step", "event", "at", "mode", "actor", "guard", "fencing", "note", "detail", "author",
    "approver", "ticket",
)  # fmt: skip


class EnforcementLog:
    """A `Ledger` of one cluster; the first append creates the table."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._cluster_id = settings.cluster_id
        self._writer = f"{ENFORCEMENT_LOG.name}/{settings.cluster_id}"
        self._is_there = False

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Append rows in this order; they are durable when this returns.

        Raises:
            UserError: the table cannot be written.
        """
        if not entries:
            return
        self._create()
        where = place_of(self._settings.tables, ENFORCEMENT_LOG.name)
        with delta_errors(f"{where} cannot be written"):
            committed(lambda: self._commit(entries), _ATTEMPTS)

    def entries(self, of: Collection[Entity] | None = None) -> list[LogEntry]:
        """The rows in the order in which they were written; none if there is no table.

        Args:
            of: entities of the rows to return; None for all rows.

        Raises:
            UserError: the table cannot be read.
        """
        local = local_place_of(self._settings.tables, ENFORCEMENT_LOG.name)
        if local is not None and not (local / "_delta_log").is_dir():
            return []
        columns = ", ".join(
            f'epoch_ms("{name}")' if name in _TIMES else f'"{name}"' for name in (*_PROPOSAL, *_STEP)
        )
        where = "cluster_id = ?" if of is None else "cluster_id = ? and list_contains(?, entity)"
        values: list[object] = [self._cluster_id, *([] if of is None else [list(map(str, of))])]
        sql = f"select {columns} from {ENFORCEMENT_LOG.name} where {where} order by sequence"  # noqa: S608
        with Tables(self._settings) as tables:
            tables.open_if_there(ENFORCEMENT_LOG.name)
            return [_entry(row) for row in tables.query(sql, values).rows]

    def _create(self) -> None:
        if not self._is_there:
            from kquota_spark.store.creation import create_table

            create_table(self._settings, ENFORCEMENT_LOG)
            self._is_there = True

    def _commit(self, entries: Sequence[LogEntry]) -> None:
        from kquota_spark.store.rows import arrow_rows

        table = delta_table(self._settings, ENFORCEMENT_LOG.name)
        last = table.number_of(self._writer) or 0
        data = arrow_rows(
            ENFORCEMENT_LOG, [self._row(entry, last + i) for i, entry in enumerate(entries, start=1)]
        )
        table.append(data, (self._writer, last + len(entries)))
        self._tidy(table, entries[-1].at_ms)

    def _tidy(self, table: StoredTable, at_ms: int) -> None:
        date = datetime.fromtimestamp(at_ms // 1_000, UTC).date()
        try:
            with delta_errors(f"{ENFORCEMENT_LOG.name}: files were not put together"):
                if table.count_files_of(date.isoformat()) > _MANY_FILES:
                    table.compact(date.isoformat())
        except UserError as error:
            # Many files only make reading slow; the next append tries again.
            _log.debug("%s", error)

    def _row(self, entry: LogEntry, sequence: int) -> dict[str, Any]:
        from kquota_spark.store.rows import entity_columns

        proposal = entry.proposal
        return entity_columns(proposal.quota.entity) | {
            "cluster_id": self._cluster_id,
            "event_date": entry.at_ms // _DAY_MS,
            "plan_id": entry.step_id.plan_id,
            "step": entry.step_id.step,
            "sequence": sequence,
            "event": entry.event.value,
            "at": entry.at_ms,
            "key": proposal.quota.key.value,
            "value_before": proposal.before,
            "value_after": proposal.after,
            "policy": proposal.policy,
            "reason": proposal.reason,
            "would_have": proposal.would_have,
            "expires_at": proposal.expires_at_ms,
            "is_penalty": proposal.is_penalty,
            "evidence": _evidence_text(proposal.evidence),
            "mode": entry.mode.name.lower(),
            "actor": entry.actor,
            "guard": entry.guard,
            "fencing": entry.fencing,
            "note": entry.note,
            "detail": entry.detail,
            "author": entry.author,
            "approver": entry.approver,
            "ticket": entry.ticket,
        }


def _entry(row: tuple[Any, ...]) -> LogEntry:
    proposal = _proposal(*row[: len(_PROPOSAL)])
    plan_id, step, event, at_ms, mode, *rest = row[len(_PROPOSAL) :]
    return LogEntry(StepId(plan_id, step), Event(event), at_ms, proposal, Mode[mode.upper()], *rest)


@lru_cache(maxsize=10_000)
def _proposal(entity: str, key: str, *row: Any) -> Proposal:
    """The proposal of a row; cached, because it is the same for all events of a step."""
    before, after, policy, reason, expires_at_ms, evidence, *rest = row
    quota = Quota(Entity.parse(entity), QuotaKey(key))
    return Proposal(quota, before, after, policy, reason, expires_at_ms, _evidence(evidence), *rest)


def _evidence_text(evidence: Evidence) -> str:
    """The evidence as JSON. JSON has no number for infinity, so infinite values are texts."""
    numbers = {
        name: value if math.isfinite(value) else str(value) for name, value in evidence.numbers.items()
    }
    return json.dumps(asdict(evidence) | {"numbers": numbers}, ensure_ascii=False)


def _evidence(text: str) -> Evidence:
    found: dict[str, Any] = msgspec.json.decode(text)
    numbers: Mapping[str, float | str] = found.pop("numbers")
    return Evidence(**found, numbers={name: float(value) for name, value in numbers.items()})
