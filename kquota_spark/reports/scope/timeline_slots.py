"""One client's bucket over a period, by slots: what it used, which limit held, and where it was throttled.

A client is in one bucket at a time. But rules come and go, so it may be in several over a period: all of them are one
line. Where no quota governed the client there are no decisions, and `usage` fills these slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kquota_spark.reports.scope.broker_buckets import BucketKey, rate_of
from kquota_spark.reports.scope.period import Period
from kquota_spark.schema.harm import DELAY_MS, HAS_VERDICT, LONGEST_THROTTLE_MS, THROTTLED_REQUESTS
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables

SLOT_LENGTHS_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 172_800, 604_800,
    2_592_000, 31_536_000,
)  # fmt: skip
_MOST_BUCKETS = 20
_KEY = "cluster_id, broker_id, quota_type, bucket_user, bucket_client_id, coalesce(bucket_tags, '') as tags"
_BUCKETS = f"""
select {_KEY}, coalesce(sum(coalesce({DELAY_MS}, observed_throttle_ms)), 0)::bigint as throttled_ms,
       count(*) as seconds, epoch_ms(min(second)) as first_ms
from decisions where epoch_ms(second) >= ? and epoch_ms(second) < ? and {{inside}}
group by all order by throttled_ms desc, seconds desc, broker_id, quota_type, bucket_user, bucket_client_id, tags
limit {_MOST_BUCKETS}
"""  # noqa: S608 - names and numbers of ours
_OF_BUCKET = """(cluster_id = ? and broker_id = ? and quota_type = ? and bucket_user = ? and bucket_client_id = ?
  and coalesce(bucket_tags, '') = ?)"""
# Rows without requests only count late ones. In a second of two buckets, the one with the client inside counts.
_SECONDS = f"""
seconds as (
  select *, epoch_ms(second) as second_ms from decisions
  where epoch_ms(second) >= ? and epoch_ms(second) < ? and {HAS_VERDICT} and ({{buckets}})
  qualify row_number() over (partition by second order by ({{inside}}) desc, requests desc nulls last) = 1
)"""  # noqa: S608 - names of ours
_SLOTS = f"""
with {{seconds}}
select (second_ms - ?) // ? as slot, max(rate_per_s) as rate_per_s,
       arg_max(struct_pack(limit_per_s := limit_per_s, rule := rule), second_ms) as last,
       max(quota_used_percent) as quota_used_percent,
       sum(coalesce({DELAY_MS}, observed_throttle_ms))::bigint as throttled_ms,
       sum({THROTTLED_REQUESTS})::bigint as throttled_requests, sum(requests)::bigint as requests,
       max(second_ms + coalesce({LONGEST_THROTTLE_MS}, 0)) as muted_until_ms,
       count(*) as seconds, bool_and(coalesce(is_certain, false)) as is_certain,
       any_value(source) as source
from seconds group by slot order by slot
"""  # noqa: S608 - names of ours
_USAGE = f"""
select (epoch_ms(usage.second) - ?) // ? as slot, sum(amount)::double as amount, sum(requests)::bigint as requests,
       count(distinct usage.second) as seconds
