"""Tables that `kquota maintain` fills with what closed dates come to: for error budgets, and for right sizes."""

from __future__ import annotations

from kquota_spark.schema.columns import Column, Table, bigint, boolean, double, integer, string, timestamp
from kquota_spark.schema.key_columns import BROKER_ID, BUCKET, CLUSTER_ID, EVENT_DATE, QUOTA_TYPE

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

DEMAND_DAYS = Table(
    "demand_days",
    "the windows of ten seconds of one quota bucket of one broker on one closed date that have the same bins",
    (
        CLUSTER_ID,
        EVENT_DATE,
        BROKER_ID,
        QUOTA_TYPE,
        *BUCKET[:2],
        string("rule", "the rule of the bucket in its newest second of this date"),
        double("limit_per_s", "its newest limit of this date, bytes per second; null without a limit"),
        timestamp("first_second", "its first second on this date, UTC"),
        integer(
            "low_bin",
            "bin of the rate that was served: bin n begins at 1.05 to the power of n, bytes per second. Null if the "
            "bucket has no window with traffic on this date",
        ),
        integer(
            "pace_bin",
            "bin of the rate that its connections would have sent; null without a throttle, and where it is not known",
        ),
        boolean("is_throttled", "a throttle began or still held in these windows"),
        boolean("is_first", "a throttle began in them, and none held in the window before"),
        bigint("windows", "number of windows"),
        Column(
            "pace_ratios",
            "array<double>",
            "of first windows: the pace in the next window, as multiple of that in the first; null if no next one "
            "shows it",
        ),
        integer("form", "version of the rules of counting; rows of another version are not used"),
        string(
            "decisions_digest", "digest of the rows of decisions of this date, from the names of their files"
        ),
        string("usage_digest", "the same of usage; a row with another digest than the tables is not used"),
    ),
    partition_by=("event_date",),
)
