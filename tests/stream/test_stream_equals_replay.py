"""The streaming job's decisions on a real log equal the offline replay's, row by row and column by column."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kquota_spark.audit.closing import close_all_windows
from kquota_spark.config.settings import Settings
from kquota_spark.formats.quota_file import read_quota_file
from kquota_spark.model.quota_types import QuotaType
from tests.support.places import DATA
from tests.support.spark.queries import rows_of, run_topic, settings_at, write_rules, write_topic
from tests.support.spark.replayed_decisions import differences, replayed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPTURE = DATA / "zk39-levels"
LOGS = sorted((int(path.name.split("-")[1].split(".")[0]), path) for path in CAPTURE.glob("*.log.gz"))
SHIPPED_MS = 1_795_240_000_000
"""After the last line of the capture, as if it had been shipped in one go."""


def _messages() -> list[tuple[int, bytes]]:
    """The lines of both brokers as messages of the log topic, in the order of their times."""
    lines = [
        (broker, line) for broker, path in LOGS for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    return sorted(lines, key=lambda line: line[1][1:24])


@pytest.mark.parametrize("batches", [1, 7])
def test_decisions_equal_the_replay_whatever_the_batches(
    spark: SparkSession, settings: Settings, tmp_path: Path, batches: int
) -> None:
    write_rules(settings_at(tmp_path), *read_quota_file(CAPTURE / "quotas.yaml"))
    messages = _messages()
    size = -(-len(messages) // batches)
    for start in range(0, len(messages), size):
        write_topic(settings, messages[start : start + size], SHIPPED_MS, start)
    run_topic(spark, settings)
    close_all_windows(settings)
    run_topic(spark, settings)
    found = rows_of(settings, "decisions")
    assert differences(replayed(LOGS, CAPTURE / "quotas.yaml"), found) == []
    # 17,270 produces, 4,426 fetches, 4,228 requests of the client with a request quota, 64 topics that the mutation
    # quota was asked about; none is lost, none is late.
    assert sum(row["requests"] for row in found) == 17_270 + 4_426 + 4_228 + 64
    assert {row["quota_type"] for row in found} == {each.value for each in QuotaType}
    assert sum(row["late"] for row in found) == 0
    assert DeltaTable(f"{settings.tables}/requests").to_pyarrow_dataset().count_rows() == len(messages)
