"""The lines that keep a row in `requests` (`tables.requests`), and the sums that replace the other lines.

The sums contain offsets, times and bytes. So the count equation holds, and missing offsets are found, whatever is kept.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.schema.tables import LEFT_OUT, REQUESTS

Kept = Literal["all", "throttled", "unreadable"]
_SCHEMA = REQUESTS.arrow_schema()
_BY = ("cluster_id", "topic", "partition", "broker_id", "event_date", "quota_type")
_NEWEST = ("kafka_offset", "kafka_timestamp_ms", "log_time_ms", "record_time_ms")


def kept_requests(rows: pa.RecordBatch, kept: Kept, begun: Collection[int]) -> pa.RecordBatch:
    """The rows that go into `requests`.

    Heartbeats, gaps, unreadable lines, lines that are not judged, and edits of quotas are always kept. Until it is
    known how the log of a broker begins, all its lines are kept, because they show it.

    Args:
        rows: rows of one micro-batch, as they were parsed.
        kept: `all`; `throttled` for requests that the broker throttled; `unreadable` for none.
        begun: brokers with the beginning of their log in `log_gaps`.

    Returns:
        The kept rows, then one row of kind `left_out` per partition, broker, second and quota type. It replaces
        `lines` lines from `first_offset` to `kafka_offset`. Other lines may be between these, but no missing offset.
    """
    if kept == "all":
        return rows
    is_kept = _is_kept(kept, begun)
    others = pa.Table.from_batches([rows]).append_column("run", pa.array(_runs(rows))).filter(~is_kept)
    if not others.num_rows:
        return rows
    table = pa.concat_tables([pa.Table.from_batches([rows.filter(is_kept)]), _left_out(others)])
    return table.combine_chunks().to_batches()[0]


def _is_kept(kept: Kept, begun: Collection[int]) -> pc.Expression:
    throttle_ms = pc.field("observed_throttle_ms")
    is_known = pc.field("broker_id").isin(sorted(begun))
    is_kept = (
        (pc.field("kind") != "request")
        | pc.field("is_out_of_time")
        | pc.field("altered_quotas").is_valid()
        | ~is_known
    )
    return is_kept | ((throttle_ms > 0) & throttle_ms.is_valid()) if kept == "throttled" else is_kept


def _runs(rows: pa.RecordBatch) -> Any:
    """For each row, the number of its run of offsets without a gap."""
    begins = np.zeros(rows.num_rows, bool)
    for name in ("topic", "partition"):
        column: Any = rows[name]
        codes = column.dictionary_encode().indices.to_numpy()
        begins[1:] |= codes[1:] != codes[:-1]
    offsets = rows["kafka_offset"].to_numpy()
    begins[1:] |= offsets[1:] != offsets[:-1] + 1
    return np.cumsum(begins)


def _left_out(rows: pa.Table) -> pa.Table:
    second = pc.divide(rows["record_time_ms"], pa.scalar(1_000))
    by_second = rows.append_column("second", second).group_by([*_BY, "run", "second"])
    sums = by_second.aggregate(
        [
            *((name, "max") for name in _NEWEST),
            ("kafka_offset", "min"),
            ("kafka_offset", "count"),
            ("charged_bytes", "sum"),
        ]
    )
    columns: dict[str, Any] = {name: sums[name] for name in _BY}
    columns |= {name: sums[f"{name}_max"] for name in _NEWEST}
    columns |= {
        "kind": pa.repeat(LEFT_OUT, sums.num_rows),
        "is_out_of_time": pa.repeat(False, sums.num_rows),
        "charged_bytes": sums["charged_bytes_sum"],
        "first_offset": sums["kafka_offset_min"],
        "lines": sums["kafka_offset_count"],
    }
    none = pa.nulls(sums.num_rows)
    arrays = [columns.get(field.name, none).cast(field.type) for field in _SCHEMA]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)
