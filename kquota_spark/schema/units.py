"""The unit and the heading of a column, from its name: tables, queries and pages name a value in one way."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from kquota_spark.schema.tables import TABLES


class Unit(Enum):
    """What the numbers of a column count or measure."""

    RATE = "amount per second; of a request quota, percent of a thread"
    AMOUNT = "bytes, microseconds of handler threads, partitions or connections, by the quota type"
    PERCENT = "percent"
    MS = "milliseconds"
    BYTES = "bytes"
    REQUESTS = "requests"
    BROKER = "broker id"
    QUOTA_TYPE = "name of a quota type"
    NAME = "user or client id"
    TIME = "time, UTC"


_ENDINGS = (
    ("_per_s", Unit.RATE),
    ("_percent", Unit.PERCENT),
    ("_ms", Unit.MS),
    ("_bytes", Unit.BYTES),
    ("requests", Unit.REQUESTS),
    ("amount", Unit.AMOUNT),
    ("broker_id", Unit.BROKER),
    ("quota_type", Unit.QUOTA_TYPE),
    ("_second", Unit.TIME),
)
_NAMES = frozenset(("user", "client_id"))
_TIMES = {column.name for table in TABLES for column in table.columns if column.is_time}


def unit_of(name: str) -> Unit | None:
    """The unit of a column of a table or of a query; None if the name has none, as counts, names and flags.

    Args:
        name: of the column, e.g. `limit_per_s`.
    """
    if name in _TIMES:
        return Unit.TIME
    if name in _NAMES:
        return Unit.NAME
    return next((unit for ending, unit in _ENDINGS if name.endswith(ending)), None)


HEADINGS: Mapping[str, str] = MappingProxyType({
    "amount": "amount",
    "broker_id": "broker",
    "charged_bytes": "bytes",
    "client_id": "client id",
    "delay_ms": "total delay",
    "limit_per_s": "limit",
    "mean_rate_per_s": "mean",
    "peak_quota_used_percent": "used",
    "peak_rate_per_s": "peak",
    "quota_type": "type",
    "quota_used_percent": "used",
    "rate_per_s": "rate",
    "requests": "requests",
    "throttled_requests": "throttled requests",
    "time_throttled_percent": "time throttled",
    "user": "user",
    "worst_broker_id": "worst broker",
})  # fmt: skip
"""The usual heading of each column in tables for people."""
