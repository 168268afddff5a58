"""Parses one line of Kafka's request log to one `Request`, or gives the reason why it cannot.

This is the only parser. The offline commands call `RequestLogParser.parse`, and the job calls it for unusual lines.
For other lines the job takes `parts`, and `pipeline.line_columns` assembles them by column. Nothing is counted with
bytes, an identity or a time that is not certain from the line. These are refused, each with a reason:

* a line longer than 4 MB; without `Completed request:` near the start; without a log time; with a time before 1970
  or after 9999, or in the hour that clocks skip in spring; with a size beyond 2^31;
* in the JSON form (Kafka 2.8 and later): text that is not JSON or not UTF-8; a field that bytes, identity or time
  depend on, if it is missing, of the wrong type or beyond its range (the version decides which of them there are:
  a throttle time, a replica id, a transactional id, the name or id of a topic, aborted transactions, and a size or
  `null` for each record set); a principal that is not `type:name`; a response that is a text other than ""; a header
  that is not where Kafka writes it; text after the object that is not a logger's name;
* in the text form (Kafka 0.10.2 to 2.7): a header, an end, a body or a response not as Kafka prints it; two ends of
  a header, two principals; the client id `null`; an API that these versions do not have; a number beyond 32 bits;
  PRODUCE without sizes (logger below TRACE); FETCH without a response (before 1.0) or without the size of a record
  set (before 2.0);
* PRODUCE and FETCH of a version that is not known.

If both ends of a refused line can be read, its request is known without its size (`Unreadable.request`). If one of them
is missing, an unknown bucket lacks the request (`Unreadable.cut_ms`).

Two things are not detected. The first is a name that occurs twice in one object: Kafka cannot write that, the last one
counts, and a check would cost a quarter of the speed. The second, in the text form, is the id of a transactional
producer, which Kafka does not print: its bytes are too low by the length of that id.
"""

from __future__ import annotations

import re

from kquota_spark.formats.request_log.clock import LogClock, SkippedTime
from kquota_spark.formats.request_log.json_form import JsonForm
from kquota_spark.formats.request_log.request import Request, Unreadable
from kquota_spark.formats.request_log.text_form import is_cut_text, read_text, unsized_text
from kquota_spark.formats.request_log.unsized import header_of, may_be_charged, unsized_request

__all__ = ["MAX_LINE_BYTES", "Request", "RequestLogParser", "Unreadable"]

MAX_LINE_BYTES = 4 << 20
MARKER = b"Completed request:"
_MARKER_BEFORE = 160
_END_BYTES = 256 << 10
"""Bytes kept from each end of a line that cannot be read; a header with the longest escaped client id has 200,000."""
_LOGGER_NAME = b" (kafka.request.logger)"
# Kafka's own layout, `[%d] %p %m (%c)%n`. The slices are created once and compared. That saves 0.3 us per line over
# a search, or over startswith and endswith.
_USUAL_AT = len("[2026-11-21 05:40:48,390] DEBUG ")
USUAL_START = MARKER + b'{"'
USUAL_END = b"}" + _LOGGER_NAME
START = slice(_USUAL_AT, _USUAL_AT + len(USUAL_START))
END = slice(-len(USUAL_END), None)
_LOG_TIME = slice(1, 24)
SECOND, MILLISECOND = slice(1, 20), slice(20, 24)
BODY = slice(_USUAL_AT + len(MARKER), -len(_LOGGER_NAME))
_LOGGER = re.compile(rb"(?:\s+\([^\s()]+\))?\s*")


class RequestLogParser:
    """Parses lines; holds the log's time zone and the compiled decoders.

    Args:
        log_time_zone: zone of the broker's log, e.g. `Europe/Berlin`; a line does not contain it.
    """

    def __init__(self, log_time_zone: str = "UTC") -> None:
        self._clock = LogClock(log_time_zone)
        self._json = JsonForm()
        self.parts, self.second_ms = self._json.parts, self._clock.second_ms
        """For lines in Kafka's own layout: the functions with which `pipeline.line_columns` builds columns."""

    def parse(self, line: bytes, seen_ms: int | None = None) -> Request:
        """The request of one line (without its line end).

        Args:
            line: the line.
            seen_ms: a time by which it had certainly been written, epoch ms; see `LogClock.epoch_ms`.

        Raises:
            Unreadable: the line is refused; the reason is short and never quotes the line.
        """
        is_usual = line[START] == USUAL_START and line[END] == USUAL_END
        at = _USUAL_AT if is_usual else line.find(MARKER, 0, _MARKER_BEFORE)
        too_long = (
            Unreadable(f"line longer than {MAX_LINE_BYTES} bytes") if len(line) > MAX_LINE_BYTES else None
        )
        if at < 0:
            raise too_long or Unreadable("no 'Completed request:' near the start")
        try:
            log_time_ms = self._clock.epoch_ms(line[_LOG_TIME], seen_ms)
        except SkippedTime:
            raise Unreadable(
                "a log time that clocks of broker.log_time_zone skip: is it the log's?"
            ) from None
        except ValueError:
            raise Unreadable("no log time [yyyy-mm-dd hh:mm:ss,mmm] at the start") from None
        try:
            if too_long:
                raise too_long
            if is_usual:
                return self._json.read(line[BODY], log_time_ms)
            return self._unusual(line, at + len(MARKER), log_time_ms)
        except OverflowError:
            raise Unreadable("a time before 1970 or after 9999") from None
        except Unreadable as reason:
            _identify(reason, _ends(line, at + len(MARKER)), log_time_ms)
            raise

    def is_shown_twice(self, line: bytes) -> bool:
        """Whether the time of a line needs `seen_ms`, because clocks were put back in that hour."""
        return self._clock.is_shown_twice(line[_LOG_TIME])

    def _unusual(self, line: bytes, start: int, log_time_ms: int) -> Request:
        """The request of a line in the text form, or in the JSON form with another layout."""
        if not line.startswith(b'{"', start):
            return read_text(line[start:], log_time_ms)
        end = line.rfind(b"}") + 1
        request = self._json.read(line[start:end], log_time_ms)
        if _LOGGER.fullmatch(line, end) is None:
            raise Unreadable("text after the request that is not a logger's name")
        return request


def _ends(line: bytes, start: int) -> bytes:
    """A line from a place on; only both ends of a long one, so that memory does not grow with its length."""
    if len(line) - start <= 2 * _END_BYTES:
        return line[start:]
    return line[start : start + _END_BYTES] + b"\0" + line[-_END_BYTES:]


def _identify(reason: Unreadable, body: bytes, log_time_ms: int) -> None:
    """Add to a reason the request as far as its line identifies it, or the log time if it does not."""
    if not body.startswith(b'{"'):
        reason.request = unsized_text(body, log_time_ms)
        is_cut = reason.request is None and is_cut_text(body)
    else:
        reason.request = unsized_request(body, log_time_ms)
        head = None if reason.request else header_of(body)
        is_cut = reason.request is None and (head is None or may_be_charged(*head))
    if is_cut:
        reason.cut_ms = log_time_ms
