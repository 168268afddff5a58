"""One line of Kafka's request log (JSON form, 2.8 and later) to one `Request`, or a reason why not.

The only parser there is: `mapInArrow` in the job and the offline commands call `RequestLogParser.parse`.
"""

from __future__ import annotations

import re
import zlib
from typing import Annotated, NamedTuple

import msgspec

from kquota_spark.formats import charged_bytes as charged
from kquota_spark.formats.log_clock import LogClock, has_fetch_waited, has_produce_waited, record_time_ms
from kquota_spark.model.points import PointKind
from kquota_spark.model.quota_types import QuotaType

_MARKER = b"Completed request:"
_MARKER_BEFORE = 160
_PRODUCE, _FETCH = 0, 1
MAX_TOPICS = 32
MAX_LINE_BYTES = 4 << 20
_INT32_MAX = 2**31 - 1
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=_INT32_MAX)]
ThrottleMs = Annotated[int, msgspec.Meta(ge=0, le=_INT32_MAX)]


class _Header(msgspec.Struct, rename="camel", gc=False):
    request_api_key: Int32
    request_api_version: Int32
    correlation_id: Int32
    request_api_key_name: str = ""
    client_id: str = ""  # absent in header v0


class _Software(msgspec.Struct, rename="camel", gc=False, frozen=True):
    software_name: str = "unknown"
    software_version: str = "unknown"


class _Line(msgspec.Struct, rename="camel", gc=False, kw_only=True):
    """Fields that every line has."""

    request_header: _Header
    connection: str
    principal: str
    local_time_ms: float
    remote_time_ms: float
    response_queue_time_ms: float
    send_time_ms: float
    throttle_time_ms: ThrottleMs
    is_forwarded: bool = False
    client_information: _Software = _Software()


class _Produce(msgspec.Struct, rename="camel", gc=False):
    acks: Int32
    topic_data: list[charged.ProduceTopic]
    transactional_id: str | None = None


class _Throttled(msgspec.Struct, rename="camel", gc=False):
    throttle_time_ms: ThrottleMs = 0


class _ReplicaState(msgspec.Struct, rename="camel", gc=False):
    replica_id: int = -1


class _FetchRequest(msgspec.Struct, rename="camel", gc=False):
    replica_id: int = -1
    replica_state: _ReplicaState | None = None


class _FetchResponse(msgspec.Struct, rename="camel", gc=False):
    responses: list[charged.FetchTopic]
    throttle_time_ms: ThrottleMs = 0


class _ProduceLine(_Line, kw_only=True):
    request: _Produce
    response: _Throttled | str


class _FetchLine(_Line, kw_only=True):
    request: _FetchRequest
    response: _FetchResponse | str


class _OtherLine(_Line, kw_only=True):
    response: msgspec.Raw = msgspec.Raw(b'""')


class Request(NamedTuple):
    """What one line says. Bytes and times are exact or the best estimate; see the requests table.

    A tuple, in the order of that table's columns: half a million of them a second are turned into Arrow.
    """

    log_time_ms: int
    record_time_ms: int
    principal_type: str
    user: str
    client_id: str
    api_key: int
    api_version: int
    api_name: str
    quota_type: QuotaType | None
    point_kind: PointKind | None
    charged_bytes: int | None
    request_time_percent: float
    observed_throttle_ms: int
    is_from_follower: bool
    is_forwarded: bool
    connection: str
    correlation_id: int
    software_name: str
    software_version: str
    topics: list[str]

    @property
    def connection_hash(self) -> int:
        """Small number for the connection: orders requests of one millisecond, and tells copies apart."""
        return zlib.crc32(self.connection.encode("utf-8", "surrogatepass"))


class Unreadable(Exception):
    """A line that is kept with a reason instead of being counted; `str()` is the reason."""


