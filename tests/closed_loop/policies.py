"""Policies of the closed loop: as simple as may be, so that what keeps them in bounds are the guards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kquota_spark.enforce.changes import Evidence, Proposal, Quota
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from tests.closed_loop.scenario import LOOK_MS, Scenario, Use
from tests.support.chance import Chance

KEY = QuotaKey.PRODUCER_BYTE_RATE
RECKLESS = "reckless"
_FULL, _TARGET, _LOW = 1.0, 0.85, 0.7
"""Of the capacity: cut above the first, so that it comes to the second; raise below the third."""
_MOST_FAIR = 1.2
"""Of the fair share: not raised above it."""
_LEAST_CUT = 0.8
"""Of the value before: a cut to more than that is not worth it."""


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


def proposals(scenario: Scenario, look: Look, wildness: float, random: Chance) -> list[Proposal]:
    """At most one for each user, and now and then a wild one.

    Args:
        scenario: limits and capacity.
        look: rates, quotas and throttles as the policies see them.
        wildness: share of users that get a proposal without a reason, 0 to 1.
        random: the only source of chance.
    """
    found = []
    for user, use in look.uses.items():
        if random.random() < wildness:
            found.append(_wild(scenario, look, user, use, random))
        elif use.requests:
            found += list(_wanted(scenario, look, user, use))[:1]
    random.shuffle(found)
    return found


def _wanted(scenario: Scenario, look: Look, user: str, use: Use) -> Iterator[Proposal]:
    """With hysteresis nothing that one policy does brings what another one waits for."""
    before, fair, capacity = look.values[user], scenario.fair_per_s, scenario.capacity_per_s
    throttled, used = use.throttled / use.requests, look.used_per_s
    if scenario.has_hysteresis:
        low, target, most, least_cut = _LOW, _TARGET, _MOST_FAIR, _LEAST_CUT
    else:
        low, target, most, least_cut = _FULL, _FULL, 100.0, 1.0
    if use.rate_per_s > 1.05 * fair and used > _FULL * capacity:
        wanted = max(fair, use.rate_per_s * target * capacity / used)
        if before is None or wanted < least_cut * before:
            yield _proposal(scenario, look, user, use, "share", wanted, is_penalty=True)
    if before is None:
        return
    if throttled > 0.5 and use.rate_per_s > 1.5 * fair:
        yield _proposal(scenario, look, user, use, "penalty", max(fair, before / 2), is_penalty=True)
    raised = min(1.5 * before, most * fair)
    if throttled > 0.2 and used <= low * capacity and raised > 1.1 * before:
        yield _proposal(scenario, look, user, use, "raise", raised)
    if not throttled and use.rate_per_s < before / 2:
        wanted = max(fair, 1.5 * use.rate_per_s)
        if wanted < least_cut * before:
            yield _proposal(scenario, look, user, use, "lower", wanted)


def _wild(scenario: Scenario, look: Look, user: str, use: Use, random: Chance) -> Proposal:
    """Any value at all, for anybody: guards alone stand before it."""
    name = random.choice([user, user, user, "admin", "nobody"])
    value = random.choice(
        [None, random.uniform(0, 20e6), (look.values[user] or 1e6) * random.uniform(0.3, 3)]
    )
    wild = _proposal(scenario, look, name, use, RECKLESS, 1.0, is_penalty=random.random() < 0.5)
    return replace(wild, after=value, reason="")


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
