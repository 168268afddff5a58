"""All quotas as of one moment from the table `quota_rules`, those of ips too."""

from __future__ import annotations

from typing import NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.model.quotas.entities import parse_entity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS
from kquota_spark.store.quota_rows import KNOWN_THROUGH, cluster_in
from kquota_spark.store.reading import Tables

_KEYS = (*QuotaKey, *IpQuotaKey)
_SET = f"""
select entity, {", ".join(key.value for key in _KEYS)} from rules
where cluster_id = ?
  and epoch_ms(valid_from) <= ? and (valid_to is null or epoch_ms(valid_to) > ?)
"""  # noqa: S608 - names of ours


class StoredQuotas(NamedTuple):
    """The quotas of a cluster at a moment; edits after `known_through_ms` are not known, None where all are.

    It is the beginning of time where no source says anything of that.
    """

    origin: str
    cluster_id: str
    quotas: QuotaSet
    known_through_ms: int | None


def stored_quota_set(tables: Tables, settings: Settings, at_ms: int) -> StoredQuotas:
    """What was in force at a moment; of the settings' cluster, or of the only one there is.

    Args:
        tables: the table is opened here.
        settings: where it is, and which cluster.
        at_ms: as of then.

    Raises:
        UserError: there is no such table, or it has nothing of the cluster.
    """
    tables.open("quota_rules")
    where = _where(settings)
    cluster_id = cluster_in(_held(tables), settings, where)
    [[known_ms]] = tables.query(KNOWN_THROUGH, [cluster_id]).rows
    quotas = {}
    for row in tables.query(_SET, [cluster_id, at_ms, at_ms]).dicts():
        values = {key: row[key.value] for key in _KEYS if row[key.value] is not None}
        if values:
            quotas[parse_entity(row["entity"])] = values
    known_ms = BEGINNING_MS if known_ms is None else known_ms
    return StoredQuotas(where, cluster_id, quotas, None if known_ms >= END_MS else known_ms)


def held_cluster(tables: Tables, settings: Settings) -> str:
    """Whose tables these are: of the settings' cluster, or of the only one whose quotas they have.

    Raises:
        UserError: they have the quotas of others only.
    """
    tables.open_if_there("quota_rules")
    held = _held(tables)
    return cluster_in(held, settings, _where(settings)) if held else settings.cluster_id


def _held(tables: Tables) -> list[str]:
    return [row[0] for row in tables.query("select distinct cluster_id from quota_rules").rows]


def _where(settings: Settings) -> str:
    return f"table quota_rules under {settings.tables}"
