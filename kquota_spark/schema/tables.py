"""The tables of the audit, one declaration each; `kquota tables` prints them."""

from __future__ import annotations

from kquota_spark.schema.broker_tables import BROKER_CONFIGS, JMX_SAMPLES
from kquota_spark.schema.cause_table import CAUSES
from kquota_spark.schema.columns import (
    Column,
    Table,
    bigint,
    boolean,
    double,
    integer,
    string,
    strings,
    timestamp,
)
from kquota_spark.schema.day_tables import BUDGET_DAYS, DEMAND_DAYS
from kquota_spark.schema.gap_tables import LOG_GAPS
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
from kquota_spark.schema.quota_tables import ENFORCEMENT_LOG, PARTITION_LEADERS, QUOTA_CHANGES, QUOTA_RULES
from kquota_spark.schema.shadow_tables import EDIT_IMPACT, SHADOW_DECISIONS

POINT = (
    "struct<record_time_ms:bigint,log_time_ms:bigint,connection_hash:bigint,correlation_id:int,"
    "amount:bigint,observed_throttle_ms:int,kind:int,network_time_us:bigint>"
)
"""One request as the replay needs it, sorted by its fields in order; `kind` is `model.measure.points.PointKind`."""

LEFT_OUT = "left_out"
"""Kind of a row of `requests` that replaces several lines."""

REQUESTS = Table(
    "requests",
    "one message of the log topic: a request, a line that could not be read, or a shipper's heartbeat",
    (
        CLUSTER_ID,
        EVENT_DATE,
        string(
            "kind", "request, unreadable, heartbeat, gap: lines that a shipper lost, or left_out: see lines"
        ),
        string("topic", "Kafka topic the line was read from"),
        integer("partition", "its partition"),
        bigint("kafka_offset", "its offset: topic, partition and offset are the row's identity"),
        bigint("kafka_timestamp_ms", "when the line reached Kafka, epoch ms"),
        BROKER_ID,
        bigint("log_time_ms", "time of the log line (response sent), epoch ms"),
        bigint("record_time_ms", "when the broker recorded the request in its quota, epoch ms"),
        boolean(
            "is_out_of_time", "record time too far ahead of the message or its reading: kept, not judged"
        ),
        PRINCIPAL_TYPE,
        USER,
        CLIENT_ID,
        integer("api_key", "Kafka API key: 0 produce, 1 fetch"),
        integer("api_version", "API version"),
        string("api_name", "API name as logged, e.g. PRODUCE"),
        string("quota_type", "produce or fetch where a bandwidth quota counts it; null otherwise"),
        integer("point_kind", "how the replay treats it (model.replay.PointKind); null if not counted"),
        bigint(
            "charged_bytes",
            "bytes the bandwidth quota was charged; null if not counted, or of a request whose size is not logged",
        ),
        double("request_time_percent", "handler time as percent of one thread-second"),
        integer("observed_throttle_ms", "throttle the broker logged, ms (larger of its two fields)"),
        boolean("is_from_follower", "a replica's fetch: no client quota counts it"),
        boolean("is_forwarded", "the controller's copy of a forwarded request: not counted twice"),
        string("connection", "connection id as logged"),
        integer("correlation_id", "correlation id of the request"),
        string("software_name", "client library"),
        string("software_version", "its version"),
        strings("topics", "topic names (or ids) a produce or fetch touched, at most 32"),
        bigint(
            "network_time_us",
            "time to send the response, microseconds: the most that the network thread can have spent; null where "
            "no request quota counts the request",
        ),
        Column(
            "mutations",
            "array<struct<topic_hash:bigint,partitions:int,point_kind:int>>",
            "topics that the mutation quota was asked about, see model.points; null if none",
        ),
        string(
            "altered_quotas",
            "AlterClientQuotas only: JSON list of [entity, key, value], null where removed; null elsewhere",
        ),
        string("reason", "why a line could not be read; null for readable ones"),
        string("raw_text", "text of an unreadable line, cut; null where it may hold secrets"),
        bigint(
            "lines",
            "left_out only: how many requests of one broker, second and quota type have no row (tables.requests); "
            "times and kafka_offset are of the newest, charged_bytes is their sum",
        ),
        bigint("first_offset", "left_out only: offset of the oldest of them"),
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
        timestamp("second", "start of the second, UTC"),
        integer("tile", "0, or the number of the part where a second has more than 10,000 requests"),
        bigint("amount", "charged in the second, duplicates removed; unit: see quota_type; null from JMX"),
        bigint("requests", "requests in the second, duplicates removed; null from JMX"),
        bigint("duplicates", "copies of lines that were delivered more than once"),
        double(
            "rate_per_s",
            "amount per second over this second, for charts, never for a verdict; from JMX the broker's own rate",
        ),
        bigint("observed_throttle_ms", "sum of the throttles the broker logged, ms"),
        Column("points", f"array<{POINT}>", "the requests as the replay needs them, in order"),
        SOURCE,
        bigint(
            "unsized_requests",
            "of the requests, those whose size is not in the log (share consumers, fetches converted for an old "
            "client, lines that could not be read to the end): amount and rate are without it; null from JMX",
        ),
    ),
    partition_by=("event_date",),
    skip_by=("second",),
)

