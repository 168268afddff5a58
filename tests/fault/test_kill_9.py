"""Streaming, offline replay and restatement give the same decisions, whatever happens on the way.

The input is shuffled within the allowed lateness, a third of it is sent twice, and the whole job is killed (-9) after
what it leaves behind for its next start: a run for each of these steps, one after the other. All tables equal an
untroubled run's. The decisions equal those of the replay of the log files, before and after all of it has been restated
in batch. By hand the job is killed after every step that it has; otherwise after those that make rows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from kquota_spark.config.settings import Settings
from kquota_spark.embedded.cluster import Cluster
from tests.fault.conftest import Run
from tests.support.clusters.audited_topic import (
    BEGUN_WITHIN_S,
    COPIES,
    ENDLESS,
    LINES,
    as_written,
    assert_equal_tables,
    configured,
    finish,
    started,
)
from tests.support.places import ROOT
from tests.support.spark import durable_steps
from tests.support.spark.durable_steps import AFTER, KILLED, KILLED_AT, STEPS
from tests.support.spark.queries import rows_of
from tests.support.spark.replayed_decisions import differences, replayed

BEFORE_SPARK = (
    "create requests",
    "create usage",
    "create decisions",
    "create violations",
    "create jmx_samples",
    "create broker_configs",
    "create log_gaps",
    "create quota_rules",
    "replace log.compared.json",
    "replace log.lineage.json",
    "replace jmx.lineage.json",
    "overwrite broker_configs",
    "create quota_changes",
    "append quota_changes",
    "overwrite quota_rules",
)
OF_QUERIES = {
    "jmx": (
        "replace jmx.run.json",
        "replace jmx.pinned.json",
        "add jmx_samples",
        "add usage",
        "add decisions",
        "merge violations",
    ),
    "log": (
        "replace log.run.json",
        "replace N.json",
        "replace log.pinned.json",
        "add requests",
        "append log_gaps",
        "add usage",
        "add decisions",
        "merge violations",
    ),
}
"""One query at a time, so that each step comes in the run after the one that the step before it has ended."""
EVERY_STEP: tuple[tuple[str | None, str], ...] = (
    *((None, step) for step in BEFORE_SPARK),
    *((query, step) for query, steps in OF_QUERIES.items() for step in steps),
)
OF_ROWS: tuple[tuple[str | None, str], ...] = (
    (None, "create requests"),
    (None, "append quota_changes"),
    (None, "overwrite quota_rules"),
    ("jmx", "add decisions"),
    *(("log", step) for step in OF_QUERIES["log"][3:]),
)
"""A start of the job takes seconds, so these are the ones whose rows the next start has to know."""
SMALL = 1_200
"""Lines of a micro-batch: there are more micro-batches than moments in them."""


def _log_files(directory: Path) -> list[tuple[int, Path]]:
    """The lines as each broker has written them."""
    by_broker: dict[int, list[bytes]] = {}
    for line in as_written():
        by_broker.setdefault(line.broker_id, []).append(line.text)
    directory.mkdir()
    for broker_id, texts in by_broker.items():
        (directory / f"broker-{broker_id}.log").write_bytes(b"\n".join(texts))
    return [(broker_id, directory / f"broker-{broker_id}.log") for broker_id in sorted(by_broker)]


def _killed(config: Path, query: str | None, step: str) -> int:
    """Start the job, which does not end by itself, and wait until it has been killed after a step; its exit code.

    Before a step there is the same as after the one before it.
    """
    steps = {KILLED_AT: f"{AFTER} {step}", STEPS: f"{config.parent}/steps"}
    if query is None:
        # Without spark-submit, whose JVM takes seconds to start.
        command = [sys.executable, durable_steps.__file__, "jobs/audit.py", "--config", str(config)]
        environment = {**os.environ, **steps}
        done = subprocess.run(command, cwd=ROOT, env=environment, timeout=BEGUN_WITHIN_S, check=False)
        return done.returncode
    process = started(config, job=(*ENDLESS, "--only", query), steps=steps)
    try:
        return process.wait(BEGUN_WITHIN_S)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "kills",
    [pytest.param(OF_ROWS, id="rows"), pytest.param(EVERY_STEP, id="every", marks=pytest.mark.by_hand)],
)
def test_kills_shuffle_and_copies_change_no_decision(
    cluster: Cluster, calm: Run, tmp_path: Path, kills: Sequence[tuple[str | None, str]]
) -> None:
    root = tmp_path / "killed"
    killed = configured(root, cluster, most_lines=SMALL)

    for query, step in kills:
        print(query or "", step, flush=True)
        assert _killed(killed, query, step) == KILLED
    finish(killed, steps={STEPS: f"{root}/steps"})

    came = {line.partition(" ")[2] for line in (root / "steps").read_text(encoding="utf-8").splitlines()}
    assert came == {step for _, step in EVERY_STEP}
    assert_equal_tables(calm.root, root)
    expected = replayed(_log_files(tmp_path / "logs"), calm.root / "quotas.yaml")
    tables = Settings(tables=str(root / "tables"))
    of_log = [row for row in rows_of(tables, "decisions") if row["source"] == "log"]
    assert differences(expected, of_log) == []

    # All of it again in batch, through the same functions.
    seconds = [row["second"] for row in expected]
    period = ("--from", str(min(seconds)), "--to", str(max(seconds) + 1_000))
    finish(killed, job=("restate.py", *period))
    assert_equal_tables(calm.root, root)
    counts = duckdb.connect()
    counts.register("requests", DeltaTable(str(root / "tables/requests")).to_pyarrow_dataset())
    kinds = dict(counts.execute("SELECT kind, count(*) FROM requests GROUP BY kind").fetchall())
    assert kinds == {"request": LINES - 1 + COPIES, "unreadable": 1}
