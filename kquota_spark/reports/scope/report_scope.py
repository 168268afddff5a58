"""The data that all parts of the report read: one cluster, one period, and for a tenant only the tenant's own data.

This module opens the tables and creates views over them: `judged` over decisions and `used` over usage. `slots` is the
one pass over all decisions, with one row per bucket, broker and slot of time. `places` adds the slots up. Rows from the
log count. Rows from JMX count only if the broker's log has no rows of that quota type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.scope.timeline_slots import SLOT_LENGTHS_S
from kquota_spark.schema import harm
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables, utc_text

_Found = TypeVar("_Found")

BUCKET = "quota_type, bucket_user, bucket_client_id, bucket_tags"
"""Columns of a `BucketName`, tags never null."""
MOST_SLOTS = 96
_TABLES_IF_THERE = (
    "violations", "quota_rules", "quota_changes", "enforcement_log", "log_gaps", "broker_configs",
)  # fmt: skip
_BEFORE_MS = 600_000
"""Time before the period that is read as well (ms): with rows in it, the tables cover the period from its beginning."""

_VARIABLES = "set variable report_{name} = ?"
_IN_PERIOD = """cluster_id = getvariable('report_cluster')
  and {table}.second >= make_timestamptz(getvariable('report_from_us')::bigint)
  and {table}.second < make_timestamptz(getvariable('report_to_us')::bigint)"""
_IN_LOG = (
    "create temp table in_log_{table} as select distinct broker_id, quota_type from {table} where {where}"
)
_ONE_SOURCE = f"{FROM_LOG} or (broker_id, quota_type) not in (from in_log_{{table}})"
_MOST_NAMES = 20
"""Maximum number of users in a decision; a client id's bucket with so many names may contain others."""
# A bucket with another user's tag is not the tenant's.
_MINE = f"""
create temp table mine as
with found as (
  select {BUCKET.replace("bucket_tags", "coalesce(bucket_tags, '') as bucket_tags")}, users
  from decisions where {{where}} and bucket_user in ('', getvariable('report_tenant'))
), own as materialized (
  select {BUCKET} from found group by {BUCKET}
  having bool_or(bucket_user <> '') or bool_or(coalesce(list_contains(users, getvariable('report_tenant')), false))
    or bool_or(len(users) >= {_MOST_NAMES}) and bucket_client_id in (
      select client_id from usage where {{where_used}} and "user" = getvariable('report_tenant'))
), names as (
  select distinct {BUCKET}, unnest(users) as name from (
    select distinct {BUCKET}, users from found where ({BUCKET}) in (from own)
  )
)
select {BUCKET}, count(name) filter (name <> getvariable('report_tenant')) as shared_with
from own left join names using ({BUCKET}) group by all
"""  # noqa: S608 - names of ours
# Late requests of a second are a row without a verdict, beside the row that was judged before.
_JUDGED = f"""
create temp view judged as
select * exclude (bucket_tags), coalesce(bucket_tags, '') as bucket_tags, epoch_ms(decisions.second) as second_ms,
       {FROM_LOG} as is_log, {harm.IS_THROTTLED} as is_throttled, {harm.DELAY_MS} as delay_ms,
       {harm.THROTTLED_REQUESTS} as delayed_requests, {harm.LONGEST_THROTTLE_MS} as longest_ms,
       {harm.HAS_VERDICT} as has_verdict
from decisions where {{where}} and ({{one_source}}) and {{of_tenant}}
"""  # noqa: S608 - names of ours
_OWN_BUCKET = """(quota_type, bucket_user, bucket_client_id, coalesce(bucket_tags, '')) in (
  select (quota_type, bucket_user, bucket_client_id, bucket_tags) from mine where shared_with = 0)"""
