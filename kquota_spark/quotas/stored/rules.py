"""Reads quotas and leaders over time back from the tables, with deltalake: no Spark, no JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.quota_callback import LeaderChange, TopicPartition
from kquota_spark.model.quotas.rules import RuleStretch
from kquota_spark.schema.quota_tables import PARTITION_LEADERS, QUOTA_RULES
from kquota_spark.store.failures import delta_errors
from kquota_spark.store.places import place_of
from kquota_spark.store.quota_rows import known_through_ms, rules_of_clients, stretch_of
from kquota_spark.store.rows import rows_in_ms
from kquota_spark.store.storage import arrow_files, delta_table_if_there


@dataclass(frozen=True, slots=True)
class StoredRules:
    """The quotas of one cluster over time, and through when all edits are known; None if never said."""

    stretches: tuple[RuleStretch, ...]
    known_through_ms: int | None


def stored_rules(settings: Settings) -> StoredRules:
    """The present state of `quota_rules`.

    Raises:
        UserError: the table is not there or cannot be read.
    """
    rows = _rows(settings, QUOTA_RULES.name)
    if rows is None:
        raise UserError(
            f"{settings.tables}: no table {QUOTA_RULES.name}: run kquota watch or the audit first"
        )
    return StoredRules(tuple(map(stretch_of, rules_of_clients(rows))), known_through_ms(rows))


def stored_leaders(settings: Settings) -> list[LeaderChange]:
    """All rows of `partition_leaders`, oldest first; none if nobody has polled yet."""
    return leader_changes(_rows(settings, PARTITION_LEADERS.name) or ())


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


def _rows(settings: Settings, name: str) -> list[dict[str, Any]] | None:
    """Rows of this cluster, times in epoch ms; None without the table."""
    with delta_errors(f"{place_of(settings.tables, name)}: cannot be read"):
        table = delta_table_if_there(settings, name)
        if table is None:
            return None
        mine = [("cluster_id", "=", settings.cluster_id)]
        found = table.to_pyarrow_table(filters=mine, filesystem=arrow_files(table))
    return rows_in_ms(found)
