"""The windows of closed dates that `kquota maintain` has counted once, in the table `demand_days`.

A date counts only as long as `decisions` and `usage` have the rows from which it was counted. All other dates are
counted from these tables. So a row that is out of date gives no wrong number.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kquota_spark.model.rightsize.demand import WINDOW_MS
from kquota_spark.rightsize.windows import Asked
from kquota_spark.schema.day_tables import DEMAND_DAYS
from kquota_spark.store.dated_files import DAY_MS, FilesByTable, day_at, have_still
from kquota_spark.store.reading import Tables

TABLES = ("decisions", "usage")
FORM = 2
"""Version of the rules by which windows are counted: a change of `windows` that changes a number increases it."""
_STATES = """
select distinct event_date::varchar, form, decisions_digest, usage_digest from demand_days where cluster_id = ?
"""


class State(NamedTuple):
    """What the rows of a date were counted from."""

    day: str
    """ISO date."""
    form: int
    decisions_digest: str
    usage_digest: str

    @classmethod
    def of(cls, files: FilesByTable, day: str) -> State:
        """The state of rows that are counted now."""
        return cls(day, FORM, *(files[name].digest(day) for name in TABLES))

    def holds(self, files: FilesByTable) -> bool:
        """Whether counting the date again would give the same rows."""
        digests = dict(zip(TABLES, (self.decisions_digest, self.usage_digest), strict=True))
        return self.form == FORM and have_still(files, self.day, digests)


def files_of(tables: Tables) -> FilesByTable | None:
    """The files of `TABLES` by date; None if one of them has a file without a date.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    found = {name: tables.dated_files(name) for name in TABLES}
    dated = {name: files for name, files in found.items() if files is not None}
    return dated if len(dated) == len(TABLES) else None


def held_days(tables: Tables, cluster_id: str, files: FilesByTable, days: Collection[str]) -> frozenset[str]:
    """The dates of which `demand_days` has rows that hold; it is opened for them alone.

    Args:
        tables: the tables.
        cluster_id: the cluster.
        files: of the snapshots from which the other dates will be read.
        days: ISO dates.

    Raises:
        UserError: a table cannot be read.
    """
    kept = tables.dated_files(DEMAND_DAYS.name) if tables.location(DEMAND_DAYS.name) is not None else None
    if kept is None or not days:
        return frozenset()
    tables.open_files(DEMAND_DAYS.name, kept.of_days(days))
    states = (State(*row) for row in tables.query(_STATES, [cluster_id]).rows)
    held = frozenset(state.day for state in states if state.holds(files))
    tables.open_files(DEMAND_DAYS.name, kept.of_days(held))
    return held


def default_end_ms(tables: Tables, newest_ms: int) -> int:
    """The end of a history that ends with the tables: the newest midnight if dates are kept, so that they are used.

    Args:
        tables: the tables.
        newest_ms: end of the newest second, epoch ms.
    """
    step_ms = WINDOW_MS if tables.location(DEMAND_DAYS.name) is None else DAY_MS
    return newest_ms // step_ms * step_ms


def open_history(tables: Tables, asked: Asked) -> bool:
    """Open `decisions` and `usage` for a history, without the dates that are kept; whether there are any.

    A date is kept as a whole, and its age is counted in whole days. So the history has to begin and end at midnight.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    is_of_dates = asked.from_ms % DAY_MS == asked.to_ms % DAY_MS == 0
    files = files_of(tables) if is_of_dates and tables.location(DEMAND_DAYS.name) is not None else None
    if files is None:
        for name in TABLES:
            tables.open(name, asked.from_ms)
        return False
    days = {day_at(time_ms) for time_ms in range(asked.from_ms, asked.to_ms, DAY_MS)}
    held = held_days(tables, asked.cluster_id, files, days)
    for name, dated in files.items():
        tables.open_files(name, dated.of_days(days - held))
    return bool(held)
