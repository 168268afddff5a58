"""Finds the hours in which some limit could throttle, from the amounts per second: the only ones worth a replay.

A ring holds the events of its last `horizon_ms`, and measures them over at least all of its windows but one. So no
throttle begins while the amount in the horizon is at most the limit times these windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables

HOUR_MS = 3_600_000
_HOT = f"""
with asked as (
  select unnest(?::varchar[]) as quota_type, unnest(?::varchar[]) as "user", unnest(?::varchar[]) as client_id,
         unnest(?::integer[]) as number, unnest(?::double[]) as least
), seconds as (
  select number, least, broker_id, epoch_ms(usage.second) // 1000 as s, sum(amount) as amount,
         sum(requests) as requests,
         sum(observed_throttle_ms) filter (quota_type = '{QuotaType.FETCH}') as waited_ms
  from usage join asked using (quota_type, "user", client_id)
  where cluster_id = ? and {FROM_LOG} and usage.second >= make_timestamptz(?::bigint)
    and usage.second < make_timestamptz(?::bigint)
  group by all
), recent as (
  select *, sum(amount) over (
    partition by number, broker_id order by s range between {{horizon_s}} preceding and current row
  ) as inside
  from seconds
), hours as (
  select number, broker_id, s // 3600 as hour, sum(requests) as requests,
         max(inside) > max(least) or max(waited_ms) > 0 as is_hot
  from recent group by all
)
select number, hour::bigint, sum(requests)::bigint from hours
group by all having bool_or(is_hot) order by all
"""  # noqa: S608 - names of ours


class Member(NamedTuple):
    """A client in a bucket: the number of the bucket, and the limit that holds for it; None is no limit."""

    quota_type: QuotaType
    user: str
    client_id: str
    number: int
    limit: float | None


def hot_hours(
    tables: Tables,
    cluster: str,
    members: Sequence[Member],
    rings: Sequence[RateConfig],
    period: tuple[int, int],
) -> dict[int, dict[int, int]]:
    """The hours (since 1970) in which a bucket could be throttled, with the requests in them, by its number.

    A throttled fetch came back empty, so its hour counts whatever its amount.

    Args:
        tables: with `usage` opened.
        cluster: its id.
        members: clients and buckets.
        rings: the rings of all brokers.
        period: first second and end, epoch ms.
    """
    if not members:
        return {}
    shortest_ms = min((ring.num_samples - 1) * ring.window_ms for ring in rings)
    horizon_ms = max(ring.horizon_ms for ring in rings)
    columns = [
        [one.quota_type.value for one in members],
        [one.user for one in members],
        [one.client_id for one in members],
        [one.number for one in members],
        [float("inf") if one.limit is None else one.limit * shortest_ms / 1_000 for one in members],
    ]
    # A second more, because a row has the whole second in which its requests began.
    sql = _HOT.format(horizon_s=-(-horizon_ms // 1_000) + 1)
    found: dict[int, dict[int, int]] = {}
    for number, hour, requests in tables.query(
        sql, [*columns, cluster, *(time * 1_000 for time in period)]
    ).rows:
        found.setdefault(number, {})[hour] = requests
    return found


def spans(hours: Mapping[int, object], before_ms: int, after_ms: int) -> list[tuple[int, int]]:
    """Periods (epoch ms) that cover these hours.

    Args:
        hours: hours since 1970.
        before_ms: how much earlier each period begins.
        after_ms: how much later it ends.
    """
    merged: list[tuple[int, int]] = []
    for hour in sorted(hours):
        from_ms, to_ms = hour * HOUR_MS - before_ms, (hour + 1) * HOUR_MS + after_ms
        if merged and from_ms <= merged[-1][1]:
            merged[-1] = merged[-1][0], to_ms
        else:
            merged.append((from_ms, to_ms))
    return merged