_USED = f"""
create temp view used as
select *, epoch_ms(usage.second) as second_ms, {FROM_LOG} as is_log
from usage where {{where}} and ({{one_source}}) and {{of_tenant}}
"""  # noqa: S608 - names of ours
# A second that a broker throttled was above the limit, whatever the replay is certain of.
_IS_SURE = "(is_certain or not is_log or coalesce(observed_throttled_requests > 0, false))"
_SLOTS = f"""
create temp table slots as
select broker_id, {BUCKET}, second_ms // ? * ? as slot_ms, count(*) filter (has_verdict) as seconds,
  count(*) filter (not has_verdict) as late_rows, bool_or(is_log) as is_log,
  max(rate_per_s) as peak_rate_per_s,
  coalesce(arg_max({_IS_SURE}, rate_per_s), true) as is_peak_certain,
  sum(rate_per_s) filter (has_verdict) as rates,
  max(quota_used_percent) as quota_used_percent,
  max(quota_used_percent) filter ({_IS_SURE}) as certain_used_percent,
  min(limit_per_s) as least_limit_per_s,
  max(limit_per_s) as most_limit_per_s, arg_max_null(limit_per_s, second_ms) filter (has_verdict) as limit_per_s,
  arg_max_null(rule, second_ms) filter (has_verdict) as rule, max(second_ms) as last_ms,
  count(*) filter (is_throttled) as throttled_rows,
  count(*) filter (is_throttled or observed_throttle_ms > 0) as rows_with_throttle,
  coalesce(sum(delay_ms), 0)::bigint as delay_ms,
  sum(delayed_requests)::bigint as throttled_requests,
  coalesce(sum(requests_judged), 0)::bigint as judged, coalesce(sum(requests_agreeing), 0)::bigint as agreeing,
  coalesce(sum(uncertain), 0)::bigint as uncertain, coalesce(sum(late), 0)::bigint as late,
  count(*) filter (is_certain) as certain_seconds, count(*) filter (is_rules_behind) as behind_seconds,
  coalesce(sum(unsized_requests), 0)::bigint as unsized,
  {harm.CERTAIN_REPLAY_MS} as certain_replay_ms, {harm.CERTAIN_BROKER_MS} as certain_broker_ms
from judged group by all
"""  # noqa: S608 - names of ours
_PLACES = f"""
create temp table places as
select broker_id, {BUCKET}, sum(seconds)::bigint as seconds, sum(late_rows)::bigint as late_rows,
  bool_or(is_log) as is_log, max(peak_rate_per_s) as peak_rate_per_s,
  sum(rates) / nullif(sum(seconds), 0) as mean_rate_per_s, max(quota_used_percent) as quota_used_percent,
  max(certain_used_percent) as certain_used_percent, min(least_limit_per_s) as least_limit_per_s,
  max(most_limit_per_s) as most_limit_per_s,
  arg_max_null(limit_per_s, last_ms) filter (seconds > 0) as limit_per_s,
  arg_max_null(rule, last_ms) filter (seconds > 0) as rule, max(last_ms) as last_ms,
  sum(throttled_rows)::bigint as throttled_rows, sum(rows_with_throttle)::bigint as rows_with_throttle,
  sum(delay_ms)::bigint as delay_ms, sum(throttled_requests)::bigint as throttled_requests,
  sum(judged)::bigint as judged, sum(agreeing)::bigint as agreeing, sum(uncertain)::bigint as uncertain,
  sum(late)::bigint as late, sum(certain_seconds)::bigint as certain_seconds,
  sum(behind_seconds)::bigint as behind_seconds,
  sum(unsized)::bigint as unsized, sum(certain_replay_ms)::bigint as certain_replay_ms,
  sum(certain_broker_ms)::bigint as certain_broker_ms
from slots group by all
"""  # noqa: S608 - names of ours
_EXTENT = """
select epoch_ms(min({table}.second)) as first_ms, epoch_ms(max({table}.second)) as last_ms from {table} where {where}
"""
_OF_CLUSTER = """
select coalesce(bool_or(usage.second < make_timestamptz(?)), false),
       epoch_ms(max(usage.second)) from usage where cluster_id = ?
"""
_IS_LIMITED = f"""
select exists(
  select 1 from rules where cluster_id = ?
    and coalesce(valid_from < make_timestamptz(?), true) and coalesce(valid_to > make_timestamptz(?), true)
    and coalesce({", ".join((*QuotaKey, *IpQuotaKey))}) is not null
) or exists(select 1 from places where least_limit_per_s is not null)
"""  # noqa: S608 - keys of Kafka
_CLUSTERS = """
select distinct cluster_id from usage where cluster_id <> ? and usage.second >= make_timestamptz(?)
  and usage.second < make_timestamptz(?) order by 1
"""


