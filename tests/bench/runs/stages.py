"""`python -m tests.bench.runs.stages`: CPU per line of each stage of the job, in one process without Spark and Kafka.

What workers do between the shuffles, with 1,000 and 100,000 client ids. STAGES_LINES sets the size; a minute.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.config.settings import Settings
from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.rules import RuleBook, rule_periods
from kquota_spark.pipeline.bucket_judge import Configs, ShardJudge
from kquota_spark.pipeline.charges import Charges
from kquota_spark.pipeline.govern import sharded_batch
from kquota_spark.pipeline.ingest import MessageReader, parsed
from kquota_spark.pipeline.judge import decided_batch
from kquota_spark.pipeline.kept_imports import collect_seldom
from kquota_spark.pipeline.known import BrokerWindows, Known
from kquota_spark.pipeline.measure import client_seconds, usage_batch
from kquota_spark.pipeline.sent import unpacked_pieces
from kquota_spark.replay.parsing import ingest_settings
from kquota_spark.schema.tables import DECISIONS, USAGE
from kquota_spark.store.parts import PartWriter
from tests.bench.lines import LINES_PER_S, START_MS, Line, Population, lines
from tests.bench.report import Report
from tests.bench.runs.growth import quota_rules

LINES = int(os.environ.get("STAGES_LINES", "200000"))
CLIENT_IDS = (1_000, 100_000)
_RULES, _BATCH, _MICRO_BATCH = 10, 50_000, 150_000
_STAGES = {
    "parse": "parse", "charge": "charges", "measure": "usage", "govern": "govern", "judge": "judge",
    "decide": "decisions",
}  # fmt: skip
_COLUMNS = {
    "client_ids": "client ids",
    "seconds": "client seconds per line",
    **{name: f"{title}, us per line" for name, title in _STAGES.items()},
    "total": "all, us per line",
    "state_kb": "largest shard, kB",
}


class _Stages:
    """The stages over one population, and the CPU that each took."""

    def __init__(self, settings: Settings, population: Population, quotas: Path) -> None:
        self._settings, self._population = settings, population
        self._shards = settings.stream.state_shards
        governor = RuleGovernor(RuleBook(rule_periods(read_quota_file(quotas))))
        self._known = Known(governor, 2**60, BrokerWindows(RateConfig()), {})
        self._reader = MessageReader(ingest_settings(settings))
        self._configs = Configs(RateConfig(), RateConfig())
        self.state: dict[int, bytes] = {}
        self.cpu_s: defaultdict[str, float] = defaultdict(float)
        self.decisions = 0

    def run(self) -> None:
        for first in range(0, LINES, _MICRO_BATCH):
            indexes = range(first, min(first + _MICRO_BATCH, LINES))
            found = list(lines(indexes, population=self._population))
            governed, writer = (
                self._governed(self._charged(found, first)),
                PartWriter(self._settings, DECISIONS),
            )
            for shard, packed in governed.items():
                self._judge(shard, packed, writer)
            with self._timed("decide"):
                list(writer.close())

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started_s = time.process_time()
        yield
        self.cpu_s[stage] += time.process_time() - started_s

    def _charged(self, found: list[Line], first: int) -> pa.Table:
        charges = Charges(self._known.governor.coverage, self._shards)
        for start in range(0, len(found), _BATCH):
            messages = _messages(found[start : start + _BATCH], first + start)
            with self._timed("parse"):
                rows = parsed(messages, self._reader)
            with self._timed("charge"):
                charges.add(rows)
        with self._timed("charge"):
            table = pa.Table.from_batches(list(charges.batches()))
        second = pc.floor_temporal(table["record_time"], unit="second")  # what Spark groups by
        grouped = table.append_column("second", second).group_by(["place", "second"], use_threads=False)
        return grouped.aggregate([("charges", "list")]).rename_columns(["place", "second", "charges"])

    def _governed(self, seconds: pa.Table) -> dict[int, list[bytes]]:
        found: dict[int, list[bytes]] = {}
        writer = PartWriter(self._settings, USAGE)
        [batch] = seconds.combine_chunks().to_batches()
        for part in client_seconds(batch):
            with self._timed("measure"):
                usage = usage_batch(part, "bench")
                writer.write(usage)
            with self._timed("govern"):
                sharded = sharded_batch(usage, self._known, self._shards)
            rows: list[dict[str, Any]] = sharded.to_pylist()
            for shard, packed in (row.values() for row in rows):
                found.setdefault(shard, []).append(packed)
        with self._timed("measure"):
            list(writer.close())
        return found

    def _judge(self, shard: int, packed: list[bytes], writer: PartWriter) -> None:
        with self._timed("judge"):
            judge = ShardJudge(self._configs, self._shards, self.state.get(shard))
            found = judge.judge(map(unpacked_pieces, packed))
            state = judge.state
        if state is not None:
            self.state[shard] = state
        with self._timed("decide"):
            decisions = decided_batch(found)
            writer.write(decisions)
        self.decisions += decisions.num_rows


def _messages(found: list[Line], first: int) -> pa.RecordBatch:
    times_ms = [START_MS + (first + place) * 1_000 // LINES_PER_S for place in range(len(found))]
    columns: dict[str, Any] = {
        "topic": pa.array(["log"] * len(found), pa.string()),
        "partition": pa.array([line.broker_id - 1 for line in found], pa.int32()),
        "offset": pa.array(range(first, first + len(found)), pa.int64()),
        "timestamp_ms": pa.array(times_ms, pa.int64()),
        "written_by_ms": pa.array(times_ms, pa.int64()),
        "value": pa.array([line.text for line in found], pa.binary()),
        "broker": pa.array([str(line.broker_id).encode() for line in found], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


def main() -> int:
    """Print the figures."""
    collect_seldom()
    with Report("stages", _COLUMNS) as report, tempfile.TemporaryDirectory(prefix="kquota-bench-") as name:
        for client_ids in CLIENT_IDS:
            root, population = Path(name) / str(client_ids), Population(client_ids, client_ids)
            root.mkdir()
            quotas = root / "quotas.yaml"
            quotas.write_text(quota_rules(_RULES, population), encoding="utf-8")
            stages = _Stages(Settings(cluster_id="bench", tables=str(root / "tables")), population, quotas)
            stages.run()
            us = {stage: round(stages.cpu_s[stage] / LINES * 1e6, 2) for stage in _STAGES}
            row = {"client_ids": client_ids, "seconds": round(stages.decisions / LINES, 3), **us}
            largest = max(map(len, stages.state.values()))
            report.add({**row, "total": round(sum(us.values()), 2), "state_kb": round(largest / 1e3, 1)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
