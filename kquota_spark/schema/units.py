"""The unit of a column, from its name: tables, queries and pages name a value of one kind in one way."""

from __future__ import annotations

from enum import Enum

from kquota_spark.schema.tables import TABLES


class Unit(Enum):
    """What the numbers of a column count or measure."""

    RATE = "amount per second; of a request quota, percent of a thread"
    AMOUNT = "bytes, microseconds of handler threads, partitions or connections, by the quota type"
    PERCENT = "percent"
    MS = "milliseconds"
    REQUESTS = "requests"
    BROKER = "broker id"
    QUOTA_TYPE = "name of a quota type"
    TIME = "time, UTC"


_ENDINGS = (
    ("_per_s", Unit.RATE),
    ("_percent", Unit.PERCENT),
    ("_ms", Unit.MS),
    ("requests", Unit.REQUESTS),
    ("amount", Unit.AMOUNT),
    ("broker_id", Unit.BROKER),
    ("quota_type", Unit.QUOTA_TYPE),
    ("_second", Unit.TIME),
)
_TIMES = {column.name for table in TABLES for column in table.columns if column.is_time}


def unit_of(name: str) -> Unit | None:
    """The unit of a column of a table or of a query; None if the name has none, as counts, names and flags.

    Args:
        name: of the column, e.g. `limit_per_s`.
    """
    if name in _TIMES:
        return Unit.TIME
    return next((unit for ending, unit in _ENDINGS if name.endswith(ending)), None)
