"""Computes the seconds of closed dates once, and keeps them in the table `budget_days`: for `kquota maintain`."""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import date
from typing import Any

from kquota_spark.audit.past.maintain import Step
from kquota_spark.config.owners_file import owners_of
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import counted
from kquota_spark.model.budgets.budgets import OwnSeconds
from kquota_spark.model.budgets.objectives import MOST_DAYS
from kquota_spark.reports.budgets.grouping import MANY_USERS, USER, Grouping, by_owner, by_user
from kquota_spark.reports.budgets.kept_days import (
    TABLES,
    State,
    rules_digest,
    states_of,
)
from kquota_spark.reports.budgets.own_seconds import own_seconds
from kquota_spark.reports.scope.period import Period
from kquota_spark.schema.day_tables import BUDGET_DAYS
from kquota_spark.store.commits import retried
from kquota_spark.store.creation import create_table
from kquota_spark.store.dated_files import DAY_MS, FilesByTable, day_ms, newest_days
from kquota_spark.store.delta.table import sql_text, sql_texts
from kquota_spark.store.reading import Tables
from kquota_spark.store.rows import arrow_rows
from kquota_spark.store.storage import delta_table

_MOST_USERS = 5_000
"""Maximum users of a date that are kept: names of sessions could be without number, and must not fill the memory."""
_USERS = 'select count(distinct "user") from usage where cluster_id = ?'
_DAYS = MOST_DAYS + 1
"""Dates before the newest one that budgets can be of."""


class BudgetRollUp:
    """A roll-up of `audit.past.maintain`: called for each closed date, it computes those that are missing."""

    def __init__(self) -> None:
        self._found: _Missing | None = None

    def __call__(self, settings: Settings, day: date) -> Step | None:
        """Replace the rows of a closed date, unless they hold; the step that was done.

        A date without rows of `usage` or of `decisions` is left as it is: they were deleted for their age.

        Raises:
            UserError: a table cannot be read or written.
        """
        if self._found is None:
            self._found = _Missing(settings)
        name = day.isoformat()
        groupings = self._found.groupings_of(name)
        rows, notes = list[dict[str, Any]](), self._found.problems()
        for grouping in groupings:
            # A date that cannot be computed must not stop the deletion of old ones.
            try:
                found = _rows(settings, name, grouping, self._found.files)
            except UserError as error:
                notes.append(str(error).splitlines()[0])
                continue
            is_marked = any(row["grouped_by"] == MANY_USERS for row in found)
            notes.append(
                f"more than {counted(_MOST_USERS, USER)}"
                if is_marked
                else counted(len(found), grouping.kept_as)
            )
            rows += found
        # Rows of what the tables do not have any more must not outlive the date.
        kinds = self._found.stale_kinds(name) | {grouping.kept_as for grouping in groupings}
        if rows or self._found.stale_kinds(name):
            _replace(settings, name, kinds | ({MANY_USERS} if USER in kinds else set()), rows)
        action = "add date" if rows else "skip"
        return Step(BUDGET_DAYS.name, action, name, int(bool(rows)), ", ".join(notes)) if notes else None


class _Missing:
    """Which dates are not kept, as of the snapshots of its creation: a later commit counts in the next run."""

    def __init__(self, settings: Settings) -> None:
        self._problems = list[str]()
        self._groupings = [*self._of_owners(settings), by_user()]
        with Tables(settings) as tables:
            dated = {name: tables.dated_files(name) for name in TABLES if tables.location(name) is not None}
            self.files: FilesByTable = {name: found for name, found in dated.items() if found is not None}
            self._days = self._days_in_tables()
            self._states = set(states_of(tables, settings.cluster_id, self._days))

    def groupings_of(self, day: str) -> list[Grouping]:
        """The groupings of which a date has no rows that hold."""
        if day not in self._days:
            return []
        of_day = [state for state in self._states if state.day == day]
        return [
            grouping
            for grouping in self._groupings
            if not any(
                state.holds(self.files, grouping) or self._is_marked(state, grouping) for state in of_day
            )
        ]

    def stale_kinds(self, day: str) -> set[str]:
        """The values of `grouped_by` of rows of a date that were computed from other rows than the tables have."""
        of_day = (state for state in self._states if state.day == day and day in self._days)
        return {state.grouped_by for state in of_day if not state.has_all_rows(self.files)}

    def _is_marked(self, state: State, grouping: Grouping) -> bool:
        is_marked = grouping.kept_as == USER and state.grouped_by == MANY_USERS
        return is_marked and state.has_all_rows(self.files)

    def problems(self) -> list[str]:
        """Why no owners are kept, once; empty if they are."""
        problems, self._problems = self._problems, []
        return problems

    def _of_owners(self, settings: Settings) -> list[Grouping]:
        # A mistake in the file of owners must not stop the deletion of old dates.
        try:
            owners = owners_of(settings)
        except UserError as error:
            self._problems.append(str(error).splitlines()[0])
            return []
        return [] if owners is None else [by_owner(owners)]

    def _days_in_tables(self) -> list[str]:
        """The dates of which each table has rows, the newest 91 of the calendar at most."""
        return newest_days(self.files, _DAYS) if len(self.files) == len(TABLES) else []


def _rows(settings: Settings, day: str, grouping: Grouping, files: FilesByTable) -> list[dict[str, Any]]:
    """The rows of a date, in the order of the names of groups."""
    from_ms = day_ms(day)
    with Tables(settings) as tables:
        for name, dated in files.items():
            tables.open_files(name, dated.paths[day])
        if grouping.kept_as == USER and tables.query(_USERS, [settings.cluster_id]).rows[0][0] > _MOST_USERS:
            return [_columns(settings.cluster_id, State(day, MANY_USERS, "", *_digests(files, day), False))]
        owned = own_seconds(tables, settings.cluster_id, Period(from_ms, from_ms + DAY_MS), grouping)
    usage_digest, decisions_digest = _digests(files, day)
    rules, has_jmx = rules_digest(grouping, day), owned.asked.has_jmx
    state = State(day, grouping.kept_as, rules, usage_digest, decisions_digest, has_jmx)
    return [
        {**_columns(settings.cluster_id, state), "name": name, **_seconds(own, from_ms // 1_000)}
        for name, own in sorted(owned.seconds.items())
    ]


def _digests(files: FilesByTable, day: str) -> tuple[str, str]:
    usage, decisions = (files[name].digest(day) for name in TABLES)
    return usage, decisions


def _columns(cluster_id: str, state: State) -> dict[str, Any]:
    return {"cluster_id": cluster_id, "event_date": date.fromisoformat(state.day), **state._asdict()}


def _seconds(own: OwnSeconds, first_s: int) -> dict[str, Any]:
    return {
        "active_s": len(own.active),
        "time_throttled_s": len(own.throttled),
        "active_bits": own.active.packed(first_s),
        "throttled_bits": own.throttled.packed(first_s),
    }


def _replace(settings: Settings, day: str, kinds: Set[str], rows: Sequence[dict[str, Any]]) -> None:
    """Replace the rows of a date and of some values of `grouped_by` in one commit."""
    own, names = sql_text(settings.cluster_id), sql_texts(sorted(kinds))
    where = f"cluster_id = {own} AND event_date = '{day}' AND grouped_by IN {names}"
    create_table(settings, BUDGET_DAYS)
    data = arrow_rows(BUDGET_DAYS, rows)

    def replace() -> None:
        table = delta_table(settings, BUDGET_DAYS.name)
        if rows:
            table.replace(data, where)
        else:
            table.delete(where)

    retried(replace)
