"""The seconds of each group in a period: closed dates from `budget_days`, all others from `usage` and `decisions`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kquota_spark.model.budgets.budgets import OwnSeconds
from kquota_spark.reports.budgets.grouping import Grouping
from kquota_spark.reports.budgets.kept_days import TABLES, Kept, dates_of, kept_seconds
from kquota_spark.reports.budgets.own_seconds import Owned, own_seconds
from kquota_spark.reports.scope.period import Period
from kquota_spark.store.dated_files import FilesByTable
from kquota_spark.store.reading import Tables

_AT_ONCE = 5
"""Maximum dates that are added up together: the hours of many users on 30 dates do not fit into memory."""


def whole_seconds(tables: Tables, cluster_id: str, period: Period, grouping: Grouping) -> Owned:
    """The seconds from the rows of the whole period, with what `bucket_seconds` needs.

    Dates without `usage`, deleted for its age, do not count: their throttles would be their only active seconds.

    Args:
        tables: `usage` and `decisions` are opened here.
        cluster_id: the cluster.
        period: rows of other times are left out.
        grouping: the groups.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    files = _dated(tables)
    if files is None:
        for name in TABLES:
            tables.open(name, period.from_ms)
    else:
        _open(tables, files, _dates_with_usage(files, period))
    return own_seconds(tables, cluster_id, period, grouping)


def period_seconds(
    tables: Tables, cluster_id: str, period: Period, grouping: Grouping
) -> dict[str, OwnSeconds]:
    """The seconds of each group as `whole_seconds` finds them; dates that `budget_days` has are not read again.

    Dates of which `usage` or `decisions` were deleted for their age count too, if `budget_days` has them.

    Args:
        tables: `usage` and `decisions` are opened here, with the files of some dates only.
        cluster_id: the cluster.
        period: whole seconds.
        grouping: the groups.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    files = _dated(tables)
    if files is None or not grouping.kept_as:
        return whole_seconds(tables, cluster_id, period, grouping).seconds
    kept = kept_seconds(tables, cluster_id, period, grouping, files)
    days = [day for day in _dates_with_usage(files, period) if day not in kept.days]
    found = defaultdict[str, OwnSeconds](OwnSeconds)
    for first in range(0, len(days), _AT_ONCE):
        _open(tables, files, days[first : first + _AT_ONCE])
        for name, own in own_seconds(tables, cluster_id, period, grouping).seconds.items():
            found[name].add_all(own)
    _add(found, kept, period)
    return dict(found)


def _dated(tables: Tables) -> FilesByTable | None:
    """The files of both tables by date; None if one has a file without a date."""
    files = {name: dated for name in TABLES if (dated := tables.dated_files(name)) is not None}
    return files if len(files) == len(TABLES) else None


def _dates_with_usage(files: FilesByTable, period: Period) -> list[str]:
    return [day for day in dates_of(period) if day in files["usage"].paths]


def _open(tables: Tables, files: FilesByTable, days: Sequence[str]) -> None:
    for name, each in files.items():
        tables.open_files(name, each.of_days(days))


def _add(found: defaultdict[str, OwnSeconds], kept: Kept, period: Period) -> None:
    """Add the kept seconds. A group that was active on the rest of a date only has no budget in the period."""
    from_s, to_s = period.from_ms // 1_000, period.to_ms // 1_000
    for name, own in kept.seconds.items():
        if name in found or own.active.count(from_s, to_s):
            found[name].add_all(own)
