"""Patience with Kafka: waits as long as it takes, says so once a minute, and ends when told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from kquota_spark.ship.topic import Headers, KafkaUnreachableError, Topic

_SLICE_S = 0.5
_SILENT_S = 5.0
_WARN_EVERY_S = 60.0
_STOP_GRACE_S = 10.0


class GaveUpError(Exception):
    """Told to stop while Kafka does not answer; what it did not acknowledge is sent again next time."""


class Delivery:
    """Sends through a topic, however long Kafka is away; what waits is bounded by the topic's queue.

    Args:
        connect: opens the topic; again after messages failed.
        warn: takes one line for the operator.
        elapsed_s: a clock that only goes forward.
    """

    def __init__(
        self,
        connect: Callable[[], Topic],
        *,
        warn: Callable[[str], None],
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect, self._warn, self._elapsed_s = connect, warn, elapsed_s
        self._stop = threading.Event()
        self._stuck_since_s: float | None = None
        self._stop_seen_s: float | None = None
        self._warned_s = -_WARN_EVERY_S
        self.topic = connect()

    def begin(self, stop: threading.Event) -> None:
        """From now on, end waiting some seconds after `stop` is set."""
        self._stop, self._stop_seen_s = stop, None

    def send(self, values: Sequence[bytes], *, key: bytes, headers: Headers) -> None:
        """Hand over all values; waits while the queue is full.

        Raises:
            DeliveryFailedError: something did not arrive: `reconnect`, and send again.
            GaveUpError: told to stop meanwhile.
            UserError: Kafka will never take it.
        """
        taken = self.topic.send(values, key=key, headers=headers)
        while taken < len(values):
            before = self.topic.unacknowledged(0.0)
            left = self.topic.unacknowledged(_SLICE_S)
            self._waited(has_moved=left < before)
            taken += self.topic.send(values[taken:], key=key, headers=headers)

    def wait(self) -> None:
        """Wait until everything is acknowledged; the errors are those of `send`."""
        before = 0
        while left := self.topic.unacknowledged(_SLICE_S):
            self._waited(has_moved=left < before)
            before = left
        self._stuck_since_s = None

    def reconnect(self, why: str) -> None:
        """Open the topic anew after a failure; the errors are those of `send`."""
        self._warn_sometimes(f"{self.topic.name}: {why}; sending again what is not acknowledged")
        self.topic.close()
        while True:
            self._end_if_told()
            self._stop.wait(_SLICE_S)
            try:
                self.topic = self._connect()
            except KafkaUnreachableError as error:
                self._warn_sometimes(f"{error}; retrying")
            else:
                self._stuck_since_s = None
                return

    def _waited(self, *, has_moved: bool) -> None:
        """Judge a time of waiting."""
        now_s = self._elapsed_s()
        if has_moved or self._stuck_since_s is None:
            self._stuck_since_s = now_s
        if now_s - self._stuck_since_s >= _SILENT_S:
            why = f": {self.topic.last_error}" if self.topic.last_error else ""
            self._warn_sometimes(f"{self.topic.name} takes no messages{why}; retrying, nothing is lost")
        self._end_if_told()

    def _end_if_told(self) -> None:
        if not self._stop.is_set():
            return
        now_s = self._elapsed_s()
        if self._stop_seen_s is None:
            self._stop_seen_s = now_s
        if now_s - self._stop_seen_s >= _STOP_GRACE_S:
            msg = f"{self.topic.name} did not acknowledge the last lines; the next start sends them again"
            raise GaveUpError(msg)

    def _warn_sometimes(self, message: str) -> None:
        now_s = self._elapsed_s()
        if now_s - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = now_s
            self._warn(message)
