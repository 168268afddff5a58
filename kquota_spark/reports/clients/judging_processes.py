"""Judges groups of clients on all cores: each process reads the usage of its own groups.

No figure depends on the number of processes, because a group does not change another one.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import NamedTuple

from kquota_spark.config.governor import mutation_config, rate_config
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.compare.tried_brokers import TriedBrokers
from kquota_spark.model.govern.govern import Governor, RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.reports.clients.judged_groups import JudgedGroup, Period, judged_group
from kquota_spark.reports.clients.linked_clients import Linked
from kquota_spark.reports.clients.stored_usage import Group, stored_rings, usage_of_groups

LEAST_REQUESTS = 200_000
"""Fewest requests for a process more: it takes a second to start, and judges about 50,000 requests in one."""


class _Share(NamedTuple):
    """The groups of one process, and everything that it needs to judge them."""

    settings: Settings
    governors: tuple[Governor, Governor]
    rings: dict[int, RateConfig]
    groups: list[Linked]
    period: Period
    most_requests: int | None
    brokers: TriedBrokers | None


def judged_groups(
    settings: Settings,
    governors: tuple[Governor, Governor],
    linked: Sequence[Linked],
    period: Period,
    most_requests: int | None = None,
    brokers: TriedBrokers | None = None,
) -> dict[int, JudgedGroup | None]:
    """The figures of each group with usage by its place, in order; None for groups that are left out.

    Args:
        settings: where the tables are, and the cluster.
        governors: the past quotas and the others; a callback is asked in this process only.
        linked: the groups.
        period: what is counted.
        most_requests: maximum number of requests of all groups, None for no limit; the smallest groups come first.
        brokers: those under the other quotas, for which flips are counted; None for the recorded ones.

    Raises:
        UserError: the table cannot be read, or a process ended early.
    """
    rings = stored_rings(settings)
    places = places_of(linked, _processes(governors, linked))
    most = None if most_requests is None else most_requests // max(1, len(places))
    shares = [
        _Share(settings, governors, rings, [linked[place] for place in of_share], period, most, brokers)
        for of_share in places
    ]
    found: dict[int, JudgedGroup | None] = {}
    if len(shares) <= 1:
        results = list(map(_judged, shares))
    else:
        try:
            with ProcessPoolExecutor(len(shares), mp_context=get_context("spawn")) as pool:
                results = list(pool.map(_judged, shares))
        except BrokenProcessPool as error:
            raise UserError(
                "a process of the replay ended early, usually because memory ran out: choose a shorter period"
            ) from error
    for of_share, result in zip(places, results, strict=True):
        found |= {of_share[place]: judged for place, judged in result}
    return {place: found[place] for place in sorted(found)}


def _processes(governors: Sequence[Governor], linked: Sequence[Linked]) -> int:
    if not all(isinstance(each, RuleGovernor) for each in governors):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, sum(one.requests for one in linked) // LEAST_REQUESTS))


def places_of(linked: Sequence[Linked], processes: int) -> list[list[int]]:
    """The places of groups by process, so that all have about as many requests; the largest groups come first.

    Args:
        linked: the groups.
        processes: how many; those without a group are left out.
    """
    shares: list[list[int]] = [[] for _ in range(processes)]
    loads = [0] * processes
    for place in sorted(range(len(linked)), key=lambda place: -linked[place].requests):
        least = loads.index(min(loads))
        shares[least].append(place)
        loads[least] += linked[place].requests
    return [sorted(share) for share in shares if share]


def _judged(share: _Share) -> list[tuple[int, JudgedGroup | None]]:
    """The figures of the groups of one process, by place."""
    settings, governors, rings, linked, period, most, brokers = share
    default, mutation = rate_config(settings), mutation_config(settings)
    groups = [Group(one.broker_id, one.clients, one.spans) for one in linked]
    found: list[tuple[int, JudgedGroup | None]] = []
    # There are many live tuples without cycles: garbage collection would cost a third.
    gc.disable()
    try:
        for place, rows in usage_of_groups(settings, groups, most):
            ring = rings.get(groups[place].broker_id, default)
            tried_ring = None if brokers is None else brokers.ring(ring)
            judged = None
            if rows is not None:
                judged = judged_group(rows, governors, (ring, mutation), period, tried_ring)
            found.append((place, judged))
    finally:
        gc.enable()
    return found
