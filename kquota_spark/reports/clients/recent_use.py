"""Who used what of late, as the weight of a change of quotas."""

from __future__ import annotations

from typing import NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.model.compare.observed_clients import Seen
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.quotas.stored import held_cluster
from kquota_spark.reports.clients.seen_clients import clients_seen
from kquota_spark.store.reading import Tables

_DAY_MS = 86_400_000


class RecentUse(NamedTuple):
    """What each client used of each type in the last day of usage, up to `to_ms`; None without any usage."""

    seen: tuple[Seen, ...] = ()
    to_ms: int | None = None


def recent_use(settings: Settings) -> RecentUse:
    """The last day of the table `usage`; nothing where it is not there."""
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
