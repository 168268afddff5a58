"""The clients in `usage` and the present rules, for code that compares the two.

Recent use also weights changes of quotas, and shows which clients are in a bucket.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.findings.client_findings import IdSeen
from kquota_spark.model.compare.observed_clients import Observed, Rule, Seen
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaKey, QuotaType
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS
from kquota_spark.quotas.stored import held_cluster
from kquota_spark.schema.harm import DELAY_MS, THROTTLED_REQUESTS
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables, open_tables

_DAY_MS = 86_400_000
# Two statements: in one, DuckDB would check the conditions of the second for each of ten million rows, which costs
# half as much as the sums.
_SUMS = """
create or replace temp table seen as
select "user", client_id, quota_type, source, sum(amount) as amount, sum(observed_throttle_ms) as throttled_ms,
       min(usage.second) as first, max(usage.second) as last
from usage where {conditions} group by all
"""
_SEEN = f"""
select "user", client_id, quota_type, sum(amount)::bigint as amount, sum(throttled_ms)::bigint as throttled_ms,
       epoch_ms(min(first)) as first_ms, epoch_ms(max(last)) as last_ms
from seen where list_contains(?, quota_type) and {FROM_LOG}
group by all order by amount desc, "user", client_id, quota_type
"""  # noqa: S608 - a condition of ours
_FROM_JMX = f"select 1 from usage where not ({FROM_LOG}) limit 1"  # noqa: S608 - a condition of ours
_SAMPLED = f"""
select 1 from usage where cluster_id = ? and usage.second >= make_timestamptz(?)
  and usage.second < make_timestamptz(?) and list_contains(?, quota_type)
group by broker_id, quota_type having not bool_or({FROM_LOG}) limit 1
"""  # noqa: S608 - a condition of ours
_RULES = f"""
select entity, epoch_ms(valid_from) as valid_from_ms, {", ".join(key.value for key in QuotaKey)}
from rules where cluster_id = ? and level is not null and valid_from < make_timestamptz(?)
  and coalesce(valid_to >= make_timestamptz(?), true) order by level, entity
"""  # noqa: S608 - names of ours
_PROBLEMS = """
select entity, arg_max(problem, version) as problem from quota_changes where cluster_id = ?
group by entity having problem is not null order by entity
"""

_HOUR_MS = 3_600_000
_MOST_NAMES = 10_000
_OF_BUCKET = f"""
select "user", client_id, sum(coalesce(unsized_requests, 0))::bigint as share_fetches, sum(amount) as amount
from usage
where {FROM_LOG} and cluster_id = ? and usage.second >= make_timestamptz(?)
  and usage.second < make_timestamptz(?)
"""  # noqa: S608 - a condition of ours

_DELAY = f"""
select sum({DELAY_MS})::bigint, sum({THROTTLED_REQUESTS})::bigint from decisions
where cluster_id = ? and quota_type = ? and bucket_user = ? and bucket_client_id = ?
  and bucket_tags is not distinct from ?
  and second >= make_timestamptz(?) and second < make_timestamptz(?)
"""  # noqa: S608 - names of ours


class ClientSeen(NamedTuple):
    """A client's use of one quota type, with its first and last second, epoch ms."""

    seen: Seen
    first_ms: int
    last_ms: int


def clients_seen(
    tables: Tables,
    cluster: str,
    since_ms: int,
    types: Collection[QuotaType] = BANDWIDTH,
    *,
    until_ms: int = END_MS,
    user: str | None = None,
) -> list[ClientSeen]:
    """The clients in `usage`, those with most use first. Only the request log counts, because it contains all clients.

    Args:
        tables: with `usage` opened.
        cluster: its id.
        since_ms: first second, epoch ms.
        types: the quota types.
        until_ms: end, epoch ms, exclusive.
        user: raw name; None for all users.
    """
    conditions = {
        "cluster_id = ?": cluster,
        "usage.second >= make_timestamptz(?)": since_ms * 1_000 if since_ms > BEGINNING_MS else None,
        "usage.second < make_timestamptz(?)": until_ms * 1_000 if until_ms < END_MS else None,
        '"user" = ?': user,
    }
    asked = {condition: value for condition, value in conditions.items() if value is not None}
    tables.query(_SUMS.format(conditions=" and ".join(asked)), list(asked.values()))
    found = tables.query(_SEEN, [[one.value for one in types]]).rows
    return [
        ClientSeen(Seen(user, client_id, QuotaType(quota_type), amount, throttled_ms), first_ms, last_ms)
        for user, client_id, quota_type, amount, throttled_ms, first_ms, last_ms in found
    ]


def ids_of(clients: Iterable[ClientSeen]) -> list[IdSeen]:
    """The client ids with their first and last second."""
    return [
        IdSeen(one.seen.user, one.seen.client_id, one.first_ms, one.last_ms, one.seen.amount)
        for one in clients
    ]


def observed(tables: Tables, cluster: str, clients: Sequence[ClientSeen], at_ms: int = END_MS) -> Observed:
    """The clients beside the rules.

    Args:
        tables: with the usage and the rules opened.
        cluster: its id.
        clients: at least one.
        at_ms: time of the rules, which are those just before it, epoch ms.
    """
    return Observed(
        [one.seen for one in clients],
        rules_at(tables, cluster, at_ms),
        min(one.first_ms for one in clients),
        max(one.last_ms for one in clients) + 1_000,
        problems_of(tables, cluster),
        is_sampled(tables, cluster, min(one.first_ms for one in clients)),
    )


