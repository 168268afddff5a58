"""Users and client ids that the cluster knows: those that sent something, and those that ever had a quota."""

from __future__ import annotations

from typing import NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.policies.policy import Policies
from kquota_spark.enforcement.policies import unknown_exempt
from kquota_spark.store.reading import Tables

_NAMES = """
select distinct {column} from {table} where cluster_id = ? and {column} is not null
"""


class KnownNames(NamedTuple):
    """By kind."""

    users: frozenset[str]
    client_ids: frozenset[str]


def known_names(settings: Settings) -> KnownNames:
    """All names in `usage` and `quota_rules`; none of a table that is not there.

    Raises:
        UserError: a table cannot be read.
    """
    users: set[str] = set()
    client_ids: set[str] = set()
    with Tables(settings) as tables:
        for table in ("usage", "quota_rules"):
            if not tables.open_if_there(table):
                continue
            for column, names in (('"user"', users), ("client_id", client_ids)):
                sql = _NAMES.format(table=table, column=column)
                names |= {row[0] for row in tables.query(sql, [settings.cluster_id]).rows}
    return KnownNames(frozenset(users), frozenset(client_ids))


def unknown_exemptions(settings: Settings, policies: Policies) -> list[str]:
    """Exemptions that hold for nobody who is known, a line each.

    Raises:
        UserError: a table cannot be read.
    """
    return unknown_exempt(policies, *known_names(settings))
