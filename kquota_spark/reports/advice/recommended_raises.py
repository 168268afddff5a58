"""Recommendations to raise limits under which clients are often throttled.

The data does not contain the rate that a throttled client wanted: the client got what the limit allowed, and wanted
more. So the value is the estimate of `enforce.policies.scene`, from the seconds under the present limit only. A client
that takes clearly more than its limit needs a check of the client, not a higher limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal

from kquota_spark.enforce.policies.scene import (
    demand_per_s,
    own_entity,
    throttled_percent,
    type_of,
    used_per_s,
    value_text,
)
from kquota_spark.model.compare.observed_clients import Rule
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.reports.advice.quota_command import alter_command, override_command
from kquota_spark.reports.advice.throttle_causes import HALF_PERCENT, LEAST_SECONDS, Uses, cause_of, uses_of
from kquota_spark.reports.scope.audit_report import (
    Alternative,
    BucketName,
    Change,
    Recommendation,
    ThrottledBucket,
)
from kquota_spark.reports.scope.report_scope import Scope

THROTTLED_PERCENT = 20.0
"""Percent of the seconds with traffic on one broker up to which throttling is normal: the limit does its work."""
_KEYS = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)

_HIDDEN_PERCENT = 80.0
"""Percent of throttled seconds from which on the limit hides nearly all demand."""
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
    uses = uses_of(scope, [one for one in throttled if not one.bucket.tags])
    for one in sorted(throttled, key=lambda one: (-one.throttled_ms, one.bucket)):
        of_bucket = uses.get(one.bucket)
        quota = None if of_bucket is None else _quota(one.bucket, of_bucket.rule, rules)
        if of_bucket is not None and quota is not None:
            yield from _raise(scope, one, *quota, of_bucket, changes)


def _quota(bucket: BucketName, rule: str | None, rules: Collection[Rule]) -> tuple[Entity, QuotaKey] | None:
    """The entity and key of the quota to raise; None for a limit that no entity sets."""
    if rule is None or bucket.quota_type not in [type_of(key) for key in _KEYS]:
        return None
    key = QuotaType(bucket.quota_type).key
    try:
        parsed = Entity.parse(rule)
    except ValueError:
        return None
    levels = {other.entity.level for other in rules if key in other.quotas}
    entity = own_entity(parsed, Bucket(bucket.user, bucket.client_id), levels)
    return None if entity is None else (entity, key)


def _raise(
    scope: Scope,
    one: ThrottledBucket,
    entity: Entity,
    key: QuotaKey,
    uses: Uses,
    changes: Collection[Change],
) -> Iterator[Recommendation]:
    limit, worst = uses.limit_per_s, uses.worst
    share = throttled_percent(worst)
    cause = cause_of(one, uses, changes)
    if share <= THROTTLED_PERCENT or worst.seconds < LEAST_SECONDS or not limit or cause is None:
        return
    under = (
        f"throttled in {share:.0f} % of {worst.seconds:,} seconds with traffic on broker {worst.broker_id} under "
        f"{value_text(key, limit)}"
    )
    if uses.rule != str(entity):
        under += f" of {uses.rule}"
    is_tenant = scope.tenant is not None
    card = Recommendation(
        str(entity), key.value, limit, None, under, "", delay_ms=one.throttled_ms, cause=cause.sentence,
    )  # fmt: skip
    if cause.is_over:
        reason = f"{under}, and took {uses.most_percent:.0f} % of it. Check the clients before the limit"
        others = tuple(alternatives_of(entity, key, one, None, limit, is_tenant=is_tenant))
        yield replace(card, reason=reason, alternatives=others)
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
        confidence=_confidence(share),
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


def _confidence(throttled_percent: float) -> str:
    """The confidence in the estimate: the more seconds are throttled, the more demand the limit hides."""
    if throttled_percent >= _HIDDEN_PERCENT:
        return "low: it was throttled nearly all the time, and what it wanted beyond is not in the data"
    if throttled_percent >= HALF_PERCENT:
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
