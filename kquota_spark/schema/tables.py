"""The tables of the audit. One declaration each; `kquota doctor --schema` and the README print from here."""

from __future__ import annotations

from kquota_spark.schema.agreement_tables import AGREEMENT
from kquota_spark.schema.broker_tables import BROKER_CONFIGS
from kquota_spark.schema.columns import Column, Table
from kquota_spark.schema.enforcement_tables import ENFORCEMENT_LOG
from kquota_spark.schema.gap_tables import LOG_GAPS
from kquota_spark.schema.jmx_tables import JMX_SAMPLES
from kquota_spark.schema.key_columns import (
    BROKER_ID,
    BUCKET,
    CLIENT,
    CLIENT_ID,
    CLUSTER_ID,
    EVENT_DATE,
    PRINCIPAL_TYPE,
    QUOTA_TYPE,
    SOURCE,
    USER,
)
from kquota_spark.schema.quota_tables import PARTITION_LEADERS, QUOTA_CHANGES, QUOTA_RULES

POINT = (
    "struct<record_time_ms:bigint,log_time_ms:bigint,connection_hash:bigint,correlation_id:int,"
    "amount:bigint,observed_throttle_ms:int,kind:int,network_time_us:bigint>"
)
"""One request as the replay needs it; sorted in this very order. `kind` is `model.replay.replay.PointKind`."""

LEFT_OUT = "left_out"
"""Kind of a row of `requests` that stands for several lines."""

REQUESTS = Table(
    "requests",
    "one message of the log topic: a request, a line that could not be read, or a shipper's heartbeat",
    (
        CLUSTER_ID,
        EVENT_DATE,
        Column(
            "kind",
            "string",
            "request, unreadable, heartbeat, gap: lines that a shipper lost, or left_out: see lines",
        ),
        Column("topic", "string", "Kafka topic the line was read from"),
        Column("partition", "int", "its partition"),
        Column("kafka_offset", "bigint", "its offset: topic, partition and offset are the row's identity"),
        Column("kafka_timestamp_ms", "bigint", "when the line reached Kafka, epoch ms"),
        BROKER_ID,
        Column("log_time_ms", "bigint", "time of the log line (response sent), epoch ms"),
        Column("record_time_ms", "bigint", "when the broker recorded the request in its quota, epoch ms"),
        Column(
            "is_out_of_time",
            "boolean",
            "record time too far ahead of the message or its reading: kept, not judged",
        ),
        PRINCIPAL_TYPE,
        USER,
        CLIENT_ID,
        Column("api_key", "int", "Kafka API key: 0 produce, 1 fetch"),
        Column("api_version", "int", "API version"),
        Column("api_name", "string", "API name as logged, e.g. PRODUCE"),
        Column("quota_type", "string", "produce or fetch where a bandwidth quota counts it; null otherwise"),
        Column("point_kind", "int", "how the replay treats it (model.replay.PointKind); null if not counted"),
        Column(
            "charged_bytes",
            "bigint",
            "bytes the bandwidth quota was charged; null if not counted, or of a share fetch, whose size is not logged",
        ),
        Column("request_time_percent", "double", "handler time as percent of one thread-second"),
        Column("observed_throttle_ms", "int", "throttle the broker logged, ms (larger of its two fields)"),
        Column("is_from_follower", "boolean", "a replica's fetch: no client quota counts it"),
        Column("is_forwarded", "boolean", "the controller's copy of a forwarded request: not counted twice"),
        Column("connection", "string", "connection id as logged"),
        Column("correlation_id", "int", "correlation id of the request"),
        Column("software_name", "string", "client library"),
        Column("software_version", "string", "its version"),
        Column("topics", "array<string>", "topic names (or ids) a produce or fetch touched, at most 32"),
        Column(
            "network_time_us",
            "bigint",
            "time to send the response, microseconds: the most that the network thread can have spent; null where "
            "no request quota counts the request",
        ),
        Column(
            "mutations",
            "array<struct<topic_hash:bigint,partitions:int,point_kind:int>>",
            "topics that the mutation quota was asked about, see model.points; null if none",
        ),
        Column(
            "altered_quotas",
            "string",
            "AlterClientQuotas only: JSON list of [entity, key, value], null where removed; null elsewhere",
        ),
        Column("reason", "string", "why a line could not be read; null for readable ones"),
        Column("raw_text", "string", "text of an unreadable line, cut; null where it may hold secrets"),
        Column(
            "lines",
            "bigint",
            "left_out only: how many requests of one broker, second and quota type have no row (tables.requests); "
            "times and kafka_offset are of the newest, charged_bytes is their sum",
        ),
        Column("first_offset", "bigint", "left_out only: offset of the oldest of them"),
    ),
    partition_by=("event_date",),
    skip_by=("kafka_offset", "record_time_ms"),
)

