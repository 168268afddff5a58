"""Who has a page of one's own: the users of a stretch of time."""

from __future__ import annotations

from kquota_spark.config.settings import Settings
from kquota_spark.reports.scope.period import Period
from kquota_spark.store.reading import Tables

_USERS = """
select distinct "user" from usage
where cluster_id = ? and usage.second >= make_timestamptz(?) and usage.second < make_timestamptz(?) and "user" <> ''
order by 1
"""


def tenants_seen(settings: Settings, period: Period) -> list[str]:
    """Users that sent anything, in order.

    Raises:
        UserError: the table is missing or cannot be read.
    """
    with Tables(settings) as tables:
        tables.open("usage", period.from_ms)
        during = (period.from_ms * 1_000, period.to_ms * 1_000)
        return [user for (user,) in tables.query(_USERS, [settings.cluster_id, *during]).rows]
