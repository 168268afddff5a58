"""Why the worst buckets of a report were throttled, within bounds that keep the report fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kquota_spark.errors import UserError
from kquota_spark.model.attribution.causes import LEAST_DELAY_MS
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.scope.shared_rows import BucketName, ThrottledBucket
from kquota_spark.reports.why.answers import Reasons
from kquota_spark.reports.why.kept import kept_reasons
from kquota_spark.reports.why.reasons import Bounds, UseOfKept, is_covered, reasons
from kquota_spark.reports.why.recorded import Wanted
from kquota_spark.reports.why.request_counts import RequestCount, request_counts
from kquota_spark.schema.harm import EPISODE_DELAY_MS, EPISODE_END
from kquota_spark.store.reading import Tables

MOST_BUCKETS = 20
"""Maximum number of buckets with causes."""
WITHIN = Bounds(of_bucket=25_000, of_all=100_000, of_sharing=2_000_000)
"""What the report replays. If a bucket has more requests, its violation with the most total delay is explained."""
BY_CAUSE = WITHIN._replace(of_sharing=0)
"""The same without who slowed whom."""
_WORST = f"""
select greatest(epoch_ms(start_time), ?) as from_ms, least(epoch_ms({EPISODE_END}), ?) as to_ms from violations
where cluster_id = ? and quota_type = ? and bucket_user = ? and bucket_client_id = ? and bucket_tags is null
  and epoch_ms(start_time) < ? and epoch_ms({EPISODE_END}) > ?
order by {EPISODE_DELAY_MS} desc nulls last, start_time limit 1
"""  # noqa: S608 - names of ours


class WhyThrottled(NamedTuple):
    """Why buckets were throttled."""

    found: Mapping[BucketName, Reasons]
    left_out: int = 0
    """Number of buckets with enough delay that were not replayed, because the others have more."""


def left_out_text(count: int, noun: str, most: int) -> str:
    """What was not replayed, as a part of a sentence; empty if nothing was left out.

    Args:
        count: number of buckets or violations that were left out.
        noun: name of one, in the singular.
        most: maximum number of them that are replayed.
    """
    if not count:
        return ""
    are = f"1 {noun} has" if count == 1 else f"{count:,} {noun}s have"
    return (
        f"{are} no cause by replay: at most {most} {noun}s with {WITHIN.of_all:,} requests together are replayed, "
        "most total delay first; kquota why explains any other"
    )


def reasons_of(scope: Scope, throttled: Sequence[ThrottledBucket], bounds: Bounds = WITHIN) -> WhyThrottled:
    """Why buckets were throttled, those with the most total delay.

    Buckets that a tenant shares are left out, because their causes would name others. Nothing is returned if the
    tables lack the requests or the quotas.

    Args:
        scope: the report's tables and period.
        throttled: the throttled buckets.
        bounds: how much is replayed.
    """
    ordered = sorted(throttled, key=lambda one: (-one.delay_ms, one.bucket))
    chosen = [
        one.bucket
        for one in ordered
        if one.delay_ms >= LEAST_DELAY_MS and not one.shared_with and is_covered(one.bucket)
    ]
    try:
        wanted, counted = _periods(scope, chosen[:MOST_BUCKETS], bounds.of_bucket)
        explained = reasons(scope.settings, wanted, bounds, counted)
        found = {asked.bucket: answer for asked, answer in explained.found.items()}
        answered = found.keys() | {asked.bucket for asked in explained.left_out}
        found |= _kept_of_worst(scope, [one for one in chosen[:MOST_BUCKETS] if one not in answered])
    except UserError:
        return WhyThrottled({})
    left_out = len(chosen[MOST_BUCKETS:]) + len(explained.left_out) if found else 0
    return WhyThrottled(found, left_out)


def _kept_of_worst(scope: Scope, buckets: Sequence[BucketName]) -> dict[BucketName, Reasons]:
    """The kept causes of the worst violation of each bucket: their requests are gone."""
    if not buckets:
        return {}
    periods = [Wanted(one, scope.covered.from_ms, scope.covered.to_ms) for one in buckets]
    worst = [_worst(scope, one, is_cut=False) for one in periods]
    with Tables(scope.settings) as tables:
        kept = kept_reasons(tables, scope.cluster_id, worst)
    return {asked.bucket: answer for asked, answer in kept.items()}


def reasons_of_shared(scope: Scope, throttled: Sequence[ThrottledBucket]) -> list[Reasons]:
    """The same for buckets that a tenant shares with others; the caller must not show the names in it.

    Args:
        scope: the report's tables and period.
        throttled: the throttled buckets.
    """
    shared = [
        one.bucket
        for one in throttled
        if one.shared_with and one.delay_ms >= LEAST_DELAY_MS and is_covered(one.bucket)
    ]
    wanted = [Wanted(bucket, scope.covered.from_ms, scope.covered.to_ms) for bucket in shared[:MOST_BUCKETS]]
    try:
        return list(reasons(scope.settings, wanted, WITHIN._replace(kept=UseOfKept.NEVER)).found.values())
    except UserError:
        return []


def _periods(
    scope: Scope, buckets: Sequence[BucketName], most: int
) -> tuple[list[Wanted], dict[Wanted, RequestCount]]:
    """The period of the report for each bucket, or for a busy one that of its worst violation in it.

    The second value has the requests of those that are not busy.
    """
    whole = [Wanted(bucket, scope.covered.from_ms, scope.covered.to_ms) for bucket in buckets]
    counts = dict(zip(whole, request_counts(scope.tables, scope.cluster_id, whole, most), strict=True))
    counted = {one: count for one, count in counts.items() if count.end_ms is None}
    return [one if one in counted else _worst(scope, one) for one in whole], counted


def _worst(scope: Scope, whole: Wanted, *, is_cut: bool = True) -> Wanted:
    """The violation with the most total delay in a period, cut to the period or not; the period if there is none."""
    bucket = whole.bucket
    within = (whole.from_ms, whole.to_ms) if is_cut else (BEGINNING_MS, END_MS)
    own = scope.cluster_id, bucket.quota_type, bucket.user, bucket.client_id
    worst = scope.rows(_WORST, *within, *own, whole.to_ms, whole.from_ms)
    return whole if not worst else Wanted(bucket, worst[0]["from_ms"], worst[0]["to_ms"])
