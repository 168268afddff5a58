"""A time limit for one reader of the tables: its queries are interrupted, and it gets an error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kquota_spark.errors import UserError

_AGAIN_S = 1.0
"""Time between two interrupts, s. Repeated, because an interrupt between two queries stops neither of them."""


class SlowError(UserError):
    """Reading took longer than its time limit."""


class TimeLimit:
    """A time limit that starts now. After it has passed, it interrupts again and again until `end` is called."""

    def __init__(self, most_s: float, interrupt: Callable[[], None]) -> None:
        """Start the limit.

        Args:
            most_s: the limit, s.
            interrupt: ends the query that runs, if there is one; safe to call from another thread.
        """
        self._most_s, self._interrupt = most_s, interrupt
        self._until_s = time.monotonic() + most_s
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="time limit", daemon=True)
        self._thread.start()

    @property
    def left_s(self) -> float:
        """What is left of it, s; at least some ms."""
        return max(0.001, self._until_s - time.monotonic())

    def check(self) -> None:
        """Return while there is time left.

        Raises:
            SlowError: the limit has passed.
        """
        if time.monotonic() >= self._until_s:
            raise SlowError(
                f"reading the tables takes longer than {self._most_s:g} s: ask for a shorter period"
            )

    def end(self) -> None:
        """End the limit: no further interrupt comes."""
        self._has_ended.set()
        self._thread.join()

    def _watch(self) -> None:
        wait_s = self._most_s
        while not self._has_ended.wait(wait_s):
            self._interrupt()
            wait_s = _AGAIN_S