USAGE = Table(
    "usage",
    "one second of one (broker, principal, client_id, quota_type)",
    (
        CLUSTER_ID,
        EVENT_DATE,
        *CLIENT,
        Column("second", "timestamp", "start of the second, UTC"),
        Column("tile", "int", "0, or the number of the part where a second has more than 10,000 requests"),
        Column(
            "amount",
            "bigint",
            "charged in the second, duplicates removed; unit: see quota_type; null from JMX",
        ),
        Column("requests", "bigint", "requests in the second, duplicates removed; null from JMX"),
        Column("duplicates", "bigint", "copies of lines that were delivered more than once"),
        Column(
            "rate_per_s",
            "double",
            "amount per second over this second, for charts, never for a verdict; from JMX the broker's own rate",
        ),
        Column("observed_throttle_ms", "bigint", "sum of the throttles the broker logged, ms"),
        Column("points", f"array<{POINT}>", "the requests as the replay needs them, in order"),
        SOURCE,
        Column(
            "unsized_requests",
            "bigint",
            "of the requests, fetches of share consumers (KIP-932): the log does not have their size, so amount and "
            "rate are without it; null from JMX",
        ),
    ),
    partition_by=("event_date",),
    skip_by=("second",),
)

DECISIONS = Table(
    "decisions",
    "one second of one quota bucket of one broker; from JMX one sample of it",
    (
        CLUSTER_ID,
        EVENT_DATE,
        BROKER_ID,
        QUOTA_TYPE,
        *BUCKET,
        Column("second", "timestamp", "start of the second, UTC"),
        Column(
            "level",
            "int",
            "1 to 8: which level of Kafka's precedence set the limit, 9: a static default; null if none did",
        ),
        Column(
            "rule",
            "string",
            "what set the limit: an entity, e.g. users/alice/clients/<default>, or the callback",
        ),
        Column("rule_version", "bigint", "version of that entity's quotas (zxid in ZooKeeper mode)"),
        Column("limit_per_s", "double", "limit in force, unit: see quota_type; null if unlimited"),
        Column(
            "rate_per_s",
            "double",
            "highest rate the broker measured in this second, in the limit's unit; of a request quota its lower "
            "bound; of mutations those that the bucket holds, over its windows",
        ),
        Column(
            "rate_at_most_per_s",
            "double",
            "upper bound of the rate of a request quota, which is an estimate; null for other types",
        ),
        Column(
            "quota_used_percent",
            "double",
            "100 * rate / limit, of a token bucket the part that is taken; violated only above 100; null if unlimited",
        ),
        Column(
            "amount",
            "bigint",
            "charged in this second, unit: see quota_type; null from JMX, like all counts and sums",
        ),
        Column("requests", "bigint", "requests in this second"),
        Column("throttle_ms", "bigint", "longest throttle by the replay, ms"),
        Column(
            "observed_throttle_ms",
            "bigint",
            "longest throttle the broker logged, ms; from JMX the mean of its throttles of the last 30 to 60 s",
        ),
        Column("throttled_requests", "bigint", "requests with a throttle above 0 by the replay"),
        Column("observed_throttled_requests", "bigint", "requests with a throttle above 0 in the log"),
        Column("total_throttle_ms", "bigint", "sum of the throttles by the replay, ms"),
        Column("requests_judged", "bigint", "verdicts compared with the broker's: certain and observable"),
        Column("requests_agreeing", "bigint", "of these, throttled or not as the broker did"),
        Column("false_positive", "bigint", "throttled by the replay, not by the broker"),
        Column("false_negative", "bigint", "throttled by the broker, not by the replay"),
        Column("judged_throttled", "bigint", "judged requests that the broker throttled"),
        Column("judged_near_limit", "bigint", "judged requests with a rate within 5 % of the limit"),
        Column(
            "uncertain", "bigint", "requests whose verdict what the log leaves open could flip; not judged"
        ),
        Column("uncertain_wrong", "bigint", "of these, verdicts that differ from the broker's"),
        Column("inferred", "bigint", "throttled fetches (their size is not in the log); not judged"),
        Column(
            "excluded",
            "bigint",
            "requests under two quotas, whose throttle is the larger of both; not judged",
        ),
        Column("late", "bigint", "requests that came after their bucket had been judged further; not folded"),
        Column("throttle_errors_ms", "array<int>", "replay minus logged throttle, ms, where both throttled"),
        Column(
            "is_certain",
            "boolean",
            "no request of this second is uncertain, late or behind the rules; never from JMX, which does not tell "
            "what was between two samples",
        ),
        Column("is_rules_behind", "boolean", "quota changes were not yet known through this second"),
        Column(
            "model_variant", "string", "sample ring or token bucket and its settings, e.g. 3.8+/11x1000ms"
        ),
        SOURCE,
        Column("users", "array<string>", "users inside the bucket in this second, at most 20"),
        Column("client_ids", "array<string>", "client ids inside the bucket in this second, at most 20"),
        Column(
            "observed_total_throttle_ms",
            "bigint",
            "sum of the throttles the broker logged, ms: the total delay; null from JMX. A request under two quotas "
            "counts for each of them whose limit its rate can have reached",
        ),
        Column(
            "unsized_requests",
            "bigint",
            "of the requests, fetches of share consumers (KIP-932): amount and rates are without their size, and every "
            "verdict with one in its ring is uncertain; null from JMX",
        ),
        Column(
            "window_off",
            "bigint",
            "of the uncertain, requests whose window the throttles before them told to be another than the log's times",
        ),
        Column("window_off_false_positive", "bigint", "of these, throttled by the replay, not by the broker"),
        Column("window_off_false_negative", "bigint", "of these, throttled by the broker, not by the replay"),
    ),
    partition_by=("event_date",),
    skip_by=("second",),
)

