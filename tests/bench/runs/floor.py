"""The floor of the benchmark: read the topic and parse, nothing else. Run by spark-submit."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from kquota_spark.audit.spark import spark_session
from kquota_spark.config.loader import load_settings
from kquota_spark.pipeline.ingest import IngestSettings, MessageReader, parsed, to_messages
from kquota_spark.schema.tables import REQUESTS
from tests.bench.preloaded import ROUNDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FLOOR = re.compile(r"^floor: ([\d.]+) s", re.MULTILINE)


def floor_s(command: Sequence[str], environment: Mapping[str, str]) -> list[float]:
    """Run this script as a Spark application.

    Args:
        command: spark-submit of this script.
        environment: of the command.

    Returns:
        The seconds that each of its rounds took for the whole topic.
    """
    # spark-submit joins its stderr to stdout
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = _FLOOR.findall(done.stdout)
    if not found:
        raise SystemExit((done.stdout + done.stderr)[-4_000:])
    return list(map(float, found))


def main() -> int:
    settings = load_settings(Path(sys.argv[sys.argv.index("--config") + 1]))
    session = spark_session(settings, "kquota-bench floor")
    messages = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", settings.kafka.bootstrap_servers)
        .option(*settings.kafka.subscription)
        .option("includeHeaders", "true")
        .load()
    )
    parse = IngestSettings(settings.cluster_id, "UTC", 60_000, 30_000, 4_096)
    _parse(messages.limit(200_000), parse)  # warm up
    for _ in range(ROUNDS):
        started_s = time.monotonic()
        _parse(messages, parse)
        print(f"floor: {time.monotonic() - started_s:.2f} s", file=sys.stderr)
    session.stop()
    return 0


def _parse(messages: DataFrame, settings: IngestSettings) -> None:
    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = MessageReader(settings)
        return (parsed(batch, reader) for batch in batches if batch.num_rows)

    found = to_messages(messages, settings).mapInArrow(rows, REQUESTS.ddl)
    found.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    sys.exit(main())
