"""The Spark session of the job, and the sources of its queries."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.checkpoints.checkpoints import KEPT_BATCHES
from kquota_spark.config.roots import local_path
from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.errors import UserError
from kquota_spark.kafka.client_properties import MSK_IAM, MSK_MODULE, mechanism
from kquota_spark.kafka.clients import spark_options
from kquota_spark.kafka.questions import admin_client, asked_topics
from kquota_spark.process.notices import without_debug
from kquota_spark.store.storage import hadoop_options, hadoop_place

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

_NEEDED_CLASSES = {
    "io.delta.sql.DeltaSparkSessionExtension": "delta-spark",
    "org.apache.spark.sql.kafka010.KafkaSourceProvider": "spark-sql-kafka-0-10",
}
Offsets = Mapping[str, Mapping[str, int]]
_LOCAL_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_LOCAL = {
    # The default is the host's own address: anybody could request blocks of the tables from the driver.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.authenticate": "true",
    "spark.ui.enabled": "false",
}
"""Options for a local master, unless the user sets them."""
_TASK_FAILURES = 4
"""Spark's default of `spark.task.maxFailures`, which a local master does not read."""
_HIDDEN = (
    "(?i)secret|password|token|credential|jaas|[.]sas[.]|(access|account|private|encryption|keystore)[.]?key"
)
"""Pattern of what Spark redacts; the default misses the keys of accounts, of encryption and of stores in PEM."""
_PIN_THREAD = "PYSPARK_PIN_THREAD"
_UMASK = "spark.hadoop.fs.permissions.umask-mode"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def require_pinned_threads() -> None:
    """Check that PySpark gives each Python thread a JVM thread of its own, as it does by default.

    The thread shows which query commits, and by which quotas its tasks judge.

    Raises:
        UserError: the environment turns it off.
    """
    given = os.environ.get(_PIN_THREAD, "true")
    if given.lower() != "true":  # as pyspark.java_gateway reads it
        raise UserError(
            f"{_PIN_THREAD}={given} is set in the environment, and commits of the queries would be mixed up: unset it"
        )


def spark_session(settings: Settings, app_name: str) -> SparkSession:
    """The Spark session with the options that the pipeline needs; spark-submit sets the master and the resources.

    Raises:
        UserError: the Delta or Kafka jars are not on the class path.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    without_debug("py4j")  # at DEBUG it logs all calls, also those that set the options of Kafka and S3
    SparkContext._ensure_initialized()  # before the JVM runs, a SparkConf lacks the options of spark-submit
    conf = SparkConf().setAppName(app_name)
    options = _pipeline_options(settings) | _local_options(conf)
    for name, value in (options | _storage_options(settings, conf)).items():
        conf.set(name, value)
    # Only the context gets the keys of S3: at DEBUG, a session logs its own options.
    SparkContext.getOrCreate(conf)
    session = SparkSession.builder.config(map=dict(options)).getOrCreate()
    _require_jars(session)
    return session


def _pipeline_options(settings: Settings) -> dict[str, str]:
    """Options that the pipeline needs; they contain no secret."""
    return {
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": _HIDDEN,
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": str(settings.stream.shuffle_partitions),
        # transformWithState needs RocksDB.
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        # A kill while the first offsets are written leaves a file. Because of it Spark would refuse every later start.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        # The default uploads whole RocksDB files with each micro-batch. This uploads only the changes.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.minBatchesToRetain": str(KEPT_BATCHES),
        # Counting the rows of the state costs a look-up at every write.
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        # The plans need some 200 classes. The default of 100 drops each before the next micro-batch needs it. Spark
        # and then the JVM would compile all of them every time, which takes most of a core.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # Uncompiled code reads this once per value, and computes the default from the environment each time.
        "spark.sql.types.framework.enabled": "false",
        # The default sorts all rows of a task as soon as it has seen 128 groups.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "250000",
        # The default, INT96, is slow to read and foreign to other readers.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # The default of 50 makes every micro-batch of a small table 2 s longer.
        "spark.databricks.delta.snapshotPartitions": "2",
        # Other readers of the tables (deltalake, DuckDB) cannot all read deletion vectors.
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
    }


def _local_options(given: SparkConf) -> dict[str, str]:
    master = str(given.get("spark.master", "local"))
    if master.startswith("local"):
        # Workers of a local master would take the first python3 of the PATH, which may lack our packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master != "local" and not master.startswith("local["):  # local-cluster has executors of its own
        return {}
    options = {name: value for name, value in _LOCAL.items() if not given.contains(name)}
    return options | {"spark.master": with_task_failures(master)}


def with_task_failures(master: str) -> str:
    """A local master that repeats failed tasks, as a cluster does; one with its own number of attempts is unchanged.

    Without it, one task that fails by chance ends the query, for example because its worker was killed.
    """
    cores = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return f"local[{cores[1] or 1},{_TASK_FAILURES}]" if cores else master


def _storage_options(settings: Settings, given: SparkConf) -> dict[str, str]:
    # Hadoop sets the rights of each checkpoint file itself, whatever the umask: by default, all can read it.
    options = {} if given.contains(_UMASK) else {_UMASK: f"{_umask():03o}"}
    options |= {f"spark.hadoop.{name}": value for name, value in hadoop_options(settings).items()}
    if local_path(settings.checkpoints) is not None:
        # The default starts ten processes (chmod, readlink) for each small file of a checkpoint on a local disk.
        options["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_CHECKPOINTS
    return options


def _umask() -> int:
    """The umask of this process."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    # On other systems it can only be read by setting it, for all threads.
    before = os.umask(0o077)
    os.umask(before)
    return before


