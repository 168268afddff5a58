"""What a card says beside the value: its cause, how sure it is, what it would do, and what else would help."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator

from kquota_spark.enforce.policies.scene import value_text
from kquota_spark.formats.text.person_units import clock_time
from kquota_spark.model.quotas.entities import Default, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.reports.scope.audit_report import Alternative, Change, HurtBucket
from kquota_spark.reports.scope.report_scope import Scope

_HIDDEN_PERCENT, _HALF_PERCENT = 80.0, 50.0
"""Of the seconds with traffic in throttle: from there on what it wants is not to be seen, or hardly."""
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


def cause_of(
    one: HurtBucket, key: QuotaKey, rule: str | None, changes: Collection[Change], throttled_percent: float
) -> str:
    """The newest cut of its limit, else who shares it, else whether it comes in bursts."""
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


def confidence_of(throttled_percent: float) -> str:
    """How much of what was wanted the limit hides."""
    if throttled_percent >= _HIDDEN_PERCENT:
        return "low: it was held back nearly all the time, and what it wanted beyond is not in the data"
    if throttled_percent >= _HALF_PERCENT:
        return "fair: it was held back half of the time or more"
    return "good: most of its seconds went at its own pace"


def expected_of(scope: Scope, one: HurtBucket, limit: float, wanted: float) -> str:
    """What the value would have done to the recorded requests."""
    bucket = one.bucket
    place = (bucket.quota_type, bucket.user, bucket.client_id, limit)
    (row,) = scope.rows(_STILL_OVER, wanted, *place)
    return (
        f"{row['throttled']:,} → {row['still']:,} seconds with a throttle, of the recorded requests; with more room "
        "clients may send more"
    )


def alternatives_of(
    entity: Entity, key: QuotaKey, one: HurtBucket, wanted: float | None, limit: float, *, is_tenant: bool
) -> Iterator[Alternative]:
    """What else would help: settings of clients, a bucket of one's own, the value for two hours."""
    if key is QuotaKey.CONSUMER_BYTE_RATE:
        most = f"{_WINDOW_S * limit:,.0f}"
        yield Alternative(
            f"smaller fetches at the client (fetch.max.bytes below {most}), each topic read once"
        )
    else:
        yield Alternative(_OF_CLIENTS[key])
    if is_tenant:
        return
    if len(one.clients) > 1:
        yield Alternative("a quota of its own for one of the clients inside, so that it holds back no other")
    if wanted is not None:
        yield Alternative("the value for two hours only", _override_command(entity, key, wanted))


def _override_command(entity: Entity, key: QuotaKey, value: float) -> str:
    words = ["kquota", "override", "set"]
    for option, name in (("user", entity.user), ("client", entity.client_id)):
        if isinstance(name, Default):
            words.append(f"--{option}-default")
        elif name is not None:
            words.append(f"--{option}={name}")
    words += ["--key", key.value, "--value", f"{value:.10g}" if value % 1 else f"{value:.0f}"]
    return shlex.join([*words, "--for", "2h", "--reason", "throttled"])
