"""The cause of a bucket's throttling, by replay where its requests are recorded (`reports.why`).

The report's advice and `kquota throttled` print the same cause, the one as a sentence, the other in a few words.
Without recorded requests, for example from JMX, the cause is a likely one, of the seconds under the present limit
only: a lowered limit, several clients, bursts, or a steady load.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from kquota_spark.enforce.policies.context import throttled_percent
from kquota_spark.formats.text.person_units import clock_time, quota_texts, rate_text
from kquota_spark.model.quotas.quota_types import CONNECTION, QuotaKey, QuotaType
from kquota_spark.reports.scope.broker_buckets import amount_per_rate
from kquota_spark.reports.scope.report_scope import BUCKET, Scope, bucket_of
from kquota_spark.reports.scope.shared_rows import MOST_CLIENTS, BucketName, Change, ThrottledBucket
from kquota_spark.reports.why.answers import Reasons
from kquota_spark.reports.why.sentences import main_sentence, short_text

LEAST_SECONDS = 60
"""Seconds with traffic below which a share of throttled seconds is too uncertain for a recommendation."""
MOST_USED_PERCENT = 120.0
"""Maximum mean rate, in percent of the limit, from the first to the last second under it."""
HALF_PERCENT = 50.0
"""Percent of throttled seconds from which on it wants more than its limit most of the time."""
WINDOW_S = 10
"""Seconds of a quota window. With fewer seconds of traffic, bursts and a steady load cannot be distinguished."""
_STEADY_PERCENT = 90.0
"""Mean rate over the time, in percent of the limit, below which the same bytes would fit if they were spread."""
_NUMBERS = {2: "two", 3: "three", 4: "four"}
_USES = f"""
with wanted as (
  select quota_type, "user" as bucket_user, client_id as bucket_client_id, tags as bucket_tags
  from (select unnest(?, recursive := true))
), newest as (
  select {BUCKET}, arg_max_null(limit_per_s, last_ms) as limit_per_s, arg_max_null(rule, last_ms) as rule
  from places semi join wanted using ({BUCKET}) where seconds > 0 group by all
)
select {BUCKET}, broker_id, limit_per_s, newest.rule, count(*) as seconds,
       count(*) filter (is_throttled) as throttled_seconds,
       coalesce(quantile_disc(rate_per_s, 0.95) filter (not is_throttled), 0.0) as p95_rate_per_s,
       coalesce(avg(rate_per_s) filter (is_throttled), 0.0) as throttled_rate_per_s,
       coalesce(sum(amount)::double / {amount_per_rate("any_value(quota_type)")}
                / ((max(second_ms) - min(second_ms)) / 1000 + 1), 0.0)
         as mean_rate_per_s
