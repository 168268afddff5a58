"""The checkpoint of the log is lost while the job is at work: `--new-lineage` on the topic brings every table."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

from kquota_spark.embedded.cluster import Cluster
from kquota_spark.process.processes import wait_for
from tests.fault.conftest import Run
from tests.support.clusters.audited_topic import (
    BEGUN_WITHIN_S,
    ENDLESS,
    assert_equal_tables,
    configured,
    finish,
    started,
)
from tests.support.spark.queries import rows_of, settings_at

SMALL = 2_000
"""Lines of a micro-batch: a sixth of all."""


def test_a_topic_is_read_on_without_its_checkpoint_and_no_row_of_any_table_is_lost_or_doubled(
    cluster: Cluster, calm: Run, tmp_path: Path
) -> None:
    root = tmp_path / "lost"
    config = configured(root, cluster, most_lines=SMALL)
    process = started(config, job=(*ENDLESS, "--only", "log"))
    try:
        fourth = root / "checkpoints" / "log" / "offsets" / "3"
        assert wait_for(lambda: fourth.exists() or process.poll() is not None, within_s=BEGUN_WITHIN_S)
        assert process.poll() is None, "the job has ended before it was killed"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    shutil.rmtree(root / "checkpoints" / "log")
    read = len(rows_of(settings_at(root), "requests"))
    assert read > 0
    refused = started(config)
    assert refused.wait(BEGUN_WITHIN_S) == 1
    said = (root / "audit.log").read_text(encoding="utf-8")
    assert f"checkpoint {root}/checkpoints/log is missing, but table requests has rows" in said
    assert len(rows_of(settings_at(root), "requests")) == read
    finish(config, job=("audit.py", "--drain", "--new-lineage"))
    assert_equal_tables(calm.root, root)
