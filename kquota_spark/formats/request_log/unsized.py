"""The request of a line that cannot be read: everything except its size, if both ends of the line are present.

A line begins with the header and ends with principal and times. The part between them may be cut out, too long, or in
a version that is not known. The request then counts with an unknown size, and its bucket is uncertain.

No client can imitate either end of the JSON form, because quotation marks in names are escaped.
"""

from __future__ import annotations

import re
import zlib
from typing import Annotated

import msgspec

from kquota_spark.formats.request_log.clock import has_fetch_waited, has_produce_waited, record_time_ms
from kquota_spark.formats.request_log.json_bodies import MUTATION_KEYS, Header, Software, ThrottleMs
from kquota_spark.formats.request_log.request import (
    FETCH_KEY,
    PRODUCE_KEY,
    SHARE_FETCH_KEY,
    Mutation,
    Request,
)
from kquota_spark.model.measure.apis import is_request_quota_exempt
from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.quotas.quota_types import QuotaType

CHARGED_KEYS = frozenset({PRODUCE_KEY, FETCH_KEY, SHARE_FETCH_KEY, *MUTATION_KEYS})
"""API keys of requests that a bandwidth or mutation quota charges."""

_Milliseconds = Annotated[float, msgspec.Meta(ge=0)]
_HEADER_AT_MOST = 200_000
# Possessive quantifiers: otherwise the pattern keeps some 200 bytes for each byte of a client id.
_HEADER = re.compile(
    rb'\{"isForwarded":(?P<forwarded>true|false),"requestHeader":'
    rb'(?P<header>\{(?:[^"{}\\]++|"(?:[^"\\]++|\\.)*+")*+\}),"request":(?P<start>.{0,400})',
    re.DOTALL,
)
_ONE_HEADER = b'"requestHeader":'
_END = b'"connection":"'
_REPLICA_ID = re.compile(rb'"replicaId":(\d+)')
_ACKS_0 = re.compile(rb'\{"transactionalId":(?:null|"(?:[^"\\]|\\.)*"),"acks":0,')


class _End(msgspec.Struct, rename="camel", gc=False):
    connection: str
    local_time_ms: _Milliseconds
    remote_time_ms: _Milliseconds
    throttle_time_ms: ThrottleMs
    response_queue_time_ms: _Milliseconds
    send_time_ms: _Milliseconds
    principal: str
    client_information: Software = Software()


_header = msgspec.json.Decoder(Header).decode
_end = msgspec.json.Decoder(_End).decode


def header_of(body: bytes) -> tuple[Header, re.Match[bytes]] | None:
    """The header of the JSON form, with its match in the body; None if it cannot be read, or there are two."""
    found = _HEADER.match(body, 0, _HEADER_AT_MOST)
    if found is None or body.count(_ONE_HEADER) > 1:
        return None
    try:
        return _header(_utf8(found["header"])), found
    except (msgspec.MsgspecError, RecursionError):
        return None


def may_be_charged(header: Header, found: re.Match[bytes]) -> bool:
    """Whether a bandwidth or mutation quota may charge a request, when only its header (`header_of`) could be read."""
    is_forwarded = found["forwarded"] == b"true"
    return header.request_api_key in CHARGED_KEYS and not (is_forwarded or _is_follower(header, found))


def unsized_request(body: bytes, log_time_ms: int) -> Request | None:
    """The request of a line in the JSON form with both of its ends; None if one of them is missing.

    Args:
        body: the line after `Completed request:`; the middle may be missing.
        log_time_ms: time of the line, epoch ms.
    """
    head = header_of(body)
    at, end = body.rfind(_END), body.rfind(b"}") + 1
    if head is None or at < head[1].end("header"):
        return None
    header, found = head
    try:
        tail = _end(b"{" + _utf8(body[at:end]))
        return _request(header, found, tail, log_time_ms)
    except (msgspec.MsgspecError, OverflowError, RecursionError):
        return None


def _is_follower(header: Header, found: re.Match[bytes]) -> bool:
    return header.request_api_key == FETCH_KEY and _REPLICA_ID.search(found["start"]) is not None


def _utf8(text: bytes) -> bytes:
    """The text with bytes replaced that are not UTF-8: names in another encoding are in all lines of their client."""
    return text.decode("utf-8", "replace").encode()


def _request(header: Header, found: re.Match[bytes], tail: _End, log_time_ms: int) -> Request | None:
    kind, colon, user = tail.principal.partition(":")
    if not colon:
        return None
    key, start = header.request_api_key, found["start"]
    is_forwarded = found["forwarded"] == b"true"
    is_follower = _is_follower(header, found)
    acks = 0 if key == PRODUCE_KEY and _ACKS_0.match(start) else -1
    is_exempt = is_forwarded or is_request_quota_exempt(key, acks=acks, is_follower=is_follower)
    is_charged = not (is_forwarded or is_follower)
    quota_type, point_kind = _charge(key, tail.throttle_time_ms) if is_charged else (None, None)
    is_mutation = is_charged and key in MUTATION_KEYS
    name = zlib.crc32(f"{tail.connection} {header.correlation_id}".encode("utf-8", "surrogatepass"))
    before_ms, has_waited = tail.remote_time_ms, False
    if is_mutation:
        before_ms += tail.local_time_ms
    elif key == PRODUCE_KEY:
        has_waited = has_produce_waited(acks, before_ms)
    elif key in (FETCH_KEY, SHARE_FETCH_KEY):
        has_waited = has_fetch_waited(before_ms)
    recorded_ms = record_time_ms(
        log_time_ms, tail.send_time_ms, tail.response_queue_time_ms, before_ms, has_waited
    )
    return Request(
        log_time_ms, recorded_ms, kind, user, header.client_id or "",
        key, header.request_api_version, header.request_api_key_name,
        quota_type, point_kind, 0 if point_kind is PointKind.THROTTLED_FETCH else None,
        tail.local_time_ms / 10.0, tail.throttle_time_ms, is_follower, is_forwarded,
        tail.connection, header.correlation_id,
        tail.client_information.software_name, tail.client_information.software_version, [],
        None if is_exempt else int(tail.send_time_ms * 1_000 + 0.5),
        [Mutation(name, 0, int(PointKind.UNSIZED_MUTATION))] if is_mutation else None,
    )  # fmt: skip


def _charge(key: int, throttle_ms: int) -> tuple[QuotaType | None, PointKind | None]:
    """Quota type and point kind of a request without its size. A throttled fetch is un-recorded, so none is missing."""
    if key == PRODUCE_KEY:
        return QuotaType.PRODUCE, PointKind.UNSIZED
    if key in (FETCH_KEY, SHARE_FETCH_KEY):
        return QuotaType.FETCH, PointKind.THROTTLED_FETCH if throttle_ms else PointKind.UNSIZED
    return None, None
