"""SIGTERM and Ctrl-C: an event for programs without a JVM, and the end of the job in bounded time.

The job is told by its Python driver, or by spark-submit's JVM. A signal to spark-submit, which is what systemd and
Kubernetes send, starts the JVM's shutdown hooks. Left alone they would tear the Spark context down under the running
queries: a stack trace, exit code 143. Hadoop runs its hooks one after the other, highest priority first, and Spark's
are among them; ours comes before and waits there, in a JVM that still works, until the queries have been stopped from
here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kquota_spark.process.notices import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_S = 20.0
"""After this long what has not ended is abandoned; below the 30 s that Kubernetes gives."""
_HOOK_PRIORITY = 1_000  # Spark's hooks have at most 50
_POLL_S = 0.2


def stop_event() -> threading.Event:
    """An event that SIGTERM and SIGINT set from now on; for the main thread.

    The handler only writes a byte. Set in the handler itself, the event could wait for its own lock for ever: a signal
    may come while the main thread holds it, on its way into or out of `wait`.
    """
    stop = threading.Event()
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)

    def told() -> None:
        os.read(ours, 1)
        stop.set()

    def tell(*_: object) -> None:
        # One byte is enough: a pipe that is full says no less.
        with contextlib.suppress(BlockingIOError):
            os.write(theirs, b"\0")

    threading.Thread(target=told, name="stop-signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, tell)
    return stop


class StopRequest:
    """Whether the job was asked to end, and the care that it does; the operator is told in a line."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        # A plain attribute: the lock of an Event could be held by the very thread that a signal interrupts.
        self.is_asked = False
        self._is_jvm_ending = False
        self._ended = threading.Event()
        self._jvm: Any = None
        self._hook: Any = None
        self._quiet: Callable[[], None] = lambda: None
        self._take_signals()
        threading.Thread(target=self._abandon_in_time, name="stop-in-time", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Sleep, or less if the job is asked to end meanwhile; whether it was asked."""
        until_s = time.monotonic() + seconds
        while not self.is_asked and (rest_s := until_s - time.monotonic()) > 0:
            time.sleep(min(rest_s, _POLL_S))
        return self.is_asked

    def hold_jvm(self, session: SparkSession) -> None:
        """Make a signal to the JVM wait for the queries to end."""
        from pyspark.java_gateway import ensure_callback_server_started

        self._take_signals()  # PySpark has taken Ctrl-C for itself: it would cancel all jobs and raise
        context = session.sparkContext
        self._jvm = context._jvm
        self._quiet = lambda: context.setLogLevel("OFF")
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        self._jvm.java.lang.Thread.setDefaultUncaughtExceptionHandler(_Uncaught())
        # A Thread that is never started: a Runnable with a hash of its own, which a Python object lacks.
        self._hook = self._jvm.java.lang.Thread(_Callback(self._on_jvm_end))
        seconds = self._jvm.java.util.concurrent.TimeUnit.SECONDS
        self._hooks().addShutdownHook(self._hook, _HOOK_PRIORITY, int(STOP_S) + 5, seconds)

    def silence_spark(self) -> None:
        """Before the queries are stopped: Spark logs the interruption of a batch as a page of errors."""
        self._quiet()

    def end(self) -> None:
        """The queries have ended; a JVM that is held goes down at once, with exit code 0."""
        self._ended.set()
        if self._is_jvm_ending:
            self._halt_jvm()
        elif self._jvm is not None:
            with contextlib.suppress(Exception):  # the JVM is gone, or has just begun to end
                self._hooks().removeShutdownHook(self._hook)

    def _take_signals(self) -> None:
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        self.is_asked = True

    def _on_jvm_end(self) -> None:
        if self._ended.is_set():
            return
        self._is_jvm_ending = self.is_asked = True
        self._ended.wait(STOP_S)
        time.sleep(
            _POLL_S
        )  # the other thread halts the JVM; after a hook that returned first it exits with 143

    def _abandon_in_time(self) -> None:
        while not self.is_asked:
            time.sleep(_POLL_S)
        if not self._ended.wait(STOP_S):
            self._say(
                f"the job has not stopped within {STOP_S:.0f} s: the batch is abandoned; nothing is lost"
            )
            self._halt_jvm()
            os._exit(0)

    def _halt_jvm(self) -> None:
        with contextlib.suppress(Exception):  # there is none yet, or it does not answer, because it is gone
            self._jvm.java.lang.Runtime.getRuntime().halt(0)

    def _hooks(self) -> Any:
        return self._jvm.org.apache.hadoop.util.ShutdownHookManager.get()


class _Callback:
    """A Java Runnable that calls back."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run

    class Java:
        implements = ("java.lang.Runnable",)


class _Uncaught:
    """Says what a thread of the JVM died of, but for those that are ended this way.

    Spark interrupts the thread that listens for Python workers with state, at each start and end of theirs: a page of
    stack trace in the log of a job that is well.
    """

    def uncaughtException(self, thread: Any, error: Any) -> None:  # noqa: N802
        """Called by the thread that ends."""
        if error.getClass().getSimpleName() != "ClosedByInterruptException":
            say(f"{thread.getName()}: {error.toString()}")

    class Java:
        implements = ("java.lang.Thread$UncaughtExceptionHandler",)
