"""Runs in which nobody is to be blamed: nothing is throttled, or all is as it was before."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kquota_spark.model.quotas.quota_types import QuotaKey
from tests.causes.plan import (
    CALM_S,
    Scenario,
    Sender,
    always,
    followed,
    limit_of,
    senders,
    stepped,
)
from tests.support.chance import Chance


def _named(chance: Chance, label: str, used: float, **more: object) -> Scenario:
    """One client that always wants a share of its limit."""
    limit = limit_of(chance)
    return Scenario(label, None, limit, senders(chance, always(limit * used)), **more)  # type: ignore[arg-type]


def _calm(chance: Chance) -> Scenario:
    """A client below its limit."""
    return _named(chance, "calm", chance.uniform(0.4, 0.7))


def _harmless_growth(chance: Chance) -> Scenario:
    """A client that doubles, far below its limit."""
    limit = limit_of(chance)
    return Scenario(
        "harmless_growth", None, limit, senders(chance, stepped(CALM_S, limit * 0.3, limit * 0.6))
    )


def _harmless_cut(chance: Chance) -> Scenario:
    """A client far below its limit, and still below it after a cut."""
    limit = limit_of(chance)
    clients = senders(chance, always(limit * 0.45))
    return Scenario("harmless_cut", None, limit, clients, edits=((CALM_S, limit * 0.8),))


def _raised(chance: Chance) -> Scenario:
    """A client at its limit, which is raised a little."""
    limit = limit_of(chance)
    clients = senders(chance, always(limit * chance.uniform(1.3, 1.7)))
    return Scenario("raised", None, limit, clients, edits=((CALM_S, round(limit * 1.1)),))


def _small_newcomer(chance: Chance) -> Scenario:
    """A client at its limit, and a new one that sends next to nothing."""
    limit = limit_of(chance)
    clients = senders(chance, always(limit * chance.uniform(1.2, 1.7)))
    clients += senders(chance, always(limit * 0.01), "newcomer", 1, from_s=CALM_S)
    return Scenario("small_newcomer", None, limit, clients)


def _late(chance: Chance) -> Scenario:
    """A client that always wants more than its limit, after a pause."""
    limit = limit_of(chance)
    wanted = limit * chance.uniform(1.2, 2.0)
    return Scenario("late", None, limit, senders(chance, lambda at_s: 0.0 if 30 <= at_s < 65 else wanted))


def _behind(chance: Chance) -> Scenario:
    """A consumer that is always behind: it reads old records at its limit all the time."""
    limit = limit_of(chance)
    clients = followed(chance, "behind", always(limit * 0.5), is_behind=True)
    key = QuotaKey.CONSUMER_BYTE_RATE
    return Scenario("behind", None, limit, clients, key, history_bytes=round(170 * limit))


def _reconnecting(chance: Chance) -> Scenario:
    """A client at its limit that changes its connection now and then, without sending anything twice."""
    limit = limit_of(chance)
    clients = senders(chance, always(limit * chance.uniform(1.2, 1.5)), does_reconnect=True)
    return Scenario("reconnecting", None, limit, clients)


def _uneven(chance: Chance) -> Scenario:
    """A client at its limit on one broker, with less traffic on the others, as before."""
    limit = limit_of(chance)
    clients: tuple[Sender, ...] = ()
    for broker, used in enumerate((1.4, 0.7, 0.6)):
        clients += senders(chance, always(limit * used), count=1, broker=broker)
    return Scenario("uneven", None, limit, clients)


def _harmless_small(chance: Chance) -> Scenario:
    """A client that sends the same bytes in more requests, far below its quota of thread time."""
    pace_s = stepped(CALM_S, 1.0, 0.1)
    sender = Sender("app", lambda at_s: 30_000 * pace_s(at_s), pace_s)
    limit = chance.uniform(40, 60)
    return Scenario("harmless_small", None, round(limit), (sender,) * 2, QuotaKey.REQUEST_PERCENTAGE)


NULLS: Mapping[str, Callable[[Chance], Scenario]] = {
    "calm": _calm,
    "harmless_growth": _harmless_growth,
    "harmless_cut": _harmless_cut,
    "raised": _raised,
    "small_newcomer": _small_newcomer,
    "late": _late,
    "behind": _behind,
    "reconnecting": _reconnecting,
    "uneven": _uneven,
    "harmless_small": _harmless_small,
}
"""The scenarios without a cause, by label."""
