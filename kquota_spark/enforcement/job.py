"""The enforcement job: it checks whenever there are new decisions, and also when there are none.

A streaming query over `decisions` is the heartbeat: each micro-batch reports new decisions. Policies do not use its
rows. They read hours of the tables through DuckDB. A check that runs twice, or not at all, decides nothing that the
next one would not. So nothing depends on the checkpoint, and each start begins a new one.

Temporary changes also expire while no decisions arrive: the driver checks by itself if there was no micro-batch for two
triggers. The lease is released after each check, so that the command of a person can run between two checks.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.checkpoints.driver_lease import only_driver
from kquota_spark.config.own_clients import for_enforcer
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import LogEntry, Mode
from kquota_spark.enforce.enforcer import Report
from kquota_spark.enforce.policies.policy import Policies
from kquota_spark.enforce.ports import Ledger
from kquota_spark.enforcement.assembly import Edges, Enforcing, enforcement_edges
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from kquota_spark.enforcement.policies import load_policies, unknown_exemptions
from kquota_spark.enforcement.right_sizes import DaySizes
from kquota_spark.errors import UserError, one_line
from kquota_spark.gateway.publisher import DecisionPublisher
from kquota_spark.process.check import require_java
from kquota_spark.process.clock import now_ms
from kquota_spark.process.notices import notice
from kquota_spark.store.storage import delta_table, file_system, hadoop_place, place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

QUERY = "enforce"
ACTOR = "enforcer"
_POLL_S = 0.5
_GIVE_UP_S = 300.0
"""Maximum time without a successful check, seconds: then the job ends, and its supervisor may restart it."""
_REST = 9
"""Pause after a check, as a multiple of its duration: reading large tables keeps all cores busy for seconds. Expired
changes are reverted during the pause as well."""
OnEntry = Callable[[LogEntry], None]


class Checks:
    """The checks of the job, one at a time: read the tables, plan and send changes, and revert expired ones.

    The callback after `publisher` gets each row of the log, in order, when it is durable.

    Args:
        settings: the configuration; each check reads the policy file again.
        edges: the ports of the cluster.
        publisher: the publisher of the decision topic; None without one.
        on_entry: takes each row of `enforcement_log` when it is durable.
        clock_ms: the wall clock, epoch ms.
        seconds: a monotonic clock, seconds.
    """

    def __init__(
        self,
        settings: Settings,
        edges: Edges,
        publisher: DecisionPublisher | None,
        on_entry: OnEntry,
        clock_ms: Callable[[], int],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._publisher, self._clock_ms = settings, publisher, clock_ms
        self._seconds, self._rest_until_s = seconds, 0.0
        self._edges = edges._replace(ledger=ReportingLedger(edges.ledger, on_entry))
        self._switch, self._reader = FreezeSwitch(settings), f"{socket.gethostname()}:{os.getpid()}"
        self._sizes = DaySizes()
        self._lock = threading.Lock()
        self._checked_s = self._well_s = seconds()
        self._problem = self._state = ""
        self._is_ending = False

    @property
    def idle_s(self) -> float:
        """Seconds since the end of the last check."""
        return self._seconds() - self._checked_s

    def check(self) -> None:
        """Wait for a running check, then check and act; nothing once the job is ending.

        Raises:
            UserError: a server or a table cannot be used; the next check settles unfinished changes.
        """
        self._take_turn(self._act)

    def _take_turn(self, act: Callable[[int], None]) -> None:
        """Call `act` alone and release the lease afterwards; nothing once the job is ending."""
        with self._lock:
            if self._is_ending:
                return
            try:
                act(self._clock_ms())
            finally:
                self._confirm_switch()
                self._edges.lease.release()
                self._checked_s = self._seconds()

    def _confirm_switch(self) -> None:
        """Note the state of the switch.

        While it is on, note it only under the lease: then no other enforcer is sending either.
        """
        with suppress(UserError):  # without a note the freeze counts as unconfirmed
            frozen = self._switch.frozen()
            if frozen is None or self._edges.lease.acquire() is not None:
                self._switch.confirm(self._reader, self._clock_ms(), frozen)

    def _act(self, now_ms: int) -> None:
        began_s = self._seconds()
        self._notice_state(self._round(now_ms))
        if self._publisher is not None:
            self._publisher.publish(self._edges.ledger.entries(), self._clock_ms())
        ended_s = self._seconds()
        self._rest_until_s = ended_s + _REST * (ended_s - began_s)

    def _end(self, now_ms: int) -> None:
        """Settle changes in doubt and revert expired ones, without the tables that policies read."""
        ending = Enforcing(self._settings, Policies(mode=Mode.OFF), self._edges, ACTOR).enforcer
        ending.resume(now_ms)
        ending.expire(now_ms)

    def _round(self, now_ms: int) -> Report:
        try:
            run = Enforcing.of(self._settings, self._edges, ACTOR, self._sizes)
            proposals, situation = run.proposals(now_ms), run.situation(now_ms)
        except UserError:
            # A penalty must also end if the policy file has a mistake or the decisions cannot be read.
            self._end(now_ms)
            raise
        # The clock of the guards is read after the tables: what these hold is then not ahead of it.
        return run.enforcer.run(proposals, situation, self._clock_ms())

    def _notice_state(self, report: Report) -> None:
        state = ""
        if report.frozen is not None:
            overdue = f"; overdue: {len(report.waiting)}" if report.waiting else ""
            state = f"frozen by {report.frozen.actor!r}: {report.frozen.reason!r}{overdue}"
        elif not report.is_leader:
            state = "another enforcer has the lease"
        if state != self._state:
            notice(f"enforce: {state or 'continues'}")
        self._state = state

    def try_to_check(self) -> None:
        """Check, or during the pause after the last check only revert expired changes.

        An error is reported once, and again when it changes.

        Raises:
            UserError: no check has succeeded for five minutes.
        """
        try:
            if self._seconds() < self._rest_until_s:
                self._take_turn(self._end)
            else:
                self.check()
        except UserError as error:
            if str(error) != self._problem:
                notice(f"enforce: stopped until the next check: {error}")
            self._problem = str(error)
            if self._seconds() - self._well_s > _GIVE_UP_S:
                raise
        else:
            if self._problem:
                notice("enforce: continues")
            self._problem = ""
            self._well_s = self._seconds()

    def end(self) -> None:
        """Wait until a running check ends; no other begins."""
        self._is_ending = True
        with self._lock:
            pass


class ReportingLedger:
    """A ledger that reports each row once it is durable."""

    def __init__(self, ledger: Ledger, on_entry: OnEntry) -> None:
        self._ledger, self._on_entry = ledger, on_entry

    def append(self, entries: Sequence[LogEntry]) -> None:
        """See `enforce.ports.Ledger`."""
        self._ledger.append(entries)
        for entry in entries:
            self._on_entry(entry)

    def entries(self) -> list[LogEntry]:
        """See `enforce.ports.Ledger`."""
        return self._ledger.entries()


def run_enforcement(settings: Settings, on_entry: OnEntry, *, is_once: bool) -> None:
    """Enforce until stopped, or check once; a single check needs no Spark, because nothing has to trigger it.

    Args:
        settings: the configuration.
        on_entry: takes each row of `enforcement_log` when it is durable.
        is_once: whether to check only once, for cron.

    Raises:
        UserError: Java, a server, topic, table or the policy file cannot be used; one line.
    """
    if not is_once:
        require_java()
    with ExitStack() as stack:
        stack.enter_context(only_driver(settings, settings.checkpoints, QUERY))
        edges = stack.enter_context(enforcement_edges(settings, is_patient=True))
        publisher = (
            stack.enter_context(DecisionPublisher(for_enforcer(settings)))
            if settings.enforcement.decision_topic
            else None
        )
        checks = Checks(settings, edges, publisher, on_entry, now_ms)
        # The first check also settles the changes that a crash left unfinished, before the slow start of Spark.
        checks.check()
        for line in unknown_exemptions(settings, load_policies(Path(settings.enforcement.policy_file))):
            notice(f"enforce: warning: {line}")
        if not is_once:
            _run_on(settings, checks, stack)


def _run_on(settings: Settings, checks: Checks, stack: ExitStack) -> None:
    from py4j.protocol import Py4JNetworkError

    from kquota_spark.audit.progress import raise_failure
    from kquota_spark.audit.spark import spark_session
    from kquota_spark.process.graceful_stop import StopRequest

    stop = StopRequest(notice)
    stack.callback(stop.end)
    session = spark_session(settings, f"kquota-enforce {settings.cluster_id}")
    stack.callback(session.stop)
    stop.hold_jvm(session)
    silent_s = 2 * settings.enforcement.trigger / 1_000
    try:
        query = start_heartbeat(session, settings, checks.try_to_check)
        notice(f"enforcing {settings.cluster_id}; stop with Ctrl-C; kquota freeze stops what it does")
        while not stop.wait(_POLL_S):
            raise_failure(settings, query)
            if checks.idle_s > silent_s:
                checks.try_to_check()
        checks.end()
        stop.silence_spark()
        query.stop()
    except Py4JNetworkError as error:
        raise UserError("the JVM of the Spark driver has ended: killed, or out of memory") from error


def start_heartbeat(session: SparkSession, settings: Settings, check: Callable[[], None]) -> StreamingQuery:
    """Start a streaming query that calls a function once per micro-batch of decisions, from the present version on.

    All decisions that arrived since the last call are one micro-batch.
    """
    from kquota_spark.audit.spark import table_stream
    from kquota_spark.schema.tables import DECISIONS

    def on_news(_: DataFrame, __: int) -> None:
        check()

    checkpoint = place_of(settings.checkpoints, QUERY)
    _remove(settings, checkpoint)
    newest = delta_table(settings, DECISIONS.name).version()
    decisions = table_stream(session, settings, DECISIONS.name, newest)
    writer = decisions.select("second").writeStream.foreachBatch(on_news)
    writer = writer.option("checkpointLocation", hadoop_place(settings.checkpoints, QUERY))
    trigger = f"{settings.enforcement.trigger} milliseconds"
    return writer.queryName(QUERY).trigger(processingTime=trigger).start()


def _remove(settings: Settings, checkpoint: str) -> None:
    """Remove the old checkpoint: it may name files that `maintain.file_retention` has removed since."""
    try:
        files, place = file_system(settings, checkpoint)
        with suppress(FileNotFoundError):
            files.delete_dir(place)
    except OSError as error:
        reason = one_line(error)
        raise UserError(f"{checkpoint}: cannot be removed, to begin anew: {reason}") from error
