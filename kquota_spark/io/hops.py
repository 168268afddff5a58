"""The four streaming queries: each a source, the transforms of `pipeline/`, and a Delta sink with a checkpoint.

Ingest, measure and judge append through Spark's Delta sink, which commits a micro-batch exactly once. The
fold into `violations` is a MERGE in `foreachBatch`; Delta skips it when that batch was committed before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from delta.tables import DeltaTable

from kquota_spark.config.governor import static_defaults
from kquota_spark.config.settings import Settings
from kquota_spark.config.windows import mutation_config
from kquota_spark.io.spark import NO_LIMIT, request_log, table, table_path, table_stream
from kquota_spark.io.stored_rules import KnownLoader
from kquota_spark.model.sampled_rate import RateConfig, RingVariant
from kquota_spark.pipeline.callback_governing import with_callback_governing
from kquota_spark.pipeline.charges import to_coverage
from kquota_spark.pipeline.episodes import only_violated, to_violations
from kquota_spark.pipeline.govern import with_governing
from kquota_spark.pipeline.ingest import IngestSettings, to_requests
from kquota_spark.pipeline.judge import to_decisions
from kquota_spark.pipeline.measure import to_usage
from kquota_spark.schema.quota_tables import QUOTA_RULES
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE, VIOLATIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def _ingested(session: SparkSession, settings: Settings) -> DataFrame:
    stream = settings.stream
    return to_requests(
        request_log(session, settings),
        IngestSettings(
            cluster_id=settings.cluster_id,
            log_time_zone=settings.broker.log_time_zone,
            allowed_clock_skew_ms=stream.allowed_clock_skew,
            allowed_lateness_ms=stream.allowed_lateness,
            raw_text_limit_bytes=stream.raw_text_limit_bytes,
        ),
    )


def _measured(session: SparkSession, settings: Settings) -> DataFrame:
    # No limit on files: a micro-batch has to hold whole commits. The files of one commit of INGEST are parts of
    # one stretch of time, by partition of the topic; in a batch of its own the first would move the watermark
    # past the others. INGEST bounds the size of a commit.
    return to_usage(
        table_stream(session, settings, REQUESTS.name, max_files=NO_LIMIT),
        to_coverage(_rules(session, settings), has_callback=bool(settings.quotas.callback)),
        f"{settings.stream.allowed_lateness} milliseconds",
        settings.stream.shuffle_partitions,
    )


def _judged(session: SparkSession, settings: Settings) -> DataFrame:
    usage = table_stream(session, settings, USAGE.name)
    if settings.quotas.callback:
        governed = with_callback_governing(usage, KnownLoader(settings))
    else:
        governed = with_governing(usage, _rules(session, settings), static_defaults(settings))
    return to_decisions(
        governed,
        rate_config(settings),
        mutation_config(settings),
        f"{settings.stream.judge_lateness} milliseconds",
    )


def _rules(session: SparkSession, settings: Settings) -> DataFrame:
    """The quotas of this cluster, read anew in each micro-batch."""
    return table(session, settings, QUOTA_RULES.name).where(f"cluster_id = {_literal(settings.cluster_id)}")


def rate_config(settings: Settings) -> RateConfig:
    """The sample ring that the configured brokers have."""
    broker = settings.broker
    return RateConfig(
        broker.quota_window_num,
        broker.quota_window_size_seconds * 1_000,
        RingVariant.of_version(broker.version),
    )


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_APPENDING: Mapping[str, tuple[Callable[[SparkSession, Settings], DataFrame], str]] = {
    "ingest": (_ingested, REQUESTS.name),
    "measure": (_measured, USAGE.name),
    "judge": (_judged, DECISIONS.name),
}
HOPS = (*_APPENDING, "episodes")
"""Names of the queries in the order of the flow; also names of their checkpoints."""

TARGETS = {**{hop: target for hop, (_, target) in _APPENDING.items()}, "episodes": VIOLATIONS.name}
"""The table that each query writes."""


def start_hop(session: SparkSession, settings: Settings, hop: str, *, is_once: bool) -> StreamingQuery:
    """Start one query, in a scheduler pool of its own so that no hop starves another."""
    session.sparkContext.setLocalProperty("spark.scheduler.pool", hop)
    # After a micro-batch Spark runs one without rows when the watermark has moved. MEASURE closes seconds in it;
    # the others would only spend a second on forgetting idle buckets, which the next rows do as well.
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(hop == "measure").lower())
    # The next hop may read the files of one commit in several micro-batches, in their order: of a commit over
    # midnight the older date has to come first, so rows are sorted before they are written. INGEST's commits are
    # read as a whole; it writes to both dates at once.
    session.conf.set("spark.sql.maxConcurrentOutputFileWriters", "8" if hop == "ingest" else "0")
    checkpoint = f"{settings.checkpoints.rstrip('/')}/{hop}"
    if hop in _APPENDING:
        build, target = _APPENDING[hop]
        writer = build(session, settings).writeStream.format("delta").outputMode("append")
        writer = writer.option("checkpointLocation", checkpoint).queryName(hop)
        return _triggered(writer, settings, is_once=is_once).start(table_path(settings, target))
    decisions = table_stream(session, settings, DECISIONS.name)
    writer = decisions.writeStream.foreachBatch(_merge_into_violations(settings))
    writer = writer.option("checkpointLocation", checkpoint).queryName(hop)
    return _triggered(writer, settings, is_once=is_once).start()


def _triggered(writer: DataStreamWriter, settings: Settings, *, is_once: bool) -> DataStreamWriter:
    if is_once:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{settings.stream.trigger} milliseconds")


def _merge_into_violations(settings: Settings) -> Callable[[DataFrame, int], None]:
    path = table_path(settings, VIOLATIONS.name)
    gap_s = settings.stream.episode_gap / 1_000

    def merge(decisions: DataFrame, batch_id: int) -> None:
        session = decisions.sparkSession
        decisions.persist()
        try:
            still_open = session.read.format("delta").load(path).where("end_time IS NULL")
            if only_violated(decisions).isEmpty() and still_open.isEmpty():
                return
            # The same batch after a crash must not add its throttle times twice: Delta skips a (query, batch)
            # that it has committed. The query's id changes with a new checkpoint, as batch numbers restart.
            query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
            session.conf.set("spark.databricks.delta.write.txnAppId", query_id)
            session.conf.set("spark.databricks.delta.write.txnVersion", str(batch_id))
            changed = to_violations(decisions, still_open, gap_s)
            (
                DeltaTable.forPath(session, path)
                .alias("old")
                .merge(
                    changed.alias("new"),
                    "old.episode_id = new.episode_id AND old.event_date = new.event_date",
                )
                .whenMatchedUpdateAll()
                .whenNotMatchedInsertAll()
                .execute()
            )
        finally:
            decisions.unpersist()

    return merge
