"""Runs with two causes at once, of which one is the main one by far: it has most of what is above the limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kquota_spark.model.attribution.detectors import Cause
from tests.causes.plan import CALM_S, Scenario, always, limit_of, senders, stepped
from tests.support.chance import Chance


def _at_s(chance: Chance) -> float:
    return CALM_S + chance.uniform(0, 5)


def _growth_and_cut(chance: Chance) -> Scenario:
    """A client doubles, and a limit that would have fitted is lowered a little."""
    limit, at_s = limit_of(chance), _at_s(chance)
    clients = senders(chance, stepped(at_s, limit * 0.6, limit * chance.uniform(1.4, 2.0)))
    edits = ((at_s + 5, float(round(limit * chance.uniform(0.9, 0.95)))),)
    return Scenario("mixture_growth_and_cut", Cause.GROWTH, limit, clients, edits=edits)


def _cut_and_growth(chance: Chance) -> Scenario:
    """A limit is halved, and a small client grows by half."""
    limit, at_s = limit_of(chance), _at_s(chance)
    small = limit * chance.uniform(0.04, 0.08)
    clients = senders(chance, always(limit * 0.75)) + senders(
        chance, stepped(at_s, small, 1.5 * small), "small", 1
    )
    edits = ((at_s, float(round(limit * chance.uniform(0.4, 0.55)))),)
    return Scenario("mixture_cut_and_growth", Cause.LIMIT_CUT, limit, clients, edits=edits)


def _newcomer_and_growth(chance: Chance) -> Scenario:
    """A new client brings as much as the limit, and a small one grows by half."""
    limit, at_s = limit_of(chance), _at_s(chance)
    small = limit * chance.uniform(0.08, 0.12)
    clients = senders(chance, always(limit * 0.4))
    clients += senders(chance, stepped(at_s, small, 1.5 * small), "small", 1)
    clients += senders(chance, always(limit * chance.uniform(0.8, 1.2)), "newcomer", from_s=at_s)
    return Scenario("mixture_newcomer_and_growth", Cause.NEW_CLIENT, limit, clients)


def _growth_and_newcomer(chance: Chance) -> Scenario:
    """A client doubles, and a small new one comes."""
    limit, at_s = limit_of(chance), _at_s(chance)
    clients = senders(chance, stepped(at_s, limit * 0.55, limit * chance.uniform(1.2, 1.7)))
    clients += senders(chance, always(limit * chance.uniform(0.08, 0.15)), "newcomer", 1, from_s=at_s)
    return Scenario("mixture_growth_and_newcomer", Cause.GROWTH, limit, clients)


def _repeats_and_cut(chance: Chance) -> Scenario:
    """A client sends everything three times, and a limit is lowered a little."""
    limit, at_s = limit_of(chance), _at_s(chance)
    clients = senders(chance, always(limit * 0.7), count=1, retries=stepped(at_s, 0, 2))
    edits = ((at_s, float(round(limit * 0.9))),)
    return Scenario("mixture_repeats_and_cut", Cause.REPEATS, limit, clients, edits=edits)


MIXTURES: Mapping[str, Callable[[Chance], Scenario]] = {
    "mixture_growth_and_cut": _growth_and_cut,
    "mixture_cut_and_growth": _cut_and_growth,
    "mixture_newcomer_and_growth": _newcomer_and_growth,
    "mixture_growth_and_newcomer": _growth_and_newcomer,
    "mixture_repeats_and_cut": _repeats_and_cut,
}
"""The scenarios with two causes, by label; each has its main cause."""
