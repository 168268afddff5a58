"""What the report says, as data: gathered from the tables by `reports`, drawn as HTML, Markdown, CSV or JSON.

The parts stand in the order in which they are read. Texts hold names as clients sent them: escaping is for whoever
draws. Amounts are in the unit of their `quota_type`; rates per second; every time epoch ms; lists
are cut to the largest, with the count and the sum of what was left out beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Trust(Enum):
    """May the page be believed."""

    YES = "yes"
    WITH_CARE = "with care"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Head:
    """Whose report, over which stretch."""

    cluster_id: str
    from_ms: int
    to_ms: int
    """Exclusive."""
    made_at_ms: int
    version: str
    tenant: str | None = None
    """A user, where the page is that tenant's own and tells nothing of others; None for the whole cluster."""
    is_first_look: bool = False
    """No quota is set at all: what follows is usage only, and where to begin."""
    covered_percent: float = 100.0
    """Of the period: from the first to the last second that the tables know."""
    is_covered: bool = True
    """The tables know 99 % of the stretch or more; else shares of time are of a part of it, and no share of the day."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Verdicts of one quota type beside the brokers'."""

    quota_type: str
    judged: int
    agreeing: int
    uncertain: int


@dataclass(frozen=True, slots=True)
class Confidence:
    """May I trust it: agreement, lag, unreadable lines, certain share."""

    trust: Trust
    reasons: tuple[str, ...]
    """One sentence for each thing that speaks against it; empty if nothing does."""
    agreement: tuple[Agreement, ...]
    certain_percent: float | None
    """Seconds of buckets that are certain; None without decisions from the log."""
    lag_ms: int | None
    """From the newest decision to the end of the stretch, or to the making of the report if that was earlier."""
    lines: int
    unreadable_lines: int
    late_requests: int
    gaps: int
    """Stretches of a broker's log that the audit lacks."""
    sources: tuple[str, ...]
    """`log`, `jmx` or both."""
    delay_by_replay_ms: int | None = None
    """Total delay in certain seconds; None where no broker's log says it."""
    delay_by_brokers_ms: int | None = None
    """Total delay in the same seconds."""


@dataclass(frozen=True, slots=True, order=True)
class BucketName:
    """What a broker keeps a rate for, over all brokers. An empty part is not in the bucket; tags of a callback."""

    quota_type: str
    user: str
    client_id: str
    tags: str = ""
    """JSON of a callback's tags; empty where Kafka's own walk decides."""


@dataclass(frozen=True, slots=True)
class HurtBucket:
    """Who was held back, and how long."""

    bucket: BucketName
    limit_per_s: float | None
    """The smallest of the stretch, on one broker."""
    throttled_ms: int
    """Sum of all throttles; from JMX 0."""
    throttled_requests: int | None
    """None where only the time is told: from JMX, or of a bucket that a tenant shares."""
    throttled_seconds: int
    """Seconds in which a throttle began or still ran, on any broker."""
    time_in_throttle_percent: float
    """Those seconds as share of the stretch that the tables cover."""
    worst_broker_id: int
    episodes: int
    peak_quota_used_percent: float | None
    clients: tuple[str, ...]
    """`user / client id` inside, at most 5."""
    shared_with: int = 0
    """On a tenant's page: other users in the bucket. Where there are any, the numbers are the tenant's own."""


@dataclass(frozen=True, slots=True)
class ThrottlePair:
    """Seconds of buckets whose longest throttles were about these, by replay and by brokers, in ms; 0 is none."""

    replay_ms: float
    brokers_ms: float
    is_certain: bool
    seconds: int


@dataclass(frozen=True, slots=True)
class ThrottleSpread:
    """How long the throttles of one user were, request by request, by brokers."""

    user: str
    requests: int
    throttled_ms: int
    percentiles_ms: tuple[int, ...]
    """The percentiles 0 to 100."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Highest percent of the quota, bucket x slot of time; break the colours at 80 and 100."""

    slot_ms: int
    slots: tuple[int, ...]
    buckets: tuple[BucketName, ...]
    quota_used_percent: tuple[tuple[float | None, ...], ...]
    """A row a bucket, a value a slot, of certain seconds; None without one, without traffic or limit."""
    uncertain_percent: tuple[tuple[float | None, ...], ...]
    """The same of slots in which no second is certain."""
    left_out: int
    near: int
    """Of all buckets, also those left out: the highest certain second was 80 to 100 % of the quota."""
    over: int
    """Of all buckets: it was above 100 %."""
    near_unthrottled: int
    """Of those at 80 % and more: never throttled."""


