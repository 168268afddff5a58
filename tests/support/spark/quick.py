"""Settings of Spark for runs of seconds: compiling costs them more than it gives. The demo runs as in production."""

from __future__ import annotations

QUICK = (
    *("--conf", "spark.driver.defaultJavaOptions=-XX:TieredStopAtLevel=1"),
    *("--conf", "spark.executor.defaultJavaOptions=-XX:TieredStopAtLevel=1"),
    *("--conf", "spark.driver.extraJavaOptions=-XX:+UseSerialGC -Xss4m"),
    *("--conf", "spark.executor.extraJavaOptions=-XX:+UseSerialGC"),
    *("--conf", "spark.sql.codegen.wholeStage=false"),
    *("--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
)
"""Arguments of spark-submit."""