_JUDGED = (
    bigint("requests_judged", "verdicts compared with the broker's: certain and observable"),
    bigint("requests_agreeing", "of these, throttled or not as the broker did"),
    bigint("false_positive", "throttled by the replay, not by the broker"),
    bigint("false_negative", "throttled by the broker, not by the replay"),
    bigint("judged_throttled", "judged requests that the broker throttled"),
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
        timestamp("second", "start of the second, UTC"),
        integer(
            "level",
            "1 to 8: which level of Kafka's precedence set the limit, 9: a static default; null if none did",
        ),
        string("rule", "what set the limit: an entity, e.g. users/alice/clients/<default>, or the callback"),
        bigint("rule_version", "version of that entity's quotas (zxid in ZooKeeper mode)"),
        double("limit_per_s", "limit in force, unit: see quota_type; null if unlimited"),
        double(
            "rate_per_s",
            "highest rate the broker measured in this second, in the limit's unit; of a request quota its lower "
            "bound; of mutations those that the bucket holds, over its windows",
        ),
        double(
            "rate_at_most_per_s",
            "upper bound of the rate of a request quota, which is an estimate; null for other types",
        ),
        double(
            "quota_used_percent",
            "100 * rate / limit, of a token bucket the part that is taken; violated only above 100; null if unlimited",
        ),
        bigint(
            "amount", "charged in this second, unit: see quota_type; null from JMX, like all counts and sums"
        ),
        bigint("requests", "requests in this second"),
        bigint("throttle_ms", "longest throttle by the replay, ms"),
        bigint(
            "observed_throttle_ms",
            "longest throttle the broker logged, ms; from JMX the mean of its throttles of the last 30 to 60 s",
        ),
        bigint("throttled_requests", "requests with a throttle above 0 by the replay"),
        bigint("observed_throttled_requests", "requests with a throttle above 0 in the log"),
        bigint("total_throttle_ms", "sum of the throttles by the replay, ms"),
        *_JUDGED,
        bigint("judged_near_limit", "judged requests with a rate within 5 % of the limit"),
        bigint("uncertain", "requests whose verdict what the log leaves open could flip; not judged"),
        bigint("uncertain_wrong", "of these, verdicts that differ from the broker's"),
        bigint("inferred", "throttled fetches (their size is not in the log); not judged"),
        bigint("excluded", "requests under two quotas, whose throttle is the larger of both; not judged"),
        bigint("late", "requests that came after their bucket had been judged further; not folded"),
        Column("throttle_errors_ms", "array<int>", "replay minus logged throttle, ms, where both throttled"),
        boolean(
            "is_certain",
            "no request of this second is uncertain, late or behind the rules; never from JMX, which does not show "
            "what was between two samples",
        ),
        boolean("is_rules_behind", "quota changes were not yet known through this second"),
        string("model_variant", "sample ring or token bucket and its settings, e.g. 3.8+/11x1000ms"),
        SOURCE,
        strings("users", "users inside the bucket in this second, at most 20"),
        strings("client_ids", "client ids inside the bucket in this second, at most 20"),
        bigint(
            "observed_total_throttle_ms",
            "sum of the throttles the broker logged, ms: the total delay; null from JMX. A request under two quotas "
            "counts for each of them whose limit its rate can have reached",
        ),
        bigint(
            "unsized_requests",
            "of the requests, those whose size is not in the log, see usage: amount and rates are without it, and "
            "every verdict with one in its ring is uncertain; null from JMX",
        ),
        bigint(
            "window_off",
            "of the uncertain, requests whose window, by the throttles before them, was another than the log's times",
        ),
        bigint("window_off_false_positive", "of these, throttled by the replay, not by the broker"),
        bigint("window_off_false_negative", "of these, throttled by the broker, not by the replay"),
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
        string("episode_id", "hash of the bucket and the start: the same in every run"),
        BROKER_ID,
        QUOTA_TYPE,
        *BUCKET,
        timestamp("start_time", "first violated second, UTC"),
        timestamp(
            "end_time",
            "end of the last violated second, or of the last throttle if that is later, UTC; null while it is open",
        ),
        timestamp("last_second", "last violated second seen so far, UTC"),
        integer("level", "precedence level of the rule at the start"),
        string("rule", "entity that set the limit at the start"),
        double("limit_per_s", "smallest limit during the episode; unit: see quota_type"),
        double("peak_rate_per_s", "highest rate, in the limit's unit"),
        double("peak_quota_used_percent", "highest percent of the limit"),
        bigint("violated_seconds", "seconds (from JMX samples) of the episode above the limit"),
        bigint("throttled_ms", "sum of all throttles by the replay, ms; null from JMX"),
        bigint("throttled_requests", "requests throttled by the replay; null from JMX"),
        SOURCE,
        strings("users", "users inside, at most 20"),
        strings("client_ids", "client ids inside, at most 20"),
        bigint("longest_throttle_ms", "longest throttle by the replay, ms; null from JMX"),
        bigint(
            "observed_throttled_ms",
            "sum of the throttles the broker logged in these seconds, ms: the total delay; null from JMX",
        ),
        bigint("observed_throttled_requests", "requests with a throttle above 0 in the log; null from JMX"),
        bigint("observed_longest_throttle_ms", "longest throttle the broker logged, ms"),
        timestamp(
            "muted_until", "end of the last throttle in the violated seconds so far, whole seconds, UTC"
        ),
    ),
    partition_by=("event_date",),
    skip_by=("start_time", "end_time"),
)

