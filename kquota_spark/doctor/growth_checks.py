"""Who makes the tables and the state grow: users with very many client ids, and where they come from."""

from __future__ import annotations

from typing import Any

from kquota_spark.process.check import Check, warn
from kquota_spark.store.reading import Tables

MANY_CLIENT_IDS = 10_000
"""Of one user, in all of `requests` that is kept. A second of each of them is a row of usage and of decisions."""
_SHOWN = 3

_IDS = """
select cluster_id, coalesce("user", '') as "user", approx_count_distinct(client_id) as client_ids,
       count(*) as requests
from requests where quota_type is not null group by all
"""
_TOP = f'select * from ({_IDS}) where client_ids >= ? order by client_ids desc, "user" limit {_SHOWN}'  # noqa: S608
# A connection is local-remote-number, addresses without a hyphen: 10.0.0.1:9092-10.1.2.3:40000-7
_SOURCE = r"""
select regexp_extract(connection, '-(.*):\d+-[\d-]+$', 1) as address, approx_count_distinct(client_id) as client_ids
from requests where quota_type is not null and cluster_id = ? and coalesce("user", '') = ?
group by all order by client_ids desc, address limit 1
"""


def growth_checks(tables: Tables) -> list[Check]:
    """Users above the limit, worst first; nothing if there is none. Needs `requests`."""
    return [_offender(tables, row) for row in tables.query(_TOP, [MANY_CLIENT_IDS]).dicts()]


def _offender(tables: Tables, row: dict[str, Any]) -> Check:
    (address, ids), *_ = tables.query(_SOURCE, [row["cluster_id"], row["user"]]).rows
    user = f"user {row['user']}" if row["user"] else "users without a name"
    evidence = (
        f"{row['cluster_id']}: {user} sends about {row['client_ids']:,} client ids in {row['requests']:,} requests, "
        f"{ids:,} of them from {address or 'no address'}"
    )
    advice = (
        "each is a bucket of its own unless a quota of the user governs them: give the client a fixed client.id, or "
        "the user a quota; keep requests for a shorter time (maintain.retention)"
    )
    return warn("client ids", evidence, advice)
