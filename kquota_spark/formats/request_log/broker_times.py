"""Where a request spent its time inside the broker: waiting for a thread, or using one.

The job does not keep these fields. They are read from single lines again.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kquota_spark.formats.request_log.clock import LogClock
from kquota_spark.formats.request_log.json_bodies import Header
from kquota_spark.formats.request_log.line import MARKER, MAX_LINE_BYTES
from kquota_spark.formats.request_log.request import Unreadable
from kquota_spark.formats.request_log.text_form import text_times
from kquota_spark.model.interference.windows import Served
from kquota_spark.model.quotas.principals import parse_principal

_MARKER_BEFORE = 160
_LOG_TIME = slice(1, 24)
_Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=86_400_000)]


class _Line(msgspec.Struct, rename="camel", gc=False):
    request_header: Header
    request_queue_time_ms: _Milliseconds
    local_time_ms: _Milliseconds
    remote_time_ms: _Milliseconds
    throttle_time_ms: _Milliseconds
    response_queue_time_ms: _Milliseconds
    send_time_ms: _Milliseconds
    principal: str


_LINE = msgspec.json.Decoder(_Line)


class BrokerTimes:
    """Reads the times of lines.

    Args:
        log_time_zone: zone of the broker's log, e.g. `Europe/Berlin`.
    """

    def __init__(self, log_time_zone: str = "UTC") -> None:
        self._clock = LogClock(log_time_zone)

    def served(self, line: bytes) -> Served | None:
        """The times of one request; None for a line that cannot be read.

        Args:
            line: of the request log, in the JSON form or the text form, without its line end.
        """
        at = line.find(MARKER, 0, _MARKER_BEFORE)
        if at < 0 or len(line) > MAX_LINE_BYTES:
            return None
        try:
            log_time_ms = self._clock.epoch_ms(line[_LOG_TIME])
            body = line[at + len(MARKER) :]
            return _of_json(body, log_time_ms) if body.startswith(b'{"') else text_times(body, log_time_ms)
        except (
            ValueError,
            Unreadable,
        ):  # also those of msgspec, of the clock and of a text that is not UTF-8
            return None


def _of_json(body: bytes, log_time_ms: int) -> Served:
    line = _LINE.decode(body[: body.rfind(b"}") + 1])
    client_id, sent_ms = line.request_header.client_id, line.response_queue_time_ms + line.send_time_ms
    return Served(
        log_time_ms - sent_ms - line.remote_time_ms,
        parse_principal(line.principal).name,
        client_id if isinstance(client_id, str) else "",
        line.request_queue_time_ms,
        line.local_time_ms,
        line.response_queue_time_ms,
        line.send_time_ms,
        line.throttle_time_ms > 0,
    )