AGREEMENT_COUNTS = (
    bigint("requests", "requests of the day, late ones left out"),
    *_JUDGED,
    bigint("uncertain", "requests whose verdict a clock error of 2 ms could flip; not judged"),
    bigint("uncertain_wrong", "of these, verdicts that differ from the broker's"),
    bigint("inferred", "throttled fetches (their size is not in the log); not judged"),
    bigint("excluded", "requests under a request quota; not judged"),
    bigint("late", "requests that came after their bucket had been judged further; not folded"),
    bigint("throttles_compared", "requests that replay and broker both throttled"),
    bigint("throttle_within_1_ms", "of these, with throttle times at most 1 ms apart"),
    bigint("throttle_within_10_ms", "at most 10 ms apart"),
    bigint("delay_by_replay_ms", "total delay in certain seconds, by replay"),
    bigint("delay_by_brokers_ms", "total delay in the same seconds, by brokers"),
    bigint("jmx_compared", "JMX samples of the bucket in a second that has a decision"),
    bigint("jmx_within_1_percent", "of these, byte-rate at most 1 % from the decision's rate"),
    bigint("jmx_within_10_percent", "at most 10 %"),
)
"""Counts and sums, so that days, buckets, types and brokers can be added up; percentiles could not be added."""

AGREEMENT = Table(
    "agreement",
    "agreement with the broker over one closed day of one quota bucket of one broker",
    (
        CLUSTER_ID,
        EVENT_DATE,
        BROKER_ID,
        QUOTA_TYPE,
        *BUCKET,
        *AGREEMENT_COUNTS,
        bigint("throttle_error_max_ms", "largest difference of the throttle times; null if none"),
    ),
    partition_by=("event_date",),
)

TABLES: tuple[Table, ...] = (
    REQUESTS,
    USAGE,
    DECISIONS,
    SHADOW_DECISIONS,
    VIOLATIONS,
    CAUSES,
    JMX_SAMPLES,
    QUOTA_CHANGES,
    QUOTA_RULES,
    PARTITION_LEADERS,
    LOG_GAPS,
    AGREEMENT,
    EDIT_IMPACT,
    BUDGET_DAYS,
    DEMAND_DAYS,
    BROKER_CONFIGS,
    ENFORCEMENT_LOG,
)
