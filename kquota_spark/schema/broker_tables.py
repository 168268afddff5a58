"""Tables of what brokers report: the settings that verdicts depend on, and their sensors over JMX."""

from __future__ import annotations

from kquota_spark.schema.columns import Table, bigint, double, integer, string, timestamp
from kquota_spark.schema.key_columns import BROKER_ID, CLUSTER_ID, EVENT_DATE

BROKER_CONFIGS = Table(
    "broker_configs",
    "settings of one broker over one period of time, as it describes them; without a broker id those of the "
    "configuration file, because the brokers could not be asked",
    (
        CLUSTER_ID,
        BROKER_ID,
        timestamp("valid_from", "first seen, UTC; null for the first one, which counts before too"),
        timestamp("valid_to", "until another one was seen, exclusive, UTC; null for the last one"),
        string("version", "release, e.g. 3.9; see version_source for how sure that is"),
        string(
            "version_source",
            "inter.broker.protocol.version (its default is the release: sure), api versions (what the broker "
            "offers: at least this release) or configuration file",
        ),
        string("sample_ring", "which sample ring that release has: 3.8+ or <=3.7"),
        string("metadata", "zookeeper or kraft: where the quotas are; null if not asked"),
        integer("quota_window_num", "quota.window.num"),
        integer("quota_window_size_seconds", "quota.window.size.seconds"),
        integer("controller_quota_window_num", "controller.quota.window.num; null before 2.7"),
        integer("controller_quota_window_size_seconds", "controller.quota.window.size.seconds"),
        bigint("quota_producer_default", "quota.producer.default, up to 2.8; null if not set"),
        bigint("quota_consumer_default", "quota.consumer.default, up to 2.8; null if not set"),
        integer("num_io_threads", "num.io.threads: with the next, what 100 % of a request quota is of"),
        integer("num_network_threads", "num.network.threads"),
        string("quota_callback_class", "client.quota.callback.class; null if none"),
        string("source", "describe_configs or configuration file"),
        timestamp("observed_at", "when they were asked for it first, UTC"),
    ),
    skip_by=("observed_at",),
)

JMX_SAMPLES = Table(
    "jmx_samples",
    "one MBean of one broker at one time, a message that could not be read, or one with other metrics only; "
    "collectors that send attributes one by one give one row each",
    (
        CLUSTER_ID,
        EVENT_DATE,
        string("kind", "sample, unreadable, or other for a message without any metric of a quota"),
        string("topic", "Kafka topic the sample was read from"),
        integer("partition", "its partition"),
        bigint("kafka_offset", "its offset; a message may hold several samples"),
        bigint("kafka_timestamp_ms", "when the message reached Kafka, epoch ms"),
        BROKER_ID,
        bigint("sample_time_ms", "when the collector read the MBean, epoch ms"),
        string("mbean_type", "type property: Produce, Fetch, Request, ControllerMutation, ..."),
        string("quota_type", "produce, fetch, request, controller_mutation or connection; null for others"),
        string("bucket_user", "user tag, decoded; empty where the MBean has none"),
        string("bucket_client_id", "client-id tag, unquoted; empty where the MBean has none"),
        string("bucket_tags", "tags of a quota callback as a JSON object; null for Kafka's own buckets"),
        string("ip", "ip tag of a connection rate; null elsewhere"),
        string("listener", "listener tag of a connection rate; null elsewhere"),
        double("byte_rate", "bytes per second by the broker's own sensor; null if not sent"),
        double("throttle_time_ms", "mean of the throttles of the last 30 to 60 s; null if none (NaN)"),
        double("request_time_percent", "percent of one thread; null if not sent"),
        double("exempt_request_time_percent", "the same for exempt requests; null if not sent"),
        double("tokens", "tokens of a controller mutation bucket, may be negative; null if not sent"),
        double("mutation_rate", "mutations per second; null if not sent"),
        double("connection_rate", "accepted connections per second; null if not sent"),
        bigint("queue_size", "connections being delayed now; null if not sent"),
        string("reason", "why a message could not be read; null for samples"),
        string("raw_text", "text of an unreadable message, cut"),
    ),
    partition_by=("event_date",),
    skip_by=("kafka_offset", "sample_time_ms"),
)
