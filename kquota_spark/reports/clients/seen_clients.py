"""Gathers the clients that usage saw and the rules of now, for whoever holds one against the other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kquota_spark.model.compare.observed_clients import Observed, Rule, Seen
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaKey, QuotaType
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables

# Two statements: DuckDB would look at each of ten million rows for the conditions of the second one, which costs as
# much as half of the sums.
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


class ClientSeen(NamedTuple):
    """What a client used of one quota type, and its first and last second, epoch ms."""

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
    """The clients in `usage`, those that used most first; only of the request log, which tells of all.

    Args:
        tables: with `usage` opened.
        cluster: whose.
        since_ms: the first second, epoch ms.
        types: types of quota.
        until_ms: the end of the stretch, exclusive.
        user: only this user's; None for all.
    """
    conditions = {
        "cluster_id = ?": cluster,
        "usage.second >= make_timestamptz(?)": since_ms * 1_000 if since_ms > BEGINNING_MS else None,
        "usage.second < make_timestamptz(?)": until_ms * 1_000 if until_ms < END_MS else None,
        '"user" = ?': user,
    }
    asked = {condition: value for condition, value in conditions.items() if value is not None}
    tables.query(_SUMS.format(conditions=" and ".join(asked)), list(asked.values()))
    found = tables.query(_SEEN, [[one.value for one in types]]).dicts()
    return [
        ClientSeen(
            Seen(
                row["user"],
                row["client_id"],
                QuotaType(row["quota_type"]),
                row["amount"],
                row["throttled_ms"],
            ),
            row["first_ms"],
            row["last_ms"],
        )
        for row in found
    ]


def observed(tables: Tables, cluster: str, clients: Sequence[ClientSeen]) -> Observed:
    """The clients beside the rules of now; there must be one at least."""
    return Observed(
        [one.seen for one in clients],
        rules_at(tables, cluster),
        min(one.first_ms for one in clients),
        max(one.last_ms for one in clients) + 1_000,
        problems_of(tables, cluster),
        is_sampled(tables, cluster, min(one.first_ms for one in clients)),
    )


def is_sampled(tables: Tables, cluster: str, since_ms: int, until_ms: int = END_MS) -> bool:
    """Whether of some broker's traffic only JMX tells."""
    if not tables.query(_FROM_JMX).rows:
        return False  # the statistics of the files tell, mostly
    types = [one.value for one in BANDWIDTH]
    return bool(tables.query(_SAMPLED, [cluster, since_ms * 1_000, until_ms * 1_000, types]).rows)


def rules_at(tables: Tables, cluster: str, at_ms: int = END_MS) -> list[Rule]:
    """The quotas that were in force just before a time; those of now if it is not given."""
    found = []
    for row in tables.query(_RULES, [cluster, at_ms * 1_000, at_ms * 1_000]).dicts():
        quotas = {key: row[key.value] for key in QuotaKey if row[key.value] is not None}
        if quotas:
            found.append(Rule(Entity.parse(row["entity"]), quotas, row["valid_from_ms"]))
    return found


def problems_of(tables: Tables, cluster: str) -> dict[str, str]:
    """Names of nodes that could not be read as quotas, each with what is wrong with it."""
    return dict(tables.query(_PROBLEMS, [cluster]).rows)
