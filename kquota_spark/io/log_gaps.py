"""Copies what shippers said about lost lines from `requests` to `log_gaps`, which JUDGE reads for each micro-batch.

The driver does so at its start and whenever INGEST has written such a message: a crash between the two is made
good by the next start.
"""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
from deltalake import write_deltalake

from kquota_spark.config.settings import Settings
from kquota_spark.io.storage import storage_options
from kquota_spark.io.tables import query
from kquota_spark.schema.gap_tables import LOG_GAPS, SHIPPER_LOST_LINES
from kquota_spark.schema.tables import REQUESTS

_NEW = """
select distinct broker_id, log_time_ms, record_time_ms from requests
where kind = 'gap' and cluster_id = ? and not is_out_of_time and (broker_id, log_time_ms, record_time_ms) not in (
  select (broker_id, epoch_ms(from_time), epoch_ms(to_time)) from log_gaps where cluster_id = ?
) order by all
"""


def record_gaps(settings: Settings) -> int:
    """Write the gaps that `log_gaps` does not have yet; gives their number."""
    cluster_id = settings.cluster_id
    found = query(settings, (REQUESTS.name, LOG_GAPS.name), _NEW, [cluster_id, cluster_id]).rows
    if found:
        rows = [
            {
                "cluster_id": cluster_id,
                "broker_id": broker_id,
                "from_time": dt.datetime.fromtimestamp(from_ms / 1_000, dt.UTC),
                "to_time": dt.datetime.fromtimestamp(to_ms / 1_000, dt.UTC),
                "reason": SHIPPER_LOST_LINES,
            }
            for broker_id, from_ms, to_ms in found
        ]
        write_deltalake(
            f"{settings.tables.rstrip('/')}/{LOG_GAPS.name}",
            pa.Table.from_pylist(rows, schema=LOG_GAPS.arrow_schema()),
            mode="append",
            storage_options=storage_options(settings),
        )
    return len(found)
