"""A real migration from ZooKeeper to KRaft in its four phases: after an edit by each road the check passes.

The edits have names that ZooKeeper and KRaft spell differently, and defaults of each kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.model.quotas.entities import DEFAULT, Entity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.process.processes import wait_for
from tests.support.clusters.waiting import WITHIN_S
from tests.support.migration.checked_roads import (
    Expected,
    edit,
    is_refused_by_zookeeper,
    quotas_of,
    write_settings,
)
from tests.support.migration.migrating_cluster import MigratingCluster, kraft_owns, migrating_cluster
from tests.support.programs.command_output import run
from tests.support.quotas.cluster_contract import CONNECTIONS, FETCH, MUTATIONS, PERCENT, PRODUCE
from tests.support.reports.reviewed_tables import quota_file

pytestmark = pytest.mark.timeout(600)

CLIENTS = ("CN=app 1,OU=x", "a/b+c*", "alice", "é~漢", "bob")
"""Users in the recorded traffic; rules name the first four, and the default user governs bob."""
BOTH = ("zookeeper", "kafka")


@pytest.fixture
def migrating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MigratingCluster]:
    """A cluster of Kafka 3.9 in the first phase."""
    with migrating_cluster(tmp_path / "servers") as started:
        for name, value in write_settings(tmp_path, started, CLIENTS).items():
            monkeypatch.setenv(name, value)
        yield started


def checked(folder: Path, before: str, after: str) -> tuple[int, dict[str, Any]]:
    """Exit code and answer of the check."""
    words = (
        "--before",
        before,
        "--after",
        after,
        "--config",
        str(folder / "kquota.yaml"),
        "--output",
        "json",
    )
    code, out, err = run("migration", *words)
    assert err == ""
    answer: dict[str, Any] = json.loads(out)
    return code, answer


def has_quotas(road: str, expected: QuotaSet) -> bool:
    return quotas_of(road) == expected


def assert_no_difference(folder: Path, expected: QuotaSet, roads: tuple[str, ...]) -> None:
    """Each road has the expected quotas at last, and then the check between any two sides finds nothing."""
    for road in roads:
        assert wait_for(partial(has_quotas, road, expected), within_s=WITHIN_S), (road, quotas_of(road))
    file = quota_file(folder, "expected.yaml", dict(expected))
    for before, after in ((roads[0], roads[-1]), (str(file), roads[-1]), (roads[0], str(file))):
        code, answer = checked(folder, before, after)
        found = {
            name: answer[name] for name in ("edits", "affected", "possible", "mangled", "names", "reasons")
        }
        assert (code, answer["verdict"], {name: rows for name, rows in found.items() if rows}) == (
            0,
            "pass",
            {},
        )
        rules = answer["before"]["rules"], answer["after"]["rules"]
        assert (answer["clients"], *rules) == (len(CLIENTS), len(expected), len(expected))


def test_the_check_passes_after_an_edit_by_each_road_in_each_of_the_four_phases(
    migrating: MigratingCluster, tmp_path: Path
) -> None:
    expected: Expected = {}

    # Phase 1, ZooKeeper: both roads may write.
    edit("zookeeper", Entity("CN=app 1,OU=x"), {PRODUCE: 1e6, PERCENT: 12.5}, expected)
    edit("kafka", Entity("a/b+c*"), {PRODUCE: 2e6}, expected)
    edit("zookeeper", Entity(DEFAULT), {PRODUCE: 300_000.0}, expected)
    edit("kafka", Entity(DEFAULT, "x y"), {FETCH: 4e6}, expected)
    edit("zookeeper", IpEntity("10.0.0.1"), {CONNECTIONS: 5.0}, expected)
    edit("kafka", IpEntity(DEFAULT), {CONNECTIONS: 50.0}, expected)
    assert not kraft_owns(migrating.cluster)
    assert_no_difference(tmp_path, expected, BOTH)

    # Phase 2, the controller joined and the broker in migration mode: only the controller writes to ZooKeeper.
    migrating.begin_migration()
    assert kraft_owns(migrating.cluster)
    assert_no_difference(tmp_path, expected, BOTH)
    edit("kafka", Entity("é~漢", "a%2Fb"), {FETCH: 5e6}, expected)
    edit("kafka", Entity("CN=app 1,OU=x"), {PERCENT: None, PRODUCE: 1.5e6}, expected)
    assert is_refused_by_zookeeper(Entity("alice"))
    assert_no_difference(tmp_path, expected, BOTH)

    # Phase 3, the broker restarted as KRaft: the controller still writes to both.
    migrating.restart_broker_as_kraft()
    assert_no_difference(tmp_path, expected, BOTH)
    edit("kafka", Entity(None, DEFAULT), {MUTATIONS: 10.0}, expected)
    edit("kafka", Entity("a/b+c*"), {PRODUCE: None}, expected)
    assert is_refused_by_zookeeper(Entity("alice"))
    assert_no_difference(tmp_path, expected, BOTH)

    # Phase 4, finalised: ZooKeeper keeps the last state.
    last_of_zookeeper = dict(expected)
    migrating.finalise()
    assert_no_difference(tmp_path, expected, ("kafka",))
    edit("kafka", Entity("alice", "é/x"), {PRODUCE: 40_000.0}, expected)
    edit("kafka", Entity(DEFAULT), {PRODUCE: 100_000.0}, expected)
    assert_no_difference(tmp_path, expected, ("kafka",))
    assert quotas_of("zookeeper") == last_of_zookeeper

    # The check can fail: the two edits of the last phase are its only differences to ZooKeeper.
    code, answer = checked(tmp_path, "zookeeper", "kafka")
    assert code == 2
    assert [(one["entity"], one["before"], one["after"]) for one in answer["edits"]] == [
        (str(Entity("alice", "é/x")), None, 40_000.0),
        ("users/<default>", 300_000.0, 100_000.0),
    ]
