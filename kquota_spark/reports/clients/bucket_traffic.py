"""Who has been using a bucket lately, from the table of usage."""

from __future__ import annotations

from typing import NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import open_tables

HOUR_MS = 3_600_000
_MOST = 10_000
_SEEN = f"""
select "user", client_id, sum(coalesce(unsized_requests, 0))::bigint as share_fetches, sum(amount) as amount
from usage
where {FROM_LOG} and cluster_id = ? and usage.second >= make_timestamptz(?)
  and usage.second < make_timestamptz(?)
"""  # noqa: S608 - a condition of ours


class Seen(NamedTuple):
    """Users and client ids of an hour, those with most bytes first, each with its number of share fetches."""

    identities: list[tuple[str, str, int]]
    from_ms: int
    to_ms: int


def seen_in_hour(
    settings: Settings,
    cluster_id: str,
    *,
    quota_type: str | None,
    user: str,
    client_id: str | None,
    before_ms: int | None,
) -> Seen | None:
    """Who was seen in the hour before a moment; None without a table of usage, or where that is empty.

    Args:
        settings: where the tables are.
        cluster_id: of which cluster.
        quota_type: produce or fetch; None for both.
        user: only this user; empty for all.
        client_id: only this client id; None for all.
        before_ms: the moment; None for the end of the table.
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
        sql, values = _SEEN, [cluster_id, (to_ms - HOUR_MS) * 1_000, to_ms * 1_000]
        for condition, value in (
            ("quota_type = ?", quota_type), ('"user" = ?', user or None), ("client_id = ?", client_id),
        ):  # fmt: skip
            if value is not None:
                sql += f" and {condition}"
                values.append(value)
        sql += f' group by all order by amount desc, "user", client_id limit {_MOST}'
        rows = tables.query(sql, values).rows
    return Seen([row[:3] for row in rows], to_ms - HOUR_MS, to_ms)
