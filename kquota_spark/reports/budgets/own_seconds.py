"""The active and the throttled seconds of each group of clients in a period, from `usage` and `decisions`.

Clients are mapped to groups before anything is added up. Time throttled is that of the whole house: `schema.harm`. In a
bucket that several groups share, only clients with throttles of their own count, from `usage`. Such a client waits at
most for the sum of its throttles.

Each date can be computed alone: rows from JMX count on a date if the log has none of that broker and type on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from kquota_spark.model.budgets.budgets import OwnSeconds
from kquota_spark.model.budgets.seconds import HOUR_S
from kquota_spark.reports.budgets.grouping import Grouping
from kquota_spark.reports.scope.period import Period
from kquota_spark.schema.harm import IS_THROTTLED, LONGEST_THROTTLE_MS, throttled_spans
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables

_MOST_NAMES = 20
"""Maximum number of names in a decision: a list with so many may lack others."""
_SHARED = -1
"""Number in place of a group's, for a bucket with clients of several groups."""
_VARIABLES = "set variable budget_{name} = ?"
_DURING = """cluster_id = getvariable('budget_cluster')
  and {table}.second >= make_timestamptz(getvariable('budget_from_us')::bigint)
  and {table}.second < make_timestamptz(getvariable('budget_to_us')::bigint)"""
_DATE = "epoch_ms({table}.second) // 86400000"
_PLACE = f"concat_ws('/', '{{table}}', broker_id, quota_type, {_DATE})"
_LOGGED = f"select distinct {_PLACE}, {_DATE} from {{table}} where {{during}} and {{from_log}}"  # noqa: S608 - names of ours
_HAS_JMX = "select exists(select 1 from {table} where {during} and not {from_log})"
_ONE_SOURCE = f""" and ({{from_log}} or (broker_id, quota_type, {_DATE}) not in (
  select distinct broker_id, quota_type, {_DATE} from {{table}} where {{during}} and {{from_log}})
  and not list_contains(getvariable('budget_logged')::varchar[], {_PLACE}))"""  # noqa: S608 - names of ours
_OF_USER = {
    "usage": " and usage.\"user\" = getvariable('budget_user')",
    # The tag `user` of a callback's bucket need not be the name of a user.
    "decisions": f""" and (decisions.bucket_user = getvariable('budget_user')
  or (decisions.bucket_user = '' or bucket_tags is not null)
  and coalesce(list_contains(users, getvariable('budget_user')) or len(users) >= {_MOST_NAMES}, false))""",
}
_PART = (
    "len(list_filter(getvariable('budget_edges')::bigint[], lambda edge: edge <= epoch_ms({table}.second)))"
)
_CLIENTS = """
select distinct "user", client_id, {part} as part from usage where {where}
"""
_OWNED = """
create or replace temp table budget_owned as
select unnest(?::varchar[]) as "user", unnest(?::varchar[]) as client_id, unnest(?::int[]) as part,
       unnest(?::int[]) as owner_no
"""
HOUR_BITS = f"bitstring_agg((second_s % {HOUR_S})::int, 0, {HOUR_S - 1})::varchar"
"""SQL aggregate: the seconds of an hour as a text of 3,600 digits 0 and 1, the first second first."""
_ACTIVE = """
select owner_no, second_s // {hour} as hour, {bits} from (
  select owner_no, epoch_ms(usage.second) // 1000 as second_s
  from usage join budget_owned on usage."user" = budget_owned."user" and usage.client_id = budget_owned.client_id
    and {part} = budget_owned.part
  where {where}
) group by all
"""
_THROTTLED = f"""
create or replace temp table budget_throttled as
select broker_id, quota_type, bucket_user, bucket_client_id, coalesce(bucket_tags, '') as bucket_tags,
       coalesce(users, []) as users, coalesce(client_ids, []) as client_ids, {{part}} as part,
       epoch_ms(decisions.second) as second_ms, {FROM_LOG} as is_log, {LONGEST_THROTTLE_MS} as longest_ms
from decisions where {{where}} and {IS_THROTTLED}
"""  # noqa: S608 - names of ours
_INSIDE_KEY = "bucket_user, bucket_client_id, bucket_tags, users, client_ids, part"
_INSIDE = f"""
create or replace temp table budget_inside as
select *, row_number() over () as id from (select distinct {_INSIDE_KEY} from budget_throttled)
"""  # noqa: S608 - names of ours
_FOUND = "create or replace temp table budget_found as select unnest(?::bigint[]) as id, unnest(?::int[]) as owner_no"
BUCKET = "quota_type, bucket_user, bucket_client_id, bucket_tags"
_IS_INSIDE = f"""
(len(users) >= {_MOST_NAMES} or list_contains(users, used."user"))
and (len(client_ids) >= {_MOST_NAMES} or list_contains(client_ids, used.client_id))
and (bucket_tags <> '' or bucket_user in ('', used."user") and bucket_client_id in ('', used.client_id))
"""
_WHOLE = f"""
create or replace temp table budget_whole as
with whole as (
  select * from budget_throttled join budget_inside using ({_INSIDE_KEY}) join budget_found using (id)
), used as (
  select usage.broker_id, usage.quota_type, epoch_ms(usage.second) as second_ms, usage."user", usage.client_id,
         {{part}} as part, sum(observed_throttle_ms)::bigint as delay_ms
  from usage where {{where}} and observed_throttle_ms > 0 and exists(from whole where owner_no = {_SHARED})
  group by all
)
select owner_no, {BUCKET}, second_ms, is_log, longest_ms, true as is_throttled from whole where owner_no <> {_SHARED}
union all
select budget_owned.owner_no, {", ".join(f"whole.{name}" for name in BUCKET.split(", "))}, second_ms, is_log,
       least(longest_ms, delay_ms), true
from whole join used using (broker_id, quota_type, second_ms, part)
join budget_owned on used."user" = budget_owned."user" and used.client_id = budget_owned.client_id
  and used.part = budget_owned.part
where whole.owner_no = {_SHARED} and {_IS_INSIDE}
"""  # noqa: S608 - names of ours
_HELD = """
with {spans}, each as (
  select {key}, unnest(range(start_ms // 1000, end_ms // 1000)) as second_s from spread where start_ms < end_ms
)
select {key}, second_s // {hour} as hour, {bits} from each group by all
"""


