"""Gathers evidence of a drop of agreement from the tables, and has part of the usage judged again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kquota_spark.config.governor import make_governor, rate_config
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.findings.agreement_causes import BrokerEvidence, LikelyCause, likely_causes
from kquota_spark.findings.ring_check import LEAST_WRONG, Fit, likely_settings
from kquota_spark.model.govern.callback_governor import CallbackGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS
from kquota_spark.quotas.sources import from_tables
from kquota_spark.reports.agreement.agreement import where_seconds
from kquota_spark.reports.agreement.span import Span
from kquota_spark.reports.clients.stored_usage import stored_usage
from kquota_spark.reports.clients.throttle_evidence import has_left_out
from kquota_spark.reports.scope.cluster_command import on_cluster
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables

_WARM_UP_MS, _LONGEST_MS = 130_000, 600_000
"""Period of usage that is judged again (ms): from 130 s before the first wrong verdict, for 10 minutes.

The longest common ring that is tried needs 130 s.
"""
_STEADY_MS = 60_000
"""Maximum spread (ms) of the delays of lines that are late because of a clock: they all have the same delay."""

# Verdicts that the broker's own throttles made uncertain count here. Otherwise they would hide wrong settings.
_FALSE_POSITIVE = "(false_positive + coalesce(window_off_false_positive, 0))"
_FALSE_NEGATIVE = "(false_negative + coalesce(window_off_false_negative, 0))"
_WRONG = f"({_FALSE_POSITIVE} + {_FALSE_NEGATIVE})"
# Usually nothing is wrong, and this query reads a third of what the verdicts below need.
_HAS_WRONG = f"""
select 1 from decisions{{where}} group by cluster_id, broker_id
having sum({_WRONG}) >= {LEAST_WRONG} limit 1
"""  # noqa: S608 - a number of ours
_VERDICTS = f"""
with first as (
  select cluster_id, broker_id, min(second) as start from decisions where {{of_the_log}} group by all
)
select cluster_id, broker_id, sum(requests)::bigint as requests,
       sum(requests_judged + coalesce(window_off, 0))::bigint as judged,
       sum({_FALSE_POSITIVE})::bigint as false_positive, sum({_FALSE_NEGATIVE})::bigint as false_negative,
       sum(excluded)::bigint as excluded, sum(coalesce(late, 0))::bigint as late,
       coalesce(sum({_WRONG}) filter (is_rules_behind), 0)::bigint as wrong_rules_behind,
       coalesce(sum({_WRONG})
                filter (decisions.second < start + to_milliseconds(?)), 0)::bigint as wrong_at_start,
       epoch_ms(max(decisions.second)) - epoch_ms(min(decisions.second)) + 1000 as duration_ms,
       epoch_ms(min(decisions.second) filter ({_WRONG} > 0)) as first_wrong_ms,
       coalesce(sum(judged_throttled) filter (quota_type = 'produce'), 0)::bigint as throttled,
       coalesce(sum(len(throttle_errors_ms)) filter (quota_type = 'produce'), 0)::bigint as throttles_found,
       coalesce(sum(len(list_filter(throttle_errors_ms, lambda error: abs(error) <= 1)))
                filter (quota_type = 'produce'), 0)::bigint as throttles_exact,
       arg_max(model_variant, {_WRONG}) as ring
from decisions join first using (cluster_id, broker_id)
{{where}} group by cluster_id, broker_id order by cluster_id, broker_id
"""  # noqa: S608 - names of ours
_OFFSETS = """
select coalesce(sum(missing), 0)::bigint as offsets_missing from (
  select max(kafka_offset) - min(coalesce(first_offset, kafka_offset)) + 1 - count(distinct kafka_offset)
         - coalesce(sum(lines - 1), 0) as missing
  from requests where cluster_id = ? and (topic, "partition") in (
    select distinct topic, "partition" from requests where cluster_id = ? and broker_id = ?)
  group by topic, "partition"
)
"""
# Only clients that just produce, by host: the other requests of a client (heartbeats, metadata) may be filtered out.
# One counter may serve all connections of a client, and a reconnect uses ids for requests that do not arrive. So an
# id is missing only between two ids of one connection.
_LINES = r"""
with numbered as (
  select "user", client_id, regexp_extract(connection, '^.*?:\d+-(.+?):\d+-', 1) as host, correlation_id,
         list(connection) as connections, count(*) as lines,
         count(*) filter (api_key = 0 and broker_id = ?) as produces
  from requests where cluster_id = ? and record_time_ms between ? and ? and kind = 'request' group by all
), steps as (
  select correlation_id - lag(correlation_id) over by_id as step,
         list_has_any(connections, lag(connections) over by_id) as is_on_one_connection,
         sum(produces) over client >= 0.9 * sum(lines) over client as is_producer
  from numbered window client as (partition by "user", client_id, host), by_id as (client order by correlation_id)
)
select coalesce(sum(step), 0)::bigint as lines_expected, coalesce(sum(step - 1), 0)::bigint as lines_missing
from steps where is_on_one_connection and is_producer
"""
_CLOCK = """
select -min(behind_ms)::bigint as most_ahead_ms, max(behind_ms) - min(behind_ms) as spread_ms
from (select kafka_timestamp_ms - log_time_ms as behind_ms from requests
      where cluster_id = ? and record_time_ms between ? and ? and broker_id = ?
        and kind in ('request', 'left_out'))
"""
_OTHERS = """
select count(*) from requests where cluster_id = ? and record_time_ms between ? and ? and broker_id = ?
  and kind = 'request' and observed_throttle_ms > 0 and api_key not in (0, 1, 19, 20, 37)
  and not coalesce(is_forwarded, false)
