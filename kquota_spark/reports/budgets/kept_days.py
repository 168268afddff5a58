"""The seconds of closed dates that `kquota maintain` has computed once, in the table `budget_days`.

A row counts only as long as `usage` and `decisions` have the rows from which it was computed, and the clients have the
same owners. All other dates are read from the tables. So a row that is out of date gives no wrong number.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kquota_spark.model.budgets.budgets import OwnSeconds
from kquota_spark.reports.budgets.grouping import Grouping
from kquota_spark.reports.scope.period import Period
from kquota_spark.schema.day_tables import BUDGET_DAYS
from kquota_spark.store.dated_files import DAY_MS, FilesByTable, day_at, day_ms, have_still
from kquota_spark.store.reading import Tables

TABLES = ("usage", "decisions")
_FORM = 1
"""Version of the rules by which seconds are counted: rows of another version do not count."""
_DIGESTS = "event_date::varchar as day, grouped_by, rules, usage_digest, decisions_digest, has_jmx"
_STATES = f"select distinct {_DIGESTS} from budget_days where cluster_id = ?"  # noqa: S608 - names of ours
_ROWS = f"""
select {_DIGESTS}, name, active_bits, throttled_bits from budget_days where cluster_id = ? and grouped_by = ?
"""  # noqa: S608 - names of ours
_OF_USER = " and name = ?"


class State(NamedTuple):
    """What the rows of a date and of a kind of groups were computed from."""

    day: str
    """ISO date."""
    grouped_by: str
    rules: str
    usage_digest: str
    decisions_digest: str
    has_jmx: bool

    def has_all_rows(self, files: FilesByTable) -> bool:
        """Whether the tables have the rows of the date from which it was computed."""
        digests = dict(zip(TABLES, (self.usage_digest, self.decisions_digest), strict=True))
        return have_still(files, self.day, digests)

    def holds(self, files: FilesByTable, grouping: Grouping) -> bool:
        """Whether computing the date again would give the same rows."""
        is_same = self.grouped_by == grouping.kept_as and self.rules == rules_digest(grouping, self.day)
        return is_same and self.has_all_rows(files)


class Kept(NamedTuple):
    """The seconds of the dates that need not be read."""

    days: frozenset[str]
    """ISO dates."""
    seconds: dict[str, OwnSeconds]
    """By group."""


def rules_digest(grouping: Grouping, day: str) -> str:
    """The digest of the rules of groups on an ISO date."""
    from_ms = day_ms(day)
    return hashlib.sha256(f"{_FORM} {grouping.rules_in(from_ms, from_ms + DAY_MS)}".encode()).hexdigest()[:32]


def dates_of(period: Period) -> list[str]:
    """The ISO dates that a period touches, in order."""
    first_ms = period.from_ms // DAY_MS * DAY_MS
    return [day_at(time_ms) for time_ms in range(first_ms, period.to_ms, DAY_MS)]


def states_of(tables: Tables, cluster_id: str, days: Sequence[str]) -> list[State]:
    """The states of the rows of some dates; none without the table.

    Raises:
        UserError: the table cannot be read.
    """
    if not _opened(tables, days):
        return []
    return [State(*row) for row in tables.query(_STATES, [cluster_id]).rows]


def kept_seconds(
    tables: Tables, cluster_id: str, period: Period, grouping: Grouping, files: FilesByTable
) -> Kept:
    """The dates of a period for which rows of `budget_days` hold, and their seconds.

    Args:
        tables: the table is opened here.
        cluster_id: the cluster.
        period: its first and its last date may be in it in part.
        grouping: the groups.
        files: of the snapshots from which the other dates will be read.

    Raises:
        UserError: the table cannot be read.
    """
    held = {
        state
        for state in states_of(tables, cluster_id, dates_of(period))
        if state.holds(files, grouping) and (not state.has_jmx or _is_whole(state.day, period))
    }
    if not held:
        return Kept(frozenset(), {})
    of_days: dict[str, list[tuple[str, OwnSeconds]]] = {state.day: [] for state in held}
    own = () if grouping.only_user is None else (grouping.only_user,)
    rows = tables.query(_ROWS + (_OF_USER if own else ""), [cluster_id, grouping.kept_as, *own]).rows
    for *state, name, active, throttled in rows:
        if State(*state) in held:
            of_days[state[0]].append((name, _unpacked(state[0], active, throttled)))
    return _within(of_days, period)


def _opened(tables: Tables, days: Sequence[str]) -> bool:
    """Open the rows of some dates; False if there is no such table."""
    if not days or tables.location(BUDGET_DAYS.name) is None:
        return False
    files = tables.dated_files(BUDGET_DAYS.name)
    if files is None:
        return False
    wanted = files.of_dates(days[0], days[-1])
    tables.open_files(BUDGET_DAYS.name, [path for paths in wanted.values() for path in paths])
    return True


def _is_whole(day: str, period: Period) -> bool:
    return period.from_ms <= day_ms(day) and day_ms(day) + DAY_MS <= period.to_ms


def _unpacked(day: str, active: bytes, throttled: bytes) -> OwnSeconds:
    own, first_s = OwnSeconds(), day_ms(day) // 1_000
    own.active.add_packed(first_s, active)
    own.throttled.add_packed(first_s, throttled)
    return own


def _within(of_days: Mapping[str, Iterable[tuple[str, OwnSeconds]]], period: Period) -> Kept:
    """The seconds of whole dates, and of those that can be cut at the ends of the period."""
    days, found = set[str](), defaultdict[str, OwnSeconds](OwnSeconds)
    from_s, to_s = period.from_ms // 1_000, period.to_ms // 1_000
    for day, groups in of_days.items():
        if _is_whole(day, period):
            parts = groups
        elif any(_is_across(own, from_s) for _, own in groups):
            continue
        else:
            parts = [(name, own.within(from_s, to_s)) for name, own in groups]
        days.add(day)
        for name, own in parts:
            found[name].add_all(own)
    return Kept(frozenset(days), dict(found))


def _is_across(own: OwnSeconds, from_s: int) -> bool:
    """Whether a throttle may have begun before a second and hold in it: it would not count from there on."""
    return own.throttled.count(from_s - 1, from_s + 1) == 2
