"""SIGTERM and Ctrl-C as an event to wait for, for programs without a JVM (`graceful_stop` is for those with one)."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress


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
        with suppress(BlockingIOError):
            os.write(theirs, b"\0")

    threading.Thread(target=told, name="stop-signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, tell)
    return stop
