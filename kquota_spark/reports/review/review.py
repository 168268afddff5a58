"""What a review of a change found: edits, clients with another limit, capacity, names, and the reasons for a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kquota_spark.findings.idle_rules import Mangled
from kquota_spark.model.compare.quota_diff import EffectChange
from kquota_spark.model.quotas.entities import AnyEntity
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.resolve import Bucket

Limits = tuple[float | None, float | None]
"""A limit before and after, per second and broker; None is no limit."""


@dataclass(frozen=True, slots=True)
class Period:
    """The reviewed period of recorded traffic (epoch ms), and how many clients it has."""

    from_ms: int
    to_ms: int
    clients: int


class Waiting(NamedTuple):
    """The requests after the change as clients send them that wait for their throttles: the closed loop."""

    throttled_requests: int = 0
    delay_ms: int = 0
    low_ms: int = 0
    high_ms: int | None = 0
    """Bounds of the total delay over all that the log leaves open; the upper one is None if it is not known."""
    deferred: int = 0
    """Recorded amount that is no longer served in the period."""
    is_censored: bool = False
    """Whether a saturated connection gets a higher limit: it would send more."""

    def plus(self, other: Waiting) -> Waiting:
        """The sums over two buckets."""
        high_ms = None if self.high_ms is None or other.high_ms is None else self.high_ms + other.high_ms
        return Waiting(
            self.throttled_requests + other.throttled_requests, self.delay_ms + other.delay_ms,
            self.low_ms + other.low_ms, high_ms, self.deferred + other.deferred,
            self.is_censored or other.is_censored,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Replayed:
    """The recorded requests of some buckets, judged under both sets of quotas."""

    throttled_before: int = 0
    throttled_after: int = 0
    """Requests."""
    delay_before_ms: int = 0
    delay_after_ms: int = 0
    """Sum of all throttles; after the change at the recorded times: the open loop."""
    unknown: int = 0
    """Throttled fetches: their verdict under another limit is not known."""
    only_before: int = 0
    only_after: int = 0
    """Requests that are throttled on one side only; throttled fetches are left out."""
    is_at_most: bool = False
    """Whether the delay after is an upper bound: throttled clients would have sent later."""
    closed: Waiting | None = field(default_factory=Waiting)
    """After the change, in the closed loop, which decides. None if the open loop decides."""
    beside: Waiting | None = None
    """The closed loop beside an open loop that decides."""

    @property
    def more_ms(self) -> int:
        """Increase of the total delay in the loop that decides (ms); negative for a decrease."""
        after_ms = self.delay_after_ms if self.closed is None else self.closed.delay_ms
        return after_ms - self.delay_before_ms

    @property
    def more_bound_ms(self) -> tuple[int, int | None]:
        """Bounds of the increase (ms), at least 0; the upper one is None if it is not known."""
        if self.closed is None:
            return max(0, self.more_ms), max(0, self.more_ms)
        low_ms, high_ms = self.closed.low_ms, self.closed.high_ms
        most_ms = None if high_ms is None else max(0, high_ms - self.delay_before_ms)
        return max(0, low_ms - self.delay_before_ms), most_ms

    @property
    def deferred(self) -> int:
        """Recorded amount that is no longer served in the period; 0 without the closed loop."""
        return 0 if self.closed is None else self.closed.deferred


@dataclass(frozen=True, slots=True)
class Affected:
    """Clients that share buckets before or after the change, and their traffic in the period.

    `replay` is None where the traffic could not be judged; `why` then has the reason.
    """

    quota_type: str
    buckets: tuple[Bucket, ...]
    """Those after the change; those before it if the change leaves none."""
    clients: tuple[tuple[str, str], ...]
    """User and client id of the clients with another limit or bucket."""
    limits: tuple[Limits, ...]
    """The distinct limits of these clients."""
    is_shared_anew: bool
    """Whether some client shares its limit with other clients than before."""
    rules_after: tuple[str, ...]
    """The rules that govern these clients after the change."""
    amount: int
    """Recorded amount of these clients: bytes, microseconds of threads, or mutations."""
    replay: Replayed | None = None
    why: str = ""

    @property
    def is_lower(self) -> bool:
        """Whether some client gets a lower limit, or its first one."""
        return any(is_lower(limits) for limits in self.limits)

    @property
    def is_moved(self) -> bool:
        """Whether some client gets another limit or bucket, and not only another ring."""
        return self.is_shared_anew or any(before != after for before, after in self.limits)

    @property
    def is_harmless(self) -> bool:
        """Whether no client gets a lower limit or shares it anew."""
        return not self.is_lower and not self.is_shared_anew


def is_lower(limits: Limits) -> bool:
    """Whether the limit after is lower, or the first one."""
    before, after = limits
    return after is not None and (before is None or after < before)


@dataclass(frozen=True, slots=True)
class Oversubscription:
    """The sum of all limits on one broker beside its capacity, as the policy file states it."""

    key: QuotaKey
    before: float
    after: float
    capacity: float
    unlimited_before: int
    unlimited_after: int
    """Clients of the period without a limit, which no sum contains."""

    @property
    def is_worse(self) -> bool:
        """Whether the limits exceed the capacity, and by more than before."""
        return self.after > self.capacity and self.after > self.before


@dataclass(frozen=True, slots=True)
class SuspiciousName:
    """An entity that only the new file has, with a name that may not be meant so."""

    entity: AnyEntity
    why: str


class Reason(NamedTuple):
    """Why the change is not harmless: harm, or only something that a person must decide."""

    text: str
    is_harm: bool = False


class Side(NamedTuple):
    """One side of a check: the source of its quotas, how many rules it has, and the sample rings of its brokers."""

    origin: str
    rules: int
    rings: tuple[str, ...]
    """Distinct `RateConfig.name`; empty without recorded traffic."""
    problems: tuple[str, ...] = ()
    """Content that brokers do not read as quotas, one line each."""


@dataclass(frozen=True, slots=True)
class Review:
    """Everything that a comment shows."""

    edits: Sequence[QuotaEdit]
    affected: Sequence[Affected]
    possible: Sequence[EffectChange]
    """Clients without traffic in the period that would get another limit or bucket."""
    period: Period | None
    """None without recorded traffic."""
    capacity: Sequence[Oversubscription]
    mangled: Sequence[Mangled]
    names: Sequence[SuspiciousName]
    not_judged: Sequence[str]
    """What the review does not know, one sentence each."""
    budget_ms: int
    """Increase of the total delay that is no harm yet."""
    reasons: Sequence[Reason] = ()
    sides: tuple[Side, Side] | None = None
    """What was compared; None for a review of two files."""
