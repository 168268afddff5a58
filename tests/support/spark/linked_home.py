"""A SPARK_HOME that may be written into."""

from __future__ import annotations

from pathlib import Path

from kquota_spark.embedded.setup.jars import pyspark_jars


def linked_spark_home(into: Path) -> Path:
    """A SPARK_HOME of links to this environment's PySpark; `local-cluster` writes its executors' logs into it.

    Args:
        into: a directory that is not there yet.
    """
    into.mkdir(parents=True)
    for entry in pyspark_jars().parent.iterdir():
        if entry.name != "work":
            (into / entry.name).symlink_to(entry)
    return into
