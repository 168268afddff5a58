"""Trials of the stores of tables and checkpoints: from Spark tasks, on their nodes, and by Spark's own writers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from kquota_spark.checkpoints.notes import read_note
from kquota_spark.config.settings import Settings
from kquota_spark.doctor.store_trial import (
    checkpoints_check,
    numbers_seen,
    store_failure,
    tables_check,
    trial_folder,
    tried_tables,
    written_part,
)
from kquota_spark.errors import UserError
from kquota_spark.process.check import Check, ok
from kquota_spark.store.parts import Part
from kquota_spark.store.storage import hadoop_place, place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def store_checks(settings: Settings, session: SparkSession) -> Iterator[Check]:
    """The checks of this process, then of parts that Spark tasks write and read, then of a checkpoint by Spark."""
    yield tables_check(settings)
    yield checkpoints_check(settings)
    context = session.sparkContext
    count = context.defaultParallelism

    def from_tasks(trial: Settings) -> list[tuple[str, list[Part]]]:
        numbers = context.parallelize(range(count), count)
        return numbers.map(lambda number: (socket.gethostname(), written_part(trial, number))).collect()

    def read_by_tasks(trial: Settings) -> list[list[int]]:
        return context.parallelize(range(count), count).map(lambda _: numbers_seen(trial)).collect()

    yield tried_tables(settings, from_tasks, read_by_tasks)
    yield _spark_checkpoints_check(session, settings)


def _spark_checkpoints_check(session: SparkSession, settings: Settings) -> Check:
    """Have Spark write a file as it does for a checkpoint, and read it in the driver through Arrow."""
    begun_s, text = time.monotonic(), b"of Spark"
    try:
        with trial_folder(settings, settings.checkpoints) as root:
            name = _written_by_spark(session, root, text)
            if (read := read_note(settings, place_of(root, "offsets/0"))) != text:
                raise UserError(f"{root}: Spark wrote a file, and Arrow reads {read!r}")
    except (UserError, OSError, Py4JError) as error:
        return store_failure("checkpoints", f"{settings.checkpoints}, by Spark", error)
    took_s = time.monotonic() - begun_s
    return ok("checkpoints", f"{settings.checkpoints}: Spark writes ({name}), Arrow reads ({took_s:.1f} s)")


def _written_by_spark(session: SparkSession, root: str, text: bytes) -> str:
    """Write `offsets/0` with Spark's own class for checkpoints, and return the name of that class."""
    java: Any = session.sparkContext._jvm
    hadoop = session._jsparkSession.sessionState().newHadoopConf()
    folder = java.org.apache.hadoop.fs.Path(hadoop_place(root, "offsets"))
    managers = java.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    manager = managers.create(folder, hadoop)
    manager.mkdirs(folder)
    stream = manager.createAtomic(java.org.apache.hadoop.fs.Path(folder, "0"), False)
    stream.write(bytearray(text))
    stream.close()
    return str(manager.getClass().getSimpleName())
