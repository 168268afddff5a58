"""The job: starts the watcher and the queries, monitors them, and stops all of them together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JNetworkError

from kquota_spark.audit.audit_metrics import AuditMetrics
from kquota_spark.audit.commit import Sink
from kquota_spark.audit.gaps.gap_watch import GapWatch
from kquota_spark.audit.gaps.lost_samples import expired_samples
from kquota_spark.audit.progress import Progress, raise_failure, read_text
from kquota_spark.audit.queries import QUERIES, Started, close_all_windows, start_query, wanted_queries
from kquota_spark.audit.spark import require_pinned_threads, spark_session
from kquota_spark.audit.upkeep import begin_upkeep
from kquota_spark.audit.violations.rebuild import rebuild_all_violations
from kquota_spark.checkpoints.checkpoints import JMX, LOG
from kquota_spark.checkpoints.driver_lease import Hold, StoppedWaitingError, only_driver
from kquota_spark.checkpoints.lineage import require_lineage
from kquota_spark.checkpoints.runs import Run, begun_run
from kquota_spark.config.governor import make_governor
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.kafka.broker_configs import BrokerConfigs
from kquota_spark.kafka.questions import require_topics
from kquota_spark.model.quotas.quota_callback import LeaderBook
from kquota_spark.model.quotas.rules import RuleBook
from kquota_spark.process.check import require_java
from kquota_spark.process.clock import now_ms, now_s
from kquota_spark.process.graceful_stop import StopRequest
from kquota_spark.process.notices import notice_with_time as notice
from kquota_spark.quotas.watch import Watcher
from kquota_spark.store.creation import create_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 0.5
_REPORT_S = 10.0


def run_audit(
    settings: Settings,
    queries: Sequence[str] = QUERIES,
    *,
    is_once: bool,
    is_drained: bool,
    is_new_lineage: bool = False,
) -> None:
    """Run the queries until they are stopped, or until the available input is read.

    Args:
        settings: the configuration.
        queries: names of the queries to run here, of `QUERIES`; the others may run in other applications.
        is_once: read the available input, then end.
        is_drained: as `is_once`, and close the last seconds too: for input that has ended.
        is_new_lineage: a query that has lost its checkpoint continues after the rows of its tables.

    Raises:
        UserError: Java, a server, topic, table or jar is missing, or a query failed; the message is one line.
    """
    require_java()
    require_pinned_threads()
    stop = StopRequest(notice)
    metrics = AuditMetrics(settings)
    servers = settings.kafka.bootstrap_servers
    notice(f"checking the topics of {servers} and the tables under {settings.tables}")
    names = _checked(settings, queries)
    with suppress(StoppedWaitingError), ExitStack() as stack:
        stack.callback(stop.end)
        holds = _held(settings, names, stack, stop)
        stack.enter_context(metrics.served())
        begun = _prepared(settings, names, is_new_lineage=is_new_lineage)
        notice(f"reading the quotas of {settings.cluster_id} ({settings.quotas.source})")
        check, ask_brokers = _watch(settings, stack)
        notice("starting Spark")
        session = spark_session(settings, f"kquota-audit {settings.cluster_id}")
        stack.callback(session.stop)
        stop.hold_jvm(session)
        runs = {name: begun_run(settings, name, holds[name]) for name in names}
        if begun:
            rebuild_all_violations(settings)
        begin_upkeep(settings, names, stack)
        run = _Run(session, settings, check, ask_brokers, stop, metrics, runs)
        try:
            if is_once or is_drained:
                run.once(names, is_drained=is_drained)
            else:
                run.on(names)
        except Py4JNetworkError as error:
            raise UserError("the JVM of the Spark driver has ended: killed, or out of memory") from error


def _checked(settings: Settings, queries: Sequence[str]) -> list[str]:
    """The queries that have a source; raises problems that would stop a query, before anything is written."""
    require_topics(settings)
    wanted = wanted_queries(settings, queries)
    if not wanted:
        raise UserError(
            "--only: nothing to run, because kafka.topic or kafka.jmx_topic of these queries is empty"
        )
    make_governor(settings, RuleBook(), LeaderBook())
    return wanted


def _held(settings: Settings, names: Sequence[str], stack: ExitStack, stop: StopRequest) -> dict[str, Hold]:
    """Locks or leases of the queries, taken before anything is written, so that a refused driver changes nothing."""
    return {
        name: stack.enter_context(
            only_driver(settings, settings.checkpoints, name, notice=notice, is_stopped=stop.wait)
        )
        for name in names
    }


def _prepared(settings: Settings, names: Sequence[str], *, is_new_lineage: bool) -> list[str]:
    """Prepare tables, notes and checkpoints; returns the queries that continue under a new lineage."""
    create_tables(settings)
    GapWatch(settings, notice).record()
    begun = require_lineage(settings, names, is_new=is_new_lineage)
    for line in expired_samples(settings) if JMX in names else ():
        notice(line)
    return begun


def _watch(settings: Settings, stack: ExitStack) -> tuple[Callable[[], None], Callable[[], None]]:
    """Start the threads that watch the quotas and the brokers.

    Returns:
        A function that raises the error which ended one of these threads, and one that requests the settings of the
        brokers now.
    """
    watcher = Watcher(settings)
    brokers = BrokerConfigs(settings, now_ms)
    for finding in brokers.ask():
        notice(f"warning: {finding.evidence}: {finding.advice}")
    brokers.start()
    stack.callback(brokers.stop)
    watcher.start()
    stack.callback(watcher.stop)

    def check() -> None:
        watcher.check()
        brokers.check()

    return check, brokers.wake


@dataclass(frozen=True)
class _Run:
    """State that the queries of a run share.

    `check` raises the error that ended a thread beside the queries. `ask_brokers` requests the settings of the brokers
    now.
    """

    session: SparkSession
    settings: Settings
    check: Callable[[], None]
    ask_brokers: Callable[[], None]
    stop: StopRequest
    metrics: AuditMetrics
    runs: Mapping[str, Run]

    def once(self, names: Sequence[str], *, is_drained: bool) -> None:
        for name in names:
            for is_end in (False, True) if is_drained and name == LOG else (False,):
                if self.stop.is_asked:
                    return
                if is_end:
                    close_all_windows(self.settings)
                self._wait([self._started(name, is_once=True)])

    def on(self, names: Sequence[str]) -> None:
        started = [self._started(name, is_once=False) for name in names]
        notice(f"auditing {self.settings.cluster_id}: {', '.join(names)}; stop with Ctrl-C")
        self._wait(started)

    def _started(self, name: str, *, is_once: bool) -> Started:
        return start_query(
            self.session, self.settings, name,
            is_once=is_once, notice=notice, run=self.runs[name], on_restart=self.ask_brokers,
        )  # fmt: skip

    def _wait(self, started: Sequence[Started]) -> None:
        """Wait until all queries have ended or `stop` is set, and print their progress; any failure ends all."""
        progress = {sink.query: Progress(counted=sink.counted) for _, sink in started}
        reported_s = time.monotonic()
        self.metrics.read_tables()
        while not self.stop.wait(_POLL_S):
            self._check()
            is_active = any(query.isActive for query, _ in started)
            for query, sink in started:
                if (
                    not self.stop.is_asked
                ):  # a signal to all processes also ends Spark's workers, so the query fails
                    _raise_failure(self.settings, query, sink)
                    sink.clock.require()
                _follow(query, sink, progress[sink.query])
            self.metrics.update(progress, {sink.query: query.isActive for query, sink in started})
            if not is_active:
                break
            if time.monotonic() - reported_s > _REPORT_S:
                reported_s = time.monotonic()
                self.metrics.read_tables()
                notice(read_text(progress))
        if self.stop.is_asked:
            self.stop.silence_spark()
        for query, _ in started:
            query.stop()
        for name, done in progress.items():
            notice(f"{name}: {done}")

    def _check(self) -> None:
        """Raise the error that ended a thread beside the queries, or that another driver has taken over."""
        self.check()
        try:
            for run in self.runs.values():
                run.hold.check()
        except UserError:
            self.stop.silence_spark()  # the queries end in the middle of their micro-batches
            raise


def _raise_failure(settings: Settings, query: StreamingQuery, sink: Sink) -> None:
    """Raise the failure of a query; if a later run has started, raise only that."""
    if query.exception() is not None:
        sink.require_newest()
    raise_failure(settings, query)


def _follow(query: StreamingQuery, sink: Sink, progress: Progress) -> None:
    before = progress.backward_batches
    progress.update(query, now_s())
    if sink.gaps is not None and progress.backward_batches > before:
        sink.gaps.record()
