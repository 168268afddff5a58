"""The end of a run: `availableNow` leaves the last seconds open; a late heartbeat closes them."""

from __future__ import annotations

import datetime as dt

import duckdb
import pyarrow as pa
from deltalake import write_deltalake

from kquota_spark.config.settings import Settings
from kquota_spark.schema.tables import REQUESTS
from kquota_spark.store.storage import arrow_files, delta_table, storage_options


def close_all_windows(settings: Settings) -> None:
    """Append a heartbeat to `requests` that is later than every line by the allowed lateness.

    It goes into the table and not into the topic: the job needs no right to write there, and a second drain
    of the same rows finds the heartbeat of the first and adds nothing.
    """
    path = f"{settings.tables.rstrip('/')}/{REQUESTS.name}"
    table = delta_table(settings, REQUESTS.name)
    rows = table.to_pyarrow_dataset(filesystem=arrow_files(table))
    newest = (
        duckdb.connect()
        .execute(
            "SELECT max(record_time_ms) FILTER (topic IS NOT NULL), max(record_time_ms) FROM rows "
            "WHERE NOT is_out_of_time"
        )
        .fetchone()
    )
    assert newest is not None and rows is not None
    newest_line_ms, newest_ms = newest
    if newest_line_ms is None:
        return
    closing_ms = newest_line_ms + settings.stream.allowed_lateness + 2_000
    if newest_ms >= closing_ms:
        return
    row = {
        "cluster_id": settings.cluster_id,
        "event_date": dt.datetime.fromtimestamp(closing_ms / 1_000, dt.UTC).date(),
        "kind": "heartbeat",
        "log_time_ms": closing_ms,
        "record_time_ms": closing_ms,
        "is_out_of_time": False,
    }
    data = pa.Table.from_pylist([row], schema=REQUESTS.arrow_schema())
    write_deltalake(path, data, mode="append", storage_options=storage_options(settings))
