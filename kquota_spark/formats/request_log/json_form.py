"""The JSON form of the request log: Kafka 2.8 and later (KIP-673, `RequestConvertToJson`)."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import UNSET

from kquota_spark.formats.request_log import charged_bytes as charged
from kquota_spark.formats.request_log.clock import (
    FETCH_WAITS_FROM_MS,
    NEVER_WAITS_MS,
    produce_waits_from_ms,
    record_time_ms,
)
from kquota_spark.formats.request_log.json_bodies import (
    MUTATION_KEYS,
    FetchRequest,
    FetchResponse,
    FetchResponse28,
    Header,
    MutationRequest,
    MutationResponse,
    Produce,
    ProduceResponse,
    QuotaEdits,
    ShareFetchResponse,
    Software,
    Throttled,
    ThrottleMs,
    altered_quotas,
    mutations_of,
)
from kquota_spark.formats.request_log.request import (
    ALTER_CLIENT_QUOTAS_KEY,
    FETCH_KEY,
    INT32_MAX,
    MAX_TOPICS,
    PRODUCE_KEY,
    SHARE_FETCH_KEY,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Mutation,
    Request,
    Unreadable,
)
from kquota_spark.model.measure.apis import is_request_quota_exempt
from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.quotas.quota_types import QuotaType

Milliseconds = Annotated[float, msgspec.Meta(ge=0)]

_HEADER_BYTES = 200
_API_KEY = b'"requestApiKey":'
# Beginnings of nearly every line: this dictionary takes 0.15 us less than a search.
_HEADS = {
    b'{"isForwarded":false,"requestHeader":{"requestApiKey":%d,' % key: key
    for key in (PRODUCE_KEY, FETCH_KEY)
}
_HEAD = slice(len(next(iter(_HEADS))))
_NEWEST_FETCH_WITH_REPLICA_ID = 14
_CONTROLLED_SHUTDOWN_V0 = (7, 0)
_REFUSED = b'"errorCode":%d,' % TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_new_tuple = tuple.__new__
# Python 3.11 resolves a member of an Enum in Python code: 0.07 us for each of the two per line.
_OF_PRODUCE, _OF_FETCH = QuotaType.PRODUCE, QuotaType.FETCH
_PRODUCED, _FETCHED, _THROTTLED_FETCH = PointKind.PRODUCE, PointKind.FETCH, PointKind.THROTTLED_FETCH

NO_PRINCIPAL = "a principal that is not `type:name`"
PARTS = (
    "client_id", "api_key", "api_version", "api_name", "quota_type", "point_kind", "charged_bytes", "is_from_follower",
    "is_forwarded", "connection", "correlation_id", "software_name", "software_version", "topics", "mutations",
    "altered_quotas", "principal", "local_ms", "remote_ms", "response_queue_ms", "send_ms", "throttle_ms",
    "in_response_ms", "waits_from_ms", "is_timed",
)  # fmt: skip
"""Names of the parts of a line: unchanged fields of `Request`, then the values from which the others are computed."""
Parts = tuple[
    str, int, int, str, QuotaType | None, PointKind | None, int | None, bool, bool, str, int, str, str, list[str],
    list[Mutation] | None, str | None, str, float, float, float, float, int, int, float, bool,
]  # fmt: skip

RequestT_co = TypeVar("RequestT_co", covariant=True)
ResponseT_co = TypeVar("ResponseT_co", covariant=True)


class _Line(msgspec.Struct, Generic[RequestT_co, ResponseT_co], rename="camel", gc=False):
    """A line with its fields in Kafka's order, which is the fastest to decode."""

    is_forwarded: bool
    request_header: Header
    request: RequestT_co
    response: ResponseT_co
    connection: str
    local_time_ms: Milliseconds
    remote_time_ms: Milliseconds
    throttle_time_ms: ThrottleMs
    response_queue_time_ms: Milliseconds
    send_time_ms: Milliseconds
    principal: str
    client_information: Software = Software()
    message_conversions_time: Milliseconds = 0.0


