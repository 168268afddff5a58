"""Policies of the closed loop: as simple as may be, so that what keeps them in bounds are the guards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from kquota_spark.enforce.changes import Evidence, Proposal, Quota
from kquota_spark.enforce.simulation.scenario import Scenario
from kquota_spark.enforce.simulation.traffic import LOOK_MS, Use
from kquota_spark.model.entities import Entity
from kquota_spark.model.quota_types import QuotaKey

KEY = QuotaKey.PRODUCER_BYTE_RATE
RECKLESS = "reckless"
_FULL, _LOW, _RAISED = 1.0, 0.7, 0.85
"""Of the capacity: cut above the first; raise below the second, and not above the third."""


def quota_of(user: str) -> Quota:
    """The quota that policies change."""
    return Quota(Entity(user=user), KEY)


@dataclass(frozen=True, slots=True)
class Look:
    """What is known at one moment."""

    now_ms: int
    through_ms: int
    uses: Mapping[str, Use]
    values: Mapping[str, float | None]

    @property
    def used_per_s(self) -> float:
        """By all."""
        return sum(use.rate_per_s for use in self.uses.values())


def proposals(scenario: Scenario, look: Look, wildness: float, random: Random) -> list[Proposal]:
    """At most one for each user, and now and then a wild one."""
    found = []
    for user, use in look.uses.items():
        if random.random() < wildness:
            found.append(_wild(scenario, look, user, use, random))
        elif use.requests:
            found += list(_wanted(scenario, look, user, use))[:1]
    random.shuffle(found)
    return found


def _wanted(scenario: Scenario, look: Look, user: str, use: Use) -> Iterator[Proposal]:
    before, fair, capacity = look.values[user], scenario.fair_per_s, scenario.capacity_per_s
    throttled = use.throttled / use.requests
    low, raised = (_LOW, _RAISED) if scenario.has_hysteresis else (_FULL, 10.0)
    if use.rate_per_s > 1.05 * fair and look.used_per_s > _FULL * capacity:
        wanted = max(fair, use.rate_per_s * _RAISED * capacity / look.used_per_s)
        if before is None or wanted < before:
            yield _proposal(scenario, look, user, use, "share", wanted, is_penalty=True)
    if before is None:
        return
    if throttled > 0.5 and use.rate_per_s > 1.5 * fair:
        yield _proposal(scenario, look, user, use, "penalty", max(fair, before / 2), is_penalty=True)
    has_room = look.used_per_s < low * capacity and look.used_per_s + before / 4 < raised * capacity
    if throttled > 0.2 and has_room:
        yield _proposal(scenario, look, user, use, "raise", before * 1.25)
    if not throttled and use.rate_per_s < before / 2:
        wanted = max(fair, 1.5 * use.rate_per_s)
        if wanted < before:
            yield _proposal(scenario, look, user, use, "lower", wanted)


def _wild(scenario: Scenario, look: Look, user: str, use: Use, random: Random) -> Proposal:
    """Any value at all, for anybody: guards alone stand before it."""
    name = random.choice([user, user, user, "admin", "nobody"])
    value = random.choice(
        [None, random.uniform(0, 20e6), (look.values[user] or 1e6) * random.uniform(0.3, 3)]
    )
    before = look.values.get(name)
    is_penalty = random.random() < 0.5
    wild = _proposal(scenario, look, name, use, RECKLESS, 1.0, is_penalty=is_penalty)
    return Proposal(
        wild.quota, before, value, RECKLESS, "", wild.expires_at_ms, wild.evidence, is_penalty=is_penalty
    )


def _proposal(
    scenario: Scenario,
    look: Look,
    user: str,
    use: Use,
    policy: str,
    wanted: float,
    *,
    is_penalty: bool = False,
) -> Proposal:
    bounds = scenario.settings.bounds_of(KEY)
    assert bounds is not None
    before = look.values.get(user)
    return Proposal(
        quota=quota_of(user),
        before=before,
        after=bounds.nearest(before, wanted),
        policy=policy,
        reason=f"{use.rate_per_s:.0f} B/s of {look.used_per_s:.0f} B/s",
        expires_at_ms=look.now_ms + scenario.penalty_ms if is_penalty else None,
        evidence=Evidence(
            look.through_ms - LOOK_MS, look.through_ms, use.requests, use.certain, use.throttled
        ),
        is_penalty=is_penalty,
    )
