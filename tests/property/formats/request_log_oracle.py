"""What a line of the request log says, read once more and slowly: the judge of the fuzzer."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, NoReturn


class Broken(Exception):
    """A line that must not become a request."""


def _no_constant(text: str) -> NoReturn:
    raise Broken(f"constant {text}")


def _log_time_ms(line: bytes) -> int:
    match = re.match(rb".(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[,.](\d{3})", line, re.DOTALL)
    if match is None:
        raise Broken("no time")
    try:
        moment = datetime.strptime(match[1].decode(), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        raise Broken("no time") from None
    return int(moment.timestamp()) * 1_000 + int(match[2])


def _get(parent: Any, name: str, *types: type) -> Any:
    if not isinstance(parent, dict) or name not in parent:
        raise Broken(f"no {name}")
    value = parent[name]
    if type(value) not in types:
        raise Broken(f"{name} is of the wrong type")
    return value


def _number(parent: Any, name: str, *types: type) -> Any:
    value = _get(parent, name, *types)
    if value < 0:
        raise Broken(f"{name} is negative")
    return value


def json_facts(line: bytes) -> dict[str, Any]:
    """What a line of the JSON form says for sure.

    Raises:
        Broken: it says nothing for sure.
    """
    start, end = line.index(b"Completed request:") + 18, line.rfind(b"}") + 1
    if re.fullmatch(rb"(\s+\([^\s()]+\))?\s*", line[end:]) is None:
        raise Broken("something after the request")
    try:
        body = json.loads(line[start:end].decode(), parse_constant=_no_constant)
    except ValueError as error:
        raise Broken("no JSON") from error
    header = _get(body, "requestHeader", dict)
    key, version = _get(header, "requestApiKey", int), _get(header, "requestApiVersion", int)
    is_without = (key, version) == (7, 0) and "clientId" not in header
    client_id = "" if is_without else _get(header, "clientId", str, type(None)) or ""
    kind, colon, user = _get(body, "principal", str).partition(":")
    if not colon:
        raise Broken("a principal without a type")
    for name in ("remoteTimeMs", "responseQueueTimeMs", "sendTimeMs"):
        _number(body, name, int, float)
    response = _get(body, "response", str, dict)
    if isinstance(response, str) and response:
        raise Broken("a response that is text")
    in_response = 0
    if isinstance(response, dict) and ("throttleTimeMs" in response or (key in (0, 1) and version > 0)):
        in_response = _number(response, "throttleTimeMs", int)
    throttle_ms = max(_number(body, "throttleTimeMs", int), in_response)
    facts = {
        "log_time_ms": _log_time_ms(line),
        "api_key": key,
        "api_version": version,
        "principal_type": kind,
        "user": user,
        "client_id": client_id,
        "connection": _get(body, "connection", str),
        "correlation_id": _get(header, "correlationId", int),
        "is_forwarded": _get(body, "isForwarded", bool),
        "request_time_percent": _number(body, "localTimeMs", int, float) / 10.0,
        "observed_throttle_ms": throttle_ms,
    }
    if key == 0:
        _get(_get(body, "request", dict), "acks", int)
        facts["charged_bytes"] = (
            None if facts["is_forwarded"] else _produced(body["request"], version, client_id)
        )
    elif key == 1:
        follows = _follows(_get(body, "request", dict), version)
        is_answered = isinstance(response, dict) and throttle_ms == 0
        facts["is_from_follower"] = follows
        if follows or facts["is_forwarded"]:
            facts["charged_bytes"] = None
        elif is_answered and body.get("messageConversionsTime", 0) > 0:
            raise Broken("sizes after a conversion")
        else:
            facts["charged_bytes"] = _fetched(response, version) if is_answered else 0
    return facts


def _varint(value: int) -> int:
    return (max(value.bit_length(), 1) + 6) // 7


def _text(text: str | None, is_flexible: bool) -> int:
    length = len((text or "").encode())
    return length + (_varint(length + 1) if is_flexible and text is not None else 1 if is_flexible else 2)


def _array(length: int, is_flexible: bool) -> int:
    return _varint(length + 1) if is_flexible else 4


def _records(partition: dict[str, Any], name: str, null_name: str, is_flexible: bool) -> int:
    if name in partition:
        size = int(_number(partition, name, int))
    elif _get(partition, null_name, type(None)) is None:
        size = 0
    return size + _array(size, is_flexible)


def _topic(topic: dict[str, Any], name: str, is_by_id: bool, is_flexible: bool) -> int:
    if is_by_id:
        _get(topic, "topicId", str)
        return 16
    return _text(_get(topic, name, str), is_flexible)


def _produced(request: dict[str, Any], version: int, client_id: str) -> int:
    """Header and body of a produce request, field by field as in Kafka's ProduceRequest.json."""
    flexible, tags = version >= 9, int(version >= 9)
    size = 2 + 2 + 4 + _text(client_id, False) + tags
    if version >= 3:
        size += _text(_get(request, "transactionalId", str, type(None)), flexible)
    size += 2 + 4 + tags
    topics = _get(request, "topicData", list)
    size += _array(len(topics), flexible)
    for topic in topics:
        partitions = _get(topic, "partitionData", list)
        size += _topic(topic, "name", version >= 13, flexible) + _array(len(partitions), flexible) + tags
        for partition in partitions:
            size += 4 + _records(partition, "recordsSizeInBytes", "records", flexible) + tags
    return size


