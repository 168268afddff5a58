"""The table of what enforcement planned, refused, did and took back."""

from __future__ import annotations

from kquota_spark.schema.columns import Column, Table
from kquota_spark.schema.key_columns import CLUSTER_ID, EVENT_DATE
from kquota_spark.schema.quota_tables import ENTITY

ENFORCEMENT_LOG = Table(
    "enforcement_log",
    "one event of one step of one plan; append-only, and all that a later enforcer has to know",
    (
        CLUSTER_ID,
        EVENT_DATE,
        Column("plan_id", "string", "the plan; a person approves it by this"),
        Column("step", "int", "number of the change in its plan, from 1 on"),
        Column("sequence", "bigint", "order of the rows of the cluster, from 1 on"),
        Column(
            "event",
            "string",
            "planned, approved, refused, sending, applied, failed, restoring, restored, superseded",
        ),
        Column("at", "timestamp", "when, UTC"),
        *ENTITY,
        Column("key", "string", "producer_byte_rate, consumer_byte_rate, request_percentage, ..."),
        Column("value_before", "double", "what the decision was based on; null when the key was not set"),
        Column("value_after", "double", "what the policy wants; null for a removal"),
        Column("policy", "string", "name of the policy in policy.yaml, or override"),
        Column("reason", "string", "why, in one sentence"),
        Column("would_have", "string", "what it would have done yesterday; empty if nothing is known of it"),
        Column(
            "expires_at", "timestamp", "when what was before is restored, UTC; null for a change that stays"
        ),
        Column("is_penalty", "boolean", "meant to cut clients that are throttled already, for a time"),
        Column("evidence", "string", "the decisions that it rests on, as JSON: see enforce.changes.Evidence"),
        Column("mode", "string", "observe, approve or enforce: how far it may go"),
        Column("actor", "string", "who: enforcer, or the person at the command line"),
        Column("guard", "string", "refused: the guard that did; null otherwise"),
        Column("fencing", "bigint", "number of the lease under which it was sent; null if nothing was"),
        Column("note", "string", "how to restore what was there, absence included; holds no secret"),
        Column("detail", "string", "the cluster's answer, or what was found instead"),
    ),
    partition_by=("event_date",),
)
