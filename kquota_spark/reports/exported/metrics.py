"""The metrics of `kquota exporter`: every name, its meaning and its labels, declared once; the page lists the same.

Units are Prometheus' base units. A quota type has its own unit, so rates, limits and amounts have one metric per unit:
the values of one metric can be added up. Percent of a handler thread are exported as threads: 100 % is 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

from kquota_spark.model.quotas.quota_types import COUNTED, Counted
from kquota_spark.process.metrics import Family
from kquota_spark.reports.exported.bucket_refresh import BucketKey, Counts
from kquota_spark.reports.exported.shown_buckets import BucketSeries, ShownBuckets

CLUSTER = ("cluster_id",)
OWNER = ("cluster_id", "owner")
"""Labels of an owner of clients; the file of owners bounds their number."""
PLACE = ("cluster_id", "broker_id", "quota_type")
BUCKET = (*PLACE, "user", "client_id", "tags")
"""Labels of a bucket; `tags` exists only with a quota callback."""
OR_OTHER = (*BUCKET, "bucket")
"""The same, or `bucket="other"` without broker and names: the sum of the buckets that have no series of their own."""
RULE = (*BUCKET, "rule", "level")


class Metric(NamedTuple):
    """One metric; its exported name begins with `kquota_`."""

    name: str
    kind: Literal["counter", "gauge"]
    labels: tuple[str, ...]
    about: str


@dataclass(frozen=True, slots=True)
class Unit:
    """How to convert the numbers of a quota type to base units."""

    suffix: str
    per_rate: float
    amount: str
    per_amount: float


_UNITS: Mapping[Counted, Unit] = {
    Counted.BYTES: Unit("bytes_per_second", 1.0, "bytes", 1.0),
    Counted.THREAD_TIME: Unit("threads", 0.01, "thread_seconds", 1e-6),
    Counted.PARTITIONS: Unit("mutations_per_second", 1.0, "mutations", 1.0),
    Counted.CONNECTIONS: Unit("connections_per_second", 1.0, "connections", 1.0),
}
_WORDS = {
    "bytes_per_second": "bytes per second that produce or fetch",
    "threads": "handler threads that requests",
    "mutations_per_second": "partitions per second that topic changes",
    "connections_per_second": "connections per second that ips",
}
_COUNTED = {
    "bytes": "Bytes that the quota was charged.",
    "thread_seconds": "Time of handler threads that the quota was charged.",
    "mutations": "Partitions of topic changes that the quota was charged.",
    "connections": "Connections that the quota was charged.",
    "requests": "Requests.",
    "throttled_requests": "Requests that were throttled.",
    "throttle_seconds": "Total delay: the sum of the throttle times of all requests.",
    "time_in_throttle_seconds": "Time throttled: clock time during which a throttle of the bucket held.",
}


_METRICS: Mapping[str, tuple[tuple[str, ...], str]] = {
    **{
        f"bucket_limit_{unit}": (RULE, f"Limit on the broker: {words} may use.")
        for unit, words in _WORDS.items()
    },
    **{
        f"bucket_rate_{unit}": (BUCKET, f"The broker's own rate, highest of a minute: {words} use.")
        for unit, words in _WORDS.items()
    },
    "bucket_quota_used_ratio": (
        OR_OTHER,
        "Rate by limit, highest of a minute; above 1 is violated. Of other: the highest of its buckets.",
    ),
    "bucket_longest_throttle_seconds": (
        BUCKET,
        "Longest throttle of one request, of a minute; a client waits as long. From JMX: the broker's mean.",
    ),
    **{f"bucket_{what}_total": (OR_OTHER, about) for what, about in _COUNTED.items()},
    "unmetered_bytes_total": (PLACE, "Bytes that no limit applied to."),
    "decisions_total": (PLACE, "Seconds of buckets judged from the request log."),
    "certain_decisions_total": (PLACE, "Of these, without a verdict that is open."),
    "requests_judged_total": (PLACE, "Verdicts compared with the broker's."),
    "requests_agreeing_total": (PLACE, "Of these, throttled or not as the broker did."),
    "certain_ratio": (PLACE, "Certain part of the decisions read in the last five minutes."),
    "agreement_ratio": (PLACE, "Agreeing part of the verdicts read in the last five minutes."),
    "newest_decision_timestamp_seconds": (PLACE[:2], "Newest second that was judged of a broker."),
    "table_newest_timestamp_seconds": ((*CLUSTER, "table"), "Newest event time in a table of the audit."),
    "quotas_known_through_timestamp_seconds": (
        CLUSTER,
        "All edits of quotas up to then are known; of a quota file that is for ever.",
    ),
    "open_violations": (PLACE, "Episodes above the limit that have not ended."),
    "owner_active_seconds_total": (
        OWNER,
        "Seconds in which a client of the owner sent a request, or a throttle of its clients held.",
    ),
    "owner_throttled_seconds_total": (
        OWNER,
        "Of these, time throttled: seconds in which a throttle of its clients began or still ran.",
    ),
    "owner_allowed_throttled_ratio": (
        OWNER,
        "Part of the active seconds that may be throttled by the objective.",
    ),
    "owner_budget_seconds": (OWNER, "Seconds of the objective's period that may be throttled."),
    "owner_budget_left_ratio": (OWNER, "Part of these that is left; below 0 more was spent."),
    "exporter_build_info": ((*CLUSTER, "version"), "1; which release this is."),
    "exporter_shown_buckets": (CLUSTER, "Buckets with series of their own."),
    "exporter_dropped_buckets": (
        (*CLUSTER, "quota_type"),
        "Buckets of the last read with decisions that are only in the sum of the others.",
    ),
    "exporter_refreshes_total": (CLUSTER, "Reads of the tables."),
    "exporter_refresh_errors_total": (CLUSTER, "Reads that failed; the next one tries again."),
    "exporter_refresh_duration_seconds": (CLUSTER, "Time that the last read took."),
    "exporter_last_refresh_timestamp_seconds": (
        CLUSTER,
        "When a read last succeeded; five minutes later nothing of the tables is shown any more.",
    ),
}
METRICS = tuple(
    Metric(name, "counter" if name.endswith("_total") else "gauge", labels, about)
    for name, (labels, about) in _METRICS.items()
)

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]
"""Name without `kquota_`, labels, value."""


def families(samples: Iterable[Sample]) -> list[Family]:
    """The declared metrics with their samples, in the declared order; an undeclared name is an error."""
    found: dict[str, list[tuple[Labels, float]]] = {metric.name: [] for metric in METRICS}
    allowed = {metric.name: set(metric.labels) for metric in METRICS}
    for name, labels, value in samples:
        # To Prometheus an empty label is no label, so it must not distinguish two samples.
        filled = {label: text for label, text in labels.items() if text}
        assert set(filled) <= allowed[name], (name, filled)
        found[name].append((filled, value))
    return [
        Family(f"kquota_{name}", kind, about, found[name]) for name, kind, _, about in METRICS if found[name]
    ]


def bucket_samples(
    cluster_id: str, shown: ShownBuckets, newest_ms: Mapping[int, int], hidden_used: Mapping[str, float]
) -> Iterator[Sample]:
    """Samples of all buckets: those with series, and the sums of the others.

    Args:
        cluster_id: value of the label.
        shown: the buckets with series, and the sums of the others.
        newest_ms: newest decision of each broker, epoch ms.
        hidden_used: highest percent of the quota among the buckets without series, by quota type.
    """
    for key, one in shown.series.items():
        labels = {"cluster_id": cluster_id, **asdict(key), "broker_id": str(key.broker_id)}
        yield from _gauges(key, one, labels, newest_ms.get(key.broker_id, one.newest.last_ms))
        yield from _counters(key.quota_type, one.counts, labels)
    for quota_type, counts in shown.others.items():
        labels = {"cluster_id": cluster_id, "quota_type": quota_type, "bucket": "other"}
        yield from _counters(quota_type, counts, labels)
        if quota_type in hidden_used:
            yield "bucket_quota_used_ratio", labels, hidden_used[quota_type] / 100


def _gauges(key: BucketKey, one: BucketSeries, labels: Labels, newest_ms: int) -> Iterator[Sample]:
    unit = _UNITS[COUNTED[key.quota_type]]
    yield f"bucket_rate_{unit.suffix}", labels, one.rate_per_s(newest_ms) * unit.per_rate
    yield "bucket_longest_throttle_seconds", labels, one.longest_throttle_ms(newest_ms) / 1_000
    used = one.quota_used_percent(newest_ms)
    if used is not None and one.newest.limit_per_s is not None:
        rule = {"rule": one.newest.rule or "", "level": str(one.newest.level or "")}
        yield f"bucket_limit_{unit.suffix}", {**labels, **rule}, one.newest.limit_per_s * unit.per_rate
        yield "bucket_quota_used_ratio", labels, used / 100


def _counters(quota_type: str, counts: Counts, labels: Labels) -> Iterator[Sample]:
    unit = _UNITS[COUNTED[quota_type]]
    yield f"bucket_{unit.amount}_total", labels, counts.amount * unit.per_amount
    yield "bucket_requests_total", labels, float(counts.requests)
    yield "bucket_throttled_requests_total", labels, float(counts.throttled_requests)
    yield "bucket_throttle_seconds_total", labels, counts.throttle_ms / 1_000
    yield "bucket_time_in_throttle_seconds_total", labels, counts.held_ms / 1_000
