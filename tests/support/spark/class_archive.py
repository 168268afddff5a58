"""Spark's classes in an archive that a JVM maps into memory: starting Spark takes half of the CPU with it.

`python -m tests.support.spark.class_archive` makes it, in 20 s. It holds for one environment and one Java; a JVM that
finds another one goes without. A JVM takes an archive only if its class path has no folders: Spark's configuration is
given by options instead of its folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.places import CONF, ROOT
from tests.support.spark.quick import QUICK

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_WITHIN_S = 300
_JAVA = f"-XX:+UseSerialGC -Xss4m -Dlog4j2.configurationFile=file:{CONF}/log4j2.properties"
_DEFAULTS = ("--properties-file", str(CONF / "spark-defaults.conf"))


def quick_words() -> tuple[str, ...]:
    """Arguments of spark-submit for a run of seconds, whose environment is `quick_environment`."""
    java = f"{_JAVA} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.is_file() else _JAVA
    return (*_DEFAULTS, *QUICK, "--conf", f"spark.driver.extraJavaOptions={java}")


def quick_environment() -> dict[str, str]:
    """Variables of spark-submit: this interpreter, and no folder of settings."""
    return {"PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": "/nonexistent"}


def _make() -> int:
    ARCHIVE.unlink(missing_ok=True)
    submit = str(Path(sys.executable).with_name("spark-submit"))
    java = f"{_JAVA} -XX:ArchiveClassesAtExit={ARCHIVE}"
    command = [
        submit,
        *_DEFAULTS,
        *QUICK,
        "--conf",
        f"spark.driver.extraJavaOptions={java}",
        __file__,
        "--use",
    ]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **quick_environment()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as made:
        try:
            _, problem = made.communicate(timeout=_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(made.pid, signal.SIGKILL)  # spark-submit, its JVM and the workers
            problem = f"not made in {_WITHIN_S} s"
    if made.returncode or not ARCHIVE.is_file():
        # The tests run without it too.
        ARCHIVE.unlink(missing_ok=True)
        print(f"tests: no archive of Spark's classes: {problem[-500:]}", file=sys.stderr)
    return 0


def _use() -> int:
    """Load what the job loads: streams, state, Python on workers, Delta."""
    import tempfile

    from pyspark.sql import functions as sf

    from kquota_spark.audit.spark import spark_session
    from kquota_spark.config.settings import Settings

    session = spark_session(Settings(), "kquota-classes")
    with tempfile.TemporaryDirectory() as place:
        seconds = (
            session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 10)
            .load()
            .mapInArrow(lambda batches: batches, "timestamp timestamp, value long")
            .withWatermark("timestamp", "1 second")
            .groupBy(sf.window("timestamp", "1 second"))
            .agg(sf.collect_list("value").alias("values"))
        )
        query = (
            seconds.writeStream.foreachBatch(lambda rows, _: print(len(rows.collect())))
            .option("checkpointLocation", f"{place}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        session.range(10).write.format("delta").save(f"{place}/table")
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(_use() if sys.argv[1:] == ["--use"] else _make())
