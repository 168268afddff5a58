"""The recorded requests of throttled buckets under other limits: the figures of `kquota whatif`, for the report.

A replay reads the requests of at most 20 buckets, and of each the newest 50,000 at most. It also reads no more of the
table than the newest seconds with two million requests. So the report of a large table does not become slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kquota_spark.config.governor import rate_config, static_defaults
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.govern.traffic import Traffic, governed_seconds_of
from kquota_spark.model.measure.points import UNSIZED_KINDS, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import BANDWIDTH
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.quotas.rules import with_values
from kquota_spark.model.replay.decision import GovernedSecond
from kquota_spark.model.replay.least_limit import Measure, least_limit, measured, throttled_under
from kquota_spark.quotas.sources import from_tables
from kquota_spark.reports.advice.raise_reasons import Case
from kquota_spark.reports.clients.stored_usage import UsagePart, stored_rings, stored_usage
from kquota_spark.reports.clients.what_if import WARM_UP_MS
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.schema.key_columns import FROM_LOG

MOST_BUCKETS = 20
"""Maximum number of buckets of which requests are replayed."""
MOST_REQUESTS = 50_000
"""Maximum number of requests of one bucket that are replayed, the newest ones."""
MOST_READ = 2_000_000
"""Maximum number of requests of all clients in the seconds that are read."""
_UNKNOWN = frozenset(
    map(int, (PointKind.THROTTLED_FETCH, PointKind.THROTTLED_SHARE_FETCH, *UNSIZED_KINDS)),
)
_MINUTE_MS = 60_000
_IN_TIME = f"""cluster_id = ? and {FROM_LOG} and usage.second >= make_timestamptz(?::bigint)
  and usage.second < make_timestamptz(?::bigint)"""
_MINUTES = f"""
with minutes as (
  select epoch_ms(usage.second) // {_MINUTE_MS} * {_MINUTE_MS} as minute_ms, sum(requests) as requests from usage
  where quota_type in ('produce', 'fetch') and {_IN_TIME} group by all
), added as (
  select minute_ms, sum(requests) over (order by minute_ms desc) as requests from minutes
)
select max(minute_ms) + {_MINUTE_MS} as from_ms from added where requests > {MOST_READ}
"""  # noqa: S608 - names of ours
_SECONDS = f"""
with wanted as (select unnest(?, recursive := true)), seconds as (
  select wanted.number, epoch_ms(usage.second) as second_ms, sum(requests) as requests
  from usage join wanted on usage.quota_type = wanted.quota_type
    and (wanted.name = '' or usage."user" = wanted.name) and (wanted.id = '' or usage.client_id = wanted.id)
  where {_IN_TIME} group by all
), added as (
  select number, second_ms, sum(requests) over (partition by number order by second_ms desc) as requests from seconds
)
select number, max(second_ms) filter (requests > {MOST_REQUESTS}) + 1000 as from_ms from added group by all
"""  # noqa: S608 - names of ours


@dataclass(frozen=True, slots=True)
class Replayed:
    """The recorded requests of one bucket on all brokers, measured by the replay. Times are epoch ms."""

    from_ms: int
    to_ms: int
    measures: Sequence[Measure]
    unknown: int
    """Requests without a size in the log, such as throttled fetches: no limit is known to be enough for them."""

    @property
    def least_per_s(self) -> int | None:
        """The least limit without a throttle, bytes per second; None if it is not known."""
        return None if self.unknown else least_limit(self.measures)

    def throttled_requests(self, limit_per_s: float) -> int:
        """Requests with a throttle under a limit."""
        return len(throttled_under(self.measures, limit_per_s))


def replayed(settings: Settings, scope: Scope, cases: Sequence[Case]) -> dict[BucketName, Replayed]:
    """The replays of the first buckets; a bucket without recorded requests, or with too many, is left out.

    A callback's limits are not replayed. Nothing is returned without the table `quota_rules`.

    Args:
        settings: where the tables are, and the rings of brokers.
        scope: the report's tables and period.
        cases: the buckets in order, with their quotas.
    """
    chosen = [case for case in cases if case.one.bucket.quota_type in BANDWIDTH][:MOST_BUCKETS]
    if not chosen or settings.quotas.callback:
        return {}
    try:
        book, defaults = from_tables(settings).book, static_defaults(settings)
        rings = stored_rings(settings)
        parts = _parts(scope, chosen)
        if not parts:
            return {}
        from_ms = min(part.from_ms for _, part in parts)
        traffic = list(stored_usage(settings, from_ms, scope.asked.to_ms, parts=[part for _, part in parts]))
    except UserError:
        return {}
    found = {}
    for case, part in parts:
        bucket = case.one.bucket
        governor = RuleGovernor(with_values(book, {case.quota.entity: {case.quota.key: 1.0}}), defaults)
        governed_seconds = governed_seconds_of((row for row in traffic if _is_in(row, part)), governor)
        is_cut = part.from_ms > scope.asked.from_ms - WARM_UP_MS
        counted_ms = part.from_ms + WARM_UP_MS if is_cut else scope.asked.from_ms
        of_bucket = {
            key[0]: of_broker
            for key, of_broker in governed_seconds.items()
            if key[1:] == (part.quota_type, Bucket(bucket.user, bucket.client_id))
        }
        replay = _replay(of_bucket, rings, rate_config(settings), counted_ms, scope.asked.to_ms)
        if replay.measures:
            found[bucket] = replay
    return found


def _parts(scope: Scope, chosen: Sequence[Case]) -> list[tuple[Case, UsagePart]]:
    """The newest part of each bucket's usage that is within the bounds, with the warm-up."""
    begin_ms, end_us = scope.asked.from_ms - WARM_UP_MS, scope.asked.to_ms * 1_000
    [newest] = scope.rows(_MINUTES, scope.cluster_id, begin_ms * 1_000, end_us)
    begin_ms = max(begin_ms, newest["from_ms"] or 0)
    buckets = [
        {
            "number": number,
            "quota_type": case.one.bucket.quota_type,
            "name": case.one.bucket.user,
            "id": case.one.bucket.client_id,
        }
        for number, case in enumerate(chosen)
    ]
    rows = scope.rows(_SECONDS, buckets, scope.cluster_id, begin_ms * 1_000, end_us)
    found = []
    for row in sorted(rows, key=lambda row: row["number"]):
        case = chosen[row["number"]]
        bucket, from_ms = case.one.bucket, max(begin_ms, row["from_ms"] or 0)
        part = UsagePart(bucket.quota_type, bucket.user, bucket.client_id, from_ms)
        found.append((case, part))
    return found


def _is_in(row: Traffic, part: UsagePart) -> bool:
    return (
        row.quota_type.value == part.quota_type
        and row.second_ms >= part.from_ms
        and part.user in ("", row.principal.name)
        and part.client_id in ("", row.client_id)
    )


def _replay(
    of_bucket: Mapping[int, Sequence[GovernedSecond]],
    rings: Mapping[int, RateConfig],
    default: RateConfig,
    from_ms: int,
    to_ms: int,
) -> Replayed:
    """The measures of one bucket on all brokers; `from_ms` is the end of the warm-up."""
    measures: list[Measure] = []
    unknown = 0
    for broker_id, of_broker in sorted(of_bucket.items()):
        points = [point for each in of_broker for point in each.points]
        measures += measured(broker_id, points, rings.get(broker_id, default), from_ms)
        unknown += sum(point.kind in _UNKNOWN and point.record_time_ms >= from_ms for point in points)
    return Replayed(from_ms, to_ms, measures, unknown)
