"""Columns that several tables have in common."""

from __future__ import annotations

from kquota_spark.schema.columns import Column, integer, string

CLUSTER_ID = string("cluster_id", "name of the Kafka cluster, from the configuration")
EVENT_DATE = Column("event_date", "date", "UTC date of the row's time; partition, and the unit of retention")
BROKER_ID = integer(
    "broker_id", "broker that handled the request; quotas are per broker. -1: the active controller"
)
QUOTA_TYPE = string(
    "quota_type",
    "produce or fetch (bytes, bytes per second), request (microseconds of handler threads, percent of one thread), "
    "controller_mutation (partitions that requests name, partitions per second), or connection (connections per "
    "second; from JMX)",
)
PRINCIPAL_TYPE = string(
    "principal_type", "type of the principal; Kafka's own quotas ignore it, a callback may not"
)
BUCKET = (
    string("bucket_user", "user tag of the bucket; empty when the bucket is a client id's"),
    string("bucket_client_id", "client-id tag of the bucket; empty when it is a user's"),
    string("bucket_tags", "tags of a quota callback as a JSON object; null without a callback"),
)
USER = string("user", "principal name without its type, as Kafka matches it; not sanitised")
CLIENT_ID = string("client_id", "client.id as sent; may be empty")
CLIENT = (BROKER_ID, QUOTA_TYPE, PRINCIPAL_TYPE, USER, CLIENT_ID)
"""The client that a broker counts requests for, and the type of quota."""
SOURCE = string(
    "source", "log: replayed from the request log; jmx: the broker's own rate, at the time of a sample"
)

FROM_LOG = "source = 'log'"
"""SQL: condition for rows from the request log."""
LOG_BEFORE_JMX = "qualify is_log or not bool_or(is_log) over (partition by broker_id, quota_type)"
"""SQL after a grouping by `is_log`: JMX counts only if the log has no rows.

A window over the groups is cheap, one over the rows is not.
"""
