"""The job: starts the watcher and the queries, watches over them, and ends as one."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from py4j.protocol import Py4JNetworkError

from kquota_spark.config.governor import make_governor
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.io.audit_metrics import AuditMetrics
from kquota_spark.io.broker_configs import BrokerConfigs
from kquota_spark.io.delta_tables import create_tables
from kquota_spark.io.drain import close_all_windows
from kquota_spark.io.driver_lock import driver_lock
from kquota_spark.io.graceful_stop import StopRequest
from kquota_spark.io.hops import HOPS, start_hop, wanted_hops
from kquota_spark.io.kafka import require_topics
from kquota_spark.io.lineage import require_lineage
from kquota_spark.io.log_gaps import GapWatch
from kquota_spark.io.progress import Progress
from kquota_spark.io.rebuilt_violations import rebuild_all_violations
from kquota_spark.io.spark import spark_session
from kquota_spark.io.watch import Watcher, now_ms
from kquota_spark.model.leaders import LeaderBook
from kquota_spark.model.rules import RuleBook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 0.5
_REPORT_S = 10.0
_REASON_LENGTH = 400
_PYTHON_ERROR = re.compile(r"^[A-Za-z_][\w.]*: .*|^[A-Za-z_][\w.]*(?:Error|Exception)$", re.MULTILINE)


def run_audit(
    settings: Settings,
    hops: Sequence[str] = HOPS,
    *,
    is_once: bool,
    is_drained: bool,
    is_new_lineage: bool = False,
) -> None:
    """Run the queries until stopped, or through what is there.

    Args:
        settings: the configuration.
        hops: which queries to run here; the others may run in other applications.
        is_once: work through what is there and end.
        is_drained: `is_once`, and close the last seconds too: for input that has ended.
        is_new_lineage: queries whose checkpoint is lost go on behind what their tables hold.

    Raises:
        UserError: a server, topic, table or jar is missing, or a query failed; one line.
    """
    stop = StopRequest(_say)
    metrics = AuditMetrics(settings)
    hops = _prepared(settings, hops)
    with ExitStack() as stack:
        stack.callback(stop.end)
        stack.enter_context(metrics.served())
        for hop in hops:
            stack.enter_context(driver_lock(settings.checkpoints, hop))
        begun = require_lineage(settings, hops, is_new=is_new_lineage)
        check = _watch(settings, stack) if "judge" in hops or "judge_jmx" in hops else _nothing_to_check
        session = spark_session(settings, f"kquota-audit {settings.cluster_id}")
        stack.callback(session.stop)
        stop.hold_jvm(session)
        if {"judge", "judge_jmx"} & set(begun):
            rebuild_all_violations(settings)
        try:
            if is_once or is_drained:
                _run_once(session, settings, hops, check, stop, metrics, is_drained=is_drained)
            else:
                _run_on(session, settings, hops, check, stop, metrics)
        except Py4JNetworkError as error:
            raise UserError("the JVM of the driver is gone: killed, or out of memory") from error


def _prepared(settings: Settings, hops: Sequence[str]) -> list[str]:
    """What a query would stumble over, said before Spark starts; the queries whose source there is."""
    require_topics(settings)
    wanted = wanted_hops(settings, hops)
    if not wanted:
        raise UserError(
            "--only: nothing to run, because kafka.topic or kafka.jmx_topic of these queries is empty"
        )
    make_governor(settings, RuleBook(), LeaderBook())
    create_tables(settings)
    GapWatch(settings, _say).record()
    return wanted


def _nothing_to_check() -> None:
    """Where nobody judges, nobody watches."""


def _watch(settings: Settings, stack: ExitStack) -> Callable[[], None]:
    """Start to follow quotas and brokers; what is returned raises what ended a thread of theirs."""
    watcher = Watcher(settings)
    brokers = BrokerConfigs(settings, now_ms)
    for finding in brokers.ask():
        _say(f"warning: {finding.evidence}: {finding.advice}")
    brokers.start()
    stack.callback(brokers.stop)
    watcher.start()
    stack.callback(watcher.stop)

    def check() -> None:
        watcher.check()
        brokers.check()

    return check


def _run_once(
    session: SparkSession,
    settings: Settings,
    hops: Sequence[str],
    check: Callable[[], None],
    stop: StopRequest,
    metrics: AuditMetrics,
    *,
    is_drained: bool,
) -> None:
    for hop in hops:
        if stop.is_asked:
            return
        if hop == "measure" and is_drained:
            close_all_windows(settings)
        query = start_hop(session, settings, hop, is_once=True)
        _wait(settings, [query], check, stop, metrics)
        if hop == "ingest":
            GapWatch(settings, _say).record()


def _run_on(
    session: SparkSession,
    settings: Settings,
    hops: Sequence[str],
    check: Callable[[], None],
    stop: StopRequest,
    metrics: AuditMetrics,
) -> None:
    queries = [start_hop(session, settings, hop, is_once=False) for hop in hops]
    _say(f"auditing {settings.cluster_id}: {', '.join(hops)}; stop with Ctrl-C")
    _wait(settings, queries, check, stop, metrics)


def _wait(
    settings: Settings,
    queries: list[StreamingQuery],
    check: Callable[[], None],
    stop: StopRequest,
    metrics: AuditMetrics,
) -> None:
    """Wait until all queries have ended or `stop` is set, and say how they get on; any failure ends all."""
    progress = {str(query.name): Progress() for query in queries}
    reported_s, gaps = time.monotonic(), GapWatch(settings, _say)
    metrics.look_at_tables(progress)
    while not stop.wait(_POLL_S):
        check()
        is_active = any(query.isActive for query in queries)
        for query in queries:
            if not stop.is_asked:  # a signal to all processes ends Spark's workers too, and a query with them
                raise_failure(settings, query)
            progress[str(query.name)].update(query, time.time())
        gaps.follow(progress.values())
        metrics.update(progress, {str(query.name): query.isActive for query in queries})
        if not is_active:
            break
        if time.monotonic() - reported_s > _REPORT_S:
            reported_s = time.monotonic()
            metrics.look_at_tables(progress)
            _say("  ".join(f"{name} {done.rows:,}" for name, done in progress.items()))
    if stop.is_asked:
        stop.silence_spark()
    for query in queries:
        query.stop()
    for name, done in progress.items():
        _say(f"{name}: {done}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def raise_failure(settings: Settings, query: StreamingQuery) -> None:
    """Raise what ended a query, if anything did, as one line.

    Raises:
        UserError: the query failed.
    """
    failure = query.exception()
    if failure is None:
        return
    reason = reason_of(str(failure))
    raise UserError(
        f"query {query.name} failed and the job was stopped; nothing is lost, the next start resumes at its "
        f"checkpoint {settings.checkpoints}/{query.name}: {reason}"
    )


def reason_of(failure: str) -> str:
    """The line of a query's failure that says why: what a Python worker raised, or the innermost Java cause."""
    _, traceback, raised = failure.rpartition("Traceback (most recent call last):")
    found = _PYTHON_ERROR.search(raised) if traceback else None
    if found:
        return found.group()[:_REASON_LENGTH]
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("Caused by", "org.", "java.", "pyspark."))]
    return (causes or lines or ["unknown"])[-1 if causes else 0][:_REASON_LENGTH]