class JsonForm:
    """Reads the object after `Completed request:`; holds the compiled decoders."""

    def __init__(self) -> None:
        # A response is "" where there was none: acks=0, or a connection that was closed.
        self._produce = msgspec.json.Decoder(_Line[Produce, Throttled | str])
        self._answered_produce = msgspec.json.Decoder(_Line[msgspec.Raw, ProduceResponse | str])
        self._fetch = msgspec.json.Decoder(_Line[FetchRequest, FetchResponse | str])
        self._fetch_28 = msgspec.json.Decoder(_Line[FetchRequest, FetchResponse28 | str])
        self._other = msgspec.json.Decoder(_Line[msgspec.Raw, Throttled | str])
        self._edits = msgspec.json.Decoder(QuotaEdits)
        self._share_fetch = msgspec.json.Decoder(_Line[msgspec.Raw, ShareFetchResponse | str])
        self._mutation = msgspec.json.Decoder(_Line[MutationRequest, MutationResponse | str])

    def read(self, body: bytes, log_time_ms: int) -> Request:
        """The request of one line.

        Raises:
            Unreadable: it is not JSON, or a field is missing, of the wrong type or beyond its range.
            OverflowError: a time before 1970 or after 9999.
        """
        return _request(self.parts(body), log_time_ms)

    def parts(self, body: bytes) -> Parts:
        """The parts of one line, in the order of `PARTS`.

        Raises:
            Unreadable: as for `read`, without the checks that `read` makes on the parts.
        """
        try:
            if not body.isascii():
                body.decode()  # The decoder checks skipped fields, but not whether they are UTF-8.
            # The header, near the start, selects the decoder, which then checks it.
            key = _HEADS.get(body[_HEAD])
            if key is None:
                key = _searched_key(body)
            if key == PRODUCE_KEY:
                produce = self._produce.decode(body)
                if produce.request_header.request_api_key == PRODUCE_KEY:
                    return _of_produce(produce, is_charged=self._is_charged(produce, body))
            elif key == FETCH_KEY:
                fetch = self._decoded_fetch(body)
                if fetch.request_header.request_api_key == FETCH_KEY:
                    return _of_fetch(fetch)
            other = self._other.decode(body)
            if other.request_header.request_api_key in MUTATION_KEYS:
                return _of_mutation(self._mutation.decode(body))
            if other.request_header.request_api_key == SHARE_FETCH_KEY:
                return _of_share_fetch(self._share_fetch.decode(body))
            is_edit = other.request_header.request_api_key == ALTER_CLIENT_QUOTAS_KEY
            edits = altered_quotas(self._edits.decode(other.request)) if is_edit else None
        except msgspec.ValidationError as error:
            # The decoder names fields and types and never quotes values.
            raise Unreadable(f"JSON: {str(error)[:200]}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Unreadable("not valid JSON (cut in half, or not UTF-8)") from None
        if other.request_header.request_api_key in {PRODUCE_KEY, FETCH_KEY}:
            raise Unreadable("request header is not where Kafka writes it")
        is_exempt = is_request_quota_exempt(other.request_header.request_api_key)
        return _parts(
            other, _throttle_ms(other.response), NEVER_WAITS_MS, [], is_exempt=is_exempt, altered_quotas=edits
        )

    def _is_charged(self, line: _Line[Produce, Throttled | str], body: bytes) -> bool:
        """Whether the broker checked the produce quota; it did not if it refused the transactional id first."""
        if line.request.transactional_id is None or _REFUSED not in body:
            return True
        response = self._answered_produce.decode(body).response
        return isinstance(response, str) or response.error_codes != {TRANSACTIONAL_ID_AUTHORIZATION_FAILED}

    def _decoded_fetch(self, body: bytes) -> _Line[FetchRequest, FetchResponse | str]:
        try:
            return self._fetch.decode(body)
        except msgspec.ValidationError:
            # This must be a field's name: inside a string its quotation marks would be escaped.
            if b'"partitionResponses":' in body:
                return self._fetch_28.decode(body)
            raise


def _searched_key(body: bytes) -> int | None:
    at = body.find(_API_KEY, 0, _HEADER_BYTES) + len(_API_KEY)
    return {b"0,": PRODUCE_KEY, b"1,": FETCH_KEY}.get(body[at : at + 2])


def _of_produce(line: _Line[Produce, Throttled | str], *, is_charged: bool) -> Parts:
    header, request = line.request_header, line.request
    version = header.request_api_version
    if version not in charged.PRODUCE_VERSIONS:
        raise Unreadable(f"PRODUCE v{version} is not known")
    in_response_ms = _throttle_ms(line.response, version >= 1)
    waits_from_ms = produce_waits_from_ms(request.acks)
    topics = request.topic_data
    if len(topics) == 1:  # takes 0.15 us less than the comprehension, here and for a fetch
        names = [topics[0].name or topics[0].topic_id or ""]
    else:
        names = [topic.name or topic.topic_id or "" for topic in topics[:MAX_TOPICS]]
    if line.is_forwarded or not is_charged:
        return _parts(line, in_response_ms, waits_from_ms, names, is_exempt=request.acks == 0)
    amount = charged.produce_bytes(version, header.client_id or "", request.transactional_id, topics)
    return _parts(
        line,
        in_response_ms,
        waits_from_ms,
        names,
        _OF_PRODUCE,
        _PRODUCED,
        amount,
        is_exempt=request.acks == 0,
    )


def _of_fetch(line: _Line[FetchRequest, FetchResponse | str]) -> Parts:
    response = line.response
    version = line.request_header.request_api_version
    if version not in charged.FETCH_VERSIONS:
        raise Unreadable(f"FETCH v{version} is not known")
    in_response_ms = _throttle_ms(response, version >= 1)
    topics = () if isinstance(response, str) else response.responses
    if len(topics) == 1:
        names = [topics[0].topic or topics[0].topic_id or ""]
    else:
        names = [topic.topic or topic.topic_id or "" for topic in topics[:MAX_TOPICS]]
    is_from_follower = _is_from_follower(line.request, version)
    if line.is_forwarded or is_from_follower:
        return _parts(line, in_response_ms, FETCH_WAITS_FROM_MS, names, is_from_follower=is_from_follower)
    # A throttled fetch is un-recorded, and its response is empty: its size is not in the log.
    amount: int | None = 0
    if in_response_ms or line.throttle_time_ms:
        kind = _THROTTLED_FETCH
    elif isinstance(response, str) or line.message_conversions_time > 0:
        # The log has the sizes after a conversion for an old consumer; the quota counts those before it.
        kind, amount = PointKind.UNSIZED, None
    else:
        kind, amount = _FETCHED, charged.fetch_bytes(version, topics)
    return _parts(line, in_response_ms, FETCH_WAITS_FROM_MS, names, _OF_FETCH, kind, amount)


def _of_share_fetch(line: _Line[msgspec.Raw, ShareFetchResponse | str]) -> Parts:
    """A fetch of a share consumer (KIP-932, Kafka 4.2): charged like a fetch, by a size that is not in the log."""
    response = line.response
    in_response_ms = _throttle_ms(response)
    topics = () if isinstance(response, str) else response.responses[:MAX_TOPICS]
    names = [topic.topic_id for topic in topics]
    if line.is_forwarded:
        return _parts(line, in_response_ms, FETCH_WAITS_FROM_MS, names)
    is_answered = in_response_ms == 0 == line.throttle_time_ms and not isinstance(response, str)
    kind, amount = (PointKind.SHARE_FETCH, None) if is_answered else (PointKind.THROTTLED_SHARE_FETCH, 0)
    return _parts(line, in_response_ms, FETCH_WAITS_FROM_MS, names, _OF_FETCH, kind, amount)


def _of_mutation(line: _Line[MutationRequest, MutationResponse | str]) -> Parts:
    """A change of topics: its quota is checked when the work on it begins, not when its response is ready.

    The log contains a forwarded request twice, with the same response. The one from the client counts: every cluster's
    log has it, even if the log of the controllers is not shipped.
    """
    header, response = line.request_header, line.response
    mutations = None
    if not isinstance(response, str) and not line.is_forwarded:
        mutations = mutations_of(header.request_api_key, header.request_api_version, line.request, response)
    line.remote_time_ms += line.local_time_ms
    return _parts(line, _throttle_ms(response), NEVER_WAITS_MS, [], mutations=mutations)


def _throttle_ms(
    response: Throttled | FetchResponse | ShareFetchResponse | MutationResponse | str,
    is_required: bool = False,
) -> int:
    """The throttle time in the response to the client, ms; 0 without a response."""
    if isinstance(response, str):
        if response:
            raise Unreadable("JSON: Expected `object` or an empty string - at `$.response`")
        return 0
    if response.throttle_time_ms >= 0:
        return response.throttle_time_ms
    if is_required:
        raise Unreadable("JSON: Object missing required field `throttleTimeMs` - at `$.response`")
    return 0


def _is_from_follower(request: FetchRequest, version: int) -> bool:
    """Whether a broker fetches: up to v14 the replica id is always present, later only in a broker's request."""
    if version > _NEWEST_FETCH_WITH_REPLICA_ID:
        state = request.replica_state
        return state is not UNSET and state.replica_id >= 0
    if request.replica_id is UNSET:
        raise Unreadable("JSON: Object missing required field `replicaId` - at `$.request`")
    return request.replica_id >= 0


def _no_client_id(header: Header) -> str:
    """The empty client id: it is empty or null, or the header has no field for it."""
    api = header.request_api_key, header.request_api_version
    if header.client_id is UNSET and api != _CONTROLLED_SHUTDOWN_V0:
        raise Unreadable("JSON: Object missing required field `clientId` - at `$.requestHeader`")
    return ""


def _parts(
    line: _Line[object, object],
    in_response_ms: int,
    waits_from_ms: float,
    topics: list[str],
    quota_type: QuotaType | None = None,
    point_kind: PointKind | None = None,
    amount: int | None = None,
    *,
    is_from_follower: bool = False,
    is_exempt: bool = False,
    mutations: list[Mutation] | None = None,
    altered_quotas: str | None = None,
) -> Parts:
    """Assemble the parts of a line; a tuple without names, because it is created once per line.

    Args:
        line: the line.
        in_response_ms: the throttle time in the response to the client.
        waits_from_ms: least `remoteTimeMs` of a request that waited before its quota was checked.
        topics: names of the topics, the first `MAX_TOPICS`.
        quota_type: the quota that is charged by bytes, if any.
        point_kind: see `PointKind`.
        amount: bytes that are charged.
        is_from_follower: whether a broker fetches.
        is_exempt: whether no request quota counts the request.
        mutations: topics for which the mutation quota was checked.
        altered_quotas: edits of quotas, JSON.
    """
    if amount is not None and amount > INT32_MAX:
        raise Unreadable("a size is beyond 2^31")
    header, software, is_forwarded = line.request_header, line.client_information, line.is_forwarded
    return (
        header.client_id or _no_client_id(header),
        header.request_api_key, header.request_api_version, header.request_api_key_name,
        quota_type, point_kind, amount,
        is_from_follower, is_forwarded,
        line.connection,
        header.correlation_id,
        software.software_name, software.software_version, topics,
        mutations,
        altered_quotas,
        line.principal,
        line.local_time_ms, line.remote_time_ms, line.response_queue_time_ms, line.send_time_ms,
        line.throttle_time_ms, in_response_ms, waits_from_ms,
        not (is_exempt or is_from_follower or is_forwarded),
    )  # fmt: skip


def _request(parts: Parts, log_time_ms: int) -> Request:
    """The request of a line; positional, because it runs once per line. `pipeline.line_columns` does it by column."""
    (
        client_id, api_key, api_version, api_name, quota_type, point_kind, amount, is_from_follower, is_forwarded,
        connection, correlation_id, software_name, software_version, topics, mutations, altered, principal,
        local_ms, remote_ms, queue_ms, send_ms, throttle_ms, in_response_ms, waits_from_ms, is_timed,
    ) = parts  # fmt: skip
    kind, colon, name = principal.partition(":")
    if not colon:
        raise Unreadable(NO_PRINCIPAL)
    fields = (
        log_time_ms, record_time_ms(log_time_ms, send_ms, queue_ms, remote_ms, remote_ms >= waits_from_ms),
        kind, name, client_id, api_key, api_version, api_name, quota_type, point_kind, amount, local_ms / 10.0,
        throttle_ms if throttle_ms > in_response_ms else in_response_ms,
        is_from_follower, is_forwarded, connection, correlation_id, software_name, software_version, topics,
        int(send_ms * 1_000 + 0.5) if is_timed else None, mutations, altered,
    )  # fmt: skip
    # Three times as fast as the constructor of a named tuple with 23 fields.
    return _new_tuple(Request, fields)
