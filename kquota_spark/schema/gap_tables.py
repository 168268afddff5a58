"""Table of the stretches of a broker's log that the audit does not have."""

from __future__ import annotations

from kquota_spark.schema.columns import Column, Table
from kquota_spark.schema.key_columns import BROKER_ID, CLUSTER_ID

LOG_GAPS = Table(
    "log_gaps",
    "one stretch of one broker's log whose lines are lost; what follows it is uncertain until the rings are full again",
    (
        CLUSTER_ID,
        BROKER_ID,
        Column("from_time", "timestamp", "the last line before it, as far as is known"),
        Column("to_time", "timestamp", "the first line after it, or a later time"),
        Column("reason", "string", "the shipper lost lines"),
    ),
)
SHIPPER_LOST_LINES = "the shipper lost lines"
