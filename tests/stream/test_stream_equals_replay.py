"""The streaming job's decisions on a real log equal the offline replay's, row by row and column by column."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kquota_spark.audit.queries import close_all_windows
from kquota_spark.config.settings import Settings
from kquota_spark.doctor.counts import judged_checks, line_checks, measured_checks
from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.pipeline.kept_requests import Kept
from kquota_spark.process.check import Status
from kquota_spark.store.reading import open_tables
from tests.support.logs.log_lines import PRODUCE_V9, changed
from tests.support.places import DATA
from tests.support.spark.largest_state import largest_values
from tests.support.spark.queries import rows_of, run_topic, settings_at, write_rules, write_topic
from tests.support.spark.replayed_decisions import differences, replayed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COUNTS = """
select sum(coalesce(lines, 1))::bigint, count(*) filter (kind = 'request') from requests
"""
_KEPT = {
    "all": re.compile(b""),
    "throttled": re.compile(rb'hrottleTimeMs":[1-9]|"ALTER_CLIENT_QUOTAS"'),
    "unreadable": re.compile(b'"ALTER_CLIENT_QUOTAS"'),
}
"""What a line has that gets a row: a throttle in either field, or an edit of quotas."""
CAPTURE = DATA / "zk39-levels"
LOGS = sorted((int(path.name.split("-")[1].split(".")[0]), path) for path in CAPTURE.glob("*.log.gz"))
SHIPPED_MS = 1_795_240_000_000
"""After the last line of the capture, as if it had been shipped in one go."""
LATER_MS = 1_795_250_000_000
"""The same for the capture of JMX beside a log."""
MINUTES_EARLIER = changed(PRODUCE_V9, ("2024-11-20 12:00:00,123", "2026-11-21 05:30:00,000"))
"""Broker 1's log begins with a client that came long ago. So it begins in mid-stream, and all buckets minutes later."""


def _messages() -> list[tuple[int, bytes]]:
    """The lines of both brokers as messages of the log topic, in the order of their times."""
    lines = [
        (broker, line) for broker, path in LOGS for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    return sorted(lines, key=lambda line: line[1][1:24])


@pytest.mark.parametrize(
    ("batches", "kept", "is_mid_stream", "shards"),
    [(1, "all", True, 64), (7, "all", False, 5), (7, "throttled", False, 1), (7, "unreadable", False, 64)],
)
def test_decisions_equal_the_replay_whatever_the_batches_the_shards_and_whatever_is_kept(
    spark: SparkSession,
    settings: Settings,
    tmp_path: Path,
    batches: int,
    kept: Kept,
    is_mid_stream: bool,
    shards: int,
) -> None:
    stream = replace(settings.stream, state_shards=shards)
    settings = replace(settings, kept_requests=kept, stream=stream)
    write_rules(settings_at(tmp_path), *read_quota_file(CAPTURE / "quotas.yaml"))
    earlier = [(1, MINUTES_EARLIER)] if is_mid_stream else []
    before = tmp_path / "broker-1.log"
    before.write_bytes(b"".join(line for _, line in earlier))
    messages = earlier + _messages()
    size = -(-len(messages) // batches)
    for start in range(0, len(messages), size):
        write_topic(settings, messages[start : start + size], SHIPPED_MS, start)
    run_topic(spark, settings)
    close_all_windows(settings)
    run_topic(spark, settings)
    found = rows_of(settings, "decisions")
    assert differences(replayed([*LOGS, (1, before)], CAPTURE / "quotas.yaml"), found) == []
    # 17,270 produces, 4,426 fetches, 4,228 requests of the client with a request quota, 64 topics that the mutation
    # quota was asked about; none is lost, none is late.
    assert sum(row["requests"] for row in found) == 17_270 + len(earlier) + 4_426 + 4_228 + 64
    assert {row["quota_type"] for row in found} == {each.value for each in QuotaType}
    assert sum(row["late"] for row in found) == 0
    with open_tables(settings, "requests", "usage", "decisions") as tables:
        checks = [*line_checks(tables), *measured_checks(tables, 3_500), *judged_checks(tables, SHIPPED_MS)]
        counts = tables.query(_COUNTS).rows[0]
    assert {check.status for check in checks} == {Status.OK}
    # Nobody knows in the first micro-batch how the logs begin: it is kept whole.
    later = sum(_KEPT[kept].search(line) is not None for _, line in messages[size:])
    assert counts == (len(messages), size + later)


def test_decisions_equal_the_replay_where_lines_cannot_be_read(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    """Of every tenth line the middle is missing, and of two the end."""
    capture = DATA / "jmx-telegraf"
    write_rules(settings_at(tmp_path), *read_quota_file(capture / "quotas.yaml"))
    lines = gzip.decompress((capture / "broker-1.kafka-request.log.gz").read_bytes()).splitlines()
    for place in range(200, len(lines), 10):
        lines[place] = lines[place].replace(b'"request":{', b'"request":{\0')
    for place in (205, 505):
        lines[place] = lines[place][:400]
    log = tmp_path / "broker-1.log"
    log.write_bytes(b"\n".join(lines))
    write_topic(settings, [(1, line) for line in lines], LATER_MS)
    run_topic(spark, settings)
    close_all_windows(settings)
    run_topic(spark, settings)
    found = rows_of(settings, "decisions")
    assert differences(replayed([(1, log)], capture / "quotas.yaml"), found) == []
    assert sum(row["unsized_requests"] for row in found) > 30
    with open_tables(settings, "requests", "usage", "decisions") as tables:
        checks = [*line_checks(tables), *measured_checks(tables, 3_500), *judged_checks(tables, LATER_MS)]
    assert {check.status for check in checks} == {Status.OK}
    # The benchmark reads them the same way.
    sizes = largest_values(spark, f"{settings.checkpoints}/log")
    assert all(0 < size <= 1_000_000 for size in sizes.values()), sizes
