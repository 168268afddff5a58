"""A default for traffic that no quota holds for, and where nothing is set at all, values to begin with.

The values are those that practitioners begin with, meant to cover about 80 % of applications. How many of the clients
that were seen they would cover is computed: those whose rate, as the broker measures it, was never above the value on
any broker. `clients/<default>` is the last of the levels, so it takes nobody's quota away; an empty client id is the
one that it does not match (KAFKA-13341).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from kquota_spark.enforce.policies.policy import DefaultQuota
from kquota_spark.enforce.policies.scene import type_of, value_text
from kquota_spark.model.compare.observed_clients import Rule
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import CONNECTION, AnyKey, IpQuotaKey, QuotaKey
from kquota_spark.reports.advice.quota_command import alter_command
from kquota_spark.reports.scope.audit_report import Recommendation
from kquota_spark.reports.scope.report_scope import Scope

MEANT_TO_COVER_PERCENT = 80.0
BANDWIDTH_VALUES = {
    QuotaKey(name): value
    for name, value in DefaultQuota(name="default-for-the-unmetered", kind="default").values.items()
}
"""5 MB/s to write and 15 MB/s to read, on each broker."""
REQUEST_PERCENTAGE = 100.0
"""One thread's worth of request time on each broker."""
CONNECTIONS_PER_S = 250.0
"""For each address."""
_CLIENTS, _ADDRESSES = Entity(client_id=DEFAULT), IpEntity(DEFAULT)

# Traffic that no rule matches is recorded under its client id; addresses are the tag of a connection rate.
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


def first_values(scope: Scope) -> Iterator[Recommendation]:
    """Where nothing is set: a value for each kind of quota, whether or not its use was measured."""
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


def defaults(scope: Scope, rules: Collection[Rule]) -> Iterator[Recommendation]:
    """Where something is set: a default for bandwidth that goes through unlimited, unless there is one."""
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
