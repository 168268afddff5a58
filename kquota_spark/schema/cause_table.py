"""The table of causes: why each closed violation was throttled, kept for longer than the requests that show it."""

from __future__ import annotations

from kquota_spark.schema.columns import Table, bigint, boolean, double, integer, string, timestamp
from kquota_spark.schema.key_columns import BROKER_ID, BUCKET, CLUSTER_ID, EVENT_DATE, QUOTA_TYPE

CAUSES = Table(
    "causes",
    "one cause of one closed violation with its part of the delay, or the rest without all causes; the parts of a "
    "violation add up",
    (
        CLUSTER_ID,
        EVENT_DATE,
        string("episode_id", "the violation: joins violations"),
        BROKER_ID,
        QUOTA_TYPE,
        *BUCKET[:2],
        timestamp("start_time", "start of the violation, UTC"),
        timestamp("end_time", "its end, UTC"),
        bigint(
            "violation_delay_ms",
            "total delay of the violation on its broker, by brokers, ms; times share_percent it can be added up",
        ),
        integer("rank", "1 for the largest part; the rest comes last"),
        string(
            "cause",
            "limit_cut, new_client, growth, repeats, backfill, burst_after_idle, small_requests, hot_broker, "
            "shared_bucket or steady_at_the_limit, which is also the rest",
        ),
        boolean("is_named", "whether the part is large enough to be named: 10 % of the delay"),
        double("share_percent", "the part of the cause, percent of the delay by replay"),
        bigint("share_ms", "the same in ms; below 0 if the delay is longer without the cause"),
        bigint("delay_without_ms", "delay by replay without this cause alone, ms"),
        double("confidence", "share of the cause times the precision of its detector, 0 to 1"),
        string("sentence", "the evidence in words; it has names as clients sent them"),
        string("cure", "what usually removes the cause; empty for a rest that is not named"),
        string("evidence", "JSON object with the numbers of the evidence"),
        double("limit_per_s", "limit at the end of the replayed time, on each broker; unit: see quota_type"),
        bigint("delay_ms", "total delay of the bucket on all brokers in the replayed time, by brokers, ms"),
        bigint("delay_by_replay_ms", "the same by replay, ms: the parts add up to it"),
        integer("clients", "number of clients that sent the bucket's requests"),
        timestamp(
            "replayed_until",
            "end of the replayed time, UTC; before end_time if the violation has more than 200,000 requests",
        ),
        string(
            "slowed",
            "only in the row of the rest of a shared bucket: JSON object with the delay that each client caused and "
            "suffered; null elsewhere",
        ),
        string("inputs", "hash of the violation's figures: the causes are computed again if they change"),
    ),
    partition_by=("event_date",),
    skip_by=("start_time",),
)
