"""On a slow machine the tables change while a command reads them: what they hold then is not ahead of the clock."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from tests.support.enforcement.enforcement_cluster import LIMIT, NOW_MS, InMemoryCluster
from tests.support.programs.command_output import as_json, run
from tests.support.tables.table_rows import second, source, write_table

SLOW_MS = 8_000
"""Between two looks at the clock; clocks of one cluster may differ by 5 s."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryCluster]:
    """Each look at the clock is 8 s after the one before, and the watcher has written its time meanwhile."""
    found = InMemoryCluster(tmp_path, monkeypatch, "approve")
    shutil.rmtree(tmp_path / "tables" / "quota_rules")
    rule = {"cluster_id": "demo", "level": 3, "valid_from": second(-99_999), "version": 7}
    rules = [
        {**rule, "entity": f"users/{user}", "user": user, "producer_byte_rate": LIMIT}
        for user in ("alice", "bob")
    ]
    # NOW is T0 + 121 s: the quotas are known through NOW + 7 s.
    write_table(tmp_path / "tables", "quota_rules", source(128), *rules)
    clock = count(NOW_MS, SLOW_MS)
    for module in ("plans", "override"):
        monkeypatch.setattr(f"kquota_spark.cli.enforce.{module}.now_ms", lambda: next(clock))
    yield found


def test_a_plan_is_not_refused(cluster: InMemoryCluster) -> None:
    [row] = as_json("enforce", "plan", "--config", str(cluster.config))["rows"]
    assert (row["status"], row["guard"]) == ("planned", None)


def test_a_plan_is_applied(cluster: InMemoryCluster) -> None:
    [row] = as_json("enforce", "plan", "--config", str(cluster.config))["rows"]
    for act in ("approve", "apply"):
        assert run("enforce", act, row["plan_id"], "--yes", "--config", str(cluster.config))[0] == 0
    assert cluster.of_alice == "500000.0"


@pytest.mark.parametrize("yes", [(), ("--yes",)])
def test_an_override_is_not_refused(
    yes: tuple[str, ...], cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "override set --user alice --key producer_byte_rate --value 600000 --for 2h --reason backfill"
    main([*words.split(), *yes, "--config", str(cluster.config)])
    assert "ahead of this clock" not in capsys.readouterr().out
    assert cluster.of_alice == ("600000.0" if yes else "1000000")
