"""A thread that calls a function at an interval, until it is stopped or fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)
_STOP_S = 30.0


class Polling:
    """Calls a function in its own thread; the interval is from the end of a call to the start of the next.

    `name` is the name of the thread; the error log names what has ended by it.
    """

    def __init__(self, name: str, interval_ms: int, poll: Callable[[], object]) -> None:
        self._name = name
        self._interval_ms = interval_ms
        self._poll = poll
        self._stopping, self._waking = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether the thread was started and not stopped."""
        return self._thread is not None

    @property
    def is_stopping(self) -> bool:
        """Whether a call in progress should return soon."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Start the thread; the first call comes after the interval."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a call that takes longer than `_STOP_S` is abandoned."""
        self._stopping.set()
        self._waking.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)
            self._thread = None

    def wake(self) -> None:
        """Make the next call now."""
        self._waking.set()

    def check(self) -> None:
        """Raise the error that ended the thread, if there was one."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while True:
                self._waking.wait(self._interval_ms / 1_000)
                self._waking.clear()
                if self._stopping.is_set():
                    return
                self._poll()
        except BaseException as error:  # handed to the thread that calls check()
            _log.error("%s has ended: %s", self._name, error)
            self._error = error