def _require_jars(session: SparkSession) -> None:
    loader = session.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    for name, artifact in _NEEDED_CLASSES.items():
        try:
            loader.loadClass(name)
        except Exception as error:
            message = (
                f"the jar of {artifact} is not on Spark's class path: run make setup, "
                "or give spark-submit the --packages of kquota help spark-cluster"
            )
            raise UserError(message) from error


def _require_msk(session: SparkSession, kafka: Kafka) -> None:
    """Check for the jar of AWS if its SASL mechanism is set: Kafka's own client does not have it."""
    if mechanism(kafka.options) != MSK_IAM:
        return
    loader = session.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    try:
        loader.loadClass(MSK_MODULE)
    except Exception as error:
        raise UserError(
            f"sasl.mechanism {MSK_IAM} needs the jar of aws-msk-iam-auth on Spark's class path: give spark-submit "
            "--packages software.amazon.msk:aws-msk-iam-auth:2.3.5"
        ) from error


def request_log(session: SparkSession, settings: Settings, offsets: Offsets) -> DataFrame:
    """The log topics as a stream with headers; from their beginning, or from offsets by topic and partition."""
    starting = _starting_offsets(settings, settings.kafka.log_topics, offsets)
    return _reader(session, settings, settings.kafka.subscription, starting).load()


def jmx_messages(session: SparkSession, settings: Settings, offsets: Offsets) -> DataFrame:
    """The topic of JMX samples as a stream with headers; from its beginning, or from offsets by topic and partition."""
    topic = settings.kafka.jmx_topic
    starting = _starting_offsets(settings, lambda _: [topic], offsets)
    return _reader(session, settings, ("subscribe", topic), starting).load()


def _reader(
    session: SparkSession, settings: Settings, subscription: tuple[str, str], starting_offsets: str
) -> DataStreamReader:
    _require_msk(session, settings.kafka)
    return (
        session.readStream.format("kafka")
        .options(**spark_options(settings.kafka))
        .option(*subscription)
        .option("startingOffsets", starting_offsets)
        .option("includeHeaders", "true")
        # Messages that expired before they were read do not end the job: `audit.gaps` finds and reports them.
        .option("failOnDataLoss", "false")
        .option("maxOffsetsPerTrigger", settings.kafka.max_lines_per_trigger)
        # A topic of one partition would otherwise keep one core busy and the others idle.
        .option("minPartitions", settings.stream.shuffle_partitions)
    )


def _starting_offsets(
    settings: Settings, meant: Callable[[Iterable[str]], Iterable[str]], offsets: Offsets
) -> str:
    """The starting offsets for Spark, which requires every partition; -2 is the beginning of one not read yet."""
    if not offsets:
        return "earliest"
    found = asked_topics(admin_client(settings), settings)
    numbers = {topic: [str(number) for number in found[topic].partitions] for topic in meant(found)}
    return json.dumps(
        {topic: {each: offsets.get(topic, {}).get(each, -2) for each in numbers[topic]} for topic in numbers}
    )


def table_stream(session: SparkSession, settings: Settings, name: str, first_version: int) -> DataFrame:
    """A table as a stream from a version on; one micro-batch reads all rows that are there.

    Args:
        session: the Spark session, with Delta.
        settings: where the tables are.
        name: name of the table.
        first_version: version of the table's log; the stream reads rows that this commit and later ones added.
    """
    return (
        session.readStream.format("delta")
        .option("startingVersion", first_version)
        .option("skipChangeCommits", "true")
        .option("maxFilesPerTrigger", 2**31 - 1)  # no limit
        .load(hadoop_place(settings.tables, name))
    )


def table(session: SparkSession, settings: Settings, name: str) -> DataFrame:
    """A table as it is now."""
    return session.read.format("delta").load(hadoop_place(settings.tables, name))


def sql_literal(text: str) -> str:
    """A text as a literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