"""
_JMX = f"""
select count(*) as jmx_samples, count(judged.bucket_user) as judged_in_jmx,
       count(*) filter (tags <> '' and judged.bucket_user is null) as unknown_tags
from (select *, coalesce(bucket_tags, '') as tags from jmx_samples) left join (
  select distinct cluster_id, broker_id, quota_type, bucket_user, bucket_client_id,
         coalesce(bucket_tags, '') as tags
  from decisions where limit_per_s is not null and {FROM_LOG}
) judged using (cluster_id, broker_id, quota_type, bucket_user, bucket_client_id, tags)
where cluster_id = ? and sample_time_ms between ? and ? and broker_id = ?
  and quota_type in ('produce', 'fetch') and byte_rate > 0
"""  # noqa: S608 - a condition of ours
_CALLBACK = """
select quota_callback_class from broker_configs
where cluster_id = ? and broker_id = ? and valid_to is null and quota_callback_class <> ''
"""


@dataclass(frozen=True, slots=True)
class Drop:
    """A broker with a drop of agreement, and the likely causes."""

    cluster_id: str
    broker_id: int
    evidence: BrokerEvidence
    causes: list[LikelyCause]


def drops(settings: Settings, span: Span) -> list[Drop]:
    """The brokers with a drop of agreement, each with its likely causes."""
    default = rate_config(settings)
    with Tables(settings) as tables:
        tables.open("decisions", span.from_ms)
        where = where_seconds(span)
        if not tables.query(_HAS_WRONG.format(where=where)).rows:
            return []
        has_requests = tables.open_if_there("requests")
        has_jmx = tables.open_if_there("jmx_samples")
        has_configs = tables.open_if_there("broker_configs")
        sql = _VERDICTS.format(where=where, of_the_log=FROM_LOG)
        found = []
        for row in tables.query(sql, [2 * default.horizon_ms]).dicts():
            place = (row.pop("cluster_id"), row.pop("broker_id"))
            first_wrong_ms, ring = row.pop("first_wrong_ms"), row.pop("ring")
            if not BrokerEvidence(**row).has_dropped:
                continue
            of_lines = _of_lines(tables, place, span) if has_requests else {}
            of_jmx = tables.query(_JMX, _during(place, span)).dicts()[0] if has_jmx else {}
            callback = _callback(tables, place) if has_configs and not settings.quotas.callback else ""
            evidence = BrokerEvidence(**row, **of_lines, **of_jmx, callback_class=callback)
            # The ring that the decisions were made with; the broker itself may have reported it.
            config = default if ring is None else RateConfig.parse(ring)
            fit = _fit(settings, config, place, first_wrong_ms, evidence.clock_ahead_ms)
            resolve = on_cluster("kquota resolve", settings.file)
            found.append(Drop(*place, evidence, likely_causes(evidence, config, fit, resolve)))
        return found


def cause_rows(settings: Settings, span: Span) -> list[dict[str, Any]]:
    """The likely causes of all drops, as plain rows.

    Raises:
        UserError: the tables or the settings cannot be used.
    """
    return [
        {
            "cluster_id": drop.cluster_id,
            "broker_id": drop.broker_id,
            "cause": one.cause.value,
            "evidence": one.evidence,
            "advice": one.advice,
        }
        for drop in drops(settings, span)
        for one in drop.causes
    ]


def _of_lines(tables: Tables, place: tuple[str, int], span: Span) -> dict[str, Any]:
    during = _during(place, span)
    # Offsets and record times interleave, so gaps of the topic are counted in all of its rows, not only in the span.
    row = tables.query(_OFFSETS, [place[0], *place]).dicts()[0]
    if not has_left_out(tables, *during[:3]):
        row |= tables.query(_LINES, (place[1], *during[:3])).dicts()[0]
    row["other_throttled"] = tables.query(_OTHERS, during).rows[0][0]
    most_ahead_ms, spread_ms = tables.query(_CLOCK, during).rows[0]
    if most_ahead_ms is not None and (most_ahead_ms > 0 or spread_ms <= _STEADY_MS):
        row["clock_ahead_ms"] = most_ahead_ms
    return row


def _callback(tables: Tables, place: tuple[str, int]) -> str:
    found = tables.query(_CALLBACK, place).rows
    return str(found[0][0]) if found else ""


def _during(place: tuple[str, int], span: Span) -> tuple[str, int, int, int]:
    """Parameters of a query: cluster, first and last millisecond (epoch ms), broker."""
    cluster_id, broker_id = place
    from_ms = BEGINNING_MS if span.from_ms is None else span.from_ms
    return cluster_id, from_ms, END_MS if span.to_ms is None else span.to_ms - 1, broker_id


def _fit(
    settings: Settings, config: RateConfig, place: tuple[str, int], first_wrong_ms: int, clock_ahead_ms: int
) -> Fit | None:
    cluster_id, broker_id = place
    from_ms = first_wrong_ms - _WARM_UP_MS
    try:
        history = from_tables(settings)
        mine = settings.changed(cluster_id=cluster_id)
        traffic = list(
            stored_usage(mine, from_ms, from_ms + _LONGEST_MS, [QuotaType.PRODUCE], broker_id=broker_id)
        )
    except UserError:
        return None  # without the quotas and the usage nothing can be judged again
    governor = make_governor(settings, history.book, history.leaders)
    try:
        return likely_settings(traffic, governor, config, clock_ahead_ms)
    finally:
        if isinstance(governor, CallbackGovernor):
            governor.close()
