"""The effect of the shadow quotas: which buckets they would throttle or free, with the delay before and after.

`shadow_decisions` has only seconds that differ. So the delay under the shadow quotas is that of `decisions`, plus the
differences. Both are by replay at the recorded times. Clients that wait for a throttle send later than recorded, so
under a lower limit the true delay is lower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.reports.scope.period import Period
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.schema.shadow_tables import SHADOW_DECISIONS
from kquota_spark.store.reading import Tables

if TYPE_CHECKING:
    from kquota_spark.pipeline.shadow.rules import ShadowPin

_KEY = "quota_type, bucket_user, bucket_client_id, coalesce(bucket_tags, '')"
_DURING = "cluster_id = $1 and {0} >= make_timestamptz($2::bigint) and {0} < make_timestamptz($3::bigint)"
_OF_DECISIONS, _OF_SHADOW = _DURING.format("decisions.second"), _DURING.format("shadow_decisions.second")
_VERSIONS = f"""
select shadow, shadow_version, epoch_ms(min(shadow_decisions.second)) as first_ms
from shadow_decisions where {_OF_SHADOW} group by all order by max(shadow_decisions.second) desc, first_ms desc
"""  # noqa: S608 - conditions of ours
_EFFECT = f"""
with shadowed as materialized (
  select quota_type, bucket_user, bucket_client_id, coalesce(bucket_tags, '') as bucket_tags,
         arg_max_null(limit_per_s, shadow_decisions.second) filter (requests > 0) as limit_after_per_s,
         arg_max_null(rule, shadow_decisions.second) filter (requests > 0) as rule_after,
         bool_or(requests > 0) as has_bucket,
         sum(total_throttle_ms - enforced_total_throttle_ms)::bigint as more_ms,
         sum(throttled_requests - enforced_throttled_requests)::bigint as more_requests,
         count(*) filter (is_near) as near_seconds,
         sum(unknown_requests)::bigint as unknown_requests, epoch_ms(max(shadow_decisions.second)) as last_ms
  from shadow_decisions where {_OF_SHADOW} and shadow_version = $4 and is_warm group by all
), decided as materialized (
  select quota_type, bucket_user, bucket_client_id, coalesce(bucket_tags, '') as bucket_tags,
         arg_max_null(limit_per_s, decisions.second) filter (requests > 0) as limit_per_s,
         arg_max_null(rule, decisions.second) filter (requests > 0) as rule,
         sum(observed_total_throttle_ms)::bigint as delay_ms,
         sum(total_throttle_ms)::bigint as delay_by_replay_ms,
         sum(throttled_requests)::bigint as throttled_requests_by_replay
  from decisions where {_OF_DECISIONS} and {FROM_LOG}
    and ({_KEY}) in (select (quota_type, bucket_user, bucket_client_id, bucket_tags) from shadowed)
  group by all
)
select shadowed.*, limit_per_s, rule, delay_ms, coalesce(delay_by_replay_ms, 0) as delay_by_replay_ms,
       coalesce(throttled_requests_by_replay, 0) as throttled_requests_by_replay
