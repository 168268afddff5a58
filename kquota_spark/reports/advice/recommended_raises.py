"""Recommendations about limits under which clients are often throttled: a higher value, or to leave the limit.

The data does not contain the rate that a throttled client wanted: the client got what the limit allowed, and wanted
more. So a value is a range. It begins with the least value under which the replay throttles no recorded request, as
`kquota whatif` does. It ends with the right size of the last weeks. Without two weeks of history it ends with the other
estimate of `enforce.policies.context`, from the seconds under the present limit only. A client that takes clearly more
than its limit needs a check of the client, not a higher limit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.policies.context import (
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
from kquota_spark.model.rightsize.target import RightSize
from kquota_spark.reports.advice.headroom import Headroom
from kquota_spark.reports.advice.least_values import Replayed, replayed
from kquota_spark.reports.advice.quota_command import alter_command, whatif_command
from kquota_spark.reports.advice.raise_reasons import (
    Case,
    alternatives_of,
    confidence_of,
    is_meant,
    reason_to_leave,
)
from kquota_spark.reports.advice.throttle_causes import LEAST_SECONDS, Uses, cause_of
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.scope.shared_rows import (
    Alternative,
    BucketName,
    Change,
    Recommendation,
    ThrottledBucket,
)
from kquota_spark.reports.why.answers import Reasons

THROTTLED_PERCENT = 20.0
"""Percent of the seconds with traffic on one broker up to which throttling is normal: the limit does its work."""
LEAVE = "Leave it: the quota does its work"
_SPREAD = "Spread what need not be sent at once, or take a larger window (quota.window.num)"
_KEYS = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)


def raises(
    scope: Scope,
    settings: Settings,
    throttled: Collection[ThrottledBucket],
    uses: Mapping[BucketName, Uses],
    rules: Collection[Rule],
    changes: Collection[Change],
    room: Headroom,
    why: Mapping[BucketName, Reasons],
    sizes: Mapping[BucketName, RightSize],
) -> list[Recommendation]:
    """One recommendation for each bucket that is often throttled under its present limit, the most total delay first.

    On a tenant's page there is no command: the tenant has to ask for the value.

    Args:
        scope: the report's tables, period and tenant.
        settings: where the tables are, for the replay of requests.
        throttled: the throttled buckets with their clients.
        uses: their use.
        rules: the quotas in force.
        changes: edits of quotas in the period.
        room: the headroom of brokers, where it is known.
        why: the causes of the worst buckets by replay.
        sizes: right sizes of buckets with two weeks of history.
    """
    cases = _cases(throttled, uses, rules, sizes)
    replays = replayed(settings, scope, cases)
    cards = (
        _card(scope, case, changes, room, replays.get(case.one.bucket), why.get(case.one.bucket))
        for case in cases
    )
    return [card for card in cards if card is not None]


def _cases(
    throttled: Collection[ThrottledBucket],
    uses: Mapping[BucketName, Uses],
    rules: Collection[Rule],
    sizes: Mapping[BucketName, RightSize],
) -> list[Case]:
    found = []
    for one in sorted(throttled, key=lambda one: (-one.delay_ms, one.bucket)):
        of_bucket = None if one.bucket.tags else uses.get(one.bucket)
        quota = None if of_bucket is None else _quota(one.bucket, of_bucket.rule, rules)
        if of_bucket is None or quota is None or not of_bucket.limit_per_s:
            continue
        case = Case(one, quota, of_bucket, sizes.get(one.bucket))
        if throttled_percent(case.worst) > THROTTLED_PERCENT and case.worst.seconds >= LEAST_SECONDS:
            found.append(case)
    return found


def _quota(bucket: BucketName, rule: str | None, rules: Collection[Rule]) -> Quota | None:
    """The quota to raise; None for a limit that no entity sets."""
    if rule is None or bucket.quota_type not in [type_of(key) for key in _KEYS]:
        return None
    key = QuotaType(bucket.quota_type).key
    try:
        parsed = Entity.parse(rule)
    except ValueError:
        return None
    levels = {other.entity.level for other in rules if key in other.quotas}
    entity = own_entity(parsed, Bucket(bucket.user, bucket.client_id), levels)
    return None if entity is None else Quota(entity, key)


def _card(
    scope: Scope,
    case: Case,
    changes: Collection[Change],
    room: Headroom,
    replay: Replayed | None,
    why: Reasons | None,
) -> Recommendation | None:
    """The recommendation about one bucket; None if its estimate is not above the limit."""
    key, limit, worst = case.quota.key, case.limit_per_s, case.worst
    is_tenant = scope.tenant is not None
    under = (
        f"throttled in {throttled_percent(worst):.0f} % of {worst.seconds:,} seconds with traffic on broker "
        f"{worst.broker_id} under {value_text(key, limit)}"
    )
    if case.uses.rule != str(case.quota.entity):
        under += f" of {case.uses.rule}"
    cut = case.cut(changes)
    cut = None if cut is not None and is_meant(cut) else cut
    cause = cause_of(case.one, case.uses, changes, why)
    if cause is None:
        return None
    card = Recommendation(
        str(case.quota.entity), key.value, limit, None, under, "", delay_ms=case.one.delay_ms,
        cause=cause.sentence, confidence=confidence_of(case),
        alternatives=tuple(alternatives_of(case, None, cut, is_tenant=is_tenant)), bucket=case.one.bucket,
    )  # fmt: skip
    if cause.is_over:
        reason = f"{under}, and took {case.uses.most_percent:.0f} % of it. Check the clients before the limit"
        return replace(card, reason=reason, confidence="")
    # A tenant's page shows nothing of others: not the brokers' load, and no sender of a change.
    to_leave = reason_to_leave(case, () if is_tenant else changes, {} if is_tenant else room)
    if to_leave:
        return replace(card, is_left=True, reason=f"{LEAVE}. It was {under}: {to_leave}", confidence="")
    return _valued(case, card, cut, replay, is_tenant=is_tenant)


def _valued(
    case: Case, card: Recommendation, cut: Change | None, replay: Replayed | None, *, is_tenant: bool
) -> Recommendation | None:
    """The card with its values: to the right size, else of bursts to the least one, else to the other estimate."""
    key, limit, used = case.quota.key, case.limit_per_s, used_per_s(case.worst)
    least = None if replay is None else replay.least_per_s
    least = least if least is not None and least > limit else None
    demand, estimate = case.demand, "right size"
    if case.uses.is_bursts and least is not None and demand.size is None:
        wanted, estimate = _rounded(key, least), "least value"
        reason = f"{card.reason}. {_SPREAD}"
        card = replace(card, confidence="")
    elif demand.per_s > limit:
        if demand.size is None:
            demand, estimate = (
                demand._replace(per_s=_rounded(key, demand.per_s)),
                "share of throttled seconds",
            )
        wanted = demand.per_s
        reason = f"{card.reason}. It got {value_text(key, used)}, and {demand.text(key)}"
        reason += f". {_SPREAD}" if demand.size is not None and case.uses.is_bursts else ""
    else:
        return None
    if least is not None:
        reason += f". {value_text(key, least)} is the least value without a throttle in the recorded requests"
    others = list(alternatives_of(case, wanted, cut, is_tenant=is_tenant))
    if least is not None and replay is not None and not is_tenant:
        others.insert(0, _least(case, least, replay))
    return replace(
        card,
        recommended=wanted,
        estimate=estimate,
        least=None if least is None else float(least),
        brokers=tuple(use.broker_id for use in case.uses.of_brokers),
        reason=reason,
        command="" if is_tenant else alter_command(case.quota.entity, {key: wanted}),
        expected=_expected(replay, limit, wanted),
        headroom=f"{100 * (wanted - used) / wanted:.0f} % of the value is above what it got",
        alternatives=tuple(others),
    )


def _rounded(key: QuotaKey, value: float) -> float:
    """The value, rounded up to two digits because it is an estimate: a lower value would throttle clients again.

    Brokers accept whole bytes only. A percentage needs at most one decimal.
    """
    exact = Decimal(f"{value:.9g}")
    step = Decimal(1).scaleb(max(exact.adjusted() - 1, -1 if key is QuotaKey.REQUEST_PERCENTAGE else 0))
    return float((exact / step).to_integral_value(ROUND_CEILING) * step)


def _least(case: Case, least: int, replay: Replayed) -> Alternative:
    """The least value, with the command that replays the same requests."""
    command = whatif_command(case.quota.entity, {case.quota.key: float(least)}, replay.from_ms, replay.to_ms)
    return Alternative(f"the least value, {value_text(case.quota.key, least)}: its effect by replay", command)


def _expected(replay: Replayed | None, limit: float, wanted: float) -> str:
    """The effect that the value would have had on the recorded requests."""
    if replay is None:
        return "not known: no request of it is replayed"
    if replay.unknown:
        return f"not known: the sizes of {replay.unknown:,} of its requests are not in the log, as of throttled fetches"
    before, after = (replay.throttled_requests(value) for value in (limit, wanted))
    return (
        f"{before:,} → {after:,} throttled requests, by replay of {len(replay.measures):,} recorded ones; "
        "with more room clients may send more"
    )
