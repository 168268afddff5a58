"""One line of Kafka's request log to one `Request`, or a reason why not.

The only parser there is: `mapInArrow` in the job and the offline commands call `RequestLogParser.parse`.
"""

from __future__ import annotations

import re

from kquota_spark.formats.log_clock import LogClock
from kquota_spark.formats.request import Request, Unreadable
from kquota_spark.formats.request_log_json import JsonForm
from kquota_spark.formats.request_log_text import read_text

__all__ = ["MAX_LINE_BYTES", "Request", "RequestLogParser", "Unreadable"]

MAX_LINE_BYTES = 4 << 20
_MARKER = b"Completed request:"
_MARKER_BEFORE = 160
_LOGGER = b" (kafka.request.logger)"
_AFTER = re.compile(rb"(?:\s+\([^\s()]+\))?\s*")


class RequestLogParser:
    """Parses lines; holds the log's time zone and the compiled decoders.

    Args:
        log_time_zone: zone of the broker's log, e.g. `Europe/Berlin`; the line itself does not say.
    """

    def __init__(self, log_time_zone: str = "UTC") -> None:
        self._clock = LogClock(log_time_zone)
        self._json = JsonForm()

    def parse(self, line: bytes) -> Request:
        """The request of one line (without its line end).

        Raises:
            Unreadable: with a short reason that never quotes the line.
        """
        if len(line) > MAX_LINE_BYTES:
            raise Unreadable(f"line longer than {MAX_LINE_BYTES} bytes")
        at = line.find(_MARKER, 0, _MARKER_BEFORE)
        if at < 0:
            raise Unreadable("no 'Completed request:' near the start")
        try:
            log_time_ms = self._clock.epoch_ms(line[1:24])
        except ValueError:
            raise Unreadable("no log time [yyyy-mm-dd hh:mm:ss,mmm] at the start") from None
        start = at + len(_MARKER)
        end = line.rfind(b"}") + 1
        try:
            if not line.startswith(b'{"', start):
                return read_text(line[start:], log_time_ms)
            request = self._json.read(line[start:end], log_time_ms)
        except OverflowError:
            raise Unreadable("a time before 1970 or after 9999") from None
        after = line[end:]
        if after != _LOGGER and _AFTER.fullmatch(after) is None:
            raise Unreadable("text after the request that is not a logger's name")
        return request
