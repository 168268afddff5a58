"""What to do, the most urgent first: limits that throttle, unlimited traffic, rules without effect, unused limits.

Where no quota is set at all, the recommendations are first values. Practitioners begin with these values, which are
meant to cover about 80 % of applications. The number of seen clients that they cover is computed: a client is covered
if its rate, as the broker measures it, was never above the value on any broker. `clients/<default>` is the last of the
levels, so it takes nobody's quota away. It does not match an empty client id (KAFKA-13341).

To find rules without effect and unused limits takes a day or more of usage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.policies.context import type_of, value_text
from kquota_spark.enforce.policies.lower_policy import lowered
from kquota_spark.enforce.policies.policy import DefaultQuota, Lower
from kquota_spark.findings.idle_rules import LEAST_OBSERVED_MS, dead, shadowed
from kquota_spark.model.compare.observed_clients import Observed, Rule
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import (
    BANDWIDTH,
    CONNECTION,
    AnyKey,
    IpQuotaKey,
    QuotaKey,
    QuotaType,
)
from kquota_spark.model.rightsize.target import RightSize
from kquota_spark.reports.advice.headroom import Headroom
from kquota_spark.reports.advice.quota_command import alter_command
from kquota_spark.reports.advice.recommended_raises import raises
from kquota_spark.reports.advice.tenant_advice import tenant_advice
from kquota_spark.reports.advice.throttle_causes import Uses
from kquota_spark.reports.scope.report_scope import BUCKET, Scope
from kquota_spark.reports.scope.shared_rows import BucketName, Change, Recommendation, ThrottledBucket
from kquota_spark.reports.why.answers import Reasons

MEANT_TO_COVER_PERCENT = 80.0
BANDWIDTH_VALUES = {
    QuotaKey(name): value
    for name, value in DefaultQuota(name="default-for-the-unmetered", kind="default").values.items()
}
"""First values on each broker: 5 MB/s to write and 15 MB/s to read."""
REQUEST_PERCENTAGE = 100.0
"""First value on each broker: the request time of one thread."""
CONNECTIONS_PER_S = 250.0
"""First value for each address, in new connections per second."""
_CLIENTS, _ADDRESSES = Entity(client_id=DEFAULT), IpEntity(DEFAULT)

# Traffic that no rule matches is recorded under its client id. For connection rates, the tag is the address.
_UNLIMITED = """
with names as (
  select bucket_client_id, bucket_tags, max(peak_rate_per_s) as peak_per_s
  from places where quota_type = ? and bucket_user = '' group by all
  having bool_and(least_limit_per_s is null)
)
select count(*) filter (bucket_client_id || bucket_tags <> '') as names,
       count(*) filter (bucket_client_id || bucket_tags <> '' and peak_per_s > ?) as over,
       max(peak_per_s) filter (bucket_client_id || bucket_tags <> '') as peak_per_s,
       count(*) filter (bucket_client_id || bucket_tags = '') as nameless
from names
"""
_STEP = Lower(name="lower-unused", kind="lower")
"""The policy `lower-unused` with its default values, so that both use the same arithmetic."""
_DAY_MS = 86_400_000

_UNUSED = f"""
select quota_type, max(rule) as rule, max(most_limit_per_s) as limit_per_s, max(peak_rate_per_s) as peak_rate_per_s,
       sum(seconds)::bigint as seconds
from places group by {BUCKET}
having bucket_tags = '' and sum(rows_with_throttle) = 0 and min(least_limit_per_s) = max(most_limit_per_s)
  and bool_and(least_limit_per_s is not null) and min(rule) = max(rule)
  and 100 * max(peak_rate_per_s) < ? * max(most_limit_per_s)
