"""The requests of brokers in a period, from the log topic or from files; each line is read once and then forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.messages.messages import LogMessages
from kquota_spark.formats.request_log.broker_times import BrokerTimes
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.model.interference.windows import Windows
from kquota_spark.replay.files import broker_id_of
from kquota_spark.replay.log_lines import log_lines
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.kafka.log_messages import LogMessage

_MOST_BEFORE_MS, _LEAST_BEFORE_MS = 600_000, 60_000
_LATE_MS = 60_000
"""How much later than its log time a line may reach the topic."""
_REPORTED_EVERY = 1_000
"""Lines between two reports of progress; the command prints few of them."""

Progress = Callable[[str], None]
_BrokerLine = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Period:
    """The period that is asked about, epoch ms, the end exclusive; what is usual is read from before it."""

    since_ms: int
    until_ms: int

    @property
    def from_ms(self) -> int:
        """The beginning of the time before: as long as the period, one minute at least and ten at most."""
        length_ms = self.until_ms - self.since_ms
        return self.since_ms - min(max(length_ms, _LEAST_BEFORE_MS), _MOST_BEFORE_MS)


@dataclass(slots=True)
class ReadLines:
    """What was read."""

    period: Period
    brokers: dict[int, Windows] = field(default_factory=dict)
    lines: int = 0
    """Lines of the period and of the time before it."""
    unreadable: int = 0
    """Lines without readable times, and messages without a broker."""


def of_topic(
    settings: Settings, period: Period, broker: int | None, progress: Progress, most: int | None = None
) -> ReadLines:
    """The requests of a period from the log topics.

    Args:
        settings: Kafka, the format of messages, and the time zones of logs.
        period: the period.
        broker: only this one; None for all.
        progress: gets a line now and then.
        most: maximum number of messages; None for any number.

    Raises:
        UserError: the topics cannot be read or have too many messages, or the settings name none.
    """
    from kquota_spark.kafka.log_messages import UnreadError, each_message_at, runs_between
    from kquota_spark.kafka.questions import message_format

    if not settings.kafka.has_log:
        raise UserError("the settings name no log topic (kafka.topic): name log files instead")
    layout = LogMessages(message_format(settings))
    try:
        runs = runs_between(settings, period.from_ms, period.until_ms + _LATE_MS)
        count = sum(last - first + 1 for of_place in runs.values() for first, last in of_place)
        if most is not None and count > most:
            raise UserError(f"the log topic has {count:,} messages of the period, more than {most:,}")
        messages = each_message_at(settings, runs)
        return _read(settings, period, broker, _lines_of(layout, messages), progress)
    except UnreadError as error:
        raise UserError(f"the log topic cannot be read: {error}") from error


def of_files(
    settings: Settings,
    paths: Sequence[Path],
    asked: tuple[int | None, int | None],
    broker: int | None,
    progress: Progress,
) -> ReadLines:
    """The requests of log files.

    Args:
        settings: the time zones of logs.
        paths: the files, plain or .gz.
        asked: beginning and end of the period, epoch ms; None for those of the files.
        broker: the broker of the files; None takes it from their names.
        progress: gets a line now and then.

    Raises:
        UserError: a file cannot be read, it names no broker, or it has no requests in the period.
    """
    files = [(broker_id_of(path, broker), path) for path in paths]
    since_ms, until_ms = asked
    if since_ms is None or until_ms is None:
        first_ms, last_ms = _bounds(settings, files, progress)
        since_ms = first_ms if since_ms is None else since_ms
        until_ms = last_ms + 1 if until_ms is None else until_ms
    if since_ms >= until_ms:
        raise UserError(f"the files have no request from {utc_text(since_ms)} on")
    lines = ((broker_id, line) for broker_id, path in files for line in log_lines(path))
    return _read(settings, Period(since_ms, until_ms), None, lines, progress)


def _bounds(settings: Settings, files: Sequence[tuple[int, Path]], progress: Progress) -> tuple[int, int]:
    """The first and the last time of the requests of files, epoch ms."""
    times = _Times(settings)
    first_ms = last_ms = None
    for broker_id, path in files:
        for number, line in enumerate(log_lines(path), start=1):
            if number % _REPORTED_EVERY == 0:
                progress(f"{terminal_text(path.name)}: {number:,} lines")
            served = times.of(broker_id).served(line)
            if served is not None:
                at_ms = int(served.handled_ms)
                first_ms = at_ms if first_ms is None else min(first_ms, at_ms)
                last_ms = at_ms if last_ms is None else max(last_ms, at_ms)
    if first_ms is None or last_ms is None:
        names = terminal_text(", ".join(str(path) for _, path in files))
        raise UserError(f"{names}: no request, expected a request log (kafka.request.logger at DEBUG)")
    return first_ms, last_ms


def _lines_of(layout: LogMessages, messages: Iterable[LogMessage]) -> Iterator[_BrokerLine | None]:
    """The lines of messages with their brokers; None for a message without one of both."""
    for message in messages:
        found = layout.line(message.value)
        if found is None:
            yield None
            continue
        line, fields = found
        broker_id = layout.broker_id(message.broker, fields, message.topic)
        yield None if broker_id is None else (broker_id, line)


class _Times:
    """Reads lines of several brokers, each in its own time zone."""

    def __init__(self, settings: Settings) -> None:
        self._broker, self._known = settings.broker, dict[int, BrokerTimes]()

    def of(self, broker_id: int) -> BrokerTimes:
        if broker_id not in self._known:
            zone = self._broker.zones_by_broker.get(broker_id, self._broker.log_time_zone)
            self._known[broker_id] = BrokerTimes(zone)
        return self._known[broker_id]


def _read(
    settings: Settings,
    period: Period,
    broker: int | None,
    lines: Iterable[_BrokerLine | None],
    progress: Progress,
) -> ReadLines:
    found, times = ReadLines(period), _Times(settings)
    for line in lines:
        found.lines += 1
        if found.lines % _REPORTED_EVERY == 0:
            progress(f"read: {found.lines:,} lines")
        if line is None:
            found.unreadable += 1
            continue
        broker_id, text = line
        if broker not in (None, broker_id):
            continue
        served = times.of(broker_id).served(text)
        if served is None:
            found.unreadable += 1
            continue
        if broker_id not in found.brokers:
            found.brokers[broker_id] = Windows(period.from_ms, period.since_ms, period.until_ms)
        found.brokers[broker_id].add(served)
    return found
