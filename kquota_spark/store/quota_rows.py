"""Rows of `quota_rules`: the rules, and one row per source with the time through which it is known.

They share the table so that one commit writes both. `level` 0 marks the row of a source, and only this module tests for
it. SQL reads the views `rules` and `quota_sources`, which exist whenever the table is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey
from kquota_spark.model.quotas.rules import RulePeriod

if TYPE_CHECKING:
    import pyarrow.compute as pc

SOURCE_LEVEL = 0
"""The `level` of a source's row; rules have 1 to 8, and those of ips null."""
VIEWS = {
    "rules": "select * from quota_rules where level is distinct from 0",
    "quota_sources": "select cluster_id, source, known_through from quota_rules where level = 0",
}
"""Views of the opened table, by name."""
KNOWN_THROUGH = "select epoch_ms(max(known_through)) from quota_sources where cluster_id = ?"
"""SQL for the time through which all edits of a cluster have been seen, epoch ms; null if no source recorded one."""
OF_SOURCES = f"level = {SOURCE_LEVEL}"
"""The rows of sources, as a predicate of deltalake's writer."""


def source_filter() -> list[tuple[str, str, Any]]:
    """The rows of sources, as a filter of deltalake's reader."""
    return [("level", "=", SOURCE_LEVEL)]


def is_of_sources(path: str) -> bool:
    """Whether a file of the table holds rows of sources, which are written every second; rules only with an edit."""
    return path.startswith(f"level={SOURCE_LEVEL}/")


def only_rules() -> pc.Expression:
    """All rows but those of sources, as a filter of Arrow."""
    import pyarrow.compute as pc

    level = pc.field("level")
    return level.is_null() | (level > SOURCE_LEVEL)


def known_through_ms(rows: Iterable[Mapping[str, Any]]) -> int | None:
    """The time through which a cluster's sources are known, from its rows, epoch ms; None if no source recorded one."""
    return max((row["known_through"] for row in rows if row["known_through"] is not None), default=None)


def rules_of_clients(rows: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """The rules of users and client ids among the rows of a cluster, without those of ips."""
    return (row for row in rows if row["level"])


def rule_period_of(row: Mapping[str, Any]) -> RulePeriod:
    """The period of unchanged quotas in a row of `quota_rules`, times in epoch ms."""
    values: dict[AnyKey, float] = {key: row[key.value] for key in QuotaKey if row[key.value] is not None}
    entity = Entity.parse(row["entity"])
    times_ms = (row["valid_from"], row["valid_to"])
    return RulePeriod(entity, values, *times_ms, row["version"], row["certain_from"])


def cluster_in(clusters: Iterable[str], settings: Settings, where: str) -> str:
    """The cluster of a table to use: its only one, else that of the settings.

    Raises:
        UserError: the table has no cluster, or several without that of the settings.
    """
    held = sorted(set(clusters))
    if not held:
        raise UserError(f"{where} is empty: start the audit or kquota watch, or name another source")
    cluster_id = held[0] if len(held) == 1 else settings.cluster_id
    if cluster_id not in held:
        raise UserError(
            f"{where} has nothing of cluster {cluster_id}, only {', '.join(held)}: set cluster_id (--config)"
        )
    return cluster_id
