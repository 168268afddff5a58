"""Gather the observations of policies from the tables, with DuckDB: no Spark, no JVM.

Each length of period is one pass over its decisions. One more pass over the last day gets the rates of its seconds.
Rows from JMX are used only if a broker's log has no rows of that type of quota. Buckets of a quota callback are left
out, because only the callback decides their limits. Our own clients are marked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from kquota_spark.config.own_clients import is_own, own_clients
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.log_state import LogState
from kquota_spark.enforce.policies.observations import (
    BrokerUse,
    BucketUse,
    ClientUse,
    InForce,
    Observations,
    Period,
    Place,
    RateSeconds,
)
from kquota_spark.enforce.policies.policy import DAY_MS, Policies, period_of
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.enforcement.right_sizes import DaySizes, raised_buckets
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.quotas.rules import RuleBook, RulePeriod
from kquota_spark.schema.harm import DELAY_MS, HAS_VERDICT, IS_THROTTLED, THROTTLED_REQUESTS
from kquota_spark.schema.key_columns import FROM_LOG, LOG_BEFORE_JMX
from kquota_spark.store.quota_rows import rule_period_of
from kquota_spark.store.reading import Tables

_TYPES = f"({', '.join(repr(one.value) for one in QuotaType)})"
_PLACE = "broker_id, quota_type, bucket_user, bucket_client_id"
_IN_PERIOD = "cluster_id = ? and second >= make_timestamptz(?) and second < make_timestamptz(?)"
_IS_LOG = f"{FROM_LOG} as is_log"
_OF_BUCKETS = f"{_IN_PERIOD} and bucket_tags is null and quota_type in {_TYPES}"
_DECIDED = f"""
select epoch_ms(min(second)) as from_ms, epoch_ms(max(second)) + 1000 as to_ms from decisions where {_IN_PERIOD}
"""  # noqa: S608 - names of ours
_RULES = f"""
select entity, epoch_ms(valid_from) as valid_from, epoch_ms(valid_to) as valid_to, version,
       epoch_ms(certain_from) as certain_from, {", ".join(key.value for key in QuotaKey)}
from rules where cluster_id = ? and level is not null order by entity, valid_from
"""  # noqa: S608 - names of ours
# A second counts by the share of its verdicts that are certain. In a busy bucket at its limit, most seconds have a
# verdict that 2 ms could change. Late requests of a second are a row without a verdict, beside the row that was judged
# before.
_USES = f"""
with judged as (
  select *, {_IS_LOG}, {HAS_VERDICT} as has_verdict,
         case when is_rules_behind is not false then 0.0 when is_certain then 1.0
              when is_log then coalesce(1 - (uncertain + late) / nullif(requests + late, 0)::double, 0.0)
              else 0.0 end as certain_share,
         {IS_THROTTLED} as is_throttled,
         coalesce(observed_throttled_requests > 0, observed_throttle_ms > 0, false) as is_held_back
  from decisions where {_OF_BUCKETS}
)
select {_PLACE},
  arg_max({{'limit': limit_per_s, 'rule': rule}}, second) filter (has_verdict) as newest,
  count(distinct {{'limit': limit_per_s, 'rule': rule}}) filter (has_verdict) as limits,
  count(*) filter (has_verdict) as seconds,
  greatest(0, floor(sum(certain_share) filter (has_verdict)) - count(*) filter (not has_verdict))::bigint
    as certain_seconds,
  count(*) filter (is_throttled) as throttled_seconds,
  count(*) filter (is_held_back) as observed_throttled_seconds,
  sum(amount)::double as amount,
  avg(rate_per_s) filter (has_verdict) as mean_of_seconds,
  max(rate_per_s) filter (has_verdict) as peak_rate_per_s,
  quantile_disc(rate_per_s, 0.95) filter (has_verdict and not is_throttled) as p95_rate_per_s,
  avg(rate_per_s) filter (is_throttled) as throttled_rate_per_s,
  sum(least({DELAY_MS}, {THROTTLED_REQUESTS} * (? - epoch_ms(second))))::bigint as throttle_ms
from judged group by is_log, {_PLACE} having seconds > 0 {LOG_BEFORE_JMX} order by {_PLACE}
"""  # noqa: S608 - names of ours
_EPISODES = f"""
select {_PLACE}, count(*) as episodes, max(peak_quota_used_percent) as peak_used_percent
from violations where cluster_id = ? and bucket_tags is null and quota_type in {_TYPES}
  and coalesce(end_time, last_second) >= make_timestamptz(?) and start_time < make_timestamptz(?)
