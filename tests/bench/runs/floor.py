"""The floor of the benchmark: read the topic and parse, nothing else. Run by spark-submit."""

from __future__ import annotations

import json
import os
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
from tests.bench.processes import process_cpu_s, session_cpu_s
from tests.bench.rounds import Round

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FLOOR = re.compile(r"^floor: (\{.*\})$", re.MULTILINE)
_BROKER_PID = "BENCH_BROKER_PID"


def floor_rounds(
    command: Sequence[str], environment: Mapping[str, str], broker_pid: int, lines: int
) -> list[Round]:
    """Run this script as a Spark application.

    Args:
        command: spark-submit of this script.
        environment: of the command.
        broker_pid: the process of the broker.
        lines: of the whole topic, which each round reads.
    """
    # spark-submit joins its stderr to stdout. A session of its own: its CPU is that of all its processes.
    done = subprocess.run(
        command,
        env={**environment, _BROKER_PID: str(broker_pid)},
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    found = list(map(json.loads, _FLOOR.findall(done.stdout)))
    if not found:
        raise SystemExit((done.stdout + done.stderr)[-4_000:])
    return [Round(lines, each["seconds"], each["cpu_s"]) for each in found]


def main() -> int:
    session_id, broker_pid = os.getsid(0), int(os.environ[_BROKER_PID])
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

    def cpu_s() -> dict[str, float]:
        return dict([*session_cpu_s(session_id).items(), ("broker", process_cpu_s(broker_pid))])

    for _ in range(ROUNDS):
        started_s, before = time.monotonic(), cpu_s()
        _parse(messages, parse)
        after = cpu_s()
        taken = {"seconds": time.monotonic() - started_s, "cpu_s": {k: after[k] - before[k] for k in after}}
        print(f"floor: {json.dumps(taken)}", file=sys.stderr)
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
