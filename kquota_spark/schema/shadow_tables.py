"""Tables of quotas before they are in force: the verdicts of a shadow, and what was predicted of edits."""

from __future__ import annotations

from kquota_spark.schema.columns import Table, bigint, boolean, double, integer, string, timestamp
from kquota_spark.schema.key_columns import BROKER_ID, BUCKET, CLUSTER_ID, EVENT_DATE, QUOTA_TYPE

SHADOW_DECISIONS = Table(
    "shadow_decisions",
    "one second of one bucket in which the shadow quotas (quotas.shadow) give other throttles than the enforced ones, "
    "or throttle or may throttle under another limit",
    (
        CLUSTER_ID,
        EVENT_DATE,
        BROKER_ID,
        QUOTA_TYPE,
        *BUCKET,
        timestamp("second", "start of the second, UTC"),
        string("shadow", "name of the shadow quotas"),
        string("shadow_version", "hash of the meaning of the shadow quotas: another one after each change"),
        integer("level", "1 to 8: level of Kafka's precedence that sets the shadow limit; null if none does"),
        string("rule", "what sets the shadow limit: an entity, or the callback"),
        double(
            "limit_per_s",
            "limit by the shadow quotas, unit: see quota_type; null if unlimited, or without a request in the bucket",
        ),
        double(
            "rate_per_s",
            "highest rate of the bucket under the shadow quotas in this second, in the limit's unit; of a request "
            "quota its lower bound",
        ),
        bigint("requests", "requests in the bucket under the shadow quotas; 0 if all count in other buckets"),
        bigint("throttle_ms", "longest throttle under the shadow quotas, by replay, ms"),
        bigint("throttled_requests", "requests with a throttle above 0 under the shadow quotas"),
        bigint("total_throttle_ms", "sum of the throttles under the shadow quotas, ms"),
        bigint(
            "unknown_requests",
            "throttled fetches and refused mutations without a verdict: their amount is not in the log",
        ),
        boolean("is_near", "a clock error of 2 ms could flip a verdict of this second"),
        boolean(
            "is_warm",
            "the ring lacks no request: false for the time that a ring remembers (12 s by default) after this "
            "version began, and after a gap of the log",
        ),
        double(
            "enforced_limit_per_s", "limit in force on the bucket; null if unlimited, or without a request"
        ),
        bigint("enforced_throttled_requests", "requests throttled under the enforced quotas, by replay"),
        bigint("enforced_total_throttle_ms", "sum of the throttles under the enforced quotas, by replay, ms"),
    ),
    partition_by=("event_date",),
    skip_by=("second",),
)

EDIT_IMPACT = Table(
    "edit_impact",
    "one edit of one quota: the total delay predicted from the time before it, and the one measured after it",
    (
        CLUSTER_ID,
        EVENT_DATE,
        string("entity", "canonical name of the entity, as in quota_changes"),
        string("key", "producer_byte_rate, consumer_byte_rate, request_percentage, ..."),
        timestamp("at", "when brokers applied the edit, UTC"),
        double("value_before", "value before the edit; null if not set"),
        double("value_after", "value after the edit; null if removed"),
        bigint("window_s", "length of the time before, and of the time after, s: 24 h at most"),
        bigint("buckets", "buckets that the edit changes"),
        bigint("before_ms", "total delay of these buckets in the time before, by brokers, ms"),
        bigint("predicted_ms", "total delay predicted for the time after, ms"),
        bigint("low_ms", "least total delay by the prediction, ms"),
        bigint("high_ms", "most total delay by the prediction, ms; null if the demand is unknown"),
        bigint("measured_ms", "total delay of these buckets in the time after, by brokers, ms"),
        double("error_percent", "100 * (predicted - measured) / measured; null if nothing was measured"),
        string("method", "closed loop, or open loop for mutations"),
    ),
    partition_by=("event_date",),
    skip_by=("at",),
)