order by max(peak_rate_per_s) / max(most_limit_per_s), rule
"""  # noqa: S608 - names of ours


def recommendations(
    scope: Scope,
    settings: Settings,
    observed: Observed,
    throttled: Collection[ThrottledBucket],
    uses: Mapping[BucketName, Uses],
    changes: Collection[Change],
    *,
    is_without_quotas: bool,
    room: Headroom | None = None,
    why: Mapping[BucketName, Reasons] = MappingProxyType({}),
    sizes: Mapping[BucketName, RightSize] = MappingProxyType({}),
) -> tuple[list[Recommendation], int]:
    """The first recommendations, and how many more there are.

    Limits that throttle clients come first, ordered by total delay. A quota has only one recommendation. On a tenant's
    page, advice for the clients comes first, then the values to ask for.

    Args:
        scope: the report's tables, period and tenant.
        settings: where the tables are, for the replay of requests.
        observed: the clients of the period and the rules at its end.
        throttled: the throttled buckets with their clients.
        uses: their use.
        changes: edits of quotas in the period.
        is_without_quotas: no quota is set at all, so first values are recommended.
        room: the headroom of brokers, where it is known.
        why: the causes of the worst buckets by replay.
        sizes: right sizes of buckets with two weeks of history.
    """
    found = raises(scope, settings, throttled, uses, observed.rules, changes, room or {}, why, sizes)
    if scope.tenant is not None:
        found = [*tenant_advice(scope, throttled), *found]
    elif is_without_quotas:
        found += _first_values(scope)
    else:
        found += _defaults(scope, observed.rules)
        found += _idle_rules(observed)
        found += _unused_limits(scope, observed)
    cards = {(one.title or one.entity, one.key): one for one in reversed(found)}
    kept = [one for one in found if cards[one.title or one.entity, one.key] is one]
    return kept[: scope.top], max(0, len(kept) - scope.top)


def _first_values(scope: Scope) -> Iterator[Recommendation]:
    """First values where no quota is set: one for each kind of quota, whether or not its use was measured."""
    for key, value in BANDWIDTH_VALUES.items():
        unlimited = _unlimited(scope, type_of(key).value, value)
        yield _default(_CLIENTS, key, value, _begin_text(key, value, unlimited))
    unlimited = _unlimited(scope, type_of(QuotaKey.REQUEST_PERCENTAGE).value, REQUEST_PERCENTAGE)
    reason = "one thread's worth of request time on each broker to begin with; " + (
        _covered_text(unlimited)
        if unlimited["names"]
        else "how many clients it covers is not known, because request time is measured once a quota of it is set"
    )
    yield _default(_CLIENTS, QuotaKey.REQUEST_PERCENTAGE, REQUEST_PERCENTAGE, reason)
    unlimited = _unlimited(scope, CONNECTION, CONNECTIONS_PER_S)
    reason = f"{CONNECTIONS_PER_S:.0f} new connections per second from each address to begin with; " + (
        _covered_text(unlimited, "addresses")
        if unlimited["names"]
        else "how many addresses it covers is not known, because connections are not in the request log"
    )
    yield _default(_ADDRESSES, IpQuotaKey.CONNECTION_CREATION_RATE, CONNECTIONS_PER_S, reason)


def _defaults(scope: Scope, rules: Collection[Rule]) -> Iterator[Recommendation]:
    """Defaults for unlimited bandwidth where some quotas are set, unless a default exists."""
    for key, value in BANDWIDTH_VALUES.items():
        if any(rule.entity == _CLIENTS and key in rule.quotas for rule in rules):
            continue
        unlimited = _unlimited(scope, type_of(key).value, value)
        if unlimited["names"]:
            yield _default(_CLIENTS, key, value, _begin_text(key, value, unlimited))


def _unlimited(scope: Scope, quota_type: str, value: float) -> dict[str, Any]:
    (row,) = scope.rows(_UNLIMITED, quota_type, value)
    return row


def _begin_text(key: QuotaKey, value: float, unlimited: dict[str, Any]) -> str:
    text = (
        f"{value_text(key, value)} for each client id on each broker is where to begin, meant to cover about "
        f"{MEANT_TO_COVER_PERCENT:.0f} % of applications"
    )
    if unlimited["names"]:
        most = value_text(key, unlimited["peak_per_s"])
        text += f"; {_covered_text(unlimited)}, the largest went up to {most}"
    if unlimited["nameless"]:
        text += "; an empty client id it does not match: set client.id, or a quota for the user"
    return text


def _covered_text(unlimited: dict[str, Any], what: str = "client ids") -> str:
    covered = unlimited["names"] - unlimited["over"]
    share = 100 * covered / unlimited["names"]
    return f"it would cover {covered:,} of the {unlimited['names']:,} unlimited {what} seen ({share:.1f} %)"


def _default(entity: AnyEntity, key: AnyKey, value: float, reason: str) -> Recommendation:
    return Recommendation(str(entity), key.value, None, value, reason, alter_command(entity, {key: value}))


def _idle_rules(observed: Observed) -> Iterator[Recommendation]:
    """Removals of rule keys that never decide, and of rules without clients."""
    for shadow in shadowed(observed):
        by = ", ".join(shadow.by[:3]) + (", ..." if len(shadow.by) > 3 else "")
        yield _removal(shadow.rule, (shadow.key,), f"it limits nobody: {by} comes before it")
    for rule, keys in dead(observed):
        days = (observed.to_ms - observed.from_ms) / _DAY_MS
        why = f"nobody that it names was seen in {days:.1f} days of usage: remove it if the client is gone"
        yield _removal(rule, keys, why)


def _removal(rule: Rule, keys: tuple[QuotaKey, ...], reason: str) -> Recommendation:
    present = rule.quotas[keys[0]] if len(keys) == 1 else None
    names = ", ".join(key.value for key in keys)
    return Recommendation(
        str(rule.entity), names, present, None, reason, alter_command(rule.entity, delete=keys)
    )


def _unused_limits(scope: Scope, observed: Observed) -> Iterator[Recommendation]:
    """One step down for limits of named entities that were never half used, the least used first."""
    if scope.covered.to_ms - scope.covered.from_ms < LEAST_OBSERVED_MS:
        return
    in_force = {str(rule.entity): rule for rule in observed.rules}
    for row in scope.rows(_UNUSED, _STEP.unused_percent):
        rule, limit, peak = in_force.get(row["rule"]), row["limit_per_s"], row["peak_rate_per_s"]
        key = QuotaType(row["quota_type"]).key if row["quota_type"] in BANDWIDTH else None
        if key is None or rule is None or not _is_named(rule.entity) or rule.quotas.get(key) != limit:
            continue
        after = lowered(_STEP, limit, peak)
        if after is not None:
            yield _lowering(rule.entity, key, limit, peak, float(round(after)), row["seconds"])


def _is_named(entity: Entity) -> bool:
    return all(part is None or isinstance(part, str) for part in (entity.user, entity.client_id))


def _lowering(
    entity: Entity, key: QuotaKey, limit: float, peak: float, after: float, seconds: int
) -> Recommendation:
    reason = (
        f"highest rate {value_text(key, peak)}, {100 * peak / limit:.0f} % of the limit, in {seconds:,} seconds with "
        "traffic, none of them throttled: one step down, and the next one after another such period"
    )
    quotas: dict[AnyKey, float] = {key: after}
    return Recommendation(str(entity), key.value, limit, after, reason, alter_command(entity, quotas))
