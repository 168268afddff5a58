"""Total delay and throttled requests of each bucket, as every surface has them, and as the broker's lines add up."""

from __future__ import annotations

from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.reports.clients.quota_tree import _HITS
from kquota_spark.reports.exported.bucket_refresh import read_refresh
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.timeline_slots import Identity, buckets_of
from kquota_spark.schema.harm import DELAY_MS, EPISODE_DELAY_MS, EPISODE_REQUESTS, THROTTLED_REQUESTS
from kquota_spark.store.reading import Tables

Bucket = tuple[int, str, str, str]
"""Broker, quota type, user and client id."""
Harm = dict[Bucket, tuple[int, int]]
"""Total delay in ms, and throttled requests."""

# A bucket in a second is the clients that `decisions` names: here never so many that some are left out.
_LINES = """
select decisions.broker_id, decisions.quota_type, bucket_user, bucket_client_id,
       sum(lines.observed_throttle_ms)::bigint, count(*) filter (lines.observed_throttle_ms > 0)
from decisions join requests as lines
  on lines.broker_id = decisions.broker_id and lines.quota_type = decisions.quota_type
  and lines.record_time_ms // 1000 * 1000 = epoch_ms(decisions.second)
  and list_contains(decisions.users, lines."user") and list_contains(decisions.client_ids, lines.client_id)
where lines.kind = 'request' and lines.point_kind is not null and decisions.limit_per_s is not null group by all
"""
_DECISIONS = f"""
select broker_id, quota_type, bucket_user, bucket_client_id, sum({DELAY_MS})::bigint,
       sum({THROTTLED_REQUESTS})::bigint
from decisions where limit_per_s is not null group by all
"""
_EPISODES = f"""
select broker_id, quota_type, bucket_user, bucket_client_id, sum({EPISODE_DELAY_MS})::bigint,
       sum({EPISODE_REQUESTS})::bigint
from violations group by all
"""
VIOLATED = """
select broker_id, quota_type, bucket_user, bucket_client_id, sum(observed_total_throttle_ms)::bigint,
       sum(observed_throttled_requests)::bigint, sum(total_throttle_ms)::bigint
from decisions where quota_used_percent > 100 or observed_throttled_requests > 0 group by all
"""


def of_lines(opened: Tables) -> Harm:
    """By the lines; buckets without a throttle are left out, here and below."""
    return throttled(opened.query(_LINES).rows)


def of_decisions(opened: Tables) -> Harm:
    """By `decisions`."""
    return throttled(opened.query(_DECISIONS).rows)


def of_violations(opened: Tables) -> Harm:
    """By `violations`."""
    return throttled(opened.query(_EPISODES).rows)


def of_prometheus(opened: Tables, cluster_id: str) -> Harm:
    """By the exporter."""
    refresh = read_refresh(opened, cluster_id, from_ms=0, shown={}, logged=(), most=100)
    return {
        (key.broker_id, key.quota_type, key.user, key.client_id): (
            one.counts.throttle_ms, one.counts.throttled_requests
        )
        for one in refresh.buckets
        if (key := one.key) and one.limit_per_s is not None and one.counts.throttle_ms
    }  # fmt: skip


def of_report(settings: Settings, opened: Tables) -> Harm:
    """By the report, over all brokers: its broker is 0."""
    first_ms, last_ms = extent(opened)
    page = gather_report(settings, Period(first_ms, last_ms), made_at_ms=last_ms, top=1_000)
    return {
        (0, one.bucket.quota_type, one.bucket.user, one.bucket.client_id): (
            one.delay_ms, one.throttled_requests or 0
        )
        for one in page.throttled
    }  # fmt: skip


def of_timeline(opened: Tables, buckets: Harm) -> dict[Bucket, int]:
    """By the timeline, which tells the total delay only."""
    period = Period(*extent(opened))
    names = {(user or None, client_id or None) for _, _, user, client_id in buckets}
    return {
        (one.key.broker_id, one.key.quota_type, one.key.user, one.key.client_id): one.throttled_ms
        for user, client_id in names
        for one in buckets_of(opened, Identity(user, client_id), period)
        if one.throttled_ms
    }


def of_tree(opened: Tables, cluster_id: str) -> int:
    """The total delay of all buckets, by the tree."""
    return sum(row[-1] or 0 for row in opened.query(_HITS, [cluster_id, 0]).rows)


def over_brokers(harm: Harm) -> Harm:
    """The same over all brokers."""
    found: Harm = {}
    for (_, *name), numbers in harm.items():
        quota_type, user, client_id = name
        before = found.get((0, quota_type, user, client_id), (0, 0))
        found[0, quota_type, user, client_id] = (before[0] + numbers[0], before[1] + numbers[1])
    return found


def throttled(rows: list[tuple[Any, ...]]) -> Harm:
    """Rows of a bucket and its two figures."""
    return {row[:4]: (row[4], row[5]) for row in rows if row[4]}


def extent(opened: Tables) -> tuple[int, int]:
    """From the first to the end of the last second that was judged."""
    sql = "select epoch_ms(min(second)), epoch_ms(max(second)) + 1000 from decisions"
    first_ms, last_ms = opened.query(sql).rows[0]
    return first_ms, last_ms
