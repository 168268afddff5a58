"""After a long stop the job works through its backlog in micro-batches of bounded size."""

from __future__ import annotations

import json
from pathlib import Path

from kquota_spark.embedded.cluster import Cluster
from tests.fault.conftest import Run
from tests.support.clusters.audited_topic import (
    COPIES,
    LINES,
    assert_equal_tables,
    configured,
    finish,
)

MOST = 1_000
MEMORY = ("--driver-memory", "512m")


def test_a_backlog_of_twelve_triggers_is_no_larger_micro_batch(
    cluster: Cluster, calm: Run, tmp_path: Path
) -> None:
    config = configured(tmp_path / "behind", cluster, most_lines=MOST)
    finish(config, *MEMORY)
    sizes = _lines_of_commits(tmp_path / "behind" / "tables" / "requests" / "_delta_log")
    assert sum(sizes) == LINES + COPIES
    # 12,000 lines in shares of 1,000; a share of a partition is rounded, and the last ones close the seconds.
    assert max(sizes) <= MOST
    assert len([size for size in sizes if size]) >= (LINES + COPIES) // MOST
    assert_equal_tables(calm.root, tmp_path / "behind")


def _lines_of_commits(log: Path) -> list[int]:
    """Rows that each micro-batch has added."""
    sizes = []
    for entry in sorted(log.glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text("utf-8").splitlines()]
        if any("txn" in action for action in actions):
            added = [json.loads(action["add"]["stats"]) for action in actions if "add" in action]
            sizes.append(sum(stats["numRecords"] for stats in added))
    return sizes
