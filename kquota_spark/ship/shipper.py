"""Ships request logs into a Kafka topic: at least once, in order, with a heartbeat per broker.

A round reads a part of each log, waits until the brokers have acknowledged every line, and only then stores
the positions. After a crash in between, lines are sent again; none is lost.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.process.clock import now_ms
from kquota_spark.process.notices import notice
from kquota_spark.ship.selection import LogFile, line_filter, log_files
from kquota_spark.ship.state import ShipState, StateDirectory
from kquota_spark.ship.tail import Batch, Tail
from kquota_spark.ship.topic import Delivery, DeliveryFailedError, GaveUpError, Headers, KafkaTopic, Topic

# Maximum chunks of 1 MiB that are unacknowledged at a time and sent again after a crash.
_CHUNKS_PER_ROUND = 32
_IDLE_S = 0.2
# Longest wait for a log that is absent, as it is between a rename and the new file.
_ROTATION_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class ShipCounts:
    """Counts of one run.

    Attributes:
        lines: lines shipped and acknowledged.
        excluded: lines of our own clients, not shipped.
        cut: shipped lines that were too long and were cut.
        heartbeats: heartbeats sent.
        half_line_bytes: bytes at the ends of the logs that wait for their line feed.
    """

    lines: int
    excluded: int
    cut: int
    heartbeats: int
    half_line_bytes: int


@dataclass(slots=True)
class Feed:
    """Progress of shipping one log.

    Attributes:
        start: the state at the start of this run.
        stored: the state up to which the brokers have acknowledged every line.
        sent: the state up to which lines were handed over.
        end_read_at_ms: a time before which every line was sent, epoch ms; None while there is more to read.
        heartbeat_ms: the time in the last heartbeat, epoch ms.
        half_line_bytes: bytes at the end of the log that wait for their line feed.
    """

    file: LogFile
    tail: Tail
    start: ShipState
    stored: ShipState
    sent: ShipState
    end_read_at_ms: int | None = None
    heartbeat_ms: int | None = None
    half_line_bytes: int = 0

    @property
    def key(self) -> bytes:
        """The broker id as text."""
        return str(self.file.broker_id).encode("ascii")

    @property
    def headers(self) -> Headers:
        """Headers of every message of this broker."""
        return [("broker_id", self.key)]

    def is_heartbeat_due(self, interval_ms: int) -> bool:
        """Whether the interval has passed since the last heartbeat; false while there is more to read."""
        if self.end_read_at_ms is None or self.heartbeat_ms is None:
            return self.end_read_at_ms is not None
        # A clock that was set back must not stop heartbeats until it has caught up.
        return not 0 <= self.end_read_at_ms - self.heartbeat_ms < interval_ms

    def gap(self, lost: tuple[int, int]) -> bytes:
        """The message which reports that lines of this broker, written between two times (epoch ms), are lost."""
        # A rotated file that vanished while it was read had lines before its last change.
        from_ms = lost[0] if self.heartbeat_ms is None else min(lost[0], self.heartbeat_ms)
        content = {"broker_id": self.file.broker_id, "from_ms": from_ms, "to_ms": lost[1]}
        return json.dumps({"kquota_gap": content}, separators=(",", ":")).encode("ascii")

    def heartbeat(self, *, is_end: bool) -> bytes:
        """The message that all lines before a time have been shipped; with `is_end`, also that no more will come."""
        self.heartbeat_ms = self.end_read_at_ms
        content = {
            "broker_id": self.file.broker_id,
            "time_ms": self.end_read_at_ms,
            "lines": self.stored.lines,
            "excluded": self.stored.excluded,
            "is_end": is_end,
        }
        return json.dumps({"kquota_heartbeat": content}, separators=(",", ":")).encode("ascii")


def _to_stderr(message: str) -> None:
    notice(f"kquota: {message}")


class Shipper:
    """Ships logs; use it as a context manager, or call `close`.

    Args:
        files: at least one.
        connect: opens the topic, again after messages failed.
        state_dir: where positions are stored.
        exclude_client_ids: lines are not shipped if their client id is one of these, or one followed by `-`.
        heartbeat_interval_ms: time between two heartbeats of a broker.
        clock_ms: the clock for heartbeats, epoch ms.
        warn: takes one line for the operator.

    Raises:
        UserError: another shipper is running, the state is unreadable, or what `connect` raises.
    """

    def __init__(
        self,
        files: Sequence[LogFile],
        connect: Callable[[], Topic],
        state_dir: Path,
        *,
        exclude_client_ids: Sequence[str] = (),
        heartbeat_interval_ms: int = 1_000,
        clock_ms: Callable[[], int] = now_ms,
        warn: Callable[[str], None] = _to_stderr,
    ) -> None:
        self._clock_ms, self._warn = clock_ms, warn
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._is_ours = line_filter(exclude_client_ids)
        self._heartbeats = 0
        self._states = StateDirectory(state_dir)
        try:
            for file in files:
                self._states.lock(file.broker_id)
            states = [self._states.read(file.broker_id) for file in files]
            self._delivery = Delivery(connect, warn=warn)
        except BaseException:
            self._states.close()
            raise
        self._feeds = [
            Feed(file, self._tail(file, state), state, state, state)
            for file, state in zip(files, states, strict=True)
        ]

    @classmethod
    def from_settings(cls, settings: Settings, files: Sequence[LogFile] | None = None) -> Shipper:
        """A shipper according to the settings; ships `files`, if given, instead of those in the settings.

        Raises:
            UserError: no files, a bad one, not exactly one topic, or see the class.
        """
        ship, kafka = settings.ship, settings.kafka
        topics = kafka.log_topics(())
        if len(topics) != 1:
            raise UserError("the settings name no single topic to ship to: say which with --topic")
        return cls(
            log_files(ship.files, "ship.files") if files is None else files,
            lambda: KafkaTopic(
                kafka.bootstrap_servers, topics[0], client_id=ship.client_id, options=ship.options
            ),
            Path(ship.state_dir),
            exclude_client_ids=ship.exclude_client_ids,
            heartbeat_interval_ms=ship.heartbeat_interval,
        )

    def __enter__(self) -> Shipper:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up messages that are not acknowledged, and let other shippers ship the logs."""
        for feed in self._feeds:
            feed.tail.close()
        self._delivery.topic.close()
        self._states.close()

    def run(self, stop: threading.Event) -> ShipCounts:
        """Ship until `stop` is set; the current round is then finished and its positions are stored.

        Raises:
            UserError: Kafka refuses a message, or a position cannot be stored.
        """
        self._delivery.begin(stop)
        try:
            while not stop.is_set():
                try:
                    self._round(self._feeds)
                    due = [feed for feed in self._feeds if feed.is_heartbeat_due(self._heartbeat_interval_ms)]
                    self._send_heartbeats(due)
                except DeliveryFailedError as error:
                    self._send_again(error)
                if all(
                    feed.end_read_at_ms is not None or feed.tail.is_waiting_for_file for feed in self._feeds
                ):
                    stop.wait(_IDLE_S)
            self._delivery.wait()
        except GaveUpError as error:
            self._warn(str(error))
        except DeliveryFailedError:
            pass  # a heartbeat failed: the lines were acknowledged before their positions were stored
        return self._counts()

    def run_once(self, end: bool = False, stop: threading.Event | None = None) -> ShipCounts:
        """Ship all lines that the logs hold now, then one heartbeat per broker.

        Args:
            end: whether the heartbeat announces that nothing more will come.
            stop: ends the run early, without the heartbeat.

        Raises:
            UserError: a log does not exist, or see `run`.
        """
        stop = stop or threading.Event()
        self._delivery.begin(stop)
        patience_until_s = time.monotonic() + _ROTATION_GRACE_S
        for feed in self._feeds:
            feed.end_read_at_ms = None
        try:
            while not stop.is_set():
                reading = [feed for feed in self._feeds if feed.end_read_at_ms is None]
                try:
                    if not reading:
                        self._send_heartbeats(self._feeds, is_end=end)
                        self._delivery.wait()
                        break
                    self._round(reading)
                except DeliveryFailedError as error:
                    self._send_again(error)
                missing = [feed for feed in reading if feed.tail.is_waiting_for_file]
                if missing and time.monotonic() > patience_until_s:
                    file = missing[0].file
                    raise UserError(f"{file.path}: no such log; check the path of broker {file.broker_id}")
                if missing:
                    stop.wait(_IDLE_S)
        except GaveUpError as error:
            self._warn(str(error))
        return self._counts()

    def _round(self, feeds: Sequence[Feed]) -> None:
        """Read and send a limited number of chunks, wait for acknowledgement, then store the positions."""
        for feed in feeds:
            self._ship_some(feed, max(1, _CHUNKS_PER_ROUND // len(feeds)))
        self._delivery.wait()
        for feed in feeds:
            if feed.sent != feed.stored:
                self._states.write(feed.file.broker_id, feed.sent)
                feed.stored = feed.sent

    def _ship_some(self, feed: Feed, chunks: int) -> None:
        # Read the clock before the log: the heartbeat reports that all lines before this time are shipped.
        now_ms = self._clock_ms()
        feed.end_read_at_ms = None
        for _ in range(chunks):
            batch = feed.tail.read()
            self._send(feed, batch)
            feed.half_line_bytes = batch.half_line_bytes
            if batch.is_at_end:
                feed.end_read_at_ms = now_ms
            if batch.is_at_end or feed.tail.is_waiting_for_file:
                break

    def _send(self, feed: Feed, batch: Batch) -> None:
        is_ours = self._is_ours
        if batch.lost is not None:
            headers: Headers = [*feed.headers, ("kind", b"gap")]
            self._delivery.send([feed.gap(batch.lost)], key=feed.key, headers=headers)
        if batch.cut:
            kept = [i for i, line in enumerate(batch.lines) if not is_ours(line)]
            for i in kept:
                truncated = [("truncated", b"%d" % batch.cut[i])] if i in batch.cut else []
                self._delivery.send([batch.lines[i]], key=feed.key, headers=[*feed.headers, *truncated])
            count = len(kept)
        else:
            lines = [line for line in batch.lines if not is_ours(line)]
            self._delivery.send(lines, key=feed.key, headers=feed.headers)
            count = len(lines)
        feed.sent = replace(
            feed.sent,
            position=feed.tail.position,
            lines=feed.sent.lines + count,
            excluded=feed.sent.excluded + len(batch.lines) - count,
            cut=feed.sent.cut + len(batch.cut),
        )

    def _send_again(self, error: DeliveryFailedError) -> None:
        """Go back to the stored positions."""
        for feed in self._feeds:
            feed.tail.close()
            feed.tail = self._tail(feed.file, feed.stored)
            feed.sent, feed.end_read_at_ms = feed.stored, None
        self._delivery.reconnect(str(error))

    def _send_heartbeats(self, feeds: Sequence[Feed], *, is_end: bool = False) -> None:
        """Send one per feed; every line before `end_read_at_ms` is acknowledged by now, see `_round`."""
        for feed in feeds:
            value = feed.heartbeat(is_end=is_end)
            self._delivery.send([value], key=feed.key, headers=[*feed.headers, ("kind", b"heartbeat")])
            self._heartbeats += 1

    def _tail(self, file: LogFile, state: ShipState) -> Tail:
        limit_bytes = self._delivery.topic.line_limit_bytes
        return Tail(file.path, state.position, notice=self._warn, line_limit_bytes=limit_bytes)

    def _counts(self) -> ShipCounts:
        feeds = self._feeds
        return ShipCounts(
            lines=sum(feed.stored.lines - feed.start.lines for feed in feeds),
            excluded=sum(feed.stored.excluded - feed.start.excluded for feed in feeds),
            cut=sum(feed.stored.cut - feed.start.cut for feed in feeds),
            heartbeats=self._heartbeats,
            half_line_bytes=sum(feed.half_line_bytes for feed in feeds),
        )
