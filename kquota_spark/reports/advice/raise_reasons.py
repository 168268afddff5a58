"""How sure the estimate for a throttled bucket is, its alternatives, and when to leave its limit as it is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.policies.context import Demand, demand_of, throttled_percent, value_text
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.rightsize.target import RightSize
from kquota_spark.reports.advice.quota_command import alter_command, override_command
from kquota_spark.reports.advice.throttle_causes import (
    HALF_PERCENT,
    WINDOW_S,
    Use,
    Uses,
    newest_cut,
    step_text,
)
from kquota_spark.reports.scope.shared_rows import OBJECTIVE_PERCENT, Alternative, Change, ThrottledBucket

HIDDEN_PERCENT = 80.0
"""Percent of throttled seconds from which on the limit hides nearly all demand."""
_EDIT = "edit"
_OF_CLIENTS = {
    QuotaKey.PRODUCER_BYTE_RATE: "compress and batch at the client (compression.type, linger.ms, batch.size)",
    QuotaKey.REQUEST_PERCENTAGE: "fewer and larger requests at the client (linger.ms, fetch.min.bytes)",
}


class Case(NamedTuple):
    """A bucket that is often throttled under its present limit."""

    one: ThrottledBucket
    quota: Quota
    """The quota that would change."""
    uses: Uses
    size: RightSize | None = None
    """Its right size; None without two weeks of history, or if it is left out."""

    @property
    def limit_per_s(self) -> float:
        """The present limit, on one broker."""
        return self.uses.limit_per_s

    @property
    def worst(self) -> Use:
        """The use on the broker with the largest share of throttled seconds."""
        return self.uses.worst

    @property
    def demand(self) -> Demand:
        """The estimated rate that it wants."""
        return demand_of(self.worst, self.limit_per_s, self.size)

    def cut(self, changes: Collection[Change]) -> Change | None:
        """The newest change of the limit, if it lowered it."""
        return newest_cut(self.one, self.uses, changes)


def is_meant(cut: Change) -> bool:
    """Whether the reason of a cut is recorded: enforcement or an override made it."""
    return cut.what != _EDIT


def reason_to_leave(case: Case, changes: Collection[Change], room: Mapping[tuple[int, str], float]) -> str:
    """Why the limit should stay; empty if nothing speaks for that. The first of four that applies.

    1. The time throttled is within the objective, 1 % of the period.
    2. A policy or an override lowered the limit: its reason is recorded, and the cut is meant.
    3. Its right size is not above the limit, so its weeks fit and only this period does not.
    4. It wanted more than its limit in most of the time, and a broker has less headroom than that.

    Args:
        case: the throttled bucket.
        changes: changes of quotas in the period.
        room: headroom by broker and quota type, where it is known.
    """
    percent = case.one.time_throttled_percent
    if percent < OBJECTIVE_PERCENT:
        return f"throttled in {percent:.2f} % of the time, and the objective is {OBJECTIVE_PERCENT:.0f} %"
    cut = case.cut(changes)
    if cut is not None and is_meant(cut):
        by = f" by {cut.by}" if cut.by else ""
        return f"{step_text(cut)}{by} ({cut.what}), so the cut is meant"
    key, more = case.quota.key, case.demand.per_s - case.limit_per_s
    if case.size is not None and more <= 0:
        return case.demand.text(key)
    if throttled_percent(case.worst) < HALF_PERCENT:
        return ""
    for use in case.uses.of_brokers:
        left = room.get((use.broker_id, case.one.bucket.quota_type))
        if left is not None and left < more:
            return (
                f"it wants about {value_text(key, more)} more in most of the time, and broker {use.broker_id} has "
                f"headroom for {value_text(key, max(left, 0.0))}"
            )
    return ""


def confidence_of(case: Case) -> str:
    """The confidence in the estimate: the more seconds are throttled, the more demand the limit hides."""
    if case.size is not None and case.size.is_at_least:
        return "low: throttles hide its demand, and the value is a step towards it"
    if case.size is not None:
        return "good: such bounds hold the demand of the next week for about nine clients of ten"
    percent = throttled_percent(case.worst)
    if percent >= HIDDEN_PERCENT:
        return "low: it was throttled nearly all the time, and what it wanted beyond is not in the data"
    if percent >= HALF_PERCENT:
        return "fair: it was throttled half of the time or more"
    return "good: most of its seconds went at its own pace"


def alternatives_of(
    case: Case, wanted: float | None, cut: Change | None = None, *, is_tenant: bool
) -> Iterator[Alternative]:
    """Other remedies: client settings, the value before a cut, a quota for one client, or the value for two hours.

    Args:
        case: the throttled bucket.
        wanted: the proposed limit, per second; None if there is none.
        cut: the change that lowered the limit and can be undone, if there is one.
        is_tenant: the reader is a tenant, so only client settings are returned.
    """
    key = case.quota.key
    if key is QuotaKey.CONSUMER_BYTE_RATE:
        most = f"fetch.max.bytes below {WINDOW_S * case.limit_per_s:,.0f}"
        yield Alternative(f"smaller fetches at the client ({most}), each topic read once")
    else:
        yield Alternative(_OF_CLIENTS[key])
    if is_tenant:
        return
    if cut is not None and cut.before is not None:
        command = alter_command(Entity.parse(case.uses.rule or ""), {key: cut.before})
        yield Alternative(f"undo the cut: {value_text(key, cut.before)} again", command)
    if len(case.one.clients) > 1:
        yield Alternative("a quota of its own for one of the clients inside, so that it holds back no other")
    if wanted is not None:
        yield Alternative("the value for two hours only", override_command(case.quota.entity, key, wanted))