from judged join newest using ({BUCKET}, limit_per_s)
where has_verdict group by all order by {BUCKET}, broker_id
"""  # noqa: S608 - names of ours


class Use(NamedTuple):
    """The use of one bucket on one broker, in its seconds under the present limit."""

    broker_id: int
    seconds: int
    throttled_seconds: int
    p95_rate_per_s: float
    throttled_rate_per_s: float
    mean_rate_per_s: float


class Uses(NamedTuple):
    """The use of one bucket on its brokers, at least one."""

    limit_per_s: float
    """The present limit, on one broker."""
    rule: str | None
    """The entity that sets it."""
    of_brokers: tuple[Use, ...]

    @property
    def worst(self) -> Use:
        """That of the broker with the largest share of throttled seconds."""
        return max(self.of_brokers, key=throttled_percent)

    @property
    def most_percent(self) -> float:
        """The highest mean rate of a broker, in percent of the limit; 0 if it is not known, as from JMX."""
        most = max(use.mean_rate_per_s for use in self.of_brokers)
        return 100 * most / self.limit_per_s if self.limit_per_s else 0.0

    @property
    def is_bursts(self) -> bool:
        """Whether the same bytes would not be throttled if they were spread over the time."""
        if not self.most_percent:
            return throttled_percent(self.worst) < HALF_PERCENT
        return self.most_percent < _STEADY_PERCENT


class Cause(NamedTuple):
    """A likely cause of throttling."""

    short: str
    """A few words, for a column."""
    sentence: str
    is_over: bool = False
    """Whether the clients take clearly more than the limit allows: they need a check, not a higher limit."""


def uses_of(scope: Scope, throttled: Collection[ThrottledBucket]) -> dict[BucketName, Uses]:
    """The use of throttled buckets under their present limit; without buckets that have no limit now.

    Args:
        scope: the tables and the period.
        throttled: the buckets. Those that a tenant shares are left out, because their figures include those of others.
    """
    wanted = [
        {"quota_type": each.quota_type, "user": each.user, "client_id": each.client_id, "tags": each.tags}
        for each in (one.bucket for one in throttled if not one.shared_with)
    ]
    rows: dict[BucketName, list[dict[str, Any]]] = {}
    for row in scope.rows(_USES, wanted) if wanted else ():
        rows.setdefault(bucket_of(row), []).append(row)
    return {
        bucket: Uses(
            of_bucket[0]["limit_per_s"],
            of_bucket[0]["rule"],
            tuple(Use(*(row[name] for name in Use._fields)) for row in of_bucket),
        )
        for bucket, of_bucket in rows.items()
    }


def causes(
    uses: Mapping[BucketName, Uses],
    throttled: Collection[ThrottledBucket],
    changes: Collection[Change],
    why: Mapping[BucketName, Reasons],
    *,
    with_day: bool,
) -> Mapping[BucketName, Cause]:
    """The cause of each throttled bucket, without buckets with too few seconds of traffic.

    Args:
        uses: the use of the buckets; those without are left out.
        throttled: the buckets.
        changes: edits of quotas in the period.
        why: the causes by replay.
        with_day: whether a short cause has the day of a cut.
    """
    found = {
        one.bucket: cause_of(one, uses[one.bucket], changes, why.get(one.bucket), with_day=with_day)
        for one in throttled
        if one.bucket in uses
    }
    return {bucket: cause for bucket, cause in found.items() if cause is not None}


def cause_of(
    one: ThrottledBucket,
    uses: Uses,
    changes: Collection[Change],
    why: Reasons | None = None,
    *,
    with_day: bool = True,
) -> Cause | None:
    """The likely cause of a bucket's throttling; None if it has too few seconds with traffic.

    Args:
        one: the bucket with its clients.
        uses: its use.
        changes: edits of quotas in the period.
        why: its causes by replay; None if they are not known.
        with_day: whether the short form has the day of a cut.
    """
    found = _likely(one, uses, changes, with_day=with_day)
    if why is None or why.attribution.main is None:
        return found
    is_over = found is not None and found.is_over
    return Cause(short_text(why), main_sentence(why), is_over)


def _likely(one: ThrottledBucket, uses: Uses, changes: Collection[Change], *, with_day: bool) -> Cause | None:
    if uses.worst.seconds >= LEAST_SECONDS and uses.most_percent > MOST_USED_PERCENT:
        return Cause(
            f"takes {uses.most_percent:.0f} % of its limit",
            "many connections that wait at once, or clients that do not wait",
            is_over=True,
        )
    return _cut(one, uses, changes, with_day=with_day) or _shared(one) or _bursts(uses) or _steady(uses)


def newest_cut(one: ThrottledBucket, uses: Uses, changes: Collection[Change]) -> Change | None:
    """The newest change of a bucket's limit, if it lowered the limit.

    Args:
        one: the bucket.
        uses: its use.
        changes: edits of quotas in the period.
    """
    if one.bucket.quota_type == CONNECTION:
        return None
    key = QuotaType(one.bucket.quota_type).key.value
    found = [
        change
        for change in changes
        if (change.entity, change.key) == (uses.rule, key)
        and change.before is not None
        and change.after is not None
    ]
    newest = max(found, key=lambda change: change.at_ms, default=None)
    return newest if newest is not None and (newest.after or 0.0) < (newest.before or 0.0) else None


def step_text(cut: Change) -> str:
    """The step of a limit, as a sentence."""
    before, after = quota_texts(QuotaKey(cut.key), cut.before or 0.0, cut.after or 0.0)
    return f"the limit went from {before} to {after} at {clock_time(cut.at_ms, with_day=True)}"


def _cut(one: ThrottledBucket, uses: Uses, changes: Collection[Change], *, with_day: bool) -> Cause | None:
    cut = newest_cut(one, uses, changes)
    if cut is None:
        return None
    before = rate_text(one.bucket.quota_type, cut.before or 0.0)
    return Cause(f"cut from {before} at {clock_time(cut.at_ms, with_day=with_day)}", step_text(cut))


def _shared(one: ThrottledBucket) -> Cause | None:
    count = len(one.clients)
    if count < 2:
        return None
    bucket = one.bucket
    noun = (
        "clients" if bool(bucket.user) == bool(bucket.client_id) else "client ids" if bucket.user else "users"
    )
    number = _NUMBERS.get(count, f"{MOST_CLIENTS} or more")
    # The list is cut at the maximum, and for a bucket of tags it may have only the users.
    is_all = count < MOST_CLIENTS and bool(bucket.user or bucket.client_id)
    clients = f"{count} clients" if is_all else f"{count} clients or more"
    return Cause(f"{number} {noun} share it", f"{clients} share the limit: {', '.join(one.clients)}")


def _bursts(uses: Uses) -> Cause | None:
    if uses.worst.seconds < WINDOW_S or not uses.is_bursts:
        return None
    if not uses.most_percent:
        return Cause("bursts", "bursts: in most seconds it stays below its limit")
    percent = f"{uses.most_percent:.0f} %" if uses.most_percent >= 1 else "less than 1 %"
    return Cause("bursts", f"bursts: its mean rate over the time is {percent} of the limit")


def _steady(uses: Uses) -> Cause | None:
    if uses.worst.seconds < WINDOW_S:
        return None
    return Cause("steady load above the limit", "a steady load above the limit")
