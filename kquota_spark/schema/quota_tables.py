"""Tables of the watch: what the quotas were at every moment, and who led the partitions."""

from __future__ import annotations

from kquota_spark.schema.columns import Column, Table
from kquota_spark.schema.key_columns import CLUSTER_ID

ENTITY = (
    Column(
        "entity",
        "string",
        "canonical name, e.g. users/alice/clients/<default> (sanitised like a znode path) or ips/10.0.0.1",
    ),
    Column(
        "level",
        "int",
        "1 to 8, place in Kafka's precedence; null for ips; 0 for the source's own row in quota_rules",
    ),
    Column("user", "string", "user part; null where it is absent or the default (see level)"),
    Column("client_id", "string", "client-id part; null where it is absent or the default (see level)"),
)

QUOTA_CHANGES = Table(
    "quota_changes",
    "one edit of one quota key of one entity; append-only",
    (
        CLUSTER_ID,
        *ENTITY,
        Column("key", "string", "producer_byte_rate, consumer_byte_rate, request_percentage, ..."),
        Column("value", "double", "new value; null when the key was removed"),
        Column("previous_value", "double", "value before; null when the key was not set"),
        Column(
            "changed_at",
            "timestamp",
            "when it changed: the node's own mtime, UTC; a polled source: after this (1970: before it began)",
        ),
        Column("version", "bigint", "the node's mzxid; a polled source: epoch ms of the poll that found it"),
        Column("source", "string", "zookeeper, admin or file"),
        Column("observed_at", "timestamp", "when the watcher saw it, UTC"),
        Column("problem", "string", "why the payload could not be read; null normally"),
        Column("changed_before", "timestamp", "a polled source: it changed before this, UTC; null if exact"),
    ),
)

QUOTA_RULES = Table(
    "quota_rules",
    "quotas of one entity over one stretch of time; the stretches of an entity cover all time, so a row with "
    "null quotas says that it had none then. The row at level 0 says through when the source is known",
    (
        CLUSTER_ID,
        *ENTITY,
        Column("producer_byte_rate", "double", "bytes per second per broker; null if not set"),
        Column("consumer_byte_rate", "double", "bytes per second per broker; null if not set"),
        Column("request_percentage", "double", "percent of one thread per broker; null if not set"),
        Column("controller_mutation_rate", "double", "mutations per second; null if not set"),
        Column(
            "connection_creation_rate", "double", "ips: connections per second per broker; null if not set"
        ),
        Column("valid_from", "timestamp", "brokers enforce it from here on (edit plus the apply lag), UTC"),
        Column("valid_to", "timestamp", "until here, exclusive; null for the last stretch"),
        Column(
            "certain_from",
            "timestamp",
            "until here the stretch before may have been in force (polled), UTC; null if exact",
        ),
        Column("version", "bigint", "the node's mzxid at valid_from; null before the first edit"),
        Column("known_through", "timestamp", "level 0 only: all edits up to here have been seen, UTC"),
        Column("source", "string", "zookeeper, admin or file"),
    ),
    partition_by=("level",),
)

PARTITION_LEADERS = Table(
    "partition_leaders",
    "one change of the leader of one partition, as polled; only kept for a quota callback",
    (
        CLUSTER_ID,
        Column("topic", "string", "topic"),
        Column("partition", "int", "its partition"),
        Column("leader", "int", "broker that leads it from then on; null while nobody does"),
        Column("is_deleted", "boolean", "the partition is gone"),
        Column("observed_at", "timestamp", "when the watcher saw it, UTC"),
    ),
)
