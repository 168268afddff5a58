"""Table of the periods of a broker's log that the audit does not have."""

from __future__ import annotations

from kquota_spark.schema.columns import Table, string, timestamp
from kquota_spark.schema.key_columns import BROKER_ID, CLUSTER_ID

LOG_GAPS = Table(
    "log_gaps",
    "one period of one broker's log whose lines the audit lacks; what follows is uncertain until the rings are full",
    (
        CLUSTER_ID,
        BROKER_ID,
        timestamp("from_time", "the last line before it, as far as is known"),
        timestamp("to_time", "the first line after it, or a later time"),
        string(
            "reason",
            "the shipper lost lines; lines expired in Kafka before they were read; the log topic was deleted and made "
            "anew; the audit began in mid-stream; a line was cut, so that its client is not known; the broker was "
            "restarted; or the log begins with the broker's start, which makes nothing uncertain",
        ),
    ),
    skip_by=("to_time", "reason"),
)
SHIPPER_LOST_LINES = "the shipper lost lines"
EXPIRED_UNREAD = "lines expired in Kafka before they were read"
RECREATED = "the log topic was deleted and recreated"
MID_STREAM = "the audit began in mid-stream"
CUT_LINE = "a line was cut"
BROKER_RESTART = "the broker was restarted"
BROKER_START = "the log begins with the broker's start"
