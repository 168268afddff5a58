"""Gathers the clients that usage saw and the rules of now, for whoever holds one against the other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kquota_spark.io.tables import Tables
from kquota_spark.model.entities import Entity
from kquota_spark.model.observed_clients import Observed, Rule, Seen
from kquota_spark.model.quota_types import BANDWIDTH, QuotaKey, QuotaType
from kquota_spark.schema.key_columns import FROM_LOG

_SEEN = f"""
select "user", client_id, quota_type, sum(amount)::bigint as amount,
       sum(observed_throttle_ms)::bigint as throttled_ms, epoch_ms(min(usage.second)) as first_ms,
       epoch_ms(max(usage.second)) as last_ms
from usage where cluster_id = ? and usage.second >= make_timestamptz(?) and list_contains(?, quota_type)
  and {FROM_LOG}
group by all order by amount desc, "user", client_id, quota_type
"""  # noqa: S608 - a condition of ours
_RULES = f"""
select entity, epoch_ms(valid_from) as valid_from_ms, {", ".join(key.value for key in QuotaKey)}
from quota_rules where cluster_id = ? and level > 0 and valid_to is null order by level, entity
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
    tables: Tables, cluster: str, since_ms: int, types: Collection[QuotaType] = BANDWIDTH
) -> list[ClientSeen]:
    """The clients in `usage`, those that used most first; only of the request log, which tells of all."""
    found = tables.query(_SEEN, [cluster, since_ms * 1_000, [one.value for one in types]]).dicts()
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
        _rules(tables, cluster),
        min(one.first_ms for one in clients),
        max(one.last_ms for one in clients) + 1_000,
        dict(tables.query(_PROBLEMS, [cluster]).rows),
    )


def _rules(tables: Tables, cluster: str) -> list[Rule]:
    found = []
    for row in tables.query(_RULES, [cluster]).dicts():
        quotas = {key: row[key.value] for key in QuotaKey if row[key.value] is not None}
        if quotas:
            found.append(Rule(Entity.parse(row["entity"]), quotas, row["valid_from_ms"]))
    return found
