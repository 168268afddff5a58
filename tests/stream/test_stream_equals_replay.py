"""The streaming job's decisions on a real log equal the offline replay's, row by row and column by column."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kquota_spark.config.settings import Settings
from kquota_spark.formats.quota_file import read_quota_file
from kquota_spark.io.drain import close_all_windows
from kquota_spark.model.quota_types import QuotaType
from kquota_spark.pipeline.ingest import IngestSettings, MessageReader, parsed_batch
from tests.support.places import DATA
from tests.support.spark.hops import CLUSTER, rows_of, run_hop, settings_at, write_rules
from tests.support.spark.replayed_decisions import differences, replayed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPTURE = DATA / "zk39-levels"
LOGS = sorted((int(path.name.split("-")[1].split(".")[0]), path) for path in CAPTURE.glob("*.log.gz"))
SHIPPED_MS = 1_795_240_000_000
"""After the last line of the capture, as if it had been shipped in one go."""


def _messages() -> list[dict[str, Any]]:
    """The lines of both brokers as messages of the log topic, in the order of their times."""
    lines = [
        (line, broker) for broker, path in LOGS for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    lines.sort(key=lambda line: line[0][1:24])
    return [
        {
            "topic": "log",
            "partition": 0,
            "offset": offset,
            "timestamp_ms": SHIPPED_MS,
            "value": value,
            "broker": str(broker).encode(),
        }
        for offset, (value, broker) in enumerate(lines)
    ]


def _ingest(settings: Settings, commits: int) -> None:
    """What INGEST writes, in so many commits; without Kafka, by the function that runs on its workers."""
    messages = _messages()
    size = -(-len(messages) // commits)
    ingest = IngestSettings(CLUSTER, "UTC", 60_000, settings.stream.allowed_lateness, 4_096)
    for start in range(0, len(messages), size):
        batch = pa.RecordBatch.from_pylist(messages[start : start + size])
        rows = parsed_batch(batch, MessageReader(ingest))
        write_deltalake(f"{settings.tables}/requests", pa.Table.from_batches([rows]), mode="append")
    close_all_windows(settings)


@pytest.mark.parametrize("commits", [1, 7])
def test_decisions_equal_the_replay_whatever_the_batches(
    spark: SparkSession, settings: Settings, tmp_path: Path, commits: int
) -> None:
    _ingest(settings, commits)
    write_rules(settings_at(tmp_path), *read_quota_file(CAPTURE / "quotas.yaml"))
    for hop in ("measure", "judge"):
        run_hop(spark, settings, hop)
    found = rows_of(settings, "decisions")
    assert differences(replayed(LOGS, CAPTURE / "quotas.yaml"), found) == []
    # 17,270 produces, 4,426 fetches, 4,228 requests of the client with a request quota, 64 topics that the mutation
    # quota was asked about; none is lost, none is late.
    assert sum(row["requests"] for row in found) == 17_270 + 4_426 + 4_228 + 64
    assert {row["quota_type"] for row in found} == {each.value for each in QuotaType}
    assert sum(row["late"] for row in found) == 0
