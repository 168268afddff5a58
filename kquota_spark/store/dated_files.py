"""The files of each date of a snapshot, and a digest of what they hold, which packing files does not change.

A file of a table never changes, and no two files have the same name. So the names of the files of a date identify its
rows: late rows, a restatement and a deletion give the date other files. Packing moves the same rows to a new file. The
name of that file carries the digest of the files that it replaces.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kquota_spark.store.delta.table import StoredTable

_BITS = 128
_CARRIED = re.compile(rf"(?:.*/)?pack\d+-([0-9a-f]{{{_BITS // 4}}})-[^/]*")
_DATE = "partition.event_date"
DAY_MS = 86_400_000


def day_ms(day: str) -> int:
    """The start of an ISO date in UTC, epoch ms."""
    return round(datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC).timestamp()) * 1_000


def day_at(time_ms: int) -> str:
    """The ISO date in UTC of a time, epoch ms."""
    return datetime.fromtimestamp(time_ms // 1_000, UTC).date().isoformat()


def digest_of(paths: Iterable[str]) -> str:
    """The digest of the rows of some files, as 32 hexadecimal digits; it does not depend on their order.

    It is a sum, so that a packed file can have the digest of the files that it replaces.

    Args:
        paths: as the Delta log names them.
    """
    return f"{sum(map(_number_of, paths)) % 2**_BITS:0{_BITS // 4}x}"


def _number_of(path: str) -> int:
    carried = _CARRIED.fullmatch(path)
    return int(carried[1] if carried else hashlib.sha256(path.encode()).hexdigest()[: _BITS // 4], 16)


class DatedFiles(NamedTuple):
    """The files of a snapshot by ISO date, as the Delta log names them."""

    paths: Mapping[str, list[str]]

    def of_dates(self, first: str, last: str) -> Mapping[str, list[str]]:
        """The files of the dates from the first to the last one; dates without files are missing."""
        return {day: paths for day, paths in self.paths.items() if first <= day <= last}

    def of_days(self, days: Collection[str]) -> list[str]:
        """The files of some dates, as one list."""
        return [path for day in sorted(days) for path in self.paths.get(day, ())]

    def digest(self, day: str) -> str:
        """The digest of the rows of a date."""
        return digest_of(self.paths.get(day, ()))

    def has_still(self, day: str, digest: str) -> bool:
        """Whether a date holds the rows of a digest, or held them until all its rows were deleted for their age.

        Retention deletes the oldest dates. So a date without files counts as deleted if all files are of later dates.
        """
        if day in self.paths:
            return self.digest(day) == digest
        return bool(self.paths) and day < min(self.paths)


FilesByTable = Mapping[str, DatedFiles]
"""The files of some tables, each as of one snapshot."""


def have_still(files: FilesByTable, day: str, digests: Mapping[str, str]) -> bool:
    """Whether each table holds the rows of a date that had its digest; see `DatedFiles.has_still`."""
    return all(files[name].has_still(day, digest) for name, digest in digests.items())


def newest_days(files: FilesByTable, most_days: int) -> list[str]:
    """The ISO dates of which each table has rows, at most so many days before the newest of them; none without tables.

    Args:
        files: of the tables.
        most_days: days of the calendar.
    """
    held = set.intersection(*(set(dated.paths) for dated in files.values())) if files else set[str]()
    if not held:
        return []
    first = (date.fromisoformat(max(held)) - timedelta(days=most_days)).isoformat()
    return sorted(day for day in held if day >= first)


def dated_files(table: StoredTable) -> DatedFiles | None:
    """The files of a snapshot by date; None if it has a file without a date."""
    actions = table.files()
    paths: list[str] = actions.column("path")
    if not paths:
        return DatedFiles({})
    if _DATE not in actions.names:
        return None
    found = defaultdict[str, list[str]](list)
    for path, day in zip(paths, actions.column(_DATE), strict=True):
        if day is None:
            return None
        found[str(day)].append(path)
    return DatedFiles(dict(found))
