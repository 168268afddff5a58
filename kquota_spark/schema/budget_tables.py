"""Table of the seconds that error budgets are made of, for closed dates."""

from __future__ import annotations

from kquota_spark.schema.columns import Column, Table, bigint, boolean, string
from kquota_spark.schema.key_columns import CLUSTER_ID, EVENT_DATE

BUDGET_DAYS = Table(
    "budget_days",
    "one owner, or one user, on one closed date: the seconds in which its clients were active, and throttled",
    (
        CLUSTER_ID,
        EVENT_DATE,
        string(
            "grouped_by",
            "owner: the clients of an owner of the file owners; user: those of a user; many users: the date has more "
            "users than are kept, and this one row instead",
        ),
        string("name", "the owner, or the user; null for many users, like all seconds"),
        bigint("active_s", "seconds with a request or a throttle of one of the clients, s"),
        bigint(
            "time_throttled_s",
            "of these, seconds with a throttle that began on this date, s. Those after midnight count here; they count "
            "on the next date too if a throttle of that date holds in them",
        ),
        Column(
            "active_bits",
            "binary",
            "the active seconds: a bit per second from midnight UTC on, the highest bit of a byte first; zlib",
        ),
        Column("throttled_bits", "binary", "the throttled seconds, likewise"),
        boolean("has_jmx", "the date has rows from JMX, so the row is used for the whole date only"),
        string("rules", "digest of the rules by which clients were assigned on this date"),
        string("usage_digest", "digest of the rows of usage of this date, from the names of their files"),
        string(
            "decisions_digest", "the same of decisions; a row with another digest than the tables is not used"
        ),
    ),
    partition_by=("event_date",),
    skip_by=("grouped_by",),
)
