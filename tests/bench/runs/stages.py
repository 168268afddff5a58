"""`python -m tests.bench.runs.stages`: CPU per line of each stage of the job, in one process without Spark and Kafka.

What workers do between the shuffles, with 1,000 and 100,000 client ids. STAGES_LINES sets the size; a minute.

`--shadow` measures the cost of a shadow instead. Each population runs in turns without one, with one that changes one
client's limit, with one that changes all, and with one under which all clients count in other buckets. The figure is
the median; STAGES_ROUNDS sets the turns.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.config.settings import Settings
from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.kafka.questions import message_format
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey
from kquota_spark.model.quotas.rules import RuleBook, RulePeriod, rule_periods
from kquota_spark.pipeline.bucket_judge import Configs, ShardJudge
from kquota_spark.pipeline.charges import Charges
from kquota_spark.pipeline.govern import sharded_batch
from kquota_spark.pipeline.ingest import MessageReader, ingest_settings, parsed
from kquota_spark.pipeline.judge import decided_batch
from kquota_spark.pipeline.kept_imports import collect_seldom
from kquota_spark.pipeline.known import BrokerWindows, Known
from kquota_spark.pipeline.measure import client_seconds, usage_batch
from kquota_spark.pipeline.sent import unpacked_pieces
from kquota_spark.pipeline.shadow.rules import Shadow, ShadowPin, differing
from kquota_spark.schema.shadow_tables import SHADOW_DECISIONS
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
ROUNDS = int(os.environ.get("STAGES_ROUNDS", "3"))
_SHADOW_COLUMNS = {
    "client_ids": "client ids",
    "changed": "limits that the shadow changes",
    "total": "CPU us per line",
    "without": "without a shadow",
    "percent": "more, %",
    "rows": "rows of shadow_decisions",
}
_COLUMNS = {
    "client_ids": "client ids",
    "seconds": "client seconds per line",
    **{name: f"{title}, us per line" for name, title in _STAGES.items()},
    "total": "all, us per line",
    "state_kb": "largest shard, kB",
}


class Changed(Enum):
    """The limits that the shadow changes."""

    NOTHING = "no shadow"
    ONE = "of one client"
    ALL = "all"
    BUCKETS = "all, in other buckets"


def proposed(book: RuleBook, changed: Changed) -> dict[Entity, dict[AnyKey, float]]:
    """The shadow quotas: half of some limits, or a quota of each user instead."""
    values = {entity: dict(rule.values) for entity in book for rule in book.of(entity) if rule.values}
    named = max(values, key=str)  # defaults come first
    for entity, found in list(values.items()):
        if changed is Changed.ALL or entity == named:
            values[entity] = {key: float(int(value / 2)) for key, value in found.items()}
    if changed is Changed.BUCKETS:
        values = {
            Entity(DEFAULT, None): {QuotaKey.PRODUCER_BYTE_RATE: 120_000, QuotaKey.CONSUMER_BYTE_RATE: 90_000}
        }
    return values


def _shadow(book: RuleBook, changed: Changed) -> Shadow | None:
    """The shadow quotas as a worker has them; None for none."""
    if changed is Changed.NOTHING:
        return None
    values = proposed(book, changed)
    rules = RuleBook(RulePeriod(entity, found, 0, None, None) for entity, found in values.items())
    return Shadow(ShadowPin("half", "v1", 0), RuleGovernor(rules), differing(book, values, 0))


class _Stages:
    """The stages over one population, and the CPU that each took."""

    def __init__(
        self, settings: Settings, population: Population, quotas: Path, changed: Changed = Changed.NOTHING
    ) -> None:
        self._settings, self._population = settings, population
        self._shards = settings.stream.state_shards
        governor = RuleGovernor(RuleBook(rule_periods(read_quota_file(quotas))))
        self._known = Known(
            governor, 2**60, BrokerWindows(RateConfig()), {}, shadow=_shadow(governor.book, changed)
        )
        self._reader = MessageReader(ingest_settings(settings, message_format(settings)))
        self._configs = Configs(RateConfig(), RateConfig())
        self.state: dict[int, bytes] = {}
        self.cpu_s: defaultdict[str, float] = defaultdict(float)
        self.decisions = self.shadow_rows = 0

    def run(self) -> None:
        for first in range(0, LINES, _MICRO_BATCH):
            indexes = range(first, min(first + _MICRO_BATCH, LINES))
            found = list(lines(indexes, population=self._population))
            governed = self._governed(self._charged(found, first))
            writer, beside = (PartWriter(self._settings, table) for table in (DECISIONS, SHADOW_DECISIONS))
            for shard, packed in governed.items():
                self._judge(shard, packed, writer, beside)
            with self._timed("decide"):  # a task of the job writes one file of each table, too
                list(writer.close())
                list(beside.close())

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

    def _judge(self, shard: int, packed: list[bytes], writer: PartWriter, shadow_writer: PartWriter) -> None:
        with self._timed("judge"):
            judge = ShardJudge(self._configs, self._shards, self.state.get(shard))
            found = judge.judge(map(unpacked_pieces, packed))
            beside = None if judge.shadow is None else judge.shadow.rows
            state = judge.state
        if state is not None:
            self.state[shard] = state
        with self._timed("decide"):
            decisions = decided_batch(found)
            writer.write(decisions)
        self.decisions += decisions.num_rows
        if beside is not None:
            self.shadow_rows += beside.num_rows
            with self._timed("decide"):
                shadow_writer.write(beside)


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


def shadow_main() -> int:
    """Print the cost of a shadow."""
    collect_seldom()
    with Report("stages-shadow", _SHADOW_COLUMNS) as report:
        for client_ids in CLIENT_IDS:
            totals: dict[Changed, list[float]] = {each: [] for each in Changed}
            rows: dict[Changed, int] = {}
            for turn in range(ROUNDS):
                order = list(Changed) if turn % 2 == 0 else list(Changed)[::-1]
                for changed in order:
                    stages = _run(client_ids, changed)
                    totals[changed].append(sum(stages.cpu_s.values()) / LINES * 1e6)
                    rows[changed] = stages.shadow_rows
            without = median(totals[Changed.NOTHING])
            for changed, found in totals.items():
                # Each turn is compared with its own run without a shadow: the machine may be slower in another one.
                pairs = zip(found, totals[Changed.NOTHING], strict=True)
                cost = median(100 * (one / base - 1) for one, base in pairs)
                report.add({
                    "client_ids": client_ids, "changed": changed.value, "total": round(median(found), 2),
                    "without": round(without, 2), "percent": round(cost, 1), "rows": rows[changed],
                })  # fmt: skip
    return 0


def _run(client_ids: int, changed: Changed) -> _Stages:
    with tempfile.TemporaryDirectory(prefix="kquota-bench-") as name:
        root, population = Path(name), Population(client_ids, client_ids)
        quotas = root / "quotas.yaml"
        quotas.write_text(quota_rules(_RULES, population), encoding="utf-8")
        settings = Settings(cluster_id="bench", tables=str(root / "tables"))
        stages = _Stages(settings, population, quotas, changed)
        stages.run()
        return stages


def main() -> int:
    """Print the figures."""
    if "--shadow" in sys.argv[1:]:
        return shadow_main()
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
