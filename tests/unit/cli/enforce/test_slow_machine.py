"""On a slow machine the tables change while a command reads them: what they hold then is not ahead of the clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from kquota_spark.enforce.guards import Situation
from kquota_spark.enforcement.assembly import Enforcing
from tests.support.enforcement.enforcement_cluster import InMemoryCluster
from tests.support.programs.command_output import as_json, run

SLOW_MS = 8_000
"""What a command takes to read the tables; clocks of one cluster may differ by 5 s."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemoryCluster:
    """The watcher has written its time just before the tables were read."""
    found, know = InMemoryCluster(tmp_path, monkeypatch, "approve"), Enforcing.situation

    def slowly(enforcing: Enforcing, now_ms: int) -> Situation:
        found.now_ms += SLOW_MS
        return replace(know(enforcing, now_ms), rules_known_through_ms=found.now_ms - 1_000)

    monkeypatch.setattr(Enforcing, "situation", slowly)
    return found


def test_a_plan_is_applied(cluster: InMemoryCluster) -> None:
    [row] = as_json("enforce", "plan", "--config", str(cluster.config))["rows"]
    assert (row["status"], row["guard"]) == ("planned", None)
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