class Asked(NamedTuple):
    """Opened tables, and the SQL conditions of the rows that count."""

    tables: Tables
    grouping: Grouping
    where: Mapping[str, str]
    """By table."""
    part: Mapping[str, str]
    """SQL of the part of time of a row, by table."""
    has_jmx: bool
    """Whether the period has rows from JMX."""


class Owned(NamedTuple):
    """The seconds of groups, and the temporary tables of their throttles."""

    seconds: dict[str, OwnSeconds]
    asked: Asked
    names: Sequence[str]
    """The groups by their numbers in the tables."""


def own_seconds(
    tables: Tables,
    cluster_id: str,
    period: Period,
    grouping: Grouping,
    logged: Collection[str] = (),
) -> Owned:
    """The seconds of each group. Throttles count to their end, also beyond the period.

    Args:
        tables: with `usage` and `decisions` opened from the start of the period on.
        cluster_id: the cluster.
        period: rows of other times are left out.
        grouping: the groups.
        logged: places that the log is known to have beside those in the period, see `places_of_log`.

    Raises:
        UserError: the tables cannot be read.
    """
    asked = _asked(tables, cluster_id, period, grouping, logged)
    names = _owned(asked)
    found: dict[str, OwnSeconds] = defaultdict(OwnSeconds)
    sql = _ACTIVE.format(hour=HOUR_S, bits=HOUR_BITS, part=asked.part["usage"], where=asked.where["usage"])
    for owner_no, hour, bits in tables.query(sql).rows:
        found[names[owner_no]].active.add_hour(hour, int(bits, 2))
    _throttled(asked, names)
    for owner_no, hour, bits in held_hours(tables, "owner_no", "budget_whole"):
        found[names[owner_no]].throttled.add_hour(hour, int(bits, 2))
    for own in found.values():
        own.active.add_all(own.throttled)
    return Owned(dict(found), asked, names)


def places_of_log(tables: Tables) -> dict[str, int]:
    """What the log has rows of, in the period that was read last: table, broker, type, date; with the day since 1970.

    Args:
        tables: as `own_seconds` has read them.

    Raises:
        UserError: the tables cannot be read.
    """
    found: dict[str, int] = {}
    for table in ("usage", "decisions"):
        found |= dict(tables.query(_LOGGED.format(**_names(table))).rows)
    return found


