"""Decisions of many buckets that are all above their limit, in columns; and the tasks' pieces of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kquota_spark.audit.stages import _as_bytes
from kquota_spark.audit.violations.episodes import pieces_of
from kquota_spark.schema.tables import DECISIONS
from tests.support.tables.table_rows import T0_MS, decision

SECONDS = 5
"""Of each bucket in a micro-batch."""
_OVER = {
    "rate_per_s": 1_500_000.0,
    "quota_used_percent": 150.0,
    "throttled_requests": 2,
    "total_throttle_ms": 70,
}


def all_over(first_bucket: int, last_bucket: int, first_s: int) -> pa.Table:
    """`SECONDS` of each of some buckets from a second after T0 on, as one task has them."""
    buckets = np.repeat(np.arange(first_bucket, last_bucket), SECONDS)
    row = {name: {**decision(0), **_OVER}.get(name) for name in DECISIONS.names}
    one = pa.Table.from_pylist([row], schema=DECISIONS.arrow_schema())
    columns = {name: pa.repeat(one[name][0], len(buckets)) for name in DECISIONS.names}
    users: Any = pa.array([f"user-{bucket}" for bucket in buckets])
    offsets: Any = pa.array(np.arange(len(buckets) + 1, dtype=np.int32))
    seconds = np.tile(np.arange(SECONDS), last_bucket - first_bucket) + first_s
    columns |= {
        "bucket_user": users,
        "users": pa.ListArray.from_arrays(offsets, users),
        "second": pa.array(T0_MS * 1_000 + seconds * 1_000_000).cast(one.schema.field("second").type),
    }
    return pa.Table.from_arrays([columns[name] for name in DECISIONS.names], schema=one.schema)


def reported_pieces(buckets: int, first_s: int, gap_ms: int) -> list[bytes]:
    """What two tasks report of them, half of the buckets each."""
    return [
        _as_bytes(pieces_of(all_over(first, last, first_s), gap_ms))
        for first, last in ((0, buckets // 2), (buckets // 2, buckets))
    ]
