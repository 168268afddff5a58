"""The stages of the queries on the workers: each one is a `mapInArrow` that also writes rows.

Each worker writes the rows of its tables itself. It passes on only what the next stage needs: points grouped by client
and second, then the seconds of each bucket, then nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.audit.task_reports import Ahead, Span, TaskReport, TaskReports
from kquota_spark.audit.violations.episodes import pieces_of
from kquota_spark.audit.violations.judged import decided_seconds
from kquota_spark.checkpoints.known import KnownLoader
from kquota_spark.checkpoints.lineage import Lineage
from kquota_spark.config.settings import Settings
from kquota_spark.kafka.questions import message_format
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.log_beginning import BrokerLines
from kquota_spark.pipeline.charges import Charges
from kquota_spark.pipeline.govern import sharded_batch
from kquota_spark.pipeline.ingest import MessageReader, are_ahead_of_reading, ingest_settings, parsed
from kquota_spark.pipeline.jmx.ingest import JmxSettings, sampled_batch
from kquota_spark.pipeline.jmx.judge import jmx_usage_batch
from kquota_spark.pipeline.judge import decisions_of, shadow_decisions_of
from kquota_spark.pipeline.kept_imports import collect_seldom, keep_imports
from kquota_spark.pipeline.kept_requests import kept_requests
from kquota_spark.pipeline.measure import client_seconds, usage_batch
from kquota_spark.pipeline.restarts import broker_lines
from kquota_spark.schema.broker_tables import JMX_SAMPLES
from kquota_spark.schema.shadow_tables import SHADOW_DECISIONS
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE
from kquota_spark.store.parts import PartWriter

Batches = Iterator[pa.RecordBatch]
NOTHING = "nothing int"
"""Schema of the last stage, which returns no rows."""


@dataclass(frozen=True)
class Stages:
    """The stages of the query of the log; the lineage leaves out rows that the tables already hold."""

    settings: Settings
    reports: TaskReports
    lineage: Lineage = field(default_factory=Lineage)

    def charged(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Turn messages into rows of `CHARGED`, and write the lines into `requests`."""
        filled = _filled(batches)
        if filled is None:
            return
        reader, known = (
            MessageReader(ingest_settings(self.settings, message_format(self.settings))),
            KnownLoader(self.settings)(),
        )
        charges = Charges(known.coverage, self.settings.stream.state_shards)
        writer = PartWriter(self.settings, REQUESTS)
        seen = _Seen(reader.settings.allowed_clock_skew_ms)
        for batch in filled:
            rows = parsed(batch, reader)
            charges.add(rows)
            unread = self.lineage.only_unread(rows)
            writer.write(kept_requests(unread, self.settings.kept_requests, known.begun))
            seen.add(unread)
            if charges.is_full:
                yield from charges.batches()
        report = TaskReport(
            REQUESTS.name, [*writer.close()], seen.counts, brokers=[*seen.brokers], beating=[*seen.beating],
            heard=[*seen.heard], ahead=seen.ahead(), spans=seen.spans(), lines=seen.lines,
        )  # fmt: skip
        self.reports.add(report)
        yield from charges.batches()
        keep_imports()

    def governed(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Turn rows of `to_seconds` into rows of GOVERN, and write their usage into `usage`."""
        filled = _filled(batches)
        if filled is None:
            return
        collect_seldom()
        known, writer, rows = KnownLoader(self.settings)(), PartWriter(self.settings, USAGE), 0
        for seconds in (seconds for batch in filled for seconds in client_seconds(batch)):
            usage = usage_batch(seconds, self.settings.cluster_id)
            yield sharded_batch(usage, known, self.settings.stream.state_shards)
            written = self.lineage.only_unmeasured(usage)
            writer.write(written)
            rows += written.num_rows
        self.reports.add(TaskReport(USAGE.name, [*writer.close()], {"rows": rows}))
        keep_imports()

    def decided(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Write rows of `JUDGED` into `decisions` and `shadow_decisions`; returns no rows."""
        filled = [batch for batch in batches if batch.num_rows]
        self._write_shadow([rows for batch in filled for rows in shadow_decisions_of(batch)])
        rows = (decisions for batch in filled for decisions in decisions_of(batch))
        return decided(self.settings, self.reports, map(self.lineage.only_undecided, rows))

    def _write_shadow(self, batches: list[pa.RecordBatch]) -> None:
        if not batches:
            return
        writer, rows = PartWriter(self.settings, SHADOW_DECISIONS), 0
        for batch in map(self.lineage.only_undecided, batches):
            writer.write(batch)
            rows += batch.num_rows
        self.reports.add(TaskReport(SHADOW_DECISIONS.name, [*writer.close()], {"rows": rows}))


def decided(settings: Settings, reports: TaskReports, batches: Iterable[pa.RecordBatch]) -> Batches:
    """Write rows of `decisions` into their table; returns no rows."""
    writer, schema = PartWriter(settings, DECISIONS), DECISIONS.arrow_schema()
    tables = [pa.Table.from_batches([batch]).cast(schema) for batch in batches if batch.num_rows]
    if tables:
        for table in tables:
            writer.write(table.combine_chunks().to_batches()[0])
        rows = pa.concat_tables(tables)
        pieces = _as_bytes(pieces_of(rows, settings.stream.episode_gap))
        seconds, counts = decided_seconds(rows), _decision_counts(rows)
        reports.add(TaskReport(DECISIONS.name, [*writer.close()], counts, pieces=pieces, seconds=seconds))
        keep_imports()
    return iter(())


@dataclass(frozen=True)
class JmxStages:
    """The stages of the query of JMX."""

    settings: Settings
    parse: JmxSettings
    reports: TaskReports

    def sampled(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Turn messages into samples, write them into `jmx_samples` and pass them on."""
        writer, rows = PartWriter(self.settings, JMX_SAMPLES), 0
        for batch in batches:
            if batch.num_rows:
                samples = sampled_batch(batch, self.parse)
                writer.write(samples)
                rows += samples.num_rows
                yield samples
        if rows:
            self.reports.add(TaskReport(JMX_SAMPLES.name, [*writer.close()], {"rows": rows}))

    def decided(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Write rows of `decisions` into their table, and the usage that they show into `usage`."""
        writer, rows = PartWriter(self.settings, USAGE), [batch for batch in batches if batch.num_rows]
        used = [jmx_usage_batch(batch) for batch in rows]
        for usage in used:
            writer.write(usage)
        if used:
            counts = {"rows": sum(usage.num_rows for usage in used)}
            self.reports.add(TaskReport(USAGE.name, [*writer.close()], counts))
        return decided(self.settings, self.reports, rows)


def _filled(batches: Iterable[pa.RecordBatch]) -> Batches | None:
    """The batches that have rows; None if there is none, so that the task sets up nothing."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    return None if first is None else chain((first,), filled)


_OFFSET = "kafka_offset"


class _Seen:
    """Collects what one task reports about its rows of `requests`."""

    def __init__(self, allowed_clock_skew_ms: int) -> None:
        self._skew_ms = allowed_clock_skew_ms
        self.counts = dict.fromkeys(("rows", "unreadable", "gaps", "cut", "out_of_time"), 0)
        self.brokers: set[int] = set()
        self.beating: set[int] = set()
        self.heard: set[int] = set()
        self._ahead: dict[int, Ahead] = {}
        self._spans: dict[tuple[str, int], tuple[int, int, int]] = {}
        self.lines: list[BrokerLines] = []

    def add(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        kinds = Counter(rows["kind"].to_pylist())
        self.counts["rows"] += rows.num_rows
        self.counts["unreadable"] += kinds["unreadable"]
        self.counts["gaps"] += kinds["gap"]
        if kinds["unreadable"]:
            is_cut: Any = (pc.field("kind") == "unreadable") & pc.field("api_key").is_null()
            self.counts["cut"] += rows.filter(is_cut & pc.field("log_time_ms").is_valid()).num_rows
        self.counts["out_of_time"] += pc.sum(rows["is_out_of_time"]).as_py()
        in_time = pc.invert(rows["is_out_of_time"])
        newest_ms = pc.max(rows["record_time_ms"].filter(in_time)).as_py()
        if newest_ms is not None:
            self.counts["newest_ms"] = max(newest_ms, self.counts.get("newest_ms", newest_ms))
        self.brokers.update(_brokers_of("request", rows, in_time))
        if kinds["heartbeat"]:
            self.beating.update(_brokers_of("heartbeat", rows, in_time))
        heard: list[Any] = rows["broker_id"].drop_null().unique().to_pylist()
        self.heard.update(heard)
        if pc.any(rows["is_out_of_time"]).as_py():
            self._add_ahead(rows.filter(are_ahead_of_reading(rows, self._skew_ms)))
        self.lines += broker_lines(rows)
        self._add_offsets(rows)

    def _add_ahead(self, rows: pa.RecordBatch) -> None:
        table = pa.table({name: rows[name] for name in ("broker_id", "record_time_ms")})
        times = table.group_by("broker_id").aggregate([("record_time_ms", "min"), ("record_time_ms", "max")])
        for row in times.to_pylist():
            broker_id, from_ms, to_ms = (row[name] for name in times.column_names)
            before = self._ahead.get(broker_id, Ahead(broker_id, from_ms, to_ms))
            self._ahead[broker_id] = Ahead(broker_id, min(before.from_ms, from_ms), max(before.to_ms, to_ms))

    def ahead(self) -> list[Ahead]:
        return [*self._ahead.values()]

    def _add_offsets(self, rows: pa.RecordBatch) -> None:
        table = pa.table({name: rows[name] for name in ("topic", "partition", _OFFSET)})
        by_place = table.group_by(["topic", "partition"])
        offsets = by_place.aggregate([(_OFFSET, "min"), (_OFFSET, "max"), (_OFFSET, "count")])
        for row in offsets.to_pylist():
            place = (row["topic"], row["partition"])
            first, last = row["kafka_offset_min"], row["kafka_offset_max"]
            before = self._spans.get(place, (first, last, 0))
            count = before[2] + row["kafka_offset_count"]
            self._spans[place] = min(before[0], first), max(before[1], last), count

    def spans(self) -> list[Span]:
        return [Span(*place, *span) for place, span in self._spans.items()]


def _brokers_of(kind: str, rows: pa.RecordBatch, in_time: Any) -> list[Any]:
    is_kind: Any = pc.equal(rows["kind"], pa.scalar(kind))
    found: list[Any] = rows["broker_id"].filter(pc.and_(is_kind, in_time)).unique().to_pylist()
    return found


def _decision_counts(decisions: pa.Table) -> dict[str, int]:
    counts: dict[str, Any] = {
        "rows": decisions.num_rows,
        "late": pc.sum(decisions["late"]).as_py(),
        "rules_behind": pc.sum(decisions["is_rules_behind"]).as_py(),
    }
    sums = decisions.group_by("quota_type").aggregate(
        [("requests_judged", "sum"), ("requests_agreeing", "sum")]
    )
    types = {quota_type.value for quota_type in QuotaType}
    for row in sums.to_pylist():
        if row["quota_type"] in types:
            counts[f"judged_{row['quota_type']}"] = row["requests_judged_sum"]
            counts[f"agreeing_{row['quota_type']}"] = row["requests_agreeing_sum"]
    return {name: value or 0 for name, value in counts.items()}


def _as_bytes(table: pa.Table) -> bytes:
    # Many pieces are alike: compression reduces one from 220 to 40 bytes.
    sink, options = pa.BufferOutputStream(), pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())