class RequestLogParser:
    """Parses lines; holds the log's time zone and the compiled decoders.

    Args:
        log_time_zone: zone of the broker's log, e.g. `Europe/Berlin`; the line itself does not say.
    """

    def __init__(self, log_time_zone: str = "UTC") -> None:
        self._clock = LogClock(log_time_zone)
        self._produce = msgspec.json.Decoder(_ProduceLine)
        self._fetch = msgspec.json.Decoder(_FetchLine)
        self._other = msgspec.json.Decoder(_OtherLine)
        self._throttled = msgspec.json.Decoder(_Throttled)

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
        end = line.rfind(b"}") + 1
        start = at + len(_MARKER)
        if line[start : start + 1] != b"{":
            raise Unreadable("not the JSON form of the request log (Kafka 2.8 and later)")
        try:
            log_time_ms = self._clock.epoch_ms(line[1:24])
        except ValueError:
            raise Unreadable("no log time [yyyy-mm-dd hh:mm:ss,mmm] at the start") from None
        try:
            return self._decode(line[start:end], log_time_ms)
        except msgspec.ValidationError as error:
            # The decoder names fields and types and never quotes values.
            raise Unreadable(f"JSON: {str(error)[:200]}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Unreadable("not valid JSON (cut in half, or not UTF-8)") from None
        except OverflowError:
            raise Unreadable("a time before 1970 or after 9999") from None

    def _decode(self, body: bytes, log_time_ms: int) -> Request:
        # The header stands near the start; the decoder is chosen by it and then checks it.
        head = body[:200]
        if b'"requestApiKey":0,' in head:
            produce = self._produce.decode(body)
            if produce.request_header.request_api_key == _PRODUCE:
                return self._of_produce(produce, log_time_ms)
        elif b'"requestApiKey":1,' in head:
            fetch = self._fetch.decode(body)
            if fetch.request_header.request_api_key == _FETCH:
                return self._of_fetch(fetch, log_time_ms)
        other = self._other.decode(body)
        if other.request_header.request_api_key in (_PRODUCE, _FETCH):
            raise Unreadable("request header is not where Kafka writes it")
        try:
            response_ms = self._throttled.decode(other.response).throttle_time_ms
        except msgspec.ValidationError:
            response_ms = 0  # no response, or one without a throttle of its own
        return _request(other, log_time_ms, response_ms, False, [])

    def _of_produce(self, line: _ProduceLine, log_time_ms: int) -> Request:
        header, request, response = line.request_header, line.request, line.response
        if header.request_api_version not in charged.PRODUCE_VERSIONS:
            raise Unreadable(f"PRODUCE v{header.request_api_version} is not known")
        topics = request.topic_data
        in_response_ms = 0 if isinstance(response, str) else response.throttle_time_ms
        has_waited = has_produce_waited(request.acks, line.remote_time_ms)
        names = [topic.name or topic.topic_id or "" for topic in topics[:MAX_TOPICS]]
        if line.is_forwarded:
            return _request(line, log_time_ms, in_response_ms, has_waited, names)
        amount = charged.produce_bytes(
            header.request_api_version, header.client_id, request.transactional_id, topics
        )
        return _request(
            line, log_time_ms, in_response_ms, has_waited, names, QuotaType.PRODUCE, PointKind.PRODUCE, amount
        )

    def _of_fetch(self, line: _FetchLine, log_time_ms: int) -> Request:
        header, request, response = line.request_header, line.request, line.response
        if header.request_api_version not in charged.FETCH_VERSIONS:
            raise Unreadable(f"FETCH v{header.request_api_version} is not known")
        topics = [] if isinstance(response, str) else response.responses
        in_response_ms = 0 if isinstance(response, str) else response.throttle_time_ms
        has_waited = has_fetch_waited(line.remote_time_ms)
        names = [topic.topic or topic.topic_id or "" for topic in topics[:MAX_TOPICS]]
        state = request.replica_state
        is_from_follower = request.replica_id >= 0 or (state is not None and state.replica_id >= 0)
        if line.is_forwarded or is_from_follower:
            return _request(
                line, log_time_ms, in_response_ms, has_waited, names, is_from_follower=is_from_follower
            )
        # A throttled fetch is un-recorded and comes back empty: its size is not in the log.
        is_answered = in_response_ms == 0 == line.throttle_time_ms and not isinstance(response, str)
        kind = PointKind.FETCH if is_answered else PointKind.THROTTLED_FETCH
        amount = charged.fetch_bytes(header.request_api_version, topics) if is_answered else 0
        return _request(line, log_time_ms, in_response_ms, has_waited, names, QuotaType.FETCH, kind, amount)


def _request(
    line: _Line,
    log_time_ms: int,
    in_response_ms: int,
    has_waited: bool,
    topics: list[str],
    quota_type: QuotaType | None = None,
    point_kind: PointKind | None = None,
    amount: int | None = None,
    *,
    is_from_follower: bool = False,
) -> Request:
    """Put a request together; positional, because it runs once a line."""
    if amount is not None and amount > _INT32_MAX:
        raise Unreadable("a size is beyond 2^31")
    header, software = line.request_header, line.client_information
    kind, _, name = line.principal.partition(":")
    throttle_ms = line.throttle_time_ms
    fields = (
        log_time_ms,
        record_time_ms(
            log_time_ms, line.send_time_ms, line.response_queue_time_ms, line.remote_time_ms, has_waited
        ),
        kind,
        name,
        header.client_id,
        header.request_api_key,
        header.request_api_version,
        header.request_api_key_name,
        quota_type,
        point_kind,
        amount,
        line.local_time_ms / 10.0,
        throttle_ms if throttle_ms > in_response_ms else in_response_ms,
        is_from_follower,
        line.is_forwarded,
        line.connection,
        header.correlation_id,
        software.software_name,
        software.software_version,
        topics,
    )
    # Three times as fast as the constructor of a tuple with 20 names.
    return tuple.__new__(Request, fields)


_SENSITIVE = re.compile(
    rb"sasl|scram|token|password|passwd|secret|jaas|authbytes|salt|hmac|alter_?configs|\.key|credential|requestdata",
    re.IGNORECASE,
)
_API_KEY = re.compile(rb'"requestApiKey":(\d+),')
_SENSITIVE_KEYS = {b"17", b"33", b"36", b"38", b"39", b"40", b"41", b"44", b"50", b"51", b"58"}


def storable_text(line: bytes, limit_bytes: int) -> str | None:
    """Text of an unreadable line that may be stored: cut, and None where it might hold a secret.

    SASL, delegation token, SCRAM and AlterConfigs requests are recognised by API key where it is there, and
    by words where the line is cut, like ENVELOPE, which may hold any; when in doubt nothing is kept.
    """
    if _SENSITIVE.search(line):
        return None
    key = _API_KEY.search(line, 0, 400)
    if key is not None and key.group(1) in _SENSITIVE_KEYS:
        return None
    return line[:limit_bytes].decode("utf-8", "replace").replace("\x00", "\ufffd")
