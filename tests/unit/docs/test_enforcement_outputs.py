"""The outputs that the pages show of commands that need a cluster are those of a cluster in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from tests.site.shown_outputs import shown_outputs
from tests.support.clock import set_clock
from tests.support.enforcement.enforcement_cluster import InMemoryCluster
from tests.support.programs.command_output import as_json, run, shown
from tests.support.quotas.in_memory_cluster_quotas import InMemoryClusterQuotas
from tests.support.quotas.opened_clusters import opens


class _NamedCluster(InMemoryClusterQuotas):
    @property
    def origin(self) -> str:
        return "Kafka broker1:9092"


def page_output(command: str) -> str:
    [found] = [one.output for one in shown_outputs() if one.command == command]
    return found


def test_the_plan_of_the_page_is_that_of_an_offender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = InMemoryCluster(tmp_path, monkeypatch, "observe")
    assert page_output("kquota enforce plan") == shown("enforce", "plan", "--config", str(cluster.config))


def test_alter_warns_of_enforcement_as_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = InMemoryCluster(tmp_path, monkeypatch, "approve")
    world.name_cluster()
    config = ("--config", str(world.config))
    plan = as_json("enforce", "plan", *config)["rows"][0]["plan_id"]
    for step in ("approve", "apply"):
        assert run("enforce", step, plan, "--yes", *config)[0] == 0
    quotas = _NamedCluster({Entity("alice"): {QuotaKey.PRODUCER_BYTE_RATE: 500_000.0}})
    set_clock(monkeypatch, lambda: world.now_ms)
    words = "alter --user alice --add producer_byte_rate=800000 --dry-run"
    with opens(quotas):
        assert page_output(f"kquota {words}") == shown(*words.split(), *config)