group by {_PLACE}
"""  # noqa: S608 - names of ours
_RATES = f"""
with digits as (
  select *, {_IS_LOG}, case when rate_per_s > 0 then pow(10, floor(log10(rate_per_s)) - 1) end as step
  from decisions where {_OF_BUCKETS} and {HAS_VERDICT}
), rounded as (
  select {_PLACE}, coalesce(round(rate_per_s / step) * step, 0.0) as about, count(*) as seconds
  from digits group by is_log, {_PLACE}, about {LOG_BEFORE_JMX}
)
select {_PLACE}, about as rate_per_s, seconds from rounded order by all
"""  # noqa: S608 - names of ours
_TENS = f"""
with tens as (
  select {_IS_LOG}, broker_id, quota_type, "user", client_id, epoch_ms(second) // 10000 * 10000 as ten_ms,
         coalesce(sum(amount) / 10.0 / if(quota_type = 'request', 10000, 1), avg(rate_per_s)) as rate_per_s
  from usage where {_IN_PERIOD} and quota_type in {_TYPES}
  group by is_log, broker_id, quota_type, "user", client_id, ten_ms {LOG_BEFORE_JMX}
)
"""  # noqa: S608 - names of ours
_CLIENTS = f"""{_TENS}
select broker_id, quota_type, "user", client_id, coalesce(max(rate_per_s) filter (ten_ms >= ?), 0.0) as peak_rate_per_s
from tens group by all order by all
"""  # noqa: S608 - names of ours
_BROKERS = f"""{_TENS}, of_brokers as (
  select broker_id, quota_type, ten_ms, sum(rate_per_s) as rate_per_s from tens group by all
)
select broker_id, quota_type, quantile_disc(rate_per_s, 0.95) as p95_rate_per_s
from of_brokers group by all order by all
"""  # noqa: S608 - names of ours
_PERCENT_PER_US = 100.0 / 1_000_000


def observations(
    settings: Settings, policies: Policies, now_ms: int, day_sizes: DaySizes | None = None
) -> Observations:
    """The observations in the tables, as of `now_ms`; periods end with the newest decision.

    Args:
        settings: the configuration, with the place of the tables.
        policies: the lengths of their periods are gathered, and a day.
        now_ms: epoch ms.
        day_sizes: right sizes that were read before; None to read them.

    Raises:
        UserError: decisions, usage or quota_rules are missing, or a table cannot be read.
    """
    lengths = sorted({DAY_MS, *(period_of(policy) for policy in policies.policies)})
    longest_ms = lengths[-1]
    with Tables(settings) as tables:
        for name in ("decisions", "usage"):
            tables.open(name, now_ms - longest_ms - DAY_MS)
        tables.open("quota_rules")
        tables.open_if_there("violations")
        found = _Gathered(tables, settings.cluster_id)
        [decided] = found.rows(_DECIDED, now_ms - longest_ms - DAY_MS, now_ms)
        to_ms = now_ms if decided["to_ms"] is None else decided["to_ms"]
        rules = tables.query(_RULES, [settings.cluster_id]).dicts()
        rows = found.rows(_CLIENTS, to_ms - longest_ms, to_ms, to_ms - DAY_MS)
        clients, is_ours = _with_ours([ClientUse(**_typed(row)) for row in rows], own_clients(settings))
        periods = {length: found.period(to_ms - length, to_ms, is_ours) for length in lengths}
        raised = raised_buckets(policies, periods)
        return Observations(
            decisions_from_ms=decided["from_ms"],
            periods=periods,
            rates=found.rates(to_ms - DAY_MS, to_ms),
            brokers=broker_uses(tables, settings.cluster_id, to_ms - DAY_MS, to_ms),
            clients=clients,
            quotas=_in_force(RuleBook(map(rule_period_of, rules)), now_ms),
            sizes=(DaySizes() if day_sizes is None else day_sizes).of(settings, raised, to_ms),
            temporary=_temporary(settings),
        )


def broker_uses(tables: Tables, cluster_id: str, from_ms: int, to_ms: int) -> tuple[BrokerUse, ...]:
    """The rate of all clients of each broker in a period, by type.

    Args:
        tables: with `usage` opened.
        cluster_id: the cluster.
        from_ms: first second, epoch ms.
        to_ms: end, epoch ms, exclusive.
    """
    rows = _Gathered(tables, cluster_id).rows(_BROKERS, from_ms, to_ms)
    return tuple(BrokerUse(**_typed(row)) for row in rows)


class _Gathered:
    """Queries of one cluster over periods of time, both ends in epoch ms, the second exclusive."""

    def __init__(self, tables: Tables, cluster_id: str) -> None:
        self._tables = tables
        self._cluster_id = cluster_id

    def rows(self, sql: str, from_ms: int, to_ms: int, *more: object) -> list[dict[str, Any]]:
        """Rows of a query; its first parameters are the cluster and the ends of the period, `more` the others."""
        return self._tables.query(sql, [self._cluster_id, from_ms * 1_000, to_ms * 1_000, *more]).dicts()

    def period(self, from_ms: int, to_ms: int, is_ours: Callable[[Bucket], bool]) -> Period:
        """A period with the buckets that had traffic."""
        episodes = {_place(row): row for row in self.rows(_EPISODES, from_ms, to_ms)}
        uses = (
            _use(row, episodes.get(_place(row), {}), to_ms - from_ms)
            for row in self.rows(_USES, from_ms, to_ms, to_ms)
        )
        marked = tuple(replace(use, is_ours=is_ours(use.place.bucket)) for use in uses)
        return Period(from_ms=from_ms, to_ms=to_ms, buckets=marked)

    def rates(self, from_ms: int, to_ms: int) -> dict[Place, tuple[RateSeconds, ...]]:
        """The number of seconds by rate, for each bucket."""
        found: dict[Place, list[RateSeconds]] = {}
        for row in self.rows(_RATES, from_ms, to_ms):
            found.setdefault(_place(row), []).append(RateSeconds(row["rate_per_s"], row["seconds"]))
        return {place: tuple(rates) for place, rates in found.items()}


def _with_ours(
    clients: Sequence[ClientUse], names: tuple[str, ...]
) -> tuple[tuple[ClientUse, ...], Callable[[Bucket], bool]]:
    """The clients with ours marked, and a check whether a bucket has only ours; `names` is from `own_clients`."""
    found = tuple(replace(client, is_ours=is_own(client.client_id, names)) for client in clients)
    users = {client.user for client in found} - {client.user for client in found if not client.is_ours}

    def is_ours(bucket: Bucket) -> bool:
        return is_own(bucket.client_id, names) if bucket.client_id else bucket.user in users

    return found, is_ours


def _place(row: dict[str, Any]) -> Place:
    bucket = Bucket(row["bucket_user"], row["bucket_client_id"])
    return Place(row["broker_id"], QuotaType(row["quota_type"]), bucket)


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "quota_type": QuotaType(row["quota_type"])}


def _use(row: dict[str, Any], episodes: dict[str, Any], length_ms: int) -> BucketUse:
    place, newest, amount = _place(row), row["newest"], row["amount"]
    unit = _PERCENT_PER_US if place.quota_type is QuotaType.REQUEST else 1.0
    mean = row["mean_of_seconds"] if amount is None else amount * unit / (length_ms / 1_000)
    return BucketUse(
        place=place,
        limit_per_s=newest["limit"],
        rule=_entity(newest["rule"]),
        has_one_limit=row["limits"] == 1,
        seconds=row["seconds"],
        certain_seconds=row["certain_seconds"],
        throttled_seconds=row["throttled_seconds"],
        observed_throttled_seconds=row["observed_throttled_seconds"],
        mean_rate_per_s=mean or 0.0,
        peak_rate_per_s=row["peak_rate_per_s"] or 0.0,
        p95_rate_per_s=row["p95_rate_per_s"] or 0.0,
        throttled_rate_per_s=row["throttled_rate_per_s"] or 0.0,
        throttle_ms=row["throttle_ms"] or 0,
        episodes=episodes.get("episodes", 0),
        peak_used_percent=episodes.get("peak_used_percent") or 0.0,
    )


def _entity(rule: str | None) -> Entity | None:
    """The entity of a rule; None for a static default of the broker, which has another kind of name."""
    try:
        return None if rule is None else Entity.parse(rule)
    except ValueError:
        return None


def _temporary(settings: Settings) -> frozenset[Quota]:
    live = LogState.of(EnforcementLog(settings).entries()).live.items()
    return frozenset(
        quota for quota, steps in live if any(step.proposal.expires_at_ms is not None for step in steps)
    )


def _in_force(book: RuleBook, now_ms: int) -> dict[Quota, InForce]:
    periods = ((entity, book.at(entity, now_ms)) for entity in book)
    return {
        Quota(entity, key): InForce(value, _since_ms(book.of(entity), key, value, now.valid_from_ms))
        for entity, now in periods
        if now is not None
        for key, value in now.values.items()
        if isinstance(key, QuotaKey)
    }


def _since_ms(periods: Iterable[RulePeriod], key: QuotaKey, value: float, from_ms: int) -> int:
    """Since when a key has its value, epoch ms: edits of other keys of the entity begin rule periods too."""
    since_ms = from_ms
    for period in reversed([one for one in periods if one.valid_from_ms <= from_ms]):
        if period.values.get(key) != value:
            break
        since_ms = period.valid_from_ms
    return since_ms
