"""The streaming queries: each a source, the transforms of `pipeline/`, and a sink with a checkpoint.

Ingest and measure, of the log and of JMX, append through Spark's Delta sink, which commits a micro-batch exactly once.
Judge writes `decisions` and folds its violations in `io.decided`, each once too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kquota_spark.config.settings import Settings
from kquota_spark.config.windows import mutation_config, rate_config
from kquota_spark.formats.jmx_sample import addresses
from kquota_spark.io.decided import commit_decided, written
from kquota_spark.io.known import KnownLoader, LimitsLoader
from kquota_spark.io.lineage import stored_lineage
from kquota_spark.io.parsing import ingest_settings
from kquota_spark.io.spark import (
    NO_LIMIT,
    jmx_messages,
    request_log,
    sql_literal,
    table,
    table_path,
    table_stream,
)
from kquota_spark.pipeline.charges import to_coverage
from kquota_spark.pipeline.govern import to_governed
from kquota_spark.pipeline.ingest import to_requests
from kquota_spark.pipeline.ingest_jmx import JmxSettings, to_jmx_samples
from kquota_spark.pipeline.judge import to_decisions
from kquota_spark.pipeline.judge_jmx import to_jmx_decisions, to_jmx_usage
from kquota_spark.pipeline.measure import to_usage
from kquota_spark.pipeline.observed import observed_decisions, observed_requests, observed_usage
from kquota_spark.schema.jmx_tables import JMX_SAMPLES
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.schema.quota_tables import QUOTA_RULES
from kquota_spark.schema.tables import REQUESTS, USAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def _ingested(session: SparkSession, settings: Settings) -> DataFrame:
    log = request_log(session, settings, stored_lineage(settings, "ingest").offsets)
    return to_requests(log, ingest_settings(settings))


def _measured(session: SparkSession, settings: Settings) -> DataFrame:
    # No limit on files: a micro-batch has to hold whole commits. The files of one commit of INGEST are parts of
    # one stretch of time, by partition of the topic; in a batch of its own the first would move the watermark
    # past the others. INGEST bounds the size of a commit.
    lineage = stored_lineage(settings, "measure")
    requests = table_stream(
        session, settings, REQUESTS.name, max_files=NO_LIMIT, first_version=lineage.version
    )
    return to_usage(
        requests.where(f"record_time_ms >= {lineage.newest_ms + 1_000}") if lineage.through_ms else requests,
        to_coverage(rules_of(session, settings), has_callback=bool(settings.quotas.callback)),
        f"{settings.stream.allowed_lateness} milliseconds",
        settings.stream.shuffle_partitions,
    )


def _judged(session: SparkSession, settings: Settings) -> DataFrame:
    lineage = stored_lineage(settings, "judge")
    usage = table_stream(session, settings, USAGE.name, first_version=lineage.version).where(FROM_LOG)
    decisions = to_decisions(
        to_governed(usage, KnownLoader(settings)),
        rate_config(settings),
        mutation_config(settings),
        f"{settings.stream.judge_lateness} milliseconds",
    )
    return lineage.only_beyond(decisions)


def rules_of(session: SparkSession, settings: Settings) -> DataFrame:
    """The quotas of this cluster, read anew in each micro-batch."""
    return table(session, settings, QUOTA_RULES.name).where(
        f"cluster_id = {sql_literal(settings.cluster_id)}"
    )


def _ingested_jmx(session: SparkSession, settings: Settings) -> DataFrame:
    jmx = settings.collect.jmx
    brokers = {form: int(broker) for broker, text in jmx.brokers.items() for form in addresses(text)}
    return to_jmx_samples(
        jmx_messages(session, settings),
        JmxSettings(settings.cluster_id, brokers, jmx.types, settings.stream.raw_text_limit_bytes),
    )


def _measured_jmx(session: SparkSession, settings: Settings) -> DataFrame:
    return to_jmx_usage(table_stream(session, settings, JMX_SAMPLES.name))


def _judged_jmx(session: SparkSession, settings: Settings) -> DataFrame:
    samples = table_stream(session, settings, JMX_SAMPLES.name)
    return to_jmx_decisions(samples, LimitsLoader(settings), mutation_config(settings))


_APPENDING: Mapping[str, tuple[Callable[[SparkSession, Settings], DataFrame], str]] = {
    "ingest": (lambda *where: observed_requests(_ingested(*where)), REQUESTS.name),
    "measure": (lambda *where: observed_usage(_measured(*where)), USAGE.name),
    "ingest_jmx": (_ingested_jmx, JMX_SAMPLES.name),
    "measure_jmx": (_measured_jmx, USAGE.name),
}
_JUDGING: Mapping[str, Callable[[SparkSession, Settings], DataFrame]] = {
    "judge": lambda *where: observed_decisions(_judged(*where)),
    "judge_jmx": _judged_jmx,
}
HOPS = ("ingest", "measure", "judge", "ingest_jmx", "measure_jmx", "judge_jmx")
"""Names of the queries in the order of the flow; also names of their checkpoints."""


def wanted_hops(settings: Settings, hops: Sequence[str]) -> list[str]:
    """Of these queries, those whose source there is: the request log, JMX, or both."""
    sources = {True: settings.kafka.jmx_topic, False: settings.kafka.has_log}
    return [hop for hop in hops if sources[hop.endswith("_jmx")]]


def start_hop(session: SparkSession, settings: Settings, hop: str, *, is_once: bool) -> StreamingQuery:
    """Start one query, in a scheduler pool of its own so that no hop starves another."""
    session.sparkContext.setLocalProperty("spark.scheduler.pool", hop)
    # After a micro-batch Spark runs one without rows when the watermark has moved. MEASURE closes seconds in it;
    # the others would only spend a second on forgetting idle buckets, which the next rows do as well.
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(hop == "measure").lower())
    # The next hop may read the files of one commit in several micro-batches, in their order: of a commit over
    # midnight the older date has to come first, so rows are sorted before they are written. INGEST's commits are
    # read as a whole; it writes to both dates at once.
    session.conf.set("spark.sql.maxConcurrentOutputFileWriters", "8" if hop.startswith("ingest") else "0")
    checkpoint = f"{settings.checkpoints.rstrip('/')}/{hop}"
    if hop in _APPENDING:
        build, target = _APPENDING[hop]
        writer = build(session, settings).writeStream.format("delta").outputMode("append")
        writer = writer.option("checkpointLocation", checkpoint).queryName(hop)
        return _triggered(writer, settings, is_once=is_once).start(table_path(settings, target))
    rows = written(_JUDGING[hop](session, settings), settings)
    writer = rows.writeStream.foreachBatch(commit_decided(settings))
    writer = writer.option("checkpointLocation", checkpoint).queryName(hop)
    return _triggered(writer, settings, is_once=is_once).start()


def _triggered(writer: DataStreamWriter, settings: Settings, *, is_once: bool) -> DataStreamWriter:
    if is_once:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{settings.stream.trigger} milliseconds")