from usage where epoch_ms(usage.second) >= ? and epoch_ms(usage.second) < ? and {FROM_LOG} and {{who}}
group by slot order by slot
"""  # noqa: S608 - names of ours
_USED = f"""
select broker_id, quota_type, epoch_ms(min(usage.second)) as first_ms
from usage where epoch_ms(usage.second) >= ? and epoch_ms(usage.second) < ? and {FROM_LOG} and {{who}}
group by all order by sum(amount) desc, broker_id, quota_type
"""  # noqa: S608 - names of ours


class Identity(NamedTuple):
    """The requested client: a user, a client id or both. Without a cluster, the tables must have only one."""

    user: str | None
    client_id: str | None
    cluster_id: str | None = None

    def inside(self) -> tuple[str, list[object]]:
        """Condition on `decisions`, with its values: the bucket has these names, or had them inside."""
        return _all_of(
            {
                "cluster_id = ?": self.cluster_id,
                "((bucket_user = ? and bucket_user <> '') or list_contains(users, ?))": self.user,
                "((bucket_client_id = ? and bucket_client_id <> '') or list_contains(client_ids, ?))": self.client_id,
            }
        )

    def sent(self) -> tuple[str, list[object]]:
        """Condition on `usage`, with its values."""
        return _all_of(
            {"cluster_id = ?": self.cluster_id, '"user" = ?': self.user, "client_id = ?": self.client_id}
        )


def _all_of(parts: Mapping[str, str | None]) -> tuple[str, list[object]]:
    """The conditions that have a value, joined, and each value as often as its condition needs it."""
    given = {sql: value for sql, value in parts.items() if value is not None}
    return " and ".join(given), [value for sql, value in given.items() for _ in range(sql.count("?"))]


class Place(NamedTuple):
    """A broker and a quota type."""

    broker_id: int
    quota_type: str


class Found(NamedTuple):
    """A bucket that a client was in, with its total delay in the period."""

    key: BucketKey
    throttled_ms: int
    seconds: int
    first_ms: int

    @property
    def place(self) -> Place:
        """The broker and quota type of the bucket."""
        return Place(self.key.broker_id, self.key.quota_type)


@dataclass(frozen=True, slots=True)
class Slot:
    """One part of the time axis.

    Attributes:
        from_ms: its start, epoch ms.
        rate_per_s: the highest rate that the broker measured; from `usage` the mean. None without a row.
        limit_per_s: the limit in force at its end; None without a limit or without a row.
        is_certain: whether every verdict in it is certain; None without decisions.
        source: log, jmx, or usage where no quota governed.
        is_muted: no request came while the longest throttle before it still ran.
    """

    from_ms: int
    rate_per_s: float | None = None
    limit_per_s: float | None = None
    rule: str | None = None
    quota_used_percent: float | None = None
    throttled_ms: int | None = None
    throttled_requests: int | None = None
    requests: int | None = None
    seconds: int = 0
    is_certain: bool | None = None
    source: str | None = None
    is_muted: bool = False


def slot_ms(period: Period, most_slots: int) -> int:
    """The shortest slot length (ms) with which `most_slots` slots cover the period."""
    length_ms = period.to_ms - period.from_ms
    fitting = (slot_s * 1_000 for slot_s in SLOT_LENGTHS_S if length_ms <= most_slots * slot_s * 1_000)
    return next(fitting, SLOT_LENGTHS_S[-1] * 1_000)


def buckets_of(tables: Tables, who: Identity, period: Period) -> list[Found]:
    """The buckets that a client was in during a period, the most throttled first."""
    inside, values = who.inside()
    rows = tables.query(_BUCKETS.format(inside=inside), [*period, *values]).rows
    return [Found(BucketKey(*row[:6]), *row[6:]) for row in rows]


def used_at(tables: Tables, who: Identity, period: Period) -> dict[Place, int]:
    """The places where a client sent anything, the most used first, with its first second there (epoch ms)."""
    sql, values = who.sent()
    rows = tables.query(_USED.format(who=sql), [*period, *values]).rows
    return {Place(*row[:2]): row[2] for row in rows}


def seconds_sql(who: Identity, period: Period, keys: Sequence[BucketKey]) -> tuple[str, list[object]]:
    """The common table expression `seconds` of these buckets, with one row per second, and its values."""
    inside, values = who.inside()
    buckets = " or ".join([_OF_BUCKET] * len(keys)) or "false"
    of_keys = [value for key in keys for value in key]
    return _SECONDS.format(buckets=buckets, inside=inside), [*period, *of_keys, *values]


def slots_of(
    tables: Tables,
    who: Identity,
    period: Period,
    keys: Sequence[BucketKey],
    place: Place,
    length_ms: int,
    *,
    has_usage: bool = True,
) -> list[Slot]:
    """Every slot of the period, in order.

    Args:
        tables: with `decisions` and `usage` opened.
        who: the client.
        period: the period that the slots cover.
        keys: buckets of the client, all at the place.
        place: broker and quota type.
        length_ms: length of a slot, ms.
        has_usage: whether slots without decisions show what the client sent at the place.
    """
    sql, values = seconds_sql(who, period, keys)
    query = _SLOTS.format(seconds=sql)
    judged = {row["slot"]: row for row in tables.query(query, [*values, period.from_ms, length_ms]).dicts()}
    used = _used(tables, who, period, place, length_ms) if has_usage else {}
    count = -(-(period.to_ms - period.from_ms) // length_ms)
    slots, muted_until_ms = list[Slot](), 0
    for number in range(count):
        from_ms, row = period.from_ms + number * length_ms, judged.get(number)
        slot = _slot(from_ms, place, length_ms, row, used.get(number))
        slots.append(replace(slot, is_muted=slot.source is None and from_ms < muted_until_ms))
        muted_until_ms = max(muted_until_ms, row["muted_until_ms"] if row else 0)
    return slots


def _used(
    tables: Tables, who: Identity, period: Period, place: Place, length_ms: int
) -> dict[int, dict[str, Any]]:
    """The use in each slot that has rows in `usage`, by slot number."""
    sent, of_sent = who.sent()
    used_sql = _USAGE.format(who=f"{sent} and broker_id = ? and quota_type = ?")
    found = tables.query(used_sql, [period.from_ms, length_ms, *period, *of_sent, *place]).dicts()
    return {row["slot"]: row for row in found}


def _slot(
    from_ms: int,
    place: Place,
    length_ms: int,
    judged: Mapping[str, Any] | None,
    used: Mapping[str, Any] | None,
) -> Slot:
    if judged is not None:
        row = {
            name: value for name, value in judged.items() if name not in ("slot", "last", "muted_until_ms")
        }
        return Slot(from_ms, **row, **judged["last"])
    if used is not None and used["amount"] is not None:
        rate_per_s = rate_of(place.quota_type, used["amount"], length_ms / 1_000)
        return Slot(from_ms, rate_per_s, requests=used["requests"], seconds=used["seconds"], source="usage")
    return Slot(from_ms)
