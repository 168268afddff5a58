"""Prepares the installed Spark for a command that starts it itself."""

from __future__ import annotations

import os
from importlib.util import find_spec

from kquota_spark.embedded.setup.jars import (
    CONF,
    ensure_jars,
    has_spark_jars,
    link_into_pyspark,
    pyspark_jars,
)
from kquota_spark.errors import UserError
from kquota_spark.process.extras import install_text


def prepare_spark(command: str) -> None:
    """Add the jars to the installed PySpark, after fetching them if needed, and use this package's Spark settings.

    Under spark-submit, and with a Spark that `SPARK_HOME` names, the caller provides both.

    Raises:
        UserError: PySpark or Java is missing, or the jars cannot be fetched.
    """
    if find_spec("pyspark") is None:
        raise UserError(f"{command} needs Spark: {install_text('spark')}")
    if "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_HOME" in os.environ:
        return
    directory = pyspark_jars()
    if not has_spark_jars(
        directory
    ):  # existing links may be another user's, into a cache that is not ours to replace
        link_into_pyspark(ensure_jars().spark, directory)
    os.environ.setdefault("SPARK_CONF_DIR", str(CONF))
