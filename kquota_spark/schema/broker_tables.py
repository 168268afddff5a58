"""Table of how the brokers are set up, as far as verdicts depend on it."""

from __future__ import annotations

from kquota_spark.schema.columns import Column, Table
from kquota_spark.schema.key_columns import BROKER_ID, CLUSTER_ID

BROKER_CONFIGS = Table(
    "broker_configs",
    "settings of one broker over one stretch of time, as it describes them; without a broker id those of the "
    "configuration file, because the brokers could not be asked",
    (
        CLUSTER_ID,
        BROKER_ID,
        Column("valid_from", "timestamp", "first seen, UTC; null for the first one, which counts before too"),
        Column("valid_to", "timestamp", "until another one was seen, exclusive, UTC; null for the last one"),
        Column("version", "string", "release, e.g. 3.9; see version_source for how sure that is"),
        Column(
            "version_source",
            "string",
            "inter.broker.protocol.version (its default is the release: sure), api versions (what the broker "
            "offers: at least this release) or configuration file",
        ),
        Column("sample_ring", "string", "which sample ring that release has: 3.8+ or <=3.7"),
        Column("metadata", "string", "zookeeper or kraft: where the quotas are; null if not asked"),
        Column("quota_window_num", "int", "quota.window.num"),
        Column("quota_window_size_seconds", "int", "quota.window.size.seconds"),
        Column("controller_quota_window_num", "int", "controller.quota.window.num; null before 2.7"),
        Column("controller_quota_window_size_seconds", "int", "controller.quota.window.size.seconds"),
        Column("quota_producer_default", "bigint", "quota.producer.default, up to 2.8; null if not set"),
        Column("quota_consumer_default", "bigint", "quota.consumer.default, up to 2.8; null if not set"),
        Column("num_io_threads", "int", "num.io.threads: with the next, what 100 % of a request quota is of"),
        Column("num_network_threads", "int", "num.network.threads"),
        Column("quota_callback_class", "string", "client.quota.callback.class; null if none"),
        Column("source", "string", "describe_configs or configuration file"),
        Column("observed_at", "timestamp", "when they were asked for it first, UTC"),
    ),
    skip_by=("observed_at",),
)