@dataclass(frozen=True, slots=True)
class PeriodBucket:
    """One bucket with a limit, over the whole period and all brokers."""

    bucket: BucketName
    brokers: tuple[int, ...]
    limit_per_s: float | None
    """The last one in force, on one broker."""
    peak_quota_used_percent: float | None
    """The highest certain second, of the limit in force then; None if no second is certain."""
    throttled_ms: int
    """Total delay, by brokers where they logged it; from JMX 0."""
    throttled_requests: int | None
    """None from JMX."""
    users: tuple[str, ...] = ()
    """Users inside a bucket that names none."""
    client_ids: tuple[str, ...] = ()
    """Client ids inside a bucket that names none."""


@dataclass(frozen=True, slots=True)
class Line:
    """One bucket's rate beside its limit, which moves with its history. One broker: limits are each broker's own."""

    bucket: BucketName
    broker_id: int
    slot_ms: int
    slots: tuple[int, ...]
    rate_per_s: tuple[float | None, ...]
    """Highest of each slot."""
    is_certain: tuple[bool, ...]
    """Whether that second of the slot is certain; True without traffic."""
    limit_per_s: tuple[float | None, ...]
    throttled_ms: tuple[int, ...]
    rules: tuple[str, ...] = ()
    """Entities that set its limit in the stretch."""


@dataclass(frozen=True, slots=True)
class Talker:
    """What one client used over all brokers."""

    user: str
    client_id: str
    quota_type: str
    amount: int
    share_percent: float
    """Of the cluster's amount of this type."""
    requests: int | None
    """None where only JMX tells, as for the sum of throttles."""
    mean_per_s: float
    peak_per_s: float
    observed_throttle_ms: int | None


@dataclass(frozen=True, slots=True)
class Talkers:
    """Top talkers of one quota type, largest first, and what all the others used together."""

    quota_type: str
    total: int
    talkers: tuple[Talker, ...]
    others: int
    others_amount: int


@dataclass(frozen=True, slots=True)
class Skew:
    """How one bucket's use is spread over brokers, and what its limit means for the cluster."""

    bucket: BucketName
    limit_per_s: float | None
    used_per_s: Mapping[int, float]
    """Mean rate of its active seconds, by broker."""
    throttled_ms: Mapping[int, int]
    """Total delay by broker; from JMX 0."""
    max_to_mean: float
    cluster_limit_per_s: float | None
    """Limit x brokers that saw it: those that lead the client's partitions."""
    with_one_more_broker_per_s: float | None


@dataclass(frozen=True, slots=True)
class Effect:
    """Throttles by brokers in two stretches of one length, before a change and after it; times in ms."""

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
    """Policy or person with the reason, where known; else empty."""
    effect: Effect | None = None
    """None where no decision was made under it, as under a new quota that nobody has met."""


@dataclass(frozen=True, slots=True)
class Unprotected:
    """Traffic that no rule meters as its owner may think: from the findings."""

    kind: str
    """UNMETERED, SHARED_BUCKET, EMPTY_CLIENT_ID, ..."""
    severity: str
    subject: str
    sentence: str
    advice: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another thing that would help, with what to run where there is a command for it."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One thing to do, as a quota where it is one."""

    entity: str
    """Canonical name of the entity; empty where it is no quota."""
    key: str
    present: float | None
    recommended: float | None
    reason: str
    command: str
    """What to run, dry; empty where there is no command for it."""
    title: str = ""
    """What to do, where it is no quota of an entity."""
    delay_ms: int = 0
    """Total delay of the bucket that it is about, by brokers: what is behind the card."""
    cause: str = ""
    confidence: str = ""
    """`low`, `fair` or `good`, and why."""
    expected: str = ""
    """What the value would have done to the recorded requests."""
    headroom: str = ""
    """What the value leaves above the use."""
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Capacity:
    """Request time that a broker has: (io + network threads) x 100 %."""

    broker_id: int
    io_threads: int
    network_threads: int
    percent: float
    used_percent: float | None
    """Mean of the request time charged; None where it is not measured."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The whole report."""

    head: Head
    confidence: Confidence
    hurt: Sequence[HurtBucket] = ()
    hurt_left_out: int = 0
    throttle_pairs: tuple[ThrottlePair, ...] = ()
    throttle_spreads: tuple[ThrottleSpread, ...] = ()
    """The most total delay first."""
    heat: tuple[HeatMap, ...] = ()
    """One a quota type."""
    lines: Sequence[Line] = ()
    talkers: tuple[Talkers, ...] = ()
    skew: Sequence[Skew] = ()
    changes: Sequence[Change] = ()
    changes_left_out: int = 0
    unprotected: Sequence[Unprotected] = ()
    unprotected_left_out: int = 0
    recommendations: Sequence[Recommendation] = ()
    recommendations_left_out: int = 0
    capacity: Sequence[Capacity] = ()
    buckets: Sequence[PeriodBucket] = ()
    """Every bucket with a limit: nothing is cut."""
    notes: tuple[str, ...] = field(default=())
    """What else has to be known to read it, one sentence each."""
