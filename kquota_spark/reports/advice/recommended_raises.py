"""Recommendations to raise limits under which clients are often throttled.

The data does not contain the rate that a throttled client wanted: the client got what the limit allowed, and wanted
more. So the value is the estimate of `enforce.policies.scene`, from the seconds under the present limit only. A client
that takes clearly more than its limit needs a check of the client, not a higher limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from typing import Any, NamedTuple

from kquota_spark.enforce.policies.scene import (
    demand_per_s,
    own_entity,
    throttled_percent,
    type_of,
    used_per_s,
    value_text,
)
from kquota_spark.formats.text.person_units import clock_time
from kquota_spark.model.compare.observed_clients import Rule
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.reports.advice.quota_command import alter_command, override_command
from kquota_spark.reports.scope.audit_report import Alternative, Change, Recommendation, ThrottledBucket
from kquota_spark.reports.scope.broker_buckets import amount_per_rate
from kquota_spark.reports.scope.report_scope import BUCKET, Scope, bucket_of

THROTTLED_PERCENT = 20.0
"""Percent of the seconds with traffic on one broker up to which throttling is normal: the limit does its work."""
LEAST_SECONDS = 60
"""Seconds with traffic below which a share of throttled seconds has no meaning."""
MOST_USED_PERCENT = 120.0
"""Maximum mean rate, in percent of the limit, from the first to the last second under it."""
_KEYS = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)

_USES = f"""
with wanted as (
  select quota_type, "user" as bucket_user, client_id as bucket_client_id, '' as bucket_tags
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
_HIDDEN_PERCENT, _HALF_PERCENT = 80.0, 50.0
"""Percent of throttled seconds from which on the limit hides nearly all demand (80) or much of it (50)."""
_WINDOW_S = 10
_STILL_OVER = """
select count(*) filter (is_throttled) as throttled, count(*) filter (is_throttled and rate_per_s > ?) as still
from judged
where quota_type = ? and bucket_user = ? and bucket_client_id = ? and bucket_tags = '' and has_verdict
  and limit_per_s = ?
"""
_OF_CLIENTS = {
    QuotaKey.PRODUCER_BYTE_RATE: "compress and batch at the client (compression.type, linger.ms, batch.size)",
    QuotaKey.REQUEST_PERCENTAGE: "fewer and larger requests at the client (linger.ms, fetch.min.bytes)",
}


class _Use(NamedTuple):
    """The use of one bucket on one broker, in its seconds under the present limit."""

    broker_id: int
    seconds: int
    throttled_seconds: int
    p95_rate_per_s: float
    throttled_rate_per_s: float
    mean_rate_per_s: float


def raises(
    scope: Scope, throttled: Collection[ThrottledBucket], rules: Collection[Rule], changes: Collection[Change]
) -> Iterator[Recommendation]:
    """One recommendation for each bucket that is often throttled under its present limit, the most total delay first.

    On a tenant's page there is no command: the tenant has to ask for the value.

    Args:
        scope: the report's tables, period and tenant.
        throttled: the throttled buckets with their clients.
        rules: the quotas in force.
        changes: edits of quotas in the period.
    """
    wanted = [
        {"quota_type": one.bucket.quota_type, "user": one.bucket.user, "client_id": one.bucket.client_id}
        for one in throttled
        if not one.bucket.tags and not one.shared_with
    ]
    uses: dict[object, list[dict[str, Any]]] = {}
    for row in scope.rows(_USES, wanted) if wanted else ():
        uses.setdefault(bucket_of(row), []).append(row)
    for one in sorted(throttled, key=lambda one: (-one.throttled_ms, one.bucket)):
        rows = uses.get(one.bucket, [])
        quota = _quota(rows, rules)
        if quota is not None:
            yield from _raise(scope, one, *quota, rows, changes)


def _quota(rows: list[dict[str, Any]], rules: Collection[Rule]) -> tuple[Entity, QuotaKey] | None:
    """The entity and key of the quota to raise; None for a limit that no entity sets."""
    if not rows or rows[0]["rule"] is None or rows[0]["quota_type"] not in [type_of(key) for key in _KEYS]:
        return None
    key = QuotaType(rows[0]["quota_type"]).key
    try:
        rule = Entity.parse(rows[0]["rule"])
    except ValueError:
        return None
    levels = {other.entity.level for other in rules if key in other.quotas}
    entity = own_entity(rule, Bucket(rows[0]["bucket_user"], rows[0]["bucket_client_id"]), levels)
    return None if entity is None else (entity, key)


def _raise(
    scope: Scope,
    one: ThrottledBucket,
    entity: Entity,
    key: QuotaKey,
    rows: list[dict[str, Any]],
    changes: Collection[Change],
) -> Iterator[Recommendation]:
    uses = [_Use(*(row[name] for name in _Use._fields)) for row in rows]
    limit = rows[0]["limit_per_s"]
    worst = max(uses, key=throttled_percent)
    share = throttled_percent(worst)
    if share <= THROTTLED_PERCENT or worst.seconds < LEAST_SECONDS or not limit:
        return
    under = (
        f"throttled in {share:.0f} % of {worst.seconds:,} seconds with traffic on broker {worst.broker_id} under "
        f"{value_text(key, limit)}"
    )
    if rows[0]["rule"] != str(entity):
        under += f" of {rows[0]['rule']}"
    most = max(uses, key=lambda use: use.mean_rate_per_s)
    is_tenant = scope.tenant is not None
    card = Recommendation(
        str(entity), key.value, limit, None, under, "", delay_ms=one.throttled_ms,
        cause=_cause(one, key, rows[0]["rule"], changes, share), confidence=_confidence(share),
    )  # fmt: skip
    if 100 * most.mean_rate_per_s > MOST_USED_PERCENT * limit:
        percent = 100 * most.mean_rate_per_s / limit
        reason = f"{under}, and took {percent:.0f} % of it. Check the clients before the limit"
        cause = "many connections that wait at once, or clients that do not wait"
        others = tuple(alternatives_of(entity, key, one, None, limit, is_tenant=is_tenant))
        yield replace(card, reason=reason, cause=cause, confidence="", alternatives=others)
        return
    demand = demand_per_s(worst, limit)
    if demand <= limit:
        return
    wanted, used = _rounded(key, demand), used_per_s(worst)
    yield replace(
        card,
        recommended=wanted,
        reason=f"{under}. It got {value_text(key, used)}, and wanted about {value_text(key, wanted)} by the share of "
        "its time throttled",
        command="" if is_tenant else alter_command(entity, {key: wanted}),
        expected=_expected(scope, one, limit, wanted),
        headroom=f"{100 * (wanted - used) / wanted:.0f} % of the value is above what it got",
        alternatives=tuple(alternatives_of(entity, key, one, wanted, limit, is_tenant=is_tenant)),
    )


def _rounded(key: QuotaKey, value: float) -> float:
    """The value, rounded up to two digits because it is an estimate: a lower value would throttle clients again.

    Brokers accept whole bytes only. A percentage needs at most one decimal.
    """
    exact = Decimal(f"{value:.9g}")
    step = Decimal(1).scaleb(max(exact.adjusted() - 1, -1 if key is QuotaKey.REQUEST_PERCENTAGE else 0))
    return float((exact / step).to_integral_value(ROUND_CEILING) * step)


def _cause(
    one: ThrottledBucket,
    key: QuotaKey,
    rule: str | None,
    changes: Collection[Change],
    throttled_percent: float,
) -> str:
    """The likely cause: a newest change that lowered the limit, else several clients, else bursts or a steady load."""
    cuts = [
        (change.at_ms, change.before, change.after)
        for change in changes
        if (change.entity, change.key) == (rule, key.value)
        and change.before is not None
        and change.after is not None
    ]
    if cuts:
        at_ms, before, after = max(cuts)
        if after < before:
            at = clock_time(at_ms, with_day=True)
            return f"the limit went from {value_text(key, before)} to {value_text(key, after)} at {at}"
    if len(one.clients) > 1:
        return f"{len(one.clients)} clients or more share the limit: {', '.join(one.clients)}"
    if throttled_percent < _HALF_PERCENT:
        return "bursts: in most seconds it stays below its limit"
    return "a steady load above the limit"


def _confidence(throttled_percent: float) -> str:
    """The confidence in the estimate: the more seconds are throttled, the more demand the limit hides."""
    if throttled_percent >= _HIDDEN_PERCENT:
        return "low: it was throttled nearly all the time, and what it wanted beyond is not in the data"
    if throttled_percent >= _HALF_PERCENT:
        return "fair: it was throttled half of the time or more"
    return "good: most of its seconds went at its own pace"


def _expected(scope: Scope, one: ThrottledBucket, limit: float, wanted: float) -> str:
    """The effect that the value would have had on the recorded requests."""
    bucket = one.bucket
    (row,) = scope.rows(_STILL_OVER, wanted, bucket.quota_type, bucket.user, bucket.client_id, limit)
    return (
        f"{row['throttled']:,} → {row['still']:,} seconds with a throttle, of the recorded requests; with more room "
        "clients may send more"
    )


def alternatives_of(
    entity: Entity,
    key: QuotaKey,
    one: ThrottledBucket,
    wanted: float | None,
    limit: float,
    *,
    is_tenant: bool,
) -> Iterator[Alternative]:
    """Other remedies: client settings, a quota of its own for one client, or the value for two hours only.

    Args:
        entity: the entity that has the quota.
        key: the key of the quota.
        one: the throttled bucket, with its clients.
        wanted: the proposed limit, per second; None if there is none.
        limit: the present limit, per second.
        is_tenant: the reader is a tenant, so only client settings are returned.
    """
    if key is QuotaKey.CONSUMER_BYTE_RATE:
        most = f"fetch.max.bytes below {_WINDOW_S * limit:,.0f}"
        yield Alternative(f"smaller fetches at the client ({most}), each topic read once")
    else:
        yield Alternative(_OF_CLIENTS[key])
    if is_tenant:
        return
    if len(one.clients) > 1:
        yield Alternative("a quota of its own for one of the clients inside, so that it holds back no other")
    if wanted is not None:
        yield Alternative("the value for two hours only", override_command(entity, key, wanted))
