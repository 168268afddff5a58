"""The effect of other quotas on past traffic: a period of `usage`, judged twice with the audit's own fold.

Open loop: the requests stay as they were. Under lower limits, throttled clients would have sent later, so the computed
throttled time is too high. What throttled clients would have sent under higher limits is unknown, so there the computed
time is too low. A throttled fetch came back empty, so its verdict under another limit is unknown and counted as such.

Bandwidth only: the tables do not show which requests a request or mutation quota would have refused, or their cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from kquota_spark.config.settings import Settings
from kquota_spark.config.windows import rate_config
from kquota_spark.model.govern.govern import Governor
from kquota_spark.model.govern.traffic import BrokerBucket, Gaps, Traffic, stretches_of
from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.replay.decision import Decision, Stretch, judge_bucket, replay_of
from kquota_spark.model.replay.replay import Outcome, Verdict
from kquota_spark.reports.clients.stored_usage import UsagePart, stored_gaps, stored_rings, stored_usage
from kquota_spark.schema import harm
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables

_KEY = "quota_type, bucket_user, bucket_client_id"
_LOGGED = f"""
with found as materialized (
  select {_KEY}, epoch_ms(second) as second_ms, true as is_log, observed_total_throttle_ms is not null as is_logged,
         {harm.THROTTLED_REQUESTS} as requests, {harm.DELAY_MS} as delay_ms,
         {harm.LONGEST_THROTTLE_MS} as longest_ms, {harm.IS_THROTTLED} as is_throttled
  from decisions
  where cluster_id = ? and {FROM_LOG} and quota_type in ('produce', 'fetch') and bucket_tags is null
    and decisions.second >= make_timestamptz(?::bigint) and decisions.second < make_timestamptz(?::bigint)
), {harm.time_throttled(_KEY, "found")}, sums as (
  select {_KEY}, sum(requests)::bigint as requests, sum(delay_ms)::bigint as delay_ms
  from found group by all having bool_or(is_logged)
)
select {_KEY}, requests, delay_ms, coalesce(throttled_seconds, 0) from sums left join of_time using ({_KEY})
"""  # noqa: S608 - names of ours
WARM_UP_MS = 130_000
"""Usage (ms) that is read before the period, to fill the longest common window (61 samples of 2 s)."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One bucket of one broker: its seconds, and every verdict in them."""

    decisions: list[Decision]
    verdicts: list[Verdict]


@dataclass(frozen=True, slots=True)
class Side:
    """One bucket over all brokers under one set of quotas."""

    limit_per_s: float | None
    """The last limit in force, on each broker; None is no limit."""
    requests: int = 0
    throttled_requests: int = 0
    throttled_ms: int = 0
    """Sum of all throttles, by replay (ms)."""
    muted: tuple[harm.Span, ...] = ()
    """The seconds in which a throttle began or still ran, on any broker, in the period."""
    unknown: int = 0
    """Throttled fetches that were judged under another limit than the broker's: their verdicts are unknown."""

    @property
    def throttled_seconds(self) -> int:
        """Time throttled (s)."""
        return sum(span.end_s - span.first_s for span in self.muted)


@dataclass(frozen=True, slots=True)
class Logged:
    """The throttles of one bucket in the period as brokers logged them, with the meanings of `Side`."""

    throttled_requests: int
    throttled_ms: int
    throttled_seconds: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One bucket before and after; None where the rules do not create the bucket."""

    quota_type: QuotaType
    bucket: Bucket
    before: Side | None
    after: Side | None
    logged: Logged | None = None
    """None if brokers logged no throttle times of this bucket."""
    fits_percent: float | None = None
    """Percent of the recorded bytes that the tried limit lets through while they arrive; None without requests."""

    @property
    def is_changed(self) -> bool:
        """Whether the two sides differ."""
        return self.before != self.after

    @property
    def is_lower(self) -> bool:
        """Whether the tried limit is lower than the past one, or the only one."""
        after = None if self.after is None else self.after.limit_per_s
        before = None if self.before is None else self.before.limit_per_s
        return after is not None and (before is None or after < before)

    @property
    def throttled_ms(self) -> tuple[int, int]:
        """Throttled time before and after (ms)."""
        before, after = self.before, self.after
        return 0 if before is None else before.throttled_ms, 0 if after is None else after.throttled_ms

    @property
    def more_ms(self) -> int:
        """Increase of the throttled time (ms); negative for a decrease."""
        before_ms, after_ms = self.throttled_ms
        return after_ms - before_ms


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The period, and its buckets, those that change most first."""

    from_ms: int
    to_ms: int
    requests: int
    differences: list[Difference] = field(default_factory=list)
    clients: frozenset[tuple[QuotaType, str, str]] = frozenset()
    """Type, user and client id of all requests in the period."""


