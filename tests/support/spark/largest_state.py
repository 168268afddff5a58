"""The largest value in the state of a query that has ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

_BUCKETS, _OPEN_SECONDS = 0, 1
"""Operators of the query of the log."""


def largest_values(session: SparkSession, checkpoint: str) -> dict[str, int]:
    """Bytes of the largest value of open seconds, and of buckets, after any of the last micro-batches."""
    largest: dict[str, int] = {}
    for batch in sorted(
        (int(path.name) for path in Path(checkpoint, "commits").iterdir() if path.name.isdigit()),
        reverse=True,
    ):
        try:
            sizes = _sizes(session.read.format("statestore").option("batchId", batch), checkpoint)
        except PySparkException:
            if not largest:
                raise
            break  # Spark has removed what the older ones need
        largest = {name: max(size, largest.get(name, 0)) for name, size in sizes.items()}
    return largest


def _sizes(states: DataFrameReader, checkpoint: str) -> dict[str, int]:
    seconds = states.option("operatorId", _OPEN_SECONDS).load(checkpoint)
    [parts] = seconds.select("value.*").columns
    buckets = states.option("operatorId", _BUCKETS).option("stateVarName", "buckets").load(checkpoint)
    return {"seconds": _most(seconds, f"value.{parts}"), "buckets": _most(buckets, "value.state")}


def _most(state: DataFrame, column: str) -> int:
    row = state.agg(F.max(F.octet_length(column))).head()
    return 0 if row is None or row[0] is None else int(row[0])
