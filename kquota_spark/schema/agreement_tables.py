"""Table of how well the audit agrees with the brokers, kept for longer than the decisions it is made from."""

from __future__ import annotations

from kquota_spark.schema.columns import Column, Table
from kquota_spark.schema.key_columns import BROKER_ID, BUCKET, CLUSTER_ID, EVENT_DATE, QUOTA_TYPE

AGREEMENT_COUNTS = (
    Column("requests", "bigint", "requests of the day, late ones left out"),
    Column("requests_judged", "bigint", "verdicts compared with the broker's: certain and observable"),
    Column("requests_agreeing", "bigint", "of these, throttled or not as the broker did"),
    Column("false_positive", "bigint", "throttled by the replay, not by the broker"),
    Column("false_negative", "bigint", "throttled by the broker, not by the replay"),
    Column("judged_throttled", "bigint", "judged requests that the broker throttled"),
    Column("uncertain", "bigint", "requests whose verdict a clock error of 2 ms could flip; not judged"),
    Column("uncertain_wrong", "bigint", "of these, verdicts that differ from the broker's"),
    Column("inferred", "bigint", "throttled fetches (their size is not in the log); not judged"),
    Column("excluded", "bigint", "requests under a request quota; not judged"),
    Column("late", "bigint", "requests that came after their bucket had been judged further; not folded"),
    Column("throttles_compared", "bigint", "requests that replay and broker both throttled"),
    Column("throttle_within_1_ms", "bigint", "of these, with throttle times at most 1 ms apart"),
    Column("throttle_within_10_ms", "bigint", "at most 10 ms apart"),
    Column("delay_by_replay_ms", "bigint", "total delay in certain seconds, by replay"),
    Column("delay_by_brokers_ms", "bigint", "total delay in the same seconds, by brokers"),
    Column("jmx_compared", "bigint", "JMX samples of the bucket in a second that has a decision"),
    Column("jmx_within_1_percent", "bigint", "of these, byte-rate at most 1 % from the decision's rate"),
    Column("jmx_within_10_percent", "bigint", "at most 10 %"),
)
"""Sums, so that days, buckets, types and brokers can be added up; a percentile could not."""

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
        Column("throttle_error_max_ms", "bigint", "largest difference of the throttle times; null if none"),
    ),
    partition_by=("event_date",),
)