def judged_again(
    traffic: Iterable[Traffic],
    governor: Governor,
    rings: Mapping[int, RateConfig],
    default: RateConfig,
    gaps: Mapping[int, Gaps] | None = None,
) -> dict[BrokerBucket, Judged]:
    """Usage judged under given quotas; the same quotas and rings give the decisions of the tables.

    Args:
        traffic: usage by second and client.
        governor: the quotas over time.
        rings: sample rings by broker.
        default: sample ring of the other brokers.
        gaps: gaps of the log by broker; None for none.
    """
    buckets = stretches_of(traffic, governor, gaps=gaps)
    return {key: _judged(key, of_bucket, rings.get(key[0], default)) for key, of_bucket in buckets.items()}


def _judged(key: BrokerBucket, of_bucket: Sequence[Stretch], ring: RateConfig) -> Judged:
    verdicts: list[Verdict] = []
    return Judged(judge_bucket(replay_of(key[1], ring), of_bucket, verdicts), verdicts)


def what_if(
    settings: Settings,
    before: Governor,
    after: Governor,
    from_ms: int,
    to_ms: int,
    *,
    parts: Sequence[UsagePart] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> WhatIf:
    """Judge a period of the tables' bandwidth usage under the past quotas and under others.

    Args:
        settings: where the tables are, and the cluster.
        before: the past quotas.
        after: the other quotas.
        from_ms: first second, epoch ms; usage shortly before it fills the windows.
        to_ms: end, epoch ms, exclusive.
        parts: only usage of at least one of these; empty for all.
        progress: takes the number of requests that are about to be judged.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    default, rings = rate_config(settings), stored_rings(settings)
    gaps = stored_gaps(settings, rings, default)
    tally = _Tally(from_ms, to_ms)
    clients: set[tuple[QuotaType, str, str]] = set()
    traffic = sorted(
        stored_usage(settings, from_ms - WARM_UP_MS, to_ms, parts=parts),
        key=lambda row: (row.broker_id, row.quota_type.value),
    )
    progress(sum(len(row.points) for row in traffic))
    # One broker and type at a time: verdicts take several times the memory of the requests.
    for (broker_id, _), group in groupby(traffic, key=lambda row: (row.broker_id, row.quota_type)):
        rows, ring = list(group), rings.get(broker_id, default)
        clients.update(
            (row.quota_type, row.principal.name, row.client_id) for row in rows if row.second_ms >= from_ms
        )
        as_was, as_tried = (stretches_of(rows, governor, gaps=gaps) for governor in (before, after))
        judged = {key: _judged(key, of_bucket, ring) for key, of_bucket in as_was.items()}
        # Most buckets have the same limit before and after, and so the same throttles.
        tried = {
            key: judged[key]
            if _limits(of_bucket) == _limits(as_was.get(key, ()))
            else _judged(key, of_bucket, ring)
            for key, of_bucket in as_tried.items()
        }
        tally.add(judged, tried, ring)
    logged = _logged(settings, from_ms, to_ms)
    return WhatIf(from_ms, to_ms, tally.requests, tally.differences(logged), frozenset(clients))


def _logged(settings: Settings, from_ms: int, to_ms: int) -> dict[tuple[QuotaType, Bucket], Logged]:
    """The brokers' figures by bucket, where their log has them; without those of a callback's tags."""
    with Tables(settings) as tables:
        if not tables.open_if_there("decisions", from_ms):
            return {}
        parameters = [settings.cluster_id, from_ms * 1_000, to_ms * 1_000, to_ms]
        rows = tables.query(_LOGGED, parameters).rows
    return {
        (QuotaType(quota_type), Bucket(user, client_id)): Logged(*figures)
        for quota_type, user, client_id, *figures in rows
    }


def _fitting(verdicts: Sequence[Verdict], ring: RateConfig) -> tuple[int, float]:
    """The bytes of requests, and how many of them their limits let through by the time of the last request.

    Bytes above the limit wait, and the limit drains them. One window of bytes may be ahead of the limit, as in the
    broker's ring.
    """
    total, waiting, last_ms, window_s = 0, 0.0, 0, (ring.num_samples - 1) * ring.window_ms / 1_000
    ahead = 0.0
    for point, governing, *_ in verdicts:
        limit = governing.limit_per_s
        total += point.amount
        if limit is None:
            waiting = ahead = 0.0
        else:
            waiting = max(0.0, waiting - limit * (point.record_time_ms - last_ms) / 1_000) + point.amount
            ahead = limit * window_s
        last_ms = point.record_time_ms
    return total, total - max(0.0, waiting - ahead)


class _Tally:
    """Sums by bucket over all brokers, from `from_ms` until before `to_ms`."""

    def __init__(self, from_ms: int, to_ms: int) -> None:
        self._from_ms, self._to_ms = from_ms, to_ms
        self._before: dict[tuple[QuotaType, Bucket], Side] = {}
        self._after: dict[tuple[QuotaType, Bucket], Side] = {}
        self._fitting: dict[tuple[QuotaType, Bucket], tuple[int, float]] = {}
        self.requests = 0

    def add(
        self, before: Mapping[BrokerBucket, Judged], after: Mapping[BrokerBucket, Judged], ring: RateConfig
    ) -> None:
        """Add the buckets of one broker and type, with the broker's ring."""
        inferred = {
            verdict.point: verdict.governing.limit_per_s
            for judged in before.values()
            for verdict in judged.verdicts
            if verdict.outcome is Outcome.INFERRED
        }
        for (_, quota_type, bucket), judged in before.items():
            self.requests += self._add(self._before, (quota_type, bucket), judged.verdicts, {})
        for (_, quota_type, bucket), judged in after.items():
            key = quota_type, bucket
            self._add(self._after, key, judged.verdicts, inferred)
            inside = [each for each in judged.verdicts if each.point.record_time_ms >= self._from_ms]
            total, fitting = self._fitting.get(key, (0, 0.0))
            more, more_fitting = _fitting(inside, ring)
            self._fitting[key] = total + more, fitting + more_fitting

    def _add(
        self,
        sides: dict[tuple[QuotaType, Bucket], Side],
        key: tuple[QuotaType, Bucket],
        verdicts: Sequence[Verdict],
        inferred: Mapping[Point, float | None],
    ) -> int:
        inside = [verdict for verdict in verdicts if verdict.point.record_time_ms >= self._from_ms]
        if not inside:
            return 0
        side = sides.get(key, Side(None))
        known = [verdict for verdict in inside if not _is_unknown(verdict, inferred)]
        throttled = [verdict for verdict in known if verdict.throttle_ms > 0]
        sides[key] = replace(
            side,
            limit_per_s=inside[-1].governing.limit_per_s,
            requests=side.requests + len(inside),
            throttled_requests=side.throttled_requests + len(throttled),
            throttled_ms=side.throttled_ms + sum(verdict.throttle_ms for verdict in throttled),
            muted=tuple(harm.joined([*side.muted, *map(self._muted, throttled)])),
            unknown=side.unknown + len(inside) - len(known),
        )
        return len(inside)

    def _muted(self, verdict: Verdict) -> harm.Span:
        """The seconds of a throttle, up to the end of the period."""
        span = harm.muted(verdict.point.record_time_ms // 1_000, verdict.throttle_ms)
        return span._replace(end_s=min(span.end_s, -(-self._to_ms // 1_000)))

    def differences(self, logged: Mapping[tuple[QuotaType, Bucket], Logged]) -> list[Difference]:
        """The differences of all buckets: those that change first, with the largest change of throttled time first.

        Args:
            logged: the brokers' figures by bucket.
        """
        found = [
            Difference(*key, before, after, logged.get(key) if before else None, self._percent(key))
            for key in {**self._before, **self._after}
            for before, after in [(self._before.get(key), self._after.get(key))]
        ]
        return sorted(
            found,
            key=lambda each: (not each.is_changed, -abs(each.more_ms), -sum(each.throttled_ms), each.quota_type.value,
                              each.bucket.user, each.bucket.client_id),
        )  # fmt: skip

    def _percent(self, key: tuple[QuotaType, Bucket]) -> float | None:
        total, fitting = self._fitting.get(key, (0, 0.0))
        return 100 * fitting / total if total else None


def _is_unknown(verdict: Verdict, inferred: Mapping[Point, float | None]) -> bool:
    """Whether a throttled fetch has another limit than the one that throttled it; never if `inferred` is empty."""
    limit = verdict.governing.limit_per_s
    return (
        limit is not None
        and verdict.outcome is Outcome.INFERRED
        and inferred.get(verdict.point, limit) != limit
    )


def _limits(of_bucket: Sequence[Stretch]) -> list[tuple[object, ...]]:
    """All inputs that the throttles of a bucket depend on."""
    return [
        (each.second_ms, each.governing.limit_per_s, each.governing.has_request_quota, each.points)
        for each in of_bucket
    ]
