"""RESTARTS: signs in a broker's log that it has restarted, batch by batch, for the job and the offline replay.

The sign is that of `model.replay.log_beginning`, searched after each pause. The search costs little, because most
batches have no young request on a connection 0.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.model.replay.log_beginning import (
    MOST_LINES,
    NEW_CORRELATION_ID,
    PAUSE_MS,
    BrokerLines,
    FirstLine,
    StartSign,
    first_connection,
    is_first,
    listener_of,
)

_NEEDED = (
    "kind",
    "is_out_of_time",
    "is_forwarded",
    "broker_id",
    "record_time_ms",
    "correlation_id",
    "connection",
)


def broker_lines(requests: pa.RecordBatch) -> list[BrokerLines]:
    """Signs of restarts in one batch of rows of `requests`, by broker; copies of forwarded requests do not count."""
    rows = requests.select(_NEEDED).filter(
        (pc.field("kind") == "request") & ~pc.field("is_out_of_time") & ~pc.field("is_forwarded")
    )
    # In one pass: a batch may have lines of hundreds of brokers.
    by_connection = pa.Table.from_batches([rows]).group_by(["broker_id", "connection"], use_threads=False)
    found = by_connection.aggregate([("record_time_ms", "max"), ("correlation_id", "min")])
    columns = ("broker_id", "connection", "record_time_ms_max", "correlation_id_min")
    newest_ms: dict[int, int] = {}
    later: dict[int, set[str]] = defaultdict(set)
    may_start = set[int]()
    for broker_id, connection, of_connection_ms, least in zip(
        *(found[name].to_pylist() for name in columns), strict=True
    ):
        newest_ms[broker_id] = max(newest_ms.get(broker_id, of_connection_ms), of_connection_ms)
        if not is_first(connection):
            later[broker_id].add(listener_of(connection))
        elif least <= NEW_CORRELATION_ID:
            may_start.add(broker_id)
    return [
        BrokerLines(
            broker_id,
            of_broker_ms,
            sorted(later[broker_id]),
            _signs(rows.filter(pc.field("broker_id") == broker_id)) if broker_id in may_start else [],
        )
        for broker_id, of_broker_ms in newest_ms.items()
    ]


def _later(connections: Any) -> list[str]:
    """Listeners with a connection that was not a processor's first."""
    return sorted({listener_of(name) for name in connections.unique().to_pylist() if not is_first(name)})


def _signs(rows: pa.RecordBatch) -> list[StartSign]:
    times_ms: Any = rows["record_time_ms"].to_numpy()
    order: Any = np.argsort(times_ms, kind="stable")
    in_order = times_ms[order]
    begins = np.flatnonzero(np.diff(in_order) >= PAUSE_MS) + 1
    found = []
    for begin in (0, *begins.tolist()):
        block = rows.take(order[begin : begin + MOST_LINES])
        columns = (block[name].to_pylist() for name in ("record_time_ms", "correlation_id", "connection"))
        first = first_connection(sorted(map(FirstLine._make, zip(*columns, strict=True))))
        if first is not None:
            listener = listener_of(first)
            before = rows.take(order[:begin])["connection"]
            before_ms = int(in_order[begin - 1]) if begin else None
            found.append(StartSign(int(in_order[begin]), before_ms, listener, listener in _later(before)))
    return found
