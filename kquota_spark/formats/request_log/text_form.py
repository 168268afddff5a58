"""The text form of the request log: Kafka 0.10.2 to 2.7 (`RequestChannel`).

`RequestHeader(apiKey=.., apiVersion=.., clientId=.., correlationId=..) -- {body},response:{..} from connection ..;`
and then times, principal and listener as `key:value`. Before 1.0 the header differs and there is no response. Nothing
is escaped: a client id may contain `, correlationId=`, and a principal may contain commas. Therefore the header is read
from the left and the end from the right. Observed on brokers of 0.10.2, 0.11, 1.1, 2.6 and 2.7.

Controller mutations are not read from it: Kafka limits them from 2.7 on, the last version with this form.

The text never contains the transactional id, so the bytes of a transactional producer are too low by its length.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kquota_spark.formats.request_log import charged_bytes as charged
from kquota_spark.formats.request_log.clock import has_fetch_waited, has_produce_waited, record_time_ms
from kquota_spark.formats.request_log.request import (
    FETCH_KEY,
    INT32_MAX,
    MAX_TOPICS,
    PRODUCE_KEY,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Request,
    Unreadable,
)
from kquota_spark.formats.request_log.text_bodies import fetched_topics, produced_topics
from kquota_spark.model.interference.windows import Served
from kquota_spark.model.measure.apis import is_request_quota_exempt
from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.quotas.quota_types import QuotaType

_API_NAMES = (
    "PRODUCE", "FETCH", "LIST_OFFSETS", "METADATA", "LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA",
    "CONTROLLED_SHUTDOWN", "OFFSET_COMMIT", "OFFSET_FETCH", "FIND_COORDINATOR", "JOIN_GROUP", "HEARTBEAT",
    "LEAVE_GROUP", "SYNC_GROUP", "DESCRIBE_GROUPS", "LIST_GROUPS", "SASL_HANDSHAKE", "API_VERSIONS",
    "CREATE_TOPICS", "DELETE_TOPICS", "DELETE_RECORDS", "INIT_PRODUCER_ID", "OFFSET_FOR_LEADER_EPOCH",
    "ADD_PARTITIONS_TO_TXN", "ADD_OFFSETS_TO_TXN", "END_TXN", "WRITE_TXN_MARKERS", "TXN_OFFSET_COMMIT",
    "DESCRIBE_ACLS", "CREATE_ACLS", "DELETE_ACLS", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
    "ALTER_REPLICA_LOG_DIRS", "DESCRIBE_LOG_DIRS", "SASL_AUTHENTICATE", "CREATE_PARTITIONS",
    "CREATE_DELEGATION_TOKEN", "RENEW_DELEGATION_TOKEN", "EXPIRE_DELEGATION_TOKEN",
    "DESCRIBE_DELEGATION_TOKEN", "DELETE_GROUPS", "ELECT_LEADERS", "INCREMENTAL_ALTER_CONFIGS",
    "ALTER_PARTITION_REASSIGNMENTS", "LIST_PARTITION_REASSIGNMENTS", "OFFSET_DELETE",
    "DESCRIBE_CLIENT_QUOTAS", "ALTER_CLIENT_QUOTAS", "DESCRIBE_USER_SCRAM_CREDENTIALS",
    "ALTER_USER_SCRAM_CREDENTIALS", "VOTE", "BEGIN_QUORUM_EPOCH", "END_QUORUM_EPOCH", "DESCRIBE_QUORUM",
    "ALTER_ISR", "UPDATE_FEATURES",
)  # fmt: skip
"""Names of the requests of Kafka 0.10.2 to 2.7, by number (Kafka's `ApiKeys`). The log has the name or the number."""
_API_KEYS = {name: key for key, name in enumerate(_API_NAMES)} | {"ELECT_PREFERRED_LEADERS": 43}
"""Numbers by name; 2.2 and 2.3 had another name for one of them."""
_HEADER = re.compile(
    r"RequestHeader\(apiKey=(?P<name>\w+), apiVersion=(?P<version>\d{1,4}), "
    r"clientId=(?P<client>.*?), correlationId=(?P<correlation>-?\d{1,10})\) -- (?=\{)",
    re.ASCII,
)
_HEADER_BEFORE_1_0 = re.compile(
    r"\{api_key=(?P<key>\d{1,4}),api_version=(?P<version>\d{1,4}),correlation_id=(?P<correlation>-?\d{1,10}),"
    r"client_id=(?P<client>.*?)\} -- (?=\{)",
    re.ASCII,
)
# The first words of a header; a newline in the client id ends its line before the rest of it.
_API = re.compile(r"RequestHeader\(apiKey=(?P<name>\w+),|\{api_key=(?P<key>\d{1,4}),", re.ASCII)
_LONGEST_HEADER = 33_000
"""Maximum characters of a header; a client id has at most 32,767."""
_END_OF_HEADER = re.compile(r"(?:, correlationId=-?\d+\)|\}) -- \{", re.ASCII)
# The logger's name is required. Without it, a line cut inside a principal that contains ",listener:" would be misread.
_CONNECTION = " from connection "
_NUMBER = r"\d{1,15}(?:\.\d{1,9})?(?:E-?\d{1,2})?"
_TAIL = re.compile(
    rf"{_CONNECTION}(?P<connection>[^;\s]+);totalTime:(?P<total>{_NUMBER}),requestQueueTime:(?P<queue>{_NUMBER}),"
    rf"localTime:(?P<local>{_NUMBER}),remoteTime:(?P<remote>{_NUMBER})(?:,throttleTime:(?P<throttle>{_NUMBER}))?,"
    rf"responseQueueTime:(?P<response_queue>{_NUMBER}),sendTime:(?P<send>{_NUMBER}),securityProtocol:\w+,"
    r"principal:(?P<kind>[^:,]*):(?P<user>.*),listener:[^,\s]+"
    r"(?:,clientInformation:ClientInformation\(softwareName=(?P<software>[^,()]*), "
    r"softwareVersion=(?P<software_version>[^,()]*)\))?"
    rf"(?:,temporaryMemoryBytes:\d+)?(?P<conversions>,messageConversionsTime:{_NUMBER})?\s+\([\w.$-]+\)\s*",
    re.ASCII,
)
_RESPONSE = ",response:"
_PRODUCE = re.compile(
    r"\{acks=(?P<acks>-?\d{1,5}),timeout=-?\d+,(?:partitionSizes=\[(?P<sizes>[^\[\]]*)\]|numPartitions=\d+)\}",
    re.ASCII,
)
_FETCH = re.compile(r"\{replica_id=(?P<replica>-?\d{1,10}),.*\}", re.ASCII)
_FOLLOWER = re.compile(r"\{replica_id=\d", re.ASCII)
_CHARGED = {PRODUCE_KEY: QuotaType.PRODUCE, FETCH_KEY: QuotaType.FETCH}
_BODY = re.compile(r"\{.*\}", re.ASCII)
_ERROR = re.compile(r"[{,]error_code=(-?\d{1,5})(?=[,}])", re.ASCII)
_CLUSTER_AUTHORIZATION_FAILED = 31
_REFUSED = ({str(TRANSACTIONAL_ID_AUTHORIZATION_FAILED)}, {str(_CLUSTER_AUTHORIZATION_FAILED)})
"""Errors of all partitions of a produce that was refused before its quota was checked."""
_FIRST_THROTTLE = re.compile(r"\{(?:error_code=-?\d+,)?throttle_time_ms=(\d{1,10})[,}]", re.ASCII)
_LAST_THROTTLE = re.compile(r",throttle_time_ms=(\d{1,10})(?:,_tagged_fields=\{\})?\}$", re.ASCII)


_Charge = tuple[QuotaType | None, PointKind | None, int | None]
"""Quota type, point kind and bytes that a request adds to a bucket; each None if it adds nothing."""


class _Line(NamedTuple):
    """The parts of one line."""

    log_time_ms: int
    key: int
    version: int
    client_id: str
    correlation_id: int
    request: str
    response: str | None
    """Empty if none was sent; None before Kafka 1.0, which does not log it."""
    tail: re.Match[str]

    def time_ms(self, name: str) -> float:
        """One of the times at the end of the line, ms."""
        return float(self.tail[name])

    @property
    def hold_ms(self) -> float:
        """How long the broker delayed the response, ms: the rest of the total. Only Kafka before 2.0 delays it."""
        spent_ms = sum(map(self.time_ms, ("queue", "local", "remote", "response_queue", "send")))
        return max(self.time_ms("total") - spent_ms, 0.0)


def read_text(text: bytes, log_time_ms: int) -> Request:
    """The request of one line, given the text after `Completed request:`.

    Raises:
        Unreadable: it is not as Kafka prints it, or the charged bytes do not follow from it.
        OverflowError: a time before 1970 or after 9999.
    """
    try:
        line = _line(text.decode(), log_time_ms)
    except UnicodeDecodeError:
        raise Unreadable("text form: not UTF-8") from None
    if line.key == PRODUCE_KEY:
        return _of_produce(line)
    if line.key == FETCH_KEY:
        return _of_fetch(line)
    return _request(line, _throttle_ms(line), False, [], is_exempt=is_request_quota_exempt(line.key))


def text_times(text: bytes, log_time_ms: int) -> Served:
    """Where the time of one request was spent, given the text after `Completed request:`.

    Raises:
        Unreadable: one of the ends of the line is not as Kafka prints it.
    """
    line = _line(text.decode("utf-8", "replace"), log_time_ms, has_bodies=False)
    queue_ms, local_ms, remote_ms, response_queue_ms, send_ms = map(
        line.time_ms, ("queue", "local", "remote", "response_queue", "send")
    )
    throttle = line.tail["throttle"]
    is_throttled = line.hold_ms >= 1 if throttle is None else float(throttle) > 0
    handled_ms = log_time_ms - send_ms - line.hold_ms - response_queue_ms - remote_ms
    return Served(
        handled_ms,
        line.tail["user"],
        line.client_id,
        queue_ms,
        local_ms,
        response_queue_ms,
        send_ms,
        is_throttled,
    )


def unsized_text(text: bytes, log_time_ms: int) -> Request | None:
    """The request of a line with both of its ends, whatever is between; None if one of them cannot be read."""
    try:
        line = _line(text.decode("utf-8", "replace"), log_time_ms, has_bodies=False)
        is_from_follower = line.key == FETCH_KEY and _FOLLOWER.match(line.request) is not None
        charge: _Charge = (None, None, None)
        if line.key in _CHARGED and not is_from_follower:
            charge = _CHARGED[line.key], PointKind.UNSIZED, None
        is_exempt = is_request_quota_exempt(line.key, acks=0 if line.request.startswith("{acks=0,") else -1)
        has_waited = line.key in _CHARGED and has_fetch_waited(line.time_ms("remote"))
        return _request(
            line, None, has_waited, [], charge, is_from_follower=is_from_follower, is_exempt=is_exempt
        )
    except (Unreadable, OverflowError):
        return None


def is_cut_text(text: bytes) -> bool:
    """Whether the end of a line is missing, and a bandwidth quota may charge its request."""
    line = text.decode("utf-8", "replace")
    header = _HEADER.match(line) or _HEADER_BEFORE_1_0.match(line)
    if _tail(line, header.end() if header else 0) is not None:
        return False
    api = _API.match(line)
    if api is None:
        return True
    key = _api_key(api)
    return key in _CHARGED and not (key == FETCH_KEY and header and _is_surely_follower(line, header.end()))


def _is_surely_follower(line: str, at: int) -> bool:
    """Whether a fetch without its end is a follower's; `at` is the first end of its header.

    A client id can imitate that end, and can end the line with a newline. In a longer line the true end would follow.
    """
    is_whole = len(line) > _LONGEST_HEADER and _END_OF_HEADER.search(line, at) is None
    return is_whole and _FOLLOWER.match(line, at) is not None


def _api_key(header: re.Match[str]) -> int:
    """Number of the API; -1 if it is not known."""
    named = header.groupdict()
    return int(named["key"]) if named.get("key") else _API_KEYS.get(named["name"], -1)


def _line(line: str, log_time_ms: int, *, has_bodies: bool = True) -> _Line:
    header = _HEADER.match(line) or _HEADER_BEFORE_1_0.match(line)
    if header is None:
        raise Unreadable("text form: no request header as Kafka 0.10.2 to 2.7 prints it")
    tail = _tail(line, header.end())
    if tail is None:
        raise Unreadable("text form: no end as Kafka 0.10.2 to 2.7 prints it (cut in half?)")
    if _END_OF_HEADER.search(line, header.end(), tail.start()):
        raise Unreadable("text form: two ends of the header: a client id or a body imitates one")
    if "principal:" in tail["user"]:
        raise Unreadable("text form: two principals")
    key = _api_key(header)
    if not 0 <= key < len(_API_NAMES):
        raise Unreadable("text form: an API that Kafka 0.10.2 to 2.7 does not have")
    if header["client"] == "null":
        raise Unreadable("text form: client id null, which may be none or a client of this name")
    bodies = line[header.end() : tail.start()]
    if has_bodies and key in _CHARGED and "\0" in bodies:
        raise Unreadable("text form: the middle of the line was cut out")
    response: str | None = None
    if has_bodies and header.re is _HEADER:
        bodies, _, response = bodies.rpartition(_RESPONSE)
    parts = (bodies, *([response] if response else ())) if has_bodies else ()
    if not all(map(_BODY.fullmatch, parts)):
        raise Unreadable("text form: a request or response that is not as Kafka prints it")
    version, correlation_id = int(header["version"]), int(header["correlation"])
    return _Line(log_time_ms, key, version, header["client"], correlation_id, bodies, response, tail)


def _tail(line: str, start: int) -> re.Match[str] | None:
    """The rightmost end of a line: its principal is authenticated, while the text before it may be forged."""
    at = line.rfind(_CONNECTION, start)
    while at >= 0:
        found = _TAIL.fullmatch(line, at)
        if found is not None:
            return found
        at = line.rfind(_CONNECTION, start, at)
    return None


def _throttle_ms(line: _Line, is_required: bool = False) -> int | None:
    """The throttle time in the response to the client, ms; None without a response."""
    if not line.response:
        return None
    found = _FIRST_THROTTLE.match(line.response) or _LAST_THROTTLE.search(line.response)
    if found is None and is_required:
        raise Unreadable("text form: a response without throttle_time_ms")
    return int(found[1]) if found else 0


def _of_produce(line: _Line) -> Request:
    if line.version not in charged.PRODUCE_VERSIONS:
        raise Unreadable(f"PRODUCE v{line.version} is not known")
    found = _PRODUCE.fullmatch(line.request)
    if found is None:
        raise Unreadable("text form: PRODUCE that is not as Kafka prints it")
    if found["sizes"] is None:
        raise Unreadable(
            "text form: PRODUCE without sizes: set kafka.request.logger to TRACE (at DEBUG they are left out)"
        )
    topics = produced_topics(found["sizes"])
    charge: _Charge = (None, None, None)
    if set(_ERROR.findall(line.response or "")) not in _REFUSED:
        amount = charged.produce_bytes(line.version, line.client_id, None, topics)
        charge = QuotaType.PRODUCE, PointKind.PRODUCE, amount
    return _request(
        line,
        _throttle_ms(line, line.version >= 1),
        has_produce_waited(int(found["acks"]), line.time_ms("remote")),
        [str(topic.name) for topic in topics],
        charge,
        is_exempt=int(found["acks"]) == 0,
    )


def _of_fetch(line: _Line) -> Request:
    if line.version not in charged.FETCH_VERSIONS:
        raise Unreadable(f"FETCH v{line.version} is not known")
    found = _FETCH.fullmatch(line.request)
    if found is None:
        raise Unreadable("text form: FETCH that is not as Kafka prints it")
    throttle_ms = _throttle_ms(line, line.version >= 1)
    has_waited = has_fetch_waited(line.time_ms("remote"))
    if int(found["replica"]) >= 0:
        return _request(line, throttle_ms, has_waited, [], is_from_follower=True)
    if line.response is None:
        raise Unreadable("text form: FETCH without a response: Kafka before 1.0 does not log the bytes")
    topics = fetched_topics(line.response) if line.response else []
    names = [str(topic.topic) for topic in topics]
    # From 2.0 on a throttled fetch is un-recorded, and its response is empty. Before, it was charged and delayed.
    amount: int | None = 0
    kind = PointKind.THROTTLED_FETCH
    if (throttle_ms and not topics) or (not line.response and _at_top_ms(line, throttle_ms)):
        pass
    elif not line.response or line.tail["conversions"]:
        amount, kind = None, PointKind.UNSIZED
    else:
        amount, kind = charged.fetch_bytes(line.version, topics), PointKind.FETCH
    return _request(line, throttle_ms, has_waited, names, (QuotaType.FETCH, kind, amount))


def _request(
    line: _Line,
    in_response_ms: int | None,
    has_waited: bool,
    topics: list[str],
    charge: _Charge = (None, None, None),
    *,
    is_from_follower: bool = False,
    is_exempt: bool = False,
) -> Request:
    """Assemble a request.

    Up to 2.5 the throttle time in the log is not that of the client. 2.0 to 2.5 always print about 0. Older brokers
    print how long they delayed the response, some ms more; that counts if there is no response in the line.
    """
    quota_type, point_kind, charged_bytes = charge
    if charged_bytes is not None and charged_bytes > INT32_MAX:
        raise Unreadable("a size is beyond 2^31")
    tail = line.tail
    at_top_ms = _at_top_ms(line, in_response_ms)
    throttle_ms = max(at_top_ms, in_response_ms or 0)
    if throttle_ms > INT32_MAX or not -INT32_MAX <= line.correlation_id <= INT32_MAX:
        raise Unreadable("text form: a number beyond 32 bits")
    send_ms, queue_ms, remote_ms = map(line.time_ms, ("send", "response_queue", "remote"))
    return Request(
        log_time_ms=line.log_time_ms,
        record_time_ms=record_time_ms(
            line.log_time_ms, send_ms + line.hold_ms, queue_ms, remote_ms, has_waited
        ),
        principal_type=tail["kind"],
        user=tail["user"],
        client_id=line.client_id,
        api_key=line.key,
        api_version=line.version,
        api_name=_API_NAMES[line.key],
        quota_type=quota_type,
        point_kind=point_kind,
        charged_bytes=charged_bytes,
        request_time_percent=line.time_ms("local") / 10.0,
        observed_throttle_ms=throttle_ms,
        is_from_follower=is_from_follower,
        is_forwarded=False,
        connection=tail["connection"],
        correlation_id=line.correlation_id,
        software_name=tail["software"] or "unknown",
        software_version=tail["software_version"] or "unknown",
        topics=topics[:MAX_TOPICS],
        network_time_us=None if is_exempt or is_from_follower else int(send_ms * 1_000 + 0.5),
        mutations=None,
    )


def _at_top_ms(line: _Line, in_response_ms: int | None) -> int:
    """The throttle time in the log, ms, if it is a whole number; else the response's delay if the line has none."""
    throttle = line.tail["throttle"]
    if throttle is not None and throttle.isdigit():
        return int(throttle)
    return int(line.hold_ms) if in_response_ms is None else 0
