"""The job: starts the watcher and the queries, watches over them, and ends as one."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JNetworkError

from kquota_spark.config.governor import make_governor
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.io.broker_configs import BrokerConfigs
from kquota_spark.io.delta_tables import create_tables, has_rows
from kquota_spark.io.drain import close_all_windows
from kquota_spark.io.driver_lock import driver_lock
from kquota_spark.io.hops import HOPS, TARGETS, start_hop
from kquota_spark.io.kafka import require_topic
from kquota_spark.io.progress import Progress
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


def run_audit(settings: Settings, hops: Sequence[str] = HOPS, *, is_once: bool, is_drained: bool) -> None:
    """Run the queries until stopped, or through what is there.

    Args:
        settings: the configuration.
        hops: which queries to run here; the others may run in other applications.
        is_once: work through what is there and end.
        is_drained: `is_once`, and close the last seconds too: for input that has ended.

    Raises:
        UserError: a server, topic, table or jar is missing, or a query failed; one line.
    """
    require_topic(settings)
    make_governor(
        settings, RuleBook(), LeaderBook()
    )  # what JUDGE would stumble over, said before Spark starts
    create_tables(settings)
    for hop in hops:
        _require_checkpoint(settings, hop)
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    with ExitStack() as stack:
        for hop in hops:
            stack.enter_context(driver_lock(settings.checkpoints, hop))
        watcher = Watcher(settings)
        if "judge" in hops:
            brokers = BrokerConfigs(settings, now_ms)
            for finding in brokers.ask():
                _say(f"warning: {finding.evidence}: {finding.advice}")
            brokers.start()
            stack.callback(brokers.stop)
            watcher.start()
            stack.callback(watcher.stop)
        session = spark_session(settings, f"kquota-audit {settings.cluster_id}")
        stack.callback(session.stop)
        try:
            if is_once or is_drained:
                _run_once(session, settings, hops, watcher, stop, is_drained=is_drained)
            else:
                _run_on(session, settings, hops, watcher, stop)
        except Py4JNetworkError as error:
            raise UserError("the JVM of the driver is gone: killed, or out of memory") from error


def _require_checkpoint(settings: Settings, hop: str) -> None:
    """Rows without a checkpoint would all be read again: refuse to double them."""
    checkpoint = Path(settings.checkpoints) / hop / "metadata"
    if "://" in settings.checkpoints or checkpoint.exists() or not has_rows(settings, TARGETS[hop]):
        return
    raise UserError(
        f"checkpoint {checkpoint.parent} is missing, but table {TARGETS[hop]} has rows that would be written "
        "twice: restore the checkpoint, or give tables: and checkpoints: new paths"
    )


def _run_once(
    session: SparkSession,
    settings: Settings,
    hops: Sequence[str],
    watcher: Watcher,
    stop: threading.Event,
    *,
    is_drained: bool,
) -> None:
    for hop in hops:
        if stop.is_set():
            return
        if hop == "measure" and is_drained:
            close_all_windows(settings)
        query = start_hop(session, settings, hop, is_once=True)
        _wait(settings, [query], watcher, stop)


def _run_on(
    session: SparkSession, settings: Settings, hops: Sequence[str], watcher: Watcher, stop: threading.Event
) -> None:
    queries = [start_hop(session, settings, hop, is_once=False) for hop in hops]
    _say(f"auditing {settings.cluster_id}: {', '.join(hops)}; stop with Ctrl-C")
    _wait(settings, queries, watcher, stop)


def _wait(settings: Settings, queries: list[StreamingQuery], watcher: Watcher, stop: threading.Event) -> None:
    """Wait until all queries have ended or `stop` is set, and say how they get on; any failure ends all."""
    progress = {str(query.name): Progress() for query in queries}
    reported_s = time.monotonic()
    while not stop.wait(_POLL_S):
        watcher.check()
        is_active = any(query.isActive for query in queries)
        for query in queries:
            _raise_failure(settings, query)
            progress[str(query.name)].update(query)
        if not is_active:
            break
        if time.monotonic() - reported_s > _REPORT_S:
            reported_s = time.monotonic()
            _say("  ".join(f"{name} {done.rows:,}" for name, done in progress.items()))
    for query in queries:
        query.stop()
    for name, done in progress.items():
        _say(f"{name}: {done}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _raise_failure(settings: Settings, query: StreamingQuery) -> None:
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