def _follows(request: dict[str, Any], version: int) -> bool:
    if version < 15:
        return bool(_get(request, "replicaId", int) >= 0)
    return "replicaState" in request and bool(_get(request["replicaState"], "replicaId", int) >= 0)


def _fetched(response: dict[str, Any], version: int) -> int:
    """Length and body of a fetch response, field by field as in Kafka's FetchResponse.json."""
    flexible, tags = version >= 12, int(version >= 12)
    size = 4 + (4 if version >= 1 else 0) + (2 + 4 if version >= 7 else 0) + tags
    topics = _get(response, "responses", list)
    size += _array(len(topics), flexible)
    for topic in topics:
        is_of_28 = isinstance(topic, dict) and "partitions" not in topic
        partitions = _get(topic, "partitionResponses" if is_of_28 else "partitions", list)
        names = ("recordSetSizeInBytes", "recordSet") if is_of_28 else ("recordsSizeInBytes", "records")
        size += _topic(topic, "topic", version >= 13, flexible) + _array(len(partitions), flexible) + tags
        for partition in partitions:
            size += 4 + 2 + 8 + _records(partition, *names, flexible) + tags
            size += (8 if version >= 4 else 0) + (8 if version >= 5 else 0) + (4 if version >= 11 else 0)
            if version >= 4:
                aborted = _get(partition, "abortedTransactions", list, type(None))
                size += _array(len(aborted), flexible) if aborted is not None else _array(0, flexible)
                for one in aborted or []:
                    _get(one, "producerId", int), _get(one, "firstOffset", int)
                    size += 8 + 8 + tags
            size += _tagged(partition) if flexible else 0
    return size


def _tagged(partition: dict[str, Any]) -> int:
    size = 0
    for name, fields in (
        ("divergingEpoch", {"epoch": 4, "endOffset": 8}),
        ("currentLeader", {"leaderId": 4, "leaderEpoch": 4}),
        ("snapshotId", {"endOffset": 8, "epoch": 4}),
    ):
        if name in partition:
            for field in fields:
                _get(partition[name], field, int)
            size += 1 + 1 + sum(fields.values()) + 1
    return size


_TEXT = re.compile(
    r"(?:RequestHeader\(apiKey=\w+, apiVersion=(?P<version>\d+), clientId=(?P<client>.*), correlationId=(?P<id>-?\d+)\)"
    r"|\{api_key=\d+,api_version=(?P<old>\d+),correlation_id=(?P<old_id>-?\d+),client_id=(?P<old_client>.*)\})"
    r" -- (?P<bodies>\{.*) from connection (?P<connection>\S+);totalTime:.*,localTime:(?P<local>[^,]+),"
    r"[^;]*?,securityProtocol:\w+,principal:(?P<kind>[^:]*):(?P<user>.*),listener:",
    re.ASCII,
)


def text_facts(line: bytes) -> dict[str, Any]:
    """What a line of the text form says for sure; of sizes, that their sum is there.

    Raises:
        Broken: it says nothing for sure.
    """
    try:
        text = line[line.index(b"Completed request:") + 18 :].decode()
    except ValueError:
        raise Broken("not UTF-8") from None
    match = _TEXT.match(text)
    if match is None or not text.rstrip().endswith(")"):
        raise Broken("not of the text form")
    return {
        "log_time_ms": _log_time_ms(line),
        "api_version": int(match["version"] or match["old"]),
        "principal_type": match["kind"],
        "user": match["user"],
        "client_id": match["client"] if match["old"] is None else match["old_client"],
        "connection": match["connection"],
        "correlation_id": int(match["id"] or match["old_id"]),
        "request_time_percent": float(match["local"]) / 10.0,
    }
