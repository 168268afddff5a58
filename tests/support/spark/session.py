"""One Spark session for the whole test session, and the tables of a test."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.store.creation import create_tables
from tests.support.places import CONF
from tests.support.spark.queries import settings_at
from tests.support.spark.quick import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""The default starts two programs for each file of a checkpoint, to set its rights."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The job's own session, on two cores."""
    from kquota_spark.audit.spark import spark_session

    os.environ.setdefault("SPARK_CONF_DIR", str(CONF))
    warehouse = tmp_path_factory.mktemp("warehouse")
    own = {
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": warehouse,
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    }
    options = [*QUICK, *(word for name, value in own.items() for word in ("--conf", f"{name}={value}"))]
    submitted = ["--master", "local[2]", "--driver-memory", "2g", *options, "pyspark-shell"]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(submitted)
    session = spark_session(Settings(), "kquota-tests")
    yield session
    session.stop()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Tables and checkpoints of one test; the tables that the job writes are there and empty."""
    made = settings_at(tmp_path)
    create_tables(made)
    return made
