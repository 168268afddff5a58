"""`--check-store`: tasks of Spark write and read parts, and Spark writes a checkpoint, where the driver finds both."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.config.settings import Settings
from kquota_spark.doctor.spark_trial import store_checks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_driver_and_tasks_see_the_same_store_and_leave_nothing(spark: SparkSession, tmp_path: Path) -> None:
    settings = Settings(tables=f"{tmp_path}/tables", checkpoints=f"{tmp_path}/checkpoints")
    found = [
        (check.status.value, check.what, check.evidence.rpartition(" (")[0])
        for check in store_checks(settings, spark)
    ]
    done = "parts are written, committed, merged and read; of commits of one version one wins"
    manager = "FileSystemBasedCheckpointFileManager"
    assert found == [
        ("ok", "tables", f"{settings.tables}: by this process {done}"),
        ("ok", "checkpoints", f"{settings.checkpoints}: notes are written, replaced and read"),
        ("ok", "tables", f"{settings.tables}: by tasks of Spark on {socket.gethostname()} {done}"),
        ("ok", "checkpoints", f"{settings.checkpoints}: Spark writes ({manager}), Arrow reads"),
    ]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["checkpoints", "tables"]
