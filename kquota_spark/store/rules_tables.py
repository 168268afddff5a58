"""Writes `quota_changes` and `quota_rules` with the deltalake package: no Spark, no JVM.

Changes are written first, then the rules derived from them. Each start derives all rules again, so that a crash in
between is repaired.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, Literal

from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import AnyEntity, parse_entity
from kquota_spark.model.quotas.quota_types import parse_key
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS, QuotaChange, RulePeriod, rule_periods
from kquota_spark.schema.columns import Table
from kquota_spark.schema.quota_tables import QUOTA_CHANGES, QUOTA_RULES
from kquota_spark.store.delta.errors import committed, delta_errors
from kquota_spark.store.delta.table import StoredTable, sql_text
from kquota_spark.store.quota_rows import OF_SOURCES, SOURCE_LEVEL, known_through_ms, source_filter
from kquota_spark.store.rows import arrow_rows, entity_columns, rows_in_ms
from kquota_spark.store.storage import place_of
from kquota_spark.store.table_log import set_log_properties

_log = logging.getLogger(__name__)

Source = Literal["zookeeper", "admin", "file"]

_TIDY_INTERVAL_S = 600
_COMMIT_ATTEMPTS = 10
_MOST_NAMED = 1_000
"""Maximum entities that a commit names; if more have changed, it replaces the rules of all."""
_EDIT = ("entity", "key", "version", "changed_at", "changed_before")
_MOST_FILES = 50
"""Maximum files of `quota_changes` before compaction; it gets one per second in which somebody edits quotas."""


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """A node that could not be read as quotas; `node` is its path below /config."""

    node: str
    entity: AnyEntity | None
    problem: str
    changed_at_ms: int
    version: int


class RulesTables:
    """The rows of one cluster in both tables, with its history in memory.

    Brokers act on an edit `apply_lag_ms` after it. A stored `known_through` later than `now_ms` of this clock, epoch
    ms, was written by a wrong clock and is ignored.

    Raises:
        UserError: the tables cannot be opened or created.
    """

    def __init__(
        self,
        root: str,
        cluster_id: str,
        *,
        source: Source,
        apply_lag_ms: int,
        storage: dict[str, str] | None = None,
        now_ms: int = END_MS,
    ) -> None:
        self._cluster_id, self._storage = cluster_id, storage
        self._source: Source = source
        self.apply_lag_ms = apply_lag_ms
        self._mine = f"cluster_id = {sql_text(cluster_id)}"
        self._changes_table = open_rules_table(root, QUOTA_CHANGES, storage)
        self._rules_table = open_rules_table(root, QUOTA_RULES, storage)
        self._tidied_at_s = time.monotonic()
        # A cluster that has moved from ZooKeeper to KRaft keeps its past.
        sources = ["zookeeper", "admin"] if source == "admin" else [source]
        self._of_source = [("cluster_id", "=", cluster_id), ("source", "in", sources)]
        self.changes, self.observed_ms, self.problems = self._read_changes()
        self.newest_edit_ms = _newest_ms(self.changes)
        """The latest time of a recorded edit, epoch ms; `observed_ms` holds when each one was seen."""
        self.known_through_ms = self._read_known_through(now_ms)
        self._edited: set[AnyEntity] | None = None
        """Entities with rules still to write; None before the first write: all of them."""

    def append(
        self, changes: Sequence[QuotaChange], problems: Sequence[NodeProblem], observed_at_ms: int
    ) -> None:
        """Add edits and problems to `quota_changes`; `write_rules` must follow."""
        if not changes and not problems:
            return
        attempts = count(1)

        def write() -> None:
            rows = self._unrecorded(changes, problems, observed_at_ms, is_first=next(attempts) == 1)
            if rows:
                self._changes_table.append(arrow_rows(QUOTA_CHANGES, rows))

        committed(write, _COMMIT_ATTEMPTS)
        self.changes.extend(changes)
        self.observed_ms.extend([observed_at_ms] * len(changes))
        self.newest_edit_ms = max(self.newest_edit_ms, _newest_ms(changes))
        if self._edited is not None:
            self._edited.update(change.entity for change in changes)
        self.problems.update({problem.node: (problem.version, problem.problem) for problem in problems})

    def mend(self, changes: Sequence[QuotaChange]) -> int:
        """Replace the times of edits in `quota_changes`; return how many were replaced. `write_rules` must follow.

        Args:
            changes: the edits of the attribute `changes` in the same order, some with other times.
        """
        pairs = zip(self.changes, changes, strict=True)
        mended = {_edit(was): now for was, now in pairs if _edit(was) != _edit(now)}
        attempts = count(1)

        def write() -> None:
            if next(attempts) > 1:
                self._changes_table = self._opened(self._changes_table)
            rows = _rows(
                self._changes_table, list(QUOTA_CHANGES.names), [("cluster_id", "=", self._cluster_id)]
            )
            for row in rows:
                edit = tuple(row[name] for name in _EDIT)
                if edit in mended:
                    row["changed_at"], row["changed_before"] = (
                        mended[edit].changed_at_ms,
                        mended[edit].changed_before_ms,
                    )
            self._changes_table.replace(arrow_rows(QUOTA_CHANGES, rows), self._mine)

        committed(write, _COMMIT_ATTEMPTS)
        self.changes, self.newest_edit_ms = list(changes), _newest_ms(changes)
        if self._edited is not None:
            self._edited.update(change.entity for change in mended.values())
        return len(mended)

    def write_rules(self, known_through_ms: int | None) -> None:
        """Write the changed rules and the source's own row in one commit; None leaves known_through as it was.

        The first call writes the rules of all entities. Later calls write those of edited entities.
        """
        edited, predicate = self._edited, self._mine
        changes: Iterable[QuotaChange] = self.changes
        if edited is not None and len(edited) <= _MOST_NAMED:
            changes = [change for change in self.changes if change.entity in edited]
            names = ", ".join(sql_text(str(entity)) for entity in edited)
            predicate += f" AND ({OF_SOURCES} OR entity IN ({names}))" if edited else f" AND {OF_SOURCES}"
        rules = rule_periods(changes, apply_lag_ms=self.apply_lag_ms)
        self._write_rules(rules, known_through_ms, predicate)
        self._edited = set()

    def write_known_through(self, known_through_ms: int) -> None:
        """Write the source's own row only: nothing has changed up to this time."""
        self.known_through_ms = known_through_ms
        predicate = f"{OF_SOURCES} AND {self._mine}"
        self._replace_rules([self._source_row()], predicate)
        if time.monotonic() - self._tidied_at_s >= _TIDY_INTERVAL_S:
            self.tidy()

    def write_file(self, changes: Sequence[QuotaChange], observed_at_ms: int) -> None:
        """Write the timeline of a quota file. A file is complete, so it is known through the end of time.

        The rules are those of the file. An edit that was removed from the file stays in `quota_changes`, as a record.
        """
        recorded = set(self.changes)
        self.append([change for change in changes if change not in recorded], (), observed_at_ms)
        self._write_rules(rule_periods(changes, apply_lag_ms=self.apply_lag_ms), END_MS, self._mine)

    def tidy(self) -> None:
        """Remove files and log entries of old commits; a replaced file stays for ten minutes."""
        self._tidied_at_s = time.monotonic()
        try:
            with delta_errors(f"{QUOTA_RULES.name}: old files were not removed"):
                # Without hours, the table's deletedFileRetentionDuration applies; vacuum takes whole hours only.
                self._rules_table.remove_old_files()
                self._rules_table.remove_old_entries()
                self._changes_table.refresh()
                if len(self._changes_table.paths()) > _MOST_FILES:
                    self._changes_table.compact()
        except UserError as error:
            # Old files do no harm, and the next call removes them too.
            _log.warning("%s", error)

    def _write_rules(self, rules: Iterable[RulePeriod], known_through_ms: int | None, predicate: str) -> None:
        if known_through_ms is not None:
            # The newest value counts, even if it is an earlier time: the clock was ahead before.
            self.known_through_ms = known_through_ms
        rows = chain([self._source_row()], map(self._rule_row, rules))
        self._replace_rules(rows, predicate)

    def _unrecorded(
        self, changes: Sequence[QuotaChange], problems: Sequence[NodeProblem], at_ms: int, *, is_first: bool
    ) -> list[dict[str, Any]]:
        """Rows to append. A failed commit may have been made, with only its answer lost: a retry reads the table."""
        recorded: set[QuotaChange] = set()
        reported: Mapping[str, tuple[int, str]] = {}
        if not is_first:
            self._changes_table = self._opened(self._changes_table)
            found, _, reported = self._read_changes()
            recorded.update(found)
        edits = [self._change_row(change, at_ms) for change in changes if change not in recorded]
        return edits + [
            self._problem_row(problem, at_ms)
            for problem in problems
            if reported.get(problem.node) != (problem.version, problem.problem)
        ]

    def _replace_rules(self, rows: Iterable[dict[str, Any]], predicate: str) -> None:
        """Replace the rows that match `predicate`; retry if another cluster's watcher was faster."""
        data, attempts = arrow_rows(QUOTA_RULES, rows), count(1)

        def write() -> None:
            if next(attempts) > 1:
                self._rules_table = self._opened(self._rules_table)
            self._rules_table.replace(data, predicate)

        committed(write, _COMMIT_ATTEMPTS)

    def _opened(self, table: StoredTable) -> StoredTable:
        return StoredTable.opened(table.place, self._storage)

    def _read_changes(self) -> tuple[list[QuotaChange], list[int], dict[str, tuple[int, str]]]:
        of_edit = ["value", "previous_value", "changed_at", "version", "changed_before"]
        columns = ["entity", "key", *of_edit, "observed_at", "problem"]
        changes: list[QuotaChange] = []
        observed_ms: list[int] = []
        problems: dict[str, tuple[int, str]] = {}
        for row in _rows(self._changes_table, columns, self._of_source):
            if row["key"] is not None:
                edited = parse_entity(row["entity"]), parse_key(row["key"])
                changes.append(QuotaChange(*edited, *(row[name] for name in of_edit)))
                observed_ms.append(row["observed_at"])
            elif row["version"] >= problems.get(row["entity"], (0, ""))[0]:
                problems[row["entity"]] = (row["version"], row["problem"])
        return changes, observed_ms, problems

    def _read_known_through(self, now_ms: int) -> int | None:
        mine = [*source_filter(), *self._of_source]
        known_ms = known_through_ms(_rows(self._rules_table, ["known_through"], mine))
        if known_ms is None or known_ms <= now_ms:
            return known_ms
        _log.warning(
            "%s reports quotas as known through %s, which is ahead of this clock: not believed",
            QUOTA_RULES.name,
            time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(known_ms / 1_000)),
        )
        return None

    def _change_row(self, change: QuotaChange, observed_at_ms: int) -> dict[str, Any]:
        return entity_columns(change.entity) | {
            "cluster_id": self._cluster_id,
            "key": change.key.value,
            "value": change.value,
            "previous_value": change.previous,
            "changed_at": change.changed_at_ms,
            "version": change.version,
            "source": self._source,
            "observed_at": observed_at_ms,
            "changed_before": change.changed_before_ms,
        }

    def _problem_row(self, problem: NodeProblem, observed_at_ms: int) -> dict[str, Any]:
        entity = {} if problem.entity is None else entity_columns(problem.entity)
        return entity | {
            "cluster_id": self._cluster_id,
            "entity": problem.node,
            "changed_at": problem.changed_at_ms,
            "version": problem.version,
            "source": self._source,
            "observed_at": observed_at_ms,
            "problem": problem.problem,
        }

    def _rule_row(self, rule: RulePeriod) -> dict[str, Any]:
        return (
            entity_columns(rule.entity)
            | {key.value: value for key, value in rule.values.items()}
            | {
                "cluster_id": self._cluster_id,
                "valid_from": rule.valid_from_ms,
                "valid_to": rule.valid_to_ms,
                "certain_from": rule.certain_from_ms,
                "version": rule.version,
                "source": self._source,
            }
        )

    def _source_row(self) -> dict[str, Any]:
        return {
            "cluster_id": self._cluster_id,
            "level": SOURCE_LEVEL,
            "known_through": self.known_through_ms,
            "version": max((change.version for change in self.changes), default=None),
            "source": self._source,
        }


def _newest_ms(changes: Iterable[QuotaChange]) -> int:
    return max((change.latest_ms for change in changes), default=BEGINNING_MS)


def _edit(change: QuotaChange) -> tuple[Any, ...]:
    """The values of the columns `_EDIT`, which identify an edit."""
    times = change.version, change.changed_at_ms, change.changed_before_ms
    return (str(change.entity), change.key.value, *times)


def open_rules_table(root: str, table: Table, storage: dict[str, str] | None) -> StoredTable:
    """Open a table of the watch, and create it if it is missing.

    Raises:
        UserError: it cannot be opened or created.
    """
    uri = place_of(root, table.name)
    with delta_errors(f"{uri}: cannot be opened as a Delta table"):
        opened = StoredTable.created(
            uri, table.arrow_schema(), table.log_properties, storage, partition_by=table.partition_by
        )
        opened.add_columns(table)  # an earlier release had fewer
        set_log_properties(opened, table)
        opened.flush()
        return opened


def _rows(
    table: StoredTable, columns: list[str], filters: list[tuple[str, str, Any]]
) -> list[dict[str, Any]]:
    """Rows as Python values, times in epoch milliseconds."""
    return rows_in_ms(table.rows(columns, filters))
