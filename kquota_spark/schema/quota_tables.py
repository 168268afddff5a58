"""Tables of the quotas and partition leaders at every moment, and of what enforcement planned, did and reverted."""

from __future__ import annotations

from kquota_spark.schema.columns import Table, bigint, boolean, double, integer, string, timestamp
from kquota_spark.schema.key_columns import CLUSTER_ID, EVENT_DATE

ENTITY = (
    string(
        "entity",
        "canonical name, e.g. users/alice/clients/<default> (sanitised like a znode path) or ips/10.0.0.1",
    ),
    integer(
        "level",
        "1 to 8, place in Kafka's precedence; null for ips; 0 for the source's own row in quota_rules",
    ),
    string("user", "user part; null where it is absent or the default (see level)"),
    string("client_id", "client-id part; null where it is absent or the default (see level)"),
)

QUOTA_CHANGES = Table(
    "quota_changes",
    "one edit of one quota key of one entity; append-only",
    (
        CLUSTER_ID,
        *ENTITY,
        string("key", "producer_byte_rate, consumer_byte_rate, request_percentage, ..."),
        double("value", "new value; null when the key was removed"),
        double("previous_value", "value before; null when the key was not set"),
        timestamp(
            "changed_at",
            "when it changed: the node's own mtime, UTC; a polled source: after this (1970: before it began)",
        ),
        bigint("version", "the node's mzxid; a polled source: epoch ms of the poll that found it"),
        string("source", "zookeeper, admin or file"),
        timestamp("observed_at", "when the watcher saw it, UTC"),
        string("problem", "why the payload could not be read; null normally"),
        timestamp("changed_before", "polled, or a wrong clock: it changed before this, UTC; null if exact"),
    ),
)

QUOTA_RULES = Table(
    "quota_rules",
    "quotas of one entity over one period of time; the periods of an entity cover all time, and a row with "
    "null quotas means that it had none then. The row at level 0 has the time up to which the source is known",
    (
        CLUSTER_ID,
        *ENTITY,
        double("producer_byte_rate", "bytes per second per broker; null if not set"),
        double("consumer_byte_rate", "bytes per second per broker; null if not set"),
        double("request_percentage", "percent of one thread per broker; null if not set"),
        double("controller_mutation_rate", "mutations per second; null if not set"),
        double("connection_creation_rate", "ips: connections per second per broker; null if not set"),
        timestamp("valid_from", "brokers enforce it from here on (edit plus the apply lag), UTC"),
        timestamp("valid_to", "until here, exclusive; null for the last period"),
        timestamp(
            "certain_from",
            "until here the period before may have been in force (polled), UTC; null if exact",
        ),
        bigint("version", "the node's mzxid at valid_from; null before the first edit"),
        timestamp("known_through", "level 0 only: all edits up to here have been seen, UTC"),
        string("source", "zookeeper, admin or file"),
    ),
    partition_by=("level",),
    is_short_lived=True,
)

PARTITION_LEADERS = Table(
    "partition_leaders",
    "one change of the leader of one partition, as polled; only kept for a quota callback",
    (
        CLUSTER_ID,
        string("topic", "topic"),
        integer("partition", "its partition"),
        integer("leader", "broker that leads it from then on; null while nobody does"),
        boolean("is_deleted", "the partition is gone"),
        timestamp("observed_at", "when the watcher saw it, UTC"),
    ),
)

ENFORCEMENT_LOG = Table(
    "enforcement_log",
    "one event of one step of one plan; append-only, and all that a later enforcer has to know",
    (
        CLUSTER_ID,
        EVENT_DATE,
        string("plan_id", "the plan; a person approves it by this"),
        integer("step", "number of the change in its plan, from 1 on"),
        bigint("sequence", "order of the rows of the cluster, from 1 on"),
        string(
            "event", "planned, approved, refused, sending, applied, failed, restoring, restored, superseded"
        ),
        timestamp("at", "when, UTC"),
        *ENTITY,
        string("key", "producer_byte_rate, consumer_byte_rate, request_percentage, ..."),
        double("value_before", "what the decision was based on; null when the key was not set"),
        double("value_after", "what the policy wants; null for a removal"),
        string("policy", "name of the policy in policy.yaml, or override"),
        string("reason", "why, in one sentence"),
        string("would_have", "what it would have done yesterday; empty if nothing is known of it"),
        timestamp("expires_at", "when what was before is restored, UTC; null for a change that stays"),
        boolean("is_penalty", "meant to cut clients that are throttled already, for a time"),
        string("evidence", "the decisions that it rests on, as JSON: see enforce.changes.Evidence"),
        string("mode", "observe, approve or enforce: how far it may go"),
        string("actor", "who: enforcer, or the person at the command line"),
        string("guard", "refused: the guard that did; null otherwise"),
        bigint("fencing", "number of the lease under which it was sent; null if nothing was"),
        string("note", "how to restore what was there, absence included; holds no secret"),
        string("detail", "the cluster's answer, or what was found instead"),
        string("author", "who planned the step"),
        string("approver", "who approved the step; null while nobody did"),
        string("ticket", "the change request that people named with --ticket; null without one"),
    ),
    partition_by=("event_date",),
)