@dataclass(frozen=True, slots=True)
class Scope:
    """Opened tables with the views, and the part of the period that has data. Times are epoch ms."""

    tables: Tables
    settings: Settings
    asked: Period
    covered: Period
    """The part of it that the tables cover: from the first to the last second of any client."""
    slot_ms: int
    tenant: str | None
    top: int
    """Maximum rows of a list."""
    heat_rows: int = 40
    """Maximum buckets of a heat map."""
    _found: dict[Callable[[Scope], Any], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def cluster_id(self) -> str:
        """The cluster of the report."""
        return self.settings.cluster_id

    @property
    def covered_seconds(self) -> int:
        """Length of the covered period; a part of a second counts as one."""
        return -(-(self.covered.to_ms - self.covered.from_ms) // 1_000)

    @property
    def covered_percent(self) -> float:
        """The covered period as percent of the requested one."""
        return 100 * self.covered_seconds * 1_000 / (self.asked.to_ms - self.asked.from_ms)

    @property
    def slots(self) -> tuple[int, ...]:
        """Starts of the slots that the covered period touches."""
        return tuple(slots_of(self.covered, self.slot_ms))

    def once(self, ask: Callable[[Scope], _Found]) -> _Found:
        """The answer of a function, which is asked once, however many sections need it."""
        if ask not in self._found:
            self._found[ask] = ask(self)
        found: _Found = self._found[ask]
        return found

    def rows(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        """The rows of a query, as dictionaries."""
        return self.tables.query(sql, parameters).dicts()


def open_scope(
    tables: Tables, settings: Settings, asked: Period, *, tenant: str | None, top: int, heat_rows: int = 40
) -> Scope:
    """Open the tables and create the views that every part needs.

    Args:
        tables: with no table opened yet.
        settings: the cluster.
        asked: the requested period.
        tenant: a user, to see only this user's rows; None for all.
        top: maximum rows of a list.
        heat_rows: maximum buckets of a heat map.

    Raises:
        UserError: the period has no data, or a table is missing or cannot be read.
    """
    for name in ("usage", "decisions"):
        tables.open(name, asked.from_ms - _BEFORE_MS)
    for name in _TABLES_IF_THERE:
        tables.open_if_there(name)
    tables.open_if_there("requests", asked.from_ms - _BEFORE_MS)
    _set(tables, cluster=settings.cluster_id, from_us=asked.from_ms * 1_000, to_us=asked.to_ms * 1_000)
    covered = _covered(tables, settings, asked)
    _make_views(tables, tenant)
    slot_ms = slot_length_ms(covered)
    tables.query(_SLOTS, [slot_ms, slot_ms])
    tables.query(_PLACES)
    return Scope(tables, settings, asked, covered, slot_ms, tenant, top, heat_rows)


def is_without_quotas(scope: Scope) -> bool:
    """Whether no quota is set at all, so that the report contains only usage and first values."""
    during = scope.asked.to_ms * 1_000, scope.asked.from_ms * 1_000
    (is_limited,) = scope.tables.query(_IS_LIMITED, [scope.cluster_id, *during]).rows[0]
    return not is_limited


def bucket_of(row: Mapping[str, Any]) -> BucketName:
    """The bucket of a row with the columns of `BUCKET`."""
    return BucketName(row["quota_type"], row["bucket_user"], row["bucket_client_id"], row["bucket_tags"])


def slot_length_ms(period: Period) -> int:
    """The shortest slot length (ms) with which at most 96 slots, beginning at round times, cover the period."""
    lengths = [1_000 * length_s for length_s in SLOT_LENGTHS_S]
    return next((length for length in lengths if len(slots_of(period, length)) <= MOST_SLOTS), lengths[-1])


def slots_of(period: Period, slot_ms: int) -> range:
    """Starts of the slots that a period touches, epoch ms."""
    return range(period.from_ms // slot_ms * slot_ms, period.to_ms, slot_ms)


def _set(tables: Tables, **values: object) -> None:
    for name, value in values.items():
        tables.query(_VARIABLES.format(name=name), [value])


def _make_views(tables: Tables, tenant: str | None) -> None:
    where = {name: _IN_PERIOD.format(table=name) for name in ("decisions", "usage")}
    for name, of_table in where.items():
        tables.query(_IN_LOG.format(table=name, where=f"{of_table} and {FROM_LOG}"))
    own_bucket = own_client = "true"
    if tenant is not None:
        _set(tables, tenant=tenant)
        tables.query(_MINE.format(where=where["decisions"], where_used=where["usage"]))
        own_bucket, own_client = _OWN_BUCKET, "\"user\" = getvariable('report_tenant')"
    for view, name, of_tenant in ((_JUDGED, "decisions", own_bucket), (_USED, "usage", own_client)):
        tables.query(
            view.format(where=where[name], one_source=_ONE_SOURCE.format(table=name), of_tenant=of_tenant)
        )


def _covered(tables: Tables, settings: Settings, asked: Period) -> Period:
    extents = [
        tables.query(_EXTENT.format(table=name, where=_IN_PERIOD.format(table=name))).rows[0]
        for name in ("decisions", "usage")
    ]
    found = [extent for extent in extents if extent[0] is not None]
    is_older, newest_ms = tables.query(_OF_CLUSTER, [asked.from_ms * 1_000, settings.cluster_id]).rows[0]
    if not found:
        raise UserError(_nothing(tables, settings, asked))
    # Judged seconds count. Usage that is not judged yet is not covered.
    last_ms = found[0][1]
    return Period(
        asked.from_ms if is_older else min(first_ms for first_ms, _ in found),
        asked.to_ms
        if newest_ms is not None and newest_ms >= asked.to_ms
        else min(last_ms + 1_000, asked.to_ms),
    )


def _nothing(tables: Tables, settings: Settings, asked: Period) -> str:
    root, cluster = settings.tables, settings.cluster_id
    period = f"from {utc_text(asked.from_ms)} to {utc_text(asked.to_ms)}"
    newest_ms = tables.newest_ms("usage")
    if newest_ms is None:
        return f"the tables under {root} are empty: has the audit processed anything yet?"
    others = tables.query(_CLUSTERS, [cluster, asked.from_ms * 1_000, asked.to_ms * 1_000]).rows
    if others:
        names = ", ".join(name for (name,) in others)
        return (
            f"the tables under {root} have no traffic of cluster {cluster} {period}, only of {names}: "
            "set cluster_id (--config)"
        )
    hour = f"{_iso_minute(newest_ms - 3_600_000)}..{_iso_minute(newest_ms + 60_000)}"
    return (
        f"no traffic {period}: the newest second in the tables under {root} is {utc_text(newest_ms)}, "
        f"ask for {hour} or another period before it"
    )


def _iso_minute(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M")