from shadowed left join decided using (quota_type, bucket_user, bucket_client_id, bucket_tags)
order by abs(more_ms) desc, quota_type, bucket_user, bucket_client_id, bucket_tags
"""  # noqa: S608 - conditions of ours


class Effect(Enum):
    """What the shadow quotas do to a bucket."""

    THROTTLED = "throttled"
    """It is not throttled now, and would be."""
    FREED = "freed"
    """It is throttled now, and would not be."""
    MORE = "more"
    LESS = "less"
    OPEN = "open"
    """Only near seconds, or requests without a verdict."""


@dataclass(frozen=True, slots=True)
class ShadowBucket:
    """One bucket over all brokers, in force and under the shadow quotas; delays are sums in ms."""

    quota_type: str
    user: str
    client_id: str
    tags: str
    limit_per_s: float | None
    """The last limit in force; None for no limit, or no bucket."""
    rule: str | None
    limit_after_per_s: float | None
    rule_after: str | None
    has_bucket: bool
    """Whether the shadow quotas make this bucket."""
    delay_ms: int | None
    """By brokers; None if the enforced quotas do not make the bucket."""
    delay_by_replay_ms: int
    delay_by_replay_after_ms: int
    """Under the shadow quotas, by replay."""
    throttled_requests_by_replay: int
    throttled_requests_by_replay_after: int
    near_seconds: int
    """Seconds in which a clock error of 2 ms could flip a verdict under the shadow quotas."""
    unknown_requests: int
    """Requests without a verdict under the shadow quotas."""

    @property
    def is_lower(self) -> bool:
        """Whether the shadow limit is lower than the one in force, or the only one: then the delay is at most this."""
        after = self.limit_after_per_s
        return after is not None and (self.limit_per_s is None or after < self.limit_per_s)

    @property
    def effect(self) -> Effect:
        """What the shadow quotas do to it."""
        if self.delay_by_replay_after_ms == self.delay_by_replay_ms:
            return Effect.OPEN
        if not self.delay_by_replay_ms:
            return Effect.THROTTLED
        if not self.delay_by_replay_after_ms:
            return Effect.FREED
        return Effect.MORE if self.delay_by_replay_after_ms > self.delay_by_replay_ms else Effect.LESS


@dataclass(frozen=True, slots=True)
class ShadowEffect:
    """The effect of one version of the shadow quotas in a period, the largest difference first."""

    name: str
    version: str
    covered: Period
    """The part of the period in which the version was judged."""
    buckets: Sequence[ShadowBucket] = ()

    def count(self, effect: Effect) -> int:
        """How many buckets have an effect."""
        return sum(one.effect is effect for one in self.buckets)

    @property
    def delay_ms(self) -> tuple[int, int]:
        """Total delay of the buckets before and after, by replay (ms)."""
        return (
            sum(one.delay_by_replay_ms for one in self.buckets),
            sum(one.delay_by_replay_after_ms for one in self.buckets),
        )


def shadow_effect(tables: Tables, settings: Settings, period: Period) -> ShadowEffect | None:
    """The effect of the newest version of the shadow quotas in a period; None if no shadow was judged in it.

    Args:
        tables: with `decisions` opened from the start of the period.
        settings: the cluster, and where the checkpoint is.
        period: the period; a version that began inside counts from its start.

    Raises:
        UserError: a table cannot be read.
    """
    tables.open_if_there(SHADOW_DECISIONS.name, period.from_ms)
    during = [settings.cluster_id, period.from_ms * 1_000, period.to_ms * 1_000]
    versions = tables.query(_VERSIONS, during).rows
    pin = _in_force(settings)
    if pin is not None:
        name, version, from_ms = pin
    elif (
        versions
    ):  # a copy of the tables: an older version in the period shows when the newest one began at the latest
        name, version, first_ms = versions[0]
        from_ms = first_ms if len(versions) > 1 else period.from_ms
    else:
        return None
    covered = Period(min(max(period.from_ms, from_ms), period.to_ms), period.to_ms)
    during = [settings.cluster_id, covered.from_ms * 1_000, covered.to_ms * 1_000]
    rows = tables.query(_EFFECT, [*during, version]).dicts()
    return ShadowEffect(name, version, covered, [_bucket(row) for row in rows])


def _in_force(settings: Settings) -> ShadowPin | None:
    """The version of the newest micro-batch; None without a checkpoint that can be read here."""
    from kquota_spark.checkpoints.noted_pins import shadow_in_force  # loads deltalake

    try:
        return shadow_in_force(settings)
    except (OSError, UserError):
        return None


def _bucket(row: Mapping[str, Any]) -> ShadowBucket:
    return ShadowBucket(
        quota_type=row["quota_type"],
        user=row["bucket_user"],
        client_id=row["bucket_client_id"],
        tags=row["bucket_tags"],
        limit_per_s=row["limit_per_s"],
        rule=row["rule"],
        limit_after_per_s=row["limit_after_per_s"],
        rule_after=row["rule_after"],
        has_bucket=row["has_bucket"],
        delay_ms=row["delay_ms"],
        delay_by_replay_ms=row["delay_by_replay_ms"],
        delay_by_replay_after_ms=row["delay_by_replay_ms"] + row["more_ms"],
        throttled_requests_by_replay=row["throttled_requests_by_replay"],
        throttled_requests_by_replay_after=row["throttled_requests_by_replay"] + row["more_requests"],
        near_seconds=row["near_seconds"],
        unknown_requests=row["unknown_requests"],
    )
