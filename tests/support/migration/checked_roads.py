"""The two roads to the quotas of a migrating cluster, edits by them, and the check between them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from kquota_spark.cli.chosen.cluster_choice import address_of_context
from kquota_spark.cli.quotas.quota_sides import named_side
from kquota_spark.config.contexts import Context, Contexts, save_contexts
from kquota_spark.enforce.ports import Change, Outcome
from kquota_spark.model.quotas.entities import AnyEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey
from kquota_spark.quotas.backends import opened_cluster
from tests.support.clusters.waiting import until
from tests.support.migration.migrating_cluster import MigratingCluster
from tests.support.quotas.cluster_contract import PRODUCE, altered
from tests.support.reports.reviewed_tables import sent
from tests.support.tables.table_rows import write_table

Expected = dict[AnyEntity, dict[AnyKey, float]]
"""The quotas that all edits so far leave."""
SENT = 500_000
"""Bytes of the one request of a client. A ring of 10 s measures 50 kB/s."""


def write_settings(folder: Path, migrating: MigratingCluster, users: Sequence[str]) -> Mapping[str, str]:
    """Save both roads as the contexts `zookeeper` and `kafka`, and write tables with traffic of these users.

    Args:
        folder: for the files.
        migrating: the cluster.
        users: each sends one request.

    Returns:
        The environment in which commands find the contexts; the settings are `kquota.yaml`.
    """
    write_table(folder / "tables", "usage", *(sent(user, SENT) for user in users))
    write_table(folder / "tables", "decisions")
    text = f"cluster_id: demo\ntables: {json.dumps(str(folder / 'tables'))}\n"
    (folder / "kquota.yaml").write_text(text, encoding="utf-8")
    contexts = {
        "zookeeper": Context(zookeeper=migrating.cluster.zookeeper_connect),
        "kafka": Context(bootstrap_server=migrating.cluster.bootstrap_servers),
    }
    save_contexts(folder / "contexts.yaml", Contexts(contexts=contexts))
    return {"KQUOTA_CONTEXTS": str(folder / "contexts.yaml")}


def quotas_of(road: str) -> QuotaSet:
    """All quotas by a road, also those that a KRaft controller writes to ZooKeeper."""
    return named_side(road, has_copies=True).quotas


def edit(road: str, entity: AnyEntity, values: Mapping[AnyKey, float | None], expected: Expected) -> None:
    """Edit by a road, as a person does, and wait until that road shows it; `expected` gets the edit too."""
    with opened_cluster(address_of_context(road)) as cluster:
        assert altered(cluster, entity, values) is None
    kept = {**expected.get(entity, {}), **values}
    expected[entity] = {key: value for key, value in kept.items() if value is not None}
    if not expected[entity]:
        del expected[entity]
    until(lambda: quotas_of(road).get(entity, {}) == expected.get(entity, {}))


def is_refused_by_zookeeper(entity: AnyEntity) -> bool:
    """Whether our road to ZooKeeper refuses an edit, because a KRaft controller owns the nodes."""
    with opened_cluster(address_of_context("zookeeper")) as cluster:
        outcome, detail = cluster.write(Change(entity, {PRODUCE: 1.0}))
    return outcome is Outcome.REFUSED and "a KRaft controller owns the nodes of this cluster" in detail
