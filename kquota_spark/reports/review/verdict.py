"""The reasons why a change is not harmless, each from figures that the comment shows."""

from __future__ import annotations

from collections.abc import Iterator

from kquota_spark.formats.text.person_units import person_bytes, person_ms
from kquota_spark.model.compare.quota_diff import EffectChange
from kquota_spark.reports.review.review import Reason, Review, is_lower


def reasons_of(review: Review) -> tuple[Reason, ...]:
    """The reasons, harm first; none if the change is harmless."""
    return tuple(sorted(_reasons(review), key=lambda reason: not reason.is_harm))


def more_delay_ms(review: Review) -> int:
    """The increase of the total delay in the closed loop, of the groups with more delay, ms."""
    return sum(max(0, one.replay.more_ms) for one in review.affected if one.replay is not None)


def more_bound_ms(review: Review) -> tuple[int, int | None]:
    """Bounds of that increase, ms; the upper one is None if it is not known."""
    low_ms, high_ms = 0, 0
    for one in review.affected:
        if one.replay is not None and one.replay.more_ms > 0:
            low, high = one.replay.more_bound_ms
            if high is None:
                return low_ms + low, None
            low_ms, high_ms = low_ms + low, high_ms + high
    return low_ms, high_ms


def unjudged_clients(review: Review) -> list[EffectChange]:
    """Lower limits of clients without traffic in the period, where no client with traffic is under the same rule.

    Another client under the same rule shows what the rule does. Without one, nothing does.
    """
    judged = {
        (one.quota_type, rule)
        for one in review.affected
        if one.replay is not None
        for rule in one.rules_after
    }
    return [
        change
        for change in review.possible
        if is_lower((change.before.limit, change.after.limit))
        and (change.quota_type, str(change.after.rule)) not in judged
    ]


def _reasons(review: Review) -> Iterator[Reason]:
    yield from _reasons_of_delay(review)
    yield from _reasons_of_clients(review)
    for sum_ in review.capacity:
        if sum_.is_worse:
            yield Reason(f"the sum of the limits of {sum_.key.value} exceeds the capacity of a broker")
        elif sum_.unlimited_after > sum_.unlimited_before:
            yield Reason(f"more clients have no limit of {sum_.key.value}")
    if review.mangled:
        yield Reason("names look like those that a migration has mangled")
    if review.names:
        yield Reason("new names may not be meant as they are written")


def _reasons_of_delay(review: Review) -> Iterator[Reason]:
    """More total delay, or fewer bytes, as clients that wait have it."""
    more_ms, budget_ms = more_delay_ms(review), review.budget_ms
    if more_ms:
        grows = f"the total delay grows by {person_ms(more_ms)}{_bound(review)} if clients wait for their throttles"
        if more_ms > budget_ms:
            yield Reason(f"{grows}, and the budget is {person_ms(budget_ms)}", is_harm=True)
        else:
            yield Reason(f"{grows}, within the budget of {person_ms(budget_ms)}")
    deferred = sum(one.replay.closed.deferred for one in review.affected if one.replay is not None)
    if deferred > 0:
        yield Reason(
            f"{person_bytes(deferred)} of the recorded bytes would come after the end of the traffic"
        )


def _bound(review: Review) -> str:
    """The bound of the increase in brackets; empty if nothing is left open."""
    low_ms, high_ms = more_bound_ms(review)
    if high_ms is None:
        return f" (at least {person_ms(low_ms)})"
    return "" if low_ms == high_ms else f" ({person_ms(low_ms)} to {person_ms(high_ms)})"


def _reasons_of_clients(review: Review) -> Iterator[Reason]:
    judged = [one for one in review.affected if one.replay is not None]
    unknown = sum(one.replay.unknown for one in judged if one.replay is not None)
    if unknown:
        yield Reason(
            f"{unknown:,} throttled fetches came back empty: their size under another limit is not known"
        )
    without = [one for one in review.affected if one.replay is None and not one.is_harmless]
    if without:
        clients = sum(len(one.clients) for one in without)
        yield Reason(f"{_counted(clients)} with a lower or shared limit could not be replayed")
    ends = [
        limits
        for limits in (
            *(limits for one in review.affected for limits in one.limits),
            *((one.before.limit, one.after.limit) for one in review.possible),
        )
        if limits[0] is not None and limits[1] is None
    ]
    if ends:
        yield Reason("a limit ends, and clients are then unlimited")
    unjudged = len(unjudged_clients(review))
    if unjudged:
        limits = "1 lower limit has" if unjudged == 1 else f"{unjudged:,} lower limits have"
        yield Reason(f"{limits} no recorded traffic that shows the effect")
    elif review.period is None and review.possible:
        yield Reason("no recorded traffic shows the effect")


def _counted(clients: int) -> str:
    return "1 client" if clients == 1 else f"{clients:,} clients"
