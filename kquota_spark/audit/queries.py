"""The two streaming queries, of the request log and of JMX: each from its topic to all its tables.

Workers write the rows. The driver commits them (`audit.commit`), each micro-batch once.

At the end of a run, `availableNow` leaves the last seconds open. A late heartbeat closes them. The query reads it from
a source of its own, a folder beside the checkpoint, so the job needs no right to write to the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyarrow import fs

from kquota_spark.audit.commit import Sink
from kquota_spark.audit.spark import jmx_messages, request_log
from kquota_spark.audit.stages import NOTHING, JmxStages, Stages
from kquota_spark.audit.task_reports import TaskReports
from kquota_spark.checkpoints.checkpoints import JMX, LOG, Checkpoint
from kquota_spark.checkpoints.known import LimitsLoader
from kquota_spark.checkpoints.lineage import stored_lineage
from kquota_spark.checkpoints.notes import write_note
from kquota_spark.checkpoints.runs import Run
from kquota_spark.config.governor import mutation_config, rate_config
from kquota_spark.config.settings import Settings
from kquota_spark.formats.jmx.sample import addresses
from kquota_spark.kafka.questions import message_format
from kquota_spark.pipeline.charges import CHARGED
from kquota_spark.pipeline.govern import SHARDED
from kquota_spark.pipeline.ingest import clock_skew_ms, ingest_settings, to_messages
from kquota_spark.pipeline.jmx.ingest import JmxSettings, to_jmx_messages
from kquota_spark.pipeline.jmx.judge import to_jmx_decisions
from kquota_spark.pipeline.judge import to_judged
from kquota_spark.pipeline.measure import to_seconds
from kquota_spark.schema.broker_tables import JMX_SAMPLES
from kquota_spark.store.storage import file_system, hadoop_place, place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


QUERIES = (LOG, JMX)


class Started(NamedTuple):
    """A query that runs, and its sink."""

    query: StreamingQuery
    sink: Sink


def wanted_queries(settings: Settings, names: Sequence[str]) -> list[str]:
    """The named queries that have a topic as source: the request log, JMX, or both."""
    sources = {LOG: settings.kafka.has_log, JMX: settings.kafka.jmx_topic}
    return [name for name in names if sources[name]]


def start_query(
    session: SparkSession,
    settings: Settings,
    name: str,
    *,
    is_once: bool,
    notice: Callable[[str], None],
    run: Run | None = None,
    on_restart: Callable[[], None] = lambda: None,
) -> Started:
    """Start one of `QUERIES`, in a scheduler pool of its own so that neither starves the other.

    Args:
        session: the Spark session, with Delta.
        settings: the configuration.
        name: one of `QUERIES`.
        is_once: read the available input and end, instead of one micro-batch per `stream.trigger`.
        notice: prints a line for the operator.
        run: this run; the query ends when a later one has started. None for no check.
        on_restart: called when a broker has restarted.
    """
    reports = TaskReports(session.sparkContext)
    rows = _BUILT[name](session, settings, reports)
    sink = Sink(settings, name, reports, notice, run)
    if sink.gaps is not None:
        sink.gaps.on_restart = on_restart
    return start(rows, sink, is_once=is_once)


def start(rows: DataFrame, sink: Sink, *, is_once: bool) -> Started:
    """Start the query that ends in this frame; the frame yields no rows."""
    settings, name = sink.settings, sink.query
    rows.sparkSession.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    writer = rows.writeStream.queryName(name).foreachBatch(sink.commit)
    writer = writer.option("checkpointLocation", hadoop_place(settings.checkpoints, name))
    if is_once:
        return Started(writer.trigger(availableNow=True).start(), sink)
    return Started(writer.trigger(processingTime=f"{settings.stream.trigger} milliseconds").start(), sink)


def _of_log(session: SparkSession, settings: Settings, reports: TaskReports) -> DataFrame:
    lineage = stored_lineage(settings)
    source = request_log(session, settings, lineage.offsets)
    return from_log(source, closings(session, settings), Stages(settings, reports, lineage))


def from_log(source: DataFrame, closing: DataFrame, stages: Stages) -> DataFrame:
    """The query of the log, from the Kafka source with headers and the heartbeats of `closings`."""
    messages = to_messages(source, ingest_settings(stages.settings, message_format(stages.settings)))
    return from_charged(messages.mapInArrow(stages.charged, CHARGED.ddl).unionByName(closing), stages)


def from_charged(charged: DataFrame, stages: Stages) -> DataFrame:
    """The query of the log after its first stage: rows of `CHARGED` into `usage` and `decisions`."""
    seconds = to_seconds(charged, f"{stages.settings.stream.allowed_lateness} milliseconds")
    return from_sharded(seconds.mapInArrow(stages.governed, SHARDED.ddl), stages)


def from_sharded(sharded: DataFrame, stages: Stages) -> DataFrame:
    """The end of the query of the log: rows of GOVERN into `decisions`."""
    settings = stages.settings
    judged = to_judged(
        sharded, rate_config(settings), mutation_config(settings), settings.stream.state_shards
    )
    return judged.mapInArrow(stages.decided, NOTHING)


def _of_jmx(session: SparkSession, settings: Settings, reports: TaskReports) -> DataFrame:
    source = jmx_messages(session, settings, stored_lineage(settings, JMX).offsets)
    return from_jmx(source, settings, reports)


def from_jmx(source: DataFrame, settings: Settings, reports: TaskReports) -> DataFrame:
    """The query of JMX, from the Kafka source with headers."""
    jmx = settings.collect.jmx
    brokers = {form: int(broker) for broker, text in jmx.brokers.items() for form in addresses(text)}
    parse = JmxSettings(
        settings.cluster_id, brokers, jmx.types, settings.stream.raw_text_limit_bytes, clock_skew_ms(settings)
    )
    stages = JmxStages(settings, parse, reports)
    samples = to_jmx_messages(source).mapInArrow(stages.sampled, JMX_SAMPLES.ddl)
    decisions = to_jmx_decisions(samples, LimitsLoader(settings), mutation_config(settings))
    return decisions.mapInArrow(stages.decided, NOTHING)


_BUILT: Mapping[str, Callable[[SparkSession, Settings, TaskReports], DataFrame]] = {
    LOG: _of_log,
    JMX: _of_jmx,
}


_BEYOND_MS = 2_000
_CLOSING = f"{LOG}.closing"


def closings(session: SparkSession, settings: Settings) -> DataFrame:
    """The heartbeats of `close_all_windows` as a stream of rows of `CHARGED`."""
    if _written_ms(settings) < 0:
        _write(settings, 0)  # Spark requires that the folder exists
    found = session.readStream.schema("time_ms bigint").json(hadoop_place(settings.checkpoints, _CLOSING))
    given = {"record_time": "timestamp_millis(time_ms)"}
    columns = (
        f"CAST({given.get(each.name, 'NULL')} AS {each.type}) AS {each.name}" for each in CHARGED.columns
    )
    return found.selectExpr(*columns)


def close_all_windows(settings: Settings) -> None:
    """Write a heartbeat that is later than every line by the allowed lateness, so that every second is closed.

    A second drain of the same lines finds the heartbeat of the first and adds nothing.
    """
    checkpoint = Checkpoint.of(settings, LOG)
    if checkpoint.last_batch is None:
        return
    lateness_ms = settings.stream.allowed_lateness
    newest_ms = checkpoint.watermark_after_ms(checkpoint.last_batch) + lateness_ms
    if newest_ms > max(_written_ms(settings), lateness_ms):
        _write(settings, newest_ms + lateness_ms + _BEYOND_MS)


def _folder(settings: Settings) -> str:
    return place_of(settings.checkpoints, _CLOSING)


def _written_ms(settings: Settings) -> int:
    """Time of the newest heartbeat, epoch ms; -1 without a heartbeat or without the folder."""
    files, place = file_system(settings, _folder(settings))
    found = files.get_file_info(fs.FileSelector(place, allow_not_found=True))
    names = (info.base_name.removesuffix(".json") for info in found)
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _write(settings: Settings, time_ms: int) -> None:
    write_note(settings, f"{_folder(settings)}/{time_ms}.json", b'{"time_ms": %d}' % time_ms)
