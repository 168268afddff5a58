"""The effect of other quotas on past traffic: a period of `usage`, judged under the past quotas and under others.

Two answers, from the same requests:

* Open loop: the requests keep their times. Under lower limits throttled clients would have sent later, so the total
  delay is too high. Under higher limits they would have sent more, so it is too low.
* Closed loop: a throttle moves the later requests of its connection (`model.loops.closed_loop`).

A throttled fetch came back empty, so its verdict under another limit is unknown in the open loop, and counted as such.

The loops cover quotas of bandwidth and of thread time. Controller mutations have the open loop only: the tables do not
show when a client asks again for a refused topic. Connections per ip have none: the request log does not show the
connections that a broker refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kquota_spark.config.settings import Settings
from kquota_spark.model.compare.tried_brokers import TriedBrokers
from kquota_spark.model.govern.govern import Governor
from kquota_spark.model.loops.tried import Closed, Key
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.reports.clients.judged_groups import Figures, Flips, JudgedGroup, Period, Side, summed
from kquota_spark.reports.clients.judging_processes import judged_groups
from kquota_spark.reports.clients.linked_clients import Linked, identities, linked_clients, with_buckets
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
  where cluster_id = ? and {FROM_LOG} and bucket_tags is null
    and decisions.second >= make_timestamptz(?::bigint) and decisions.second < make_timestamptz(?::bigint)
), {harm.time_throttled(_KEY, "found")}, sums as (
  select {_KEY}, sum(requests)::bigint as requests, sum(delay_ms)::bigint as delay_ms
  from found group by all having bool_or(is_logged)
)
select {_KEY}, requests, delay_ms, coalesce(time_throttled_s, 0) from sums left join of_time using ({_KEY})
"""  # noqa: S608 - names of ours
WARM_UP_MS = 130_000
"""Usage (ms) that is read before the period, to fill the longest common window (61 samples of 2 s)."""


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
    closed: Closed | None = None
    """The bucket in the closed loop; None for controller mutations, and without such a bucket."""
    amount: int = 0
    """Recorded bytes, or microseconds of threads, in the period."""
    flips: Flips = field(default_factory=Flips)
    """Requests with another verdict; counted for other brokers."""

    @property
    def is_changed(self) -> bool:
        """Whether the two sides differ, in the open or in the closed loop."""
        return self.before != self.after or self._is_moved

    @property
    def _is_moved(self) -> bool:
        before, closed = self.before, self.closed
        return (
            before is not None
            and closed is not None
            and (before.throttled_requests, before.throttled_ms, before.throttled_seconds, 0)
            != (closed.throttled_requests, closed.throttled_ms, closed.throttled_seconds, closed.deferred)
        )

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
    left_out: frozenset[Key] = frozenset()
    """The buckets that were not judged, because they have too many requests; their figures lack something."""


def what_if(
    settings: Settings,
    before: Governor,
    after: Governor,
    from_ms: int,
    to_ms: int,
    *,
    wanted: Mapping[Key, Sequence[tuple[int, int]]] | None = None,
    most_requests: int | None = None,
    brokers: TriedBrokers | None = None,
    settle_ms: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> WhatIf:
    """Judge a period of the tables' usage under the past quotas and under others.

    Args:
        settings: where the tables are, and the cluster.
        before: the past quotas.
        after: the other quotas.
        from_ms: first second, epoch ms; usage shortly before it fills the windows.
        to_ms: end, epoch ms, exclusive.
        wanted: the periods to read (epoch ms) by bucket, each with what fills its windows. All clients that share a
            bucket with those of a wanted bucket are read too, so its figures are those of the whole traffic. None
            for all buckets, in the whole period.
        most_requests: maximum number of requests to judge, None for no limit. The smallest groups of clients that share
            buckets come first; the buckets of the others are `left_out`.
        brokers: those under the other quotas, for which flips are counted; None for the recorded ones.
        settle_ms: time before the period that the closed loop runs under the other quotas too, without counting, ms.
        progress: takes the number of requests that are about to be judged.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    whole = from_ms - WARM_UP_MS, to_ms
    seen = identities(settings, *whole)
    linked = linked_clients(seen, (before, after), whole)
    if wanted is not None:
        linked = with_buckets(linked, wanted)
    progress(sum(one.requests for one in linked))
    period = Period(from_ms, to_ms, settle_ms)
    judged = judged_groups(settings, (before, after), linked, period, most_requests, brokers)
    figures, left_out = _of_buckets(judged, linked, wanted or {})
    requests = sum(each.requests for each in judged.values() if each is not None)
    clients = {(one.quota_type, *one.client) for one in seen if one.last_ms >= from_ms}
    found = _differences(figures, _logged(settings, from_ms, to_ms))
    return WhatIf(from_ms, to_ms, requests, found, frozenset(clients), frozenset(left_out))


def _of_buckets(
    judged: Mapping[int, JudgedGroup | None], linked: Sequence[Linked], wanted: Mapping[Key, object]
) -> tuple[dict[Key, Figures], set[Key]]:
    """The figures of all brokers by bucket, and the buckets of groups that were not judged."""
    figures: dict[Key, Figures] = {}
    left_out: set[Key] = set()
    for place, of_group in judged.items():
        if of_group is None:
            left_out |= linked[place].buckets or wanted.keys()
            continue
        for key, of_key in of_group.figures.items():
            figures[key] = summed(figures[key], of_key) if key in figures else of_key
    return figures, left_out


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


def _difference(key: Key, of_key: Figures, logged: Logged | None) -> Difference:
    percent = 100 * of_key.fitting / of_key.amount if of_key.fitting is not None and of_key.amount else None
    return Difference(
        *key, of_key.before, of_key.after, logged if of_key.before else None, percent, of_key.closed,
        of_key.amount, of_key.flips,
    )  # fmt: skip


def _differences(
    figures: Mapping[Key, Figures], logged: Mapping[tuple[QuotaType, Bucket], Logged]
) -> list[Difference]:
    """The differences of all buckets: those that change first, with the largest change of throttled time first.

    Types other than bandwidth are left out where neither side has a limit.

    Args:
        figures: of all brokers, by bucket.
        logged: the brokers' figures by bucket.
    """
    found = [
        _difference(key, of_key, logged.get(key))
        for key, of_key in figures.items()
        if key[0] in BANDWIDTH
        or any(side and side.limit_per_s is not None for side in (of_key.before, of_key.after))
    ]
    return sorted(
        found,
        key=lambda each: (not each.is_changed, -abs(each.more_ms), -sum(each.throttled_ms), each.quota_type.value,
                          each.bucket.user, each.bucket.client_id),
    )  # fmt: skip
