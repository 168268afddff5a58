"""Table of what brokers say about their quota sensors over JMX."""

from __future__ import annotations

from kquota_spark.schema.columns import Column, Table
from kquota_spark.schema.key_columns import BROKER_ID, CLUSTER_ID, EVENT_DATE

JMX_SAMPLES = Table(
    "jmx_samples",
    "one MBean of one broker at one time, a message that could not be read, or one with other metrics only; "
    "collectors that send attributes one by one give one row each",
    (
        CLUSTER_ID,
        EVENT_DATE,
        Column("kind", "string", "sample, unreadable, or other for a message without any metric of a quota"),
        Column("topic", "string", "Kafka topic the sample was read from"),
        Column("partition", "int", "its partition"),
        Column("kafka_offset", "bigint", "its offset; a message may hold several samples"),
        Column("kafka_timestamp_ms", "bigint", "when the message reached Kafka, epoch ms"),
        BROKER_ID,
        Column("sample_time_ms", "bigint", "when the collector read the MBean, epoch ms"),
        Column("mbean_type", "string", "type property: Produce, Fetch, Request, ControllerMutation, ..."),
        Column(
            "quota_type",
            "string",
            "produce, fetch, request, controller_mutation or connection; null for others",
        ),
        Column("bucket_user", "string", "user tag, decoded; empty where the MBean has none"),
        Column("bucket_client_id", "string", "client-id tag, unquoted; empty where the MBean has none"),
        Column(
            "bucket_tags", "string", "tags of a quota callback as a JSON object; null for Kafka's own buckets"
        ),
        Column("ip", "string", "ip tag of a connection rate; null elsewhere"),
        Column("listener", "string", "listener tag of a connection rate; null elsewhere"),
        Column("byte_rate", "double", "bytes per second by the broker's own sensor; null if not sent"),
        Column(
            "throttle_time_ms", "double", "mean of the throttles of the last 30 to 60 s; null if none (NaN)"
        ),
        Column("request_time_percent", "double", "percent of one thread; null if not sent"),
        Column("exempt_request_time_percent", "double", "the same for exempt requests; null if not sent"),
        Column(
            "tokens", "double", "tokens of a controller mutation bucket, may be negative; null if not sent"
        ),
        Column("mutation_rate", "double", "mutations per second; null if not sent"),
        Column("connection_rate", "double", "accepted connections per second; null if not sent"),
        Column("queue_size", "bigint", "connections being delayed now; null if not sent"),
        Column("reason", "string", "why a message could not be read; null for samples"),
        Column("raw_text", "string", "text of an unreadable message, cut"),
    ),
    partition_by=("event_date",),
    skip_by=("kafka_offset", "sample_time_ms"),
)
