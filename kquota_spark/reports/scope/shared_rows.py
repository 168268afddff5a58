"""Rows of the report that several rooms read or make; a row of one section alone is in the file of that section.

Texts contain names as clients sent them; the code that draws a page escapes them. Amounts are in the unit of their
`quota_type`, rates are per second, and every time is epoch ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MOST_CLIENTS = 5
"""Maximum clients that are named inside a bucket."""
OBJECTIVE_PERCENT = 1.0
"""Percent of the time up to which a throttled bucket is no alarm, and its limit may stay."""


class Trust(Enum):
    """Whether the report can be trusted."""

    YES = "yes"
    WITH_CARE = "with care"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Head:
    """The cluster or tenant of the report, and its period."""

    cluster_id: str
    from_ms: int
    to_ms: int
    """Exclusive."""
    made_at_ms: int
    version: str
    tenant: str | None = None
    """A user if the page is that tenant's own and shows nothing of others; None for the whole cluster."""
    is_first_look: bool = False
    """No quota is set at all: the report contains only usage and first values."""
    covered_percent: float = 100.0
    """Covered percent of the period: from the first to the last second that the tables contain."""
    is_covered: bool = True
    """The tables cover at least 99 % of the period; else shares of time refer to the covered part, not to the day."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Verdicts of one quota type beside the brokers'."""

    quota_type: str
    judged: int
    agreeing: int
    uncertain: int


@dataclass(frozen=True, slots=True)
class Confidence:
    """The grade of the report, with its evidence: agreement, lag, unreadable lines, certain share."""

    trust: Trust
    reasons: tuple[str, ...]
    """One sentence for each reason for doubt; empty if there is none."""
    agreement: tuple[Agreement, ...]
    certain_percent: float | None
    """Percent of the buckets' seconds that are certain; None without decisions from the log."""
    lag_ms: int | None
    """Time from the newest decision to the end of the period, or to the making of the report if that was earlier."""
    lines: int
    unreadable_lines: int
    late_requests: int
    gaps: int
    """Number of periods of a broker's log that the audit lacks."""
    sources: tuple[str, ...]
    """`log`, `jmx` or both."""
    certain_delay_by_replay_ms: int | None = None
    """Total delay in certain seconds; None if no broker's log contains it."""
    certain_delay_ms: int | None = None
    """Total delay in the same seconds."""


@dataclass(frozen=True, slots=True, order=True)
class BucketName:
    """The names of a bucket, for which each broker measures a rate. An empty part does not belong to the bucket."""

    quota_type: str
    user: str
    client_id: str
    tags: str = ""
    """JSON of a callback's tags; empty where Kafka's own walk decides."""


@dataclass(frozen=True, slots=True)
class ThrottledBucket:
    """A throttled bucket, and how long it was throttled."""

    bucket: BucketName
    limit_per_s: float | None
    """The smallest limit in the period, on one broker."""
    delay_ms: int
    """Total delay; from JMX 0."""
    throttled_requests: int | None
    """None if only the time is known: from JMX, or for a bucket that a tenant shares."""
    time_throttled_s: int
    """Seconds in which a throttle began or still ran, on any broker."""
    time_throttled_percent: float
    """Those seconds as percent of the period that the tables cover."""
    worst_broker_id: int
    episodes: int
    peak_quota_used_percent: float | None
    clients: tuple[str, ...]
    """`user / client id` inside, at most `MOST_CLIENTS`."""
    shared_with: int = 0
    """On a tenant's page, the number of other users in the bucket. If it is not 0, the numbers are the tenant's own."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Throttles by brokers in two periods of one length, before and after a change; times in ms."""

    length_ms: int
    delay_before_ms: int
    delay_after_ms: int
    requests_before: int
    requests_after: int


@dataclass(frozen=True, slots=True)
class Change:
    """One edit of a quota, or one step of enforcement."""

    at_ms: int
    entity: str
    key: str
    before: float | None
    after: float | None
    what: str
    """`edit`, `enforcement applied`, `override applied`, `restored`, ..."""
    by: str
    """Policy or person with the reason, if known; else empty."""
    effect: Effect | None = None
    """None if no decision was made under the quota, such as a new quota without clients."""


@dataclass(frozen=True, slots=True)
class Unprotected:
    """Traffic that is not metered as its owner may expect: from the findings."""

    kind: str
    """UNMETERED, SHARED_BUCKET, EMPTY_CLIENT_ID, ..."""
    severity: str
    subject: str
    sentence: str
    advice: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another remedy, with its command if there is one."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One thing to do, such as a change of a quota."""

    entity: str
    """Canonical name of the entity; empty if it is no change of a quota."""
    key: str
    present: float | None
    recommended: float | None
    reason: str
    command: str
    """Command of a dry run; empty if there is none."""
    title: str = ""
    """What to do, if it is no change of a quota."""
    delay_ms: int = 0
    """Total delay of the bucket that it is about, by brokers (ms)."""
    cause: str = ""
    confidence: str = ""
    """`low`, `fair` or `good`, and why."""
    expected: str = ""
    """The effect that the value would have had on the recorded requests."""
    headroom: str = ""
    """The part of the value above the use."""
    estimate: str = ""
    """What the value of a raise is from: `right size`, `share of throttled seconds` or `least value`."""
    alternatives: tuple[Alternative, ...] = ()
    least: float | None = None
    """The least value under which the replay throttles no recorded request; None if it is not known."""
    is_left: bool = False
    """The limit throttles clients and should stay as it is."""
    brokers: tuple[int, ...] = ()
    """Brokers that a higher limit adds load to."""
    bucket: BucketName | None = None
    """The bucket that it is about; None if it is about no single one."""


@dataclass(frozen=True, slots=True)
class RaiseSum:
    """All recommended raises of one quota type on one broker together, per second."""

    broker_id: int
    quota_type: str
    raises: int
    least_more_per_s: float
    """Sum with the least values; where one is not known, its recommended value counts."""
    more_per_s: float
    """Sum with the recommended values."""
    headroom_per_s: float | None
    """What raises may add, by the policy of the kind `raise`; None if no policy states the broker's capacity."""
