"""How well verdicts agree with the throttle that brokers logged, and with the byte rates of their JMX beans.

Days that `kquota maintain` has rolled up are read from the table `agreement`, all others live from `decisions`. A
rolled-up day that --since cuts is read live, too. A JMX sample is compared with the decision of its bucket and second.
A decision has the rate of the request furthest above (or below) the limit. So if the rate changes within the second,
the two differ by more than the replay's own error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.reports.agreement.span import ALWAYS, DAY_MS, Span
from kquota_spark.schema.figures import figure_of
from kquota_spark.schema.harm import CERTAIN_BROKER_MS, CERTAIN_REPLAY_MS
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.schema.tables import AGREEMENT, AGREEMENT_COUNTS
from kquota_spark.store.reading import Result, Tables

LEAST_PERCENT = 99.0
"""Percent of agreement below which a cause is sought. The right settings reach 99.5 % on every capture of a broker."""

BUCKET = "cluster_id, broker_id, quota_type, bucket_user, bucket_client_id, bucket_tags"
GROUPS = {
    "cluster": "cluster_id",
    "broker": "cluster_id, broker_id",
    "type": "cluster_id, quota_type",
    "bucket": BUCKET,
    "day": "cluster_id, event_date",
}
"""Columns by which each value of `--by` groups, as SQL text."""

_NAMES = tuple(column.name for column in AGREEMENT_COUNTS)
_SUMS = ", ".join(f"coalesce(sum({name}), 0)::bigint as {figure_of(AGREEMENT, name)}" for name in _NAMES)
_PLAIN = ("requests", "requests_judged", "requests_agreeing", "false_positive", "false_negative",
          "judged_throttled", "uncertain", "uncertain_wrong", "inferred", "excluded", "late")  # fmt: skip
_IN_TOTAL = ("requests_judged", "requests_agreeing", "false_positive", "false_negative", "uncertain", "inferred",
             "excluded")  # fmt: skip
OF_AGREEMENT = ("requests_judged", "requests_agreeing", "uncertain", "excluded", "inferred")
"""Counts of the agreement and of the requests that it leaves out."""
_NO_JMX = "0 as jmx_compared, 0 as jmx_within_1_percent, 0 as jmx_within_10_percent"
_JMX = """
count(byte_rate) as jmx_compared,
count(*) filter (abs(byte_rate - rate_per_s) <= 0.01 * greatest(byte_rate, rate_per_s)) as jmx_within_1_percent,
count(*) filter (abs(byte_rate - rate_per_s) <= 0.1 * greatest(byte_rate, rate_per_s)) as jmx_within_10_percent
"""
# A bucket may have been sampled more than once in a second, or by two collectors: the last sample counts.
_WITH_JMX = """
left join (
  select cluster_id, broker_id, quota_type, bucket_user, bucket_client_id, coalesce(bucket_tags, '') as tags,
         make_timestamptz(sample_time_ms // 1000 * 1000000) as second, arg_max(byte_rate, sample_time_ms) as byte_rate
  from jmx_samples where byte_rate is not null and quota_type in ('produce', 'fetch') group by all
) using (cluster_id, broker_id, quota_type, bucket_user, bucket_client_id, tags, second)
"""


def percent(row: dict[str, Any]) -> float | None:
    """Percent of the certain verdicts that agree with the broker; None if nothing could be compared."""
    judged = row["requests_judged"]
    return 100.0 * row["requests_agreeing"] / judged if judged else None


def sums(rows: Iterable[Mapping[str, Any]], *names: str) -> dict[str, Any]:
    """The sums of columns over all rows, by column."""
    found = list(rows)
    return {name: sum(row[name] for row in found) for name in names}


def open_text(row: Mapping[str, Any]) -> str:
    """The requests that the agreement leaves out, as a part of a sentence; empty if it leaves out none.

    Args:
        row: sums of `requests_judged`, `uncertain`, `excluded` and `inferred`.
    """
    open_, fetches = row["uncertain"] + row["excluded"], row["inferred"]
    whole = row["requests_judged"] + open_ + fetches
    parts = [f"{open_:,} of {whole:,} verdicts left open"] if open_ else []
    if fetches:
        parts.append(f"{fetches:,} throttled fetch{'' if fetches == 1 else 'es'} not comparable")
    return ", ".join(parts)


def total(tables: Tables, span: Span = ALWAYS) -> dict[str, Any] | None:
    """Sums over the span: judged, agreeing, wrong and left-out requests; None without decisions.

    This is cheap: only a few columns are read. Tables that a command has already opened are used as they are.
    """
    if not _open(tables, span):
        return None
    rolled = _rolled_days(tables, span)
    sums = ", ".join(f"coalesce(sum({name}), 0)::bigint as {name}" for name in _IN_TOTAL)
    parts = f"select {', '.join(_IN_TOTAL)} from decisions{where_seconds(span, rolled)}"  # noqa: S608 - names of ours
    if rolled:
        parts += (
            f" union all select {', '.join(_IN_TOTAL)} from agreement where event_date in ({_dates(rolled)})"  # noqa: S608
        )
    return tables.query(f"select {sums} from ({parts})").dicts()[0]  # noqa: S608


def by(settings: Settings, group: str, span: Span = ALWAYS) -> Result:
    """One row per group of `GROUPS`, the lowest agreement first; days in their order.

    Raises:
        UserError: there are no decisions, or a table cannot be read.
    """
    keys = GROUPS[group]
    order = keys if group == "day" else f"agreement_percent nulls last, {keys}"
    shown = "cluster_id, event_date::varchar as event_date" if group == "day" else keys
    with Tables(settings) as tables:
        if not _open(tables, span):
            tables.open("decisions")  # raises an error that names what is missing
        has_jmx = tables.open_if_there("jmx_samples")
        return tables.query(
            f"select {shown}, 100.0 * sum(requests_agreeing) / nullif(sum(requests_judged), 0) "  # noqa: S608
            f"as agreement_percent, {_SUMS}, max(throttle_error_max_ms) as throttle_error_max_ms "
            f"from ({_days_sql(tables, span, has_jmx=has_jmx)}) group by {keys} order by {order}"
        )


def of_day(settings: Settings, day: date) -> list[dict[str, Any]]:
    """The rows of `agreement` for one day, computed from the decisions of that day."""
    start_ms = round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1_000)
    span = Span(start_ms, start_ms + DAY_MS)
    with Tables(settings) as tables:
        tables.open("decisions", span.from_ms)
        has_jmx = tables.open_if_there("jmx_samples")
        sql = (
            f"select {', '.join(AGREEMENT.names)} from ({_live_sql(span, (), has_jmx=has_jmx)}) order by all"  # noqa: S608
        )
        return tables.query(sql).dicts()


def _open(tables: Tables, span: Span) -> bool:
    tables.open_if_there("agreement")
    return tables.open_if_there("decisions", span.from_ms)


def _days_sql(tables: Tables, span: Span, *, has_jmx: bool) -> str:
    rolled = _rolled_days(tables, span)
    columns = ", ".join(AGREEMENT.names)
    kept = f"select {columns} from agreement where event_date in ({_dates(rolled)}) union all by name "  # noqa: S608
    return f"{kept if rolled else ''}{_live_sql(span, rolled, has_jmx=has_jmx)}"


def _rolled_days(tables: Tables, span: Span) -> tuple[date, ...]:
    found = tables.query("select distinct event_date from agreement order by 1").rows
    return tuple(day for (day,) in found if span.holds_day(day))


def _dates(days: Iterable[date]) -> str:
    return ", ".join(f"date '{day}'" for day in days)


def where_seconds(span: Span, without: tuple[date, ...] = ()) -> str:
    """A where clause on `decisions`, as SQL text; all values are numbers and dates of ours."""
    # A decision from JMX always agrees with its bean, because it was made from it.
    where = [FROM_LOG]
    if without:
        where.append(f"event_date not in ({_dates(without)})")
    if span.from_ms is not None:
        where.append(f"decisions.second >= make_timestamptz({span.from_ms * 1_000})")
    if span.to_ms is not None:
        where.append(f"decisions.second < make_timestamptz({span.to_ms * 1_000})")
    return f" where {' and '.join(where)}"


def _live_sql(span: Span, without: tuple[date, ...], *, has_jmx: bool) -> str:
    """A query for the columns of `agreement` from `decisions`, as SQL text."""
    plain = ", ".join(f"coalesce(sum({name}), 0)::bigint as {name}" for name in _PLAIN)
    errors = "list_transform(coalesce(throttle_errors_ms, []), lambda error: abs(error))"
    return f"""
select {BUCKET}, event_date, {plain},
       coalesce(sum(len(errors)), 0)::bigint as throttles_compared,
       coalesce(sum(len(list_filter(errors, lambda error: error <= 1))), 0)::bigint as throttle_within_1_ms,
       coalesce(sum(len(list_filter(errors, lambda error: error <= 10))), 0)::bigint as throttle_within_10_ms,
       coalesce({CERTAIN_REPLAY_MS}, 0) as delay_by_replay_ms,
       coalesce({CERTAIN_BROKER_MS}, 0) as delay_by_brokers_ms,
       {_JMX if has_jmx else _NO_JMX}, max(list_max(errors))::bigint as throttle_error_max_ms
from (
  select *, {errors} as errors, coalesce(bucket_tags, '') as tags from decisions{where_seconds(span, without)}
) as decisions
{_WITH_JMX if has_jmx else ""}
group by {BUCKET}, event_date
"""  # noqa: S608 - numbers, dates and names of ours