VIOLATIONS = Table(
    "violations",
    "one episode: a bucket above its limit, without a break longer than the configured gap",
    (
        CLUSTER_ID,
        EVENT_DATE,
        Column("episode_id", "string", "hash of the bucket and the start: the same in every run"),
        BROKER_ID,
        QUOTA_TYPE,
        *BUCKET,
        Column("start_time", "timestamp", "first violated second, UTC"),
        Column(
            "end_time", "timestamp", "end of the last violated second, UTC; null while the episode is open"
        ),
        Column("last_second", "timestamp", "last violated second seen so far, UTC"),
        Column("level", "int", "precedence level of the rule at the start"),
        Column("rule", "string", "entity that set the limit at the start"),
        Column("limit_per_s", "double", "smallest limit during the episode; unit: see quota_type"),
        Column("peak_rate_per_s", "double", "highest rate, in the limit's unit"),
        Column("peak_quota_used_percent", "double", "highest percent of the limit"),
        Column("violated_seconds", "bigint", "seconds (from JMX samples) of the episode above the limit"),
        Column("throttled_ms", "bigint", "sum of all throttles by the replay, ms; null from JMX"),
        Column("throttled_requests", "bigint", "requests throttled by the replay; null from JMX"),
        SOURCE,
        Column("users", "array<string>", "users inside, at most 20"),
        Column("client_ids", "array<string>", "client ids inside, at most 20"),
        Column("longest_throttle_ms", "bigint", "longest throttle by the replay, ms; null from JMX"),
        Column(
            "observed_throttled_ms",
            "bigint",
            "sum of the throttles the broker logged in these seconds, ms: the total delay; null from JMX",
        ),
        Column(
            "observed_throttled_requests",
            "bigint",
            "requests with a throttle above 0 in the log; null from JMX",
        ),
        Column("observed_longest_throttle_ms", "bigint", "longest throttle the broker logged, ms"),
    ),
    partition_by=("event_date",),
    skip_by=("start_time", "end_time"),
)

TABLES: tuple[Table, ...] = (
    REQUESTS,
    USAGE,
    DECISIONS,
    VIOLATIONS,
    JMX_SAMPLES,
    QUOTA_CHANGES,
    QUOTA_RULES,
    PARTITION_LEADERS,
    LOG_GAPS,
    AGREEMENT,
    BROKER_CONFIGS,
    ENFORCEMENT_LOG,
)
