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
    """The increase of the total delay in the loop that decides, of the groups with more delay, ms."""
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


def delay_reason(review: Review, harmless_ms: int = 0) -> Iterator[Reason]:
    """The reason about the increase of the total delay; none up to `harmless_ms`."""
    more_ms = more_delay_ms(review)
    grows = f"the total delay grows by {_growth(review)}"
    budget = person_ms(review.budget_ms)
    if more_ms > review.budget_ms:
        yield Reason(f"{grows}, and the budget is {budget}", is_harm=True)
    elif more_ms > harmless_ms:
        yield Reason(f"{grows}, within the budget of {budget}")


def unknown_reason(review: Review) -> Iterator[Reason]:
    """The reason about throttled fetches under another limit."""
    unknown = sum(one.replay.unknown for one in review.affected if one.replay is not None)
    if unknown:
        yield Reason(
            f"{unknown:,} throttled fetches came back empty: their size under another limit is not known"
        )


def end_reason(review: Review) -> Iterator[Reason]:
    """The reason about limits that end."""
    of_seen = (limits for one in review.affected for limits in one.limits)
    of_possible = ((one.before.limit, one.after.limit) for one in review.possible)
    if any(limits[0] is not None and limits[1] is None for limits in (*of_seen, *of_possible)):
        yield Reason("a limit ends, and clients are then unlimited")


def _reasons(review: Review) -> Iterator[Reason]:
    yield from delay_reason(review)
    yield from _deferred_reason(review)
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


def _deferred_reason(review: Review) -> Iterator[Reason]:
    """The reason about bytes that come after the end of the traffic if clients wait."""
    deferred = sum(one.replay.deferred for one in review.affected if one.replay is not None)
    if deferred > 0:
        yield Reason(
            f"{person_bytes(deferred)} of the recorded bytes would come after the end of the traffic"
        )


def _growth(review: Review) -> str:
    """The increase of the total delay, with what it holds for: clients that wait, or the recorded times."""
    more, judged = person_ms(more_delay_ms(review)), [one.replay for one in review.affected if one.replay]
    if all(replay.closed is not None for replay in judged):
        return f"{more}{_bound(review)} if clients wait for their throttles"
    at_most = "at most " if any(replay.is_at_most for replay in judged) else ""
    return f"{at_most}{more} in the recorded traffic"


def _bound(review: Review) -> str:
    """The bound of the increase in brackets; empty if nothing is left open."""
    low_ms, high_ms = more_bound_ms(review)
    if high_ms is None:
        return f" (at least {person_ms(low_ms)})"
    return "" if low_ms == high_ms else f" ({person_ms(low_ms)} to {person_ms(high_ms)})"


def _reasons_of_clients(review: Review) -> Iterator[Reason]:
    yield from unknown_reason(review)
    without = [one for one in review.affected if one.replay is None and not one.is_harmless]
    if without:
        clients = sum(len(one.clients) for one in without)
        yield Reason(f"{_counted(clients)} with a lower or shared limit could not be replayed")
    yield from end_reason(review)
    unjudged = len(unjudged_clients(review))
    if unjudged:
        limits = "1 lower limit has" if unjudged == 1 else f"{unjudged:,} lower limits have"
        yield Reason(f"{limits} no recorded traffic that shows the effect")
    elif review.period is None and review.possible:
        yield Reason("no recorded traffic shows the effect")


def _counted(clients: int) -> str:
    return "1 client" if clients == 1 else f"{clients:,} clients"
