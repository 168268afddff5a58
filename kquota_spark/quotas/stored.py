"""Quotas and leaders in the tables, over time or as of one time. No Spark, no JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.ports import Image
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import parse_entity
from kquota_spark.model.quotas.quota_callback import LeaderChange, TopicPartition
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS, RulePeriod
from kquota_spark.schema.quota_tables import PARTITION_LEADERS, QUOTA_RULES
from kquota_spark.store.delta.errors import delta_errors
from kquota_spark.store.quota_rows import (
    KNOWN_THROUGH,
    cluster_in,
    known_through_ms,
    rule_period_of,
    rules_of_clients,
)
from kquota_spark.store.reading import Tables
from kquota_spark.store.storage import delta_table_if_there, place_of

_KEYS = (*QuotaKey, *IpQuotaKey)
_SET = f"""
select entity, {", ".join(key.value for key in _KEYS)} from rules
where cluster_id = ?
  and epoch_ms(valid_from) <= ? and (valid_to is null or epoch_ms(valid_to) > ?)
"""  # noqa: S608 - names of ours


@dataclass(frozen=True, slots=True)
class StoredRules:
    """The quotas of one cluster over time, and the time up to which all edits are known; None if no source gave one."""

    periods: tuple[RulePeriod, ...]
    known_through_ms: int | None


def stored_rules(settings: Settings) -> StoredRules:
    """The present state of `quota_rules`.

    Raises:
        UserError: the table does not exist or cannot be read.
    """
    rows = _rows_of(settings, QUOTA_RULES.name)
    if rows is None:
        raise UserError(
            f"{settings.tables}: no table {QUOTA_RULES.name}: run kquota watch or the audit first"
        )
    return StoredRules(tuple(map(rule_period_of, rules_of_clients(rows))), known_through_ms(rows))


def stored_leaders(settings: Settings) -> list[LeaderChange]:
    """All rows of `partition_leaders`, oldest first; none before the first poll."""
    return leader_changes(_rows_of(settings, PARTITION_LEADERS.name) or ())


def leader_changes(rows: Iterable[Mapping[str, Any]]) -> list[LeaderChange]:
    """Rows of `partition_leaders`, oldest first."""
    changes = (
        LeaderChange(
            TopicPartition(row["topic"], row["partition"]),
            row["leader"],
            row["observed_at"],
            bool(row["is_deleted"]),
        )
        for row in rows
    )
    return sorted(changes, key=lambda change: (change.changed_at_ms, change.partition))


def _rows_of(settings: Settings, name: str) -> list[dict[str, Any]] | None:
    """Rows of this cluster, times in epoch ms; None without the table."""
    from kquota_spark.store.rows import rows_in_ms  # loads pyarrow

    with delta_errors(f"{place_of(settings.tables, name)}: cannot be read"):
        table = delta_table_if_there(settings, name)
        if table is None:
            return None
        mine = [("cluster_id", "=", settings.cluster_id)]
        found = table.rows(filters=mine)
    return rows_in_ms(found)


def stored_image(tables: Tables, settings: Settings, at_ms: int) -> Image:
    """The quotas in force at a time, of the cluster in the settings, or of the only one in the table.

    It opens the table. `known_through_ms` of the image is `BEGINNING_MS` if no source has reported any edit.

    Args:
        tables: the tables.
        settings: the cluster, and after which time the record counts as stale.
        at_ms: epoch ms.

    Raises:
        UserError: there is no such table, or it has no rows of the cluster.
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
    behind_ms = known_ms if known_ms < min(at_ms, END_MS) else None
    is_stale = behind_ms is not None and at_ms - behind_ms > settings.quotas.stale_after_ms
    return Image(where, quotas, cluster_id=cluster_id, known_through_ms=behind_ms, is_stale=is_stale)


def held_cluster(tables: Tables, settings: Settings) -> str:
    """The cluster of the tables: the one in the settings, or the only one with quotas in the tables.

    Raises:
        UserError: the tables have only quotas of other clusters.
    """
    tables.open_if_there("quota_rules")
    held = _held(tables)
    return cluster_in(held, settings, _where(settings)) if held else settings.cluster_id


def _held(tables: Tables) -> list[str]:
    return [row[0] for row in tables.query("select distinct cluster_id from quota_rules").rows]


def _where(settings: Settings) -> str:
    return f"table quota_rules under {settings.tables}"
