"""The floor of the benchmark: read the topic and parse, nothing else. Run by spark-submit."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kquota_spark.config.loader import load_settings
from kquota_spark.io.spark import spark_session
from kquota_spark.pipeline.ingest import IngestSettings, to_requests


def main() -> int:
    settings = load_settings(Path(sys.argv[sys.argv.index("--config") + 1]))
    session = spark_session(settings, "kquota-bench floor")
    messages = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", settings.kafka.bootstrap_servers)
        .option("subscribe", settings.kafka.topic)
        .option("includeHeaders", "true")
        .load()
    )
    parse = IngestSettings(settings.cluster_id, "UTC", 60_000, 30_000, 4_096)
    to_requests(messages.limit(1_000), parse).write.format("noop").mode("overwrite").save()  # warm up
    started_s = time.monotonic()
    to_requests(messages, parse).write.format("noop").mode("overwrite").save()
    print(f"floor: {time.monotonic() - started_s:.2f} s", file=sys.stderr)
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
