"""SIGTERM and Ctrl-C: an event for programs without a JVM, and the end of the job in bounded time.

A signal reaches the job through its Python driver or through spark-submit's JVM. systemd and Kubernetes send it to
spark-submit, which starts the JVM's shutdown hooks. By themselves these would close the Spark context under the
running queries: a stack trace, exit code 143. Hadoop runs its hooks one after the other, highest priority first, and
Spark's are among them. Our hook runs before Spark's. It waits, in a JVM that still works, until this module has
stopped the queries.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kquota_spark.process.notices import notice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_S = 20.0
"""Longest time to end, s; then the batch is abandoned. Below the 30 s that Kubernetes allows."""
_HOOK_PRIORITY = 1_000  # Spark's hooks have at most 50
_POLL_S = 0.2


def stop_event() -> threading.Event:
    """An event that SIGTERM and SIGINT set from now on; call it in the main thread.

    The handler only writes a byte. If it set the event itself, it could wait for the event's lock for ever: a signal
    may arrive while the main thread holds that lock, at the start or end of `wait`.
    """
    stop = threading.Event()
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)

    def on_byte() -> None:
        os.read(ours, 1)
        stop.set()

    def on_signal(*_: object) -> None:
        # One byte is enough, so a full pipe needs no other one.
        with contextlib.suppress(BlockingIOError):
            os.write(theirs, b"\0")

    threading.Thread(target=on_byte, name="stop-signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return stop


class StopRequest:
    """Whether the job was asked to end; makes it end in bounded time, and reports a batch that it abandons."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        # A plain attribute, because the thread that a signal interrupts could hold the lock of an Event.
        self.is_asked = False
        self._is_jvm_ending = False
        self._ended = threading.Event()
        self._jvm: Any = None
        self._hook: Any = None
        self._quiet: Callable[[], None] = lambda: None
        self._take_signals()
        threading.Thread(target=self._abandon_in_time, name="stop-in-time", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Sleep, but only until the job is asked to end; returns whether it was asked."""
        until_s = time.monotonic() + seconds
        while not self.is_asked and (rest_s := until_s - time.monotonic()) > 0:
            time.sleep(min(rest_s, _POLL_S))
        return self.is_asked

    def hold_jvm(self, session: SparkSession) -> None:
        """Make a signal to the JVM wait for the queries to end."""
        from pyspark.java_gateway import ensure_callback_server_started

        self._take_signals()  # PySpark has set its own handler for Ctrl-C, which would cancel all jobs and raise
        context = session.sparkContext
        self._jvm = context._jvm
        self._quiet = lambda: context.setLogLevel("OFF")
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        self._jvm.java.lang.Thread.setDefaultUncaughtExceptionHandler(_Uncaught())
        # A Thread that is never started serves as a Runnable with a hash, which a Python object lacks.
        self._hook = self._jvm.java.lang.Thread(_Callback(self._on_jvm_end))
        seconds = self._jvm.java.util.concurrent.TimeUnit.SECONDS
        self._hooks().addShutdownHook(self._hook, _HOOK_PRIORITY, int(STOP_S) + 5, seconds)

    def silence_spark(self) -> None:
        """Switch Spark's log off before the queries are stopped: an interrupted batch is logged as a page of errors."""
        self._quiet()

    def end(self) -> None:
        """Record that the queries have ended; a JVM that waits in the hook halts at once, with exit code 0."""
        self._ended.set()
        if self._is_jvm_ending:
            self._halt_jvm()
        elif self._jvm is not None:
            with contextlib.suppress(Exception):  # the JVM has exited, or has just begun to end
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
        )  # the other thread halts the JVM; if this hook returned first, the JVM would exit with 143

    def _abandon_in_time(self) -> None:
        while not self.is_asked:
            time.sleep(_POLL_S)
        if not self._ended.wait(STOP_S):
            self._notice(
                f"the job has not stopped within {STOP_S:.0f} s: the batch is abandoned; nothing is lost"
            )
            self._halt_jvm()
            os._exit(0)

    def _halt_jvm(self) -> None:
        with contextlib.suppress(Exception):  # there is none yet, or it has exited and does not answer
            self._jvm.java.lang.Runtime.getRuntime().halt(0)

    def _hooks(self) -> Any:
        return self._jvm.org.apache.hadoop.util.ShutdownHookManager.get()


class _Callback:
    """A Java Runnable that calls a Python function."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run

    class Java:
        implements = ("java.lang.Runnable",)


class _Uncaught:
    """Reports the exception that ended a thread of the JVM, except for threads that Spark ends this way on purpose.

    Spark interrupts the thread that listens for Python workers with state, at each of their starts and ends. By
    default that logs a page of stack trace in a job that works.
    """

    def uncaughtException(self, thread: Any, error: Any) -> None:  # noqa: N802
        """Called by the thread that ends."""
        if error.getClass().getSimpleName() != "ClosedByInterruptException":
            notice(f"{thread.getName()}: {error.toString()}")

    class Java:
        implements = ("java.lang.Thread$UncaughtExceptionHandler",)