def _names(table: str) -> dict[str, str]:
    """What the SQL of a table's rows in the period names."""
    return {"table": table, "during": _DURING.format(table=table), "from_log": FROM_LOG}


def _asked(
    tables: Tables, cluster_id: str, period: Period, grouping: Grouping, logged: Collection[str]
) -> Asked:
    values = {
        "logged": [*logged],
        "cluster": cluster_id, "from_us": period.from_ms * 1_000, "to_us": period.to_ms * 1_000,
        "edges": list(grouping.edges_ms), "user": grouping.only_user,
    }  # fmt: skip
    for name, value in values.items():
        tables.query(_VARIABLES.format(name=name), [value])
    where, part, jmx = {}, {}, []
    for table in ("usage", "decisions"):
        names = _names(table)
        has_jmx = bool(tables.query(_HAS_JMX.format(**names)).rows[0][0])
        jmx.append(has_jmx)
        of_user = "" if grouping.only_user is None else _OF_USER[table]
        where[table] = names["during"] + (_ONE_SOURCE.format(**names) if has_jmx else "") + of_user
        part[table] = _PART.format(table=table) if grouping.edges_ms else "0"
    return Asked(tables, grouping, where, part, any(jmx))


def _owned(asked: Asked) -> list[str]:
    """Make the table of clients with the numbers of their groups; returns the names of the groups by number."""
    clients = asked.tables.query(_CLIENTS.format(part=asked.part["usage"], where=asked.where["usage"])).rows
    names: dict[str, int] = {}
    owned: list[tuple[str, str, int, int]] = []
    for user, client_id, part in clients:
        name = asked.grouping.of(user, client_id, asked.grouping.time_in(part))
        if name is not None:
            owned.append((user, client_id, part, names.setdefault(name, len(names))))
    asked.tables.query(_OWNED, _columns(owned, 4))
    return list(names)


def _throttled(asked: Asked, names: list[str]) -> None:
    """Make the table of throttled seconds, with the numbers of the groups that they are of."""
    tables = asked.tables
    tables.query(_THROTTLED.format(part=asked.part["decisions"], where=asked.where["decisions"]))
    tables.query(_INSIDE)
    numbers = {name: number for number, name in enumerate(names)}
    found: list[tuple[int, int]] = []
    for row in tables.query(f"select id, {_INSIDE_KEY} from budget_inside").dicts():  # noqa: S608 - names of ours
        groups = _groups_inside(asked.grouping, row)
        if groups is None or len(groups) > 1:
            found.append((row["id"], _SHARED))
        for name in groups if groups is not None and len(groups) == 1 else ():
            if name is not None:
                if name not in numbers:
                    numbers[name] = len(names)
                    names.append(name)
                found.append((row["id"], numbers[name]))
    tables.query(_FOUND, _columns(found, 2))
    tables.query(_WHOLE.format(part=asked.part["usage"], where=asked.where["usage"]))


def _groups_inside(grouping: Grouping, row: Mapping[str, Any]) -> set[str | None] | None:
    """The groups of all clients that can be inside a bucket in a second; None if some of its names are not known."""
    sides: list[Iterable[str]] = []
    for tag, inside in (("bucket_user", "users"), ("bucket_client_id", "client_ids")):
        if row[tag] and not row["bucket_tags"]:
            sides.append((row[tag],))
        elif len(row[inside]) >= _MOST_NAMES:
            return None
        else:
            sides.append(row[inside] or (row[tag],))
    time_ms = grouping.time_in(row["part"])
    return {grouping.of(user, client_id, time_ms) for user, client_id in product(*sides)}


def held_hours(tables: Tables, key: str, rows: str) -> Sequence[Sequence[Any]]:
    """The time throttled of each key: the key, the hour, and its seconds as `HOUR_BITS`.

    Args:
        tables: with the temporary table.
        key: columns of the key, with commas.
        rows: see `schema.harm.throttled_spans`.
    """
    spans = throttled_spans(key, rows)
    return tables.query(_HELD.format(spans=spans, key=key, hour=HOUR_S, bits=HOUR_BITS)).rows


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[list[Any]]:
    """The columns of rows, also of none."""
    return [[row[place] for row in rows] for place in range(count)]