def is_sampled(tables: Tables, cluster: str, since_ms: int, until_ms: int = END_MS) -> bool:
    """Whether JMX is the only source of the traffic of some broker.

    Args:
        tables: with `usage` opened.
        cluster: its id.
        since_ms: first second of the period, epoch ms.
        until_ms: end of the period, epoch ms, exclusive.
    """
    if not tables.query(_FROM_JMX).rows:
        return False  # usually answered by the statistics of the files
    types = [one.value for one in BANDWIDTH]
    return bool(tables.query(_SAMPLED, [cluster, since_ms * 1_000, until_ms * 1_000, types]).rows)


def rules_at(tables: Tables, cluster: str, at_ms: int = END_MS) -> list[Rule]:
    """The quotas in force just before a time, epoch ms; without a time the present ones."""
    found = []
    for row in tables.query(_RULES, [cluster, at_ms * 1_000, at_ms * 1_000]).dicts():
        quotas = {key: row[key.value] for key in QuotaKey if row[key.value] is not None}
        if quotas:
            found.append(Rule(Entity.parse(row["entity"]), quotas, row["valid_from_ms"]))
    return found


def problems_of(tables: Tables, cluster: str) -> dict[str, str]:
    """Names of nodes that could not be read as quotas, each with its problem."""
    return dict(tables.query(_PROBLEMS, [cluster]).rows)


class RecentUse(NamedTuple):
    """Each client's use per quota type in the last day of usage, up to `to_ms`, which is None without any usage."""

    seen: tuple[Seen, ...] = ()
    to_ms: int | None = None


def recent_use(settings: Settings) -> RecentUse:
    """The use in the last day of the table `usage`; empty if the table does not exist."""
    with Tables(settings) as tables:
        if tables.location("usage") is None:
            return RecentUse()
        tables.follow("usage", _DAY_MS)
        newest_ms = tables.newest_ms("usage")
        if newest_ms is None:
            return RecentUse()
        since_ms = newest_ms - _DAY_MS
        found = clients_seen(tables, held_cluster(tables, settings), since_ms, tuple(QuotaType))
    return RecentUse(tuple(one.seen for one in found), newest_ms + 1_000)


class SeenInHour(NamedTuple):
    """Users and client ids of an hour, those with most bytes first, each with its number of share fetches."""

    identities: list[tuple[str, str, int]]
    from_ms: int
    to_ms: int

    @property
    def share_fetches(self) -> int:
        """Number of share fetches of all of them."""
        return sum(share_fetches for _, _, share_fetches in self.identities)


def seen_in_hour(
    settings: Settings,
    cluster_id: str,
    *,
    quota_type: str | None,
    user: str,
    client_id: str | None,
    before_ms: int | None,
) -> SeenInHour | None:
    """The clients seen in the hour before a moment; None if the table `usage` is missing or empty.

    Args:
        settings: where the tables are.
        cluster_id: cluster of the clients.
        quota_type: None for any.
        user: raw name, empty for any.
        client_id: raw; None for any.
        before_ms: the moment, epoch ms; None for the end of the table.
    """
    try:
        tables = open_tables(settings, "usage")
    except UserError:
        return None  # the audit has not run yet: the bucket is then described in words
    with tables:
        newest_ms = tables.newest_ms("usage")
        if newest_ms is None:
            return None
        to_ms = newest_ms + 1_000 if before_ms is None else min(before_ms, newest_ms + 1_000)
        sql, values = _OF_BUCKET, [cluster_id, (to_ms - _HOUR_MS) * 1_000, to_ms * 1_000]
        for condition, value in (
            ("quota_type = ?", quota_type), ('"user" = ?', user or None), ("client_id = ?", client_id),
        ):  # fmt: skip
            if value is not None:
                sql += f" and {condition}"
                values.append(value)
        sql += f' group by all order by amount desc, "user", client_id limit {_MOST_NAMES}'
        rows = tables.query(sql, values).rows
    return SeenInHour([row[:3] for row in rows], to_ms - _HOUR_MS, to_ms)


class DelayInHour(NamedTuple):
    """Total delay of a bucket in an hour, and its throttled requests, of all brokers; None if it has no decision."""

    delay_ms: int | None
    throttled_requests: int | None
    from_ms: int
    to_ms: int


def delay_in_hour(
    settings: Settings,
    cluster_id: str,
    quota_type: str,
    bucket: tuple[str, str, str | None],
    *,
    before_ms: int | None,
) -> DelayInHour | None:
    """The total delay of a bucket in the hour before a moment; None if the table `decisions` is missing or empty.

    Args:
        settings: where the tables are.
        cluster_id: cluster of the bucket.
        quota_type: its type.
        bucket: user, client id and tags, as the tables have them.
        before_ms: the moment, epoch ms; None for the end of the table.
    """
    with Tables(settings) as tables:
        if tables.location("decisions") is None:
            return None
        tables.open("decisions")
        newest_ms = tables.newest_ms("decisions")
        if newest_ms is None:
            return None
        to_ms = newest_ms + 1_000 if before_ms is None else min(before_ms, newest_ms + 1_000)
        during = (to_ms - _HOUR_MS) * 1_000, to_ms * 1_000
        [(delay_ms, requests)] = tables.query(_DELAY, [cluster_id, quota_type, *bucket, *during]).rows
    return DelayInHour(delay_ms, requests, to_ms - _HOUR_MS, to_ms)
