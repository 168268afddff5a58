"""Literal observations for the tests of policies: an hour and a day of alice's bucket, as quiet as a test leaves it."""

from __future__ import annotations

from typing import Any

from kquota_spark.enforce.changes import Proposal, Quota
from kquota_spark.enforce.guard_settings import Bounds, Exempt, GuardSettings
from kquota_spark.enforce.policies.observations import (
    BrokerUse,
    BucketUse,
    ClientUse,
    InForce,
    Observations,
    Period,
    Place,
)
from kquota_spark.enforce.policies.policy import Policies, Policy
from kquota_spark.enforce.policies.proposing import proposals
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket

HOUR, DAY = 3_600_000, 86_400_000
NOW_MS = 1_795_239_600_000
"""2026-11-21 05:40:00 UTC."""
ALICE = Entity(user="alice")
WRITE, READ = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
GUARDS = GuardSettings(
    bounds={key.value: Bounds(floor=100_000.0, ceiling=50_000_000.0) for key in (WRITE, READ)}
)


def place(broker_id: int = 1, user: str = "alice", client_id: str = "") -> Place:
    return Place(broker_id, QuotaType.PRODUCE, Bucket(user, client_id))


def use(at: Place | None = None, *, rule: Entity | None = ALICE, **changed: Any) -> BucketUse:
    """1,000 quiet seconds under a limit of 1 MB/s; a test names what it is about."""
    values: dict[str, Any] = {
        "limit_per_s": None if rule is None else 1_000_000.0,
        "has_one_limit": True,
        "seconds": 1_000,
        "certain_seconds": 1_000,
        "throttled_seconds": 0,
        "observed_throttled_seconds": changed.get("throttled_seconds", 0),
        "mean_rate_per_s": 200_000.0,
        "peak_rate_per_s": 900_000.0,
        "p95_rate_per_s": 800_000.0,
        "throttled_rate_per_s": 0.0,
        "throttle_ms": 0,
        "episodes": 0,
        "peak_used_percent": 0.0,
    }
    return BucketUse(place=at or place(), rule=rule, **(values | changed))


def seen(*uses: BucketUse, quotas: dict[Quota, InForce] | None = None, **changed: Any) -> Observations:
    """The same uses in every period; the limits in them have been in force since ever, with `quotas` beside them."""
    of_uses = {
        Quota(one.rule, one.place.quota_type.key): InForce(one.limit_per_s, 0)
        for one in uses
        if one.rule is not None and one.limit_per_s is not None
    }
    values: dict[str, Any] = {
        "decisions_from_ms": 0,
        "periods": {
            length: Period(from_ms=NOW_MS - length, to_ms=NOW_MS, buckets=uses)
            for length in (HOUR, DAY, 7 * DAY)
        },
        "brokers": tuple(broker(number) for number in (1, 2, 3)),
    }
    return Observations(quotas={**of_uses, **(quotas or {})}, **(values | changed))


def broker(number: int, p95_rate_per_s: float = 10_000_000.0) -> BrokerUse:
    return BrokerUse(broker_id=number, quota_type=QuotaType.PRODUCE, p95_rate_per_s=p95_rate_per_s)


def client(user: str, client_id: str, peak_rate_per_s: float = 1_000_000.0, broker_id: int = 1) -> ClientUse:
    return ClientUse(
        broker_id=broker_id,
        quota_type=QuotaType.PRODUCE,
        user=user,
        client_id=client_id,
        peak_rate_per_s=peak_rate_per_s,
    )


def wanted(
    policy: Policy, observed: Observations, exempt: Exempt | None = None, guards: GuardSettings = GUARDS
) -> list[Proposal]:
    """What one policy proposes."""
    policies = Policies(guards=guards, exempt=exempt or Exempt(), policies=(policy,))
    return proposals(policies, observed, NOW_MS)


def only(found: list[Proposal]) -> Proposal:
    """The one proposal there is."""
    assert len(found) == 1, found
    return found[0]
