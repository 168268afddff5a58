"""What differs between the versions of Kafka and of its requests."""

from __future__ import annotations

from kquota_spark.formats.request_log.line import Request, RequestLogParser
from kquota_spark.model.measure.points import PointKind
from tests.support.logs.log_lines import (
    FETCH_V12,
    FETCH_V17_THROTTLED,
    PRODUCE_V9,
    changed,
    fetch_by_id,
    produce_v8,
)

PARSER = RequestLogParser()


def parsed(line: bytes, *replacements: tuple[str, str]) -> Request:
    return PARSER.parse(changed(line, *replacements))


def test_bytes_of_lines() -> None:
    assert [parsed(produce_v8(size)).charged_bytes for size in (100, 16_384)] == [154, 16_438]
    v11 = ('"requestApiVersion":9', '"requestApiVersion":11')
    assert parsed(PRODUCE_V9, v11).charged_bytes == 16_433
    assert parsed(PRODUCE_V9, v11, ("16384", "100")).charged_bytes == 147
    v13 = ('"requestApiVersion":9', '"requestApiVersion":13')
    by_id = parsed(PRODUCE_V9, v13, ('"name":"orders"', '"topicId":"vNg5hPZjQ4yZ6oXwMJ1jXg"'))
    # 16 bytes of id instead of 1 + 6 of name.
    assert (by_id.charged_bytes, by_id.topics) == (16_433 + 9, ["vNg5hPZjQ4yZ6oXwMJ1jXg"])
    v11 = ('"requestApiVersion":12', '"requestApiVersion":11')
    assert parsed(FETCH_V12, v11).charged_bytes == 16_456
    assert [PARSER.parse(fetch_by_id(version)).charged_bytes for version in (13, 17)] == [16_457] * 2
    assert PARSER.parse(fetch_by_id(17)).topics == ["vNg5hPZjQ4yZ6oXwMJ1jXg"]
    # No response before the wait was over: empty, but not throttled.
    empty = parsed(FETCH_V17_THROTTLED, ('"throttleTimeMs":1800', '"throttleTimeMs":0'))
    assert (empty.charged_bytes, empty.point_kind) == (16, PointKind.FETCH)


def test_the_names_of_kafka_2_8() -> None:
    old = changed(
        FETCH_V12,
        (
            '"responses":[{"topic":"orders","partitions"',
            '"responses":[{"topic":"orders","partitionResponses"',
        ),
        ('"partitionIndex"', '"partition"'),
        ('"recordsSizeInBytes":16384', '"recordSetSizeInBytes":16384'),
    )
    assert PARSER.parse(old) == parsed(FETCH_V12)
    # Less 16,384 and two of the three bytes of its length.
    assert parsed(old, ('"recordSetSizeInBytes":16384', '"recordSet":null')).charged_bytes == 16_448 - 16_386


def test_a_deprecated_version_is_said_in_the_header() -> None:
    deprecated = (
        '"requestApiKeyName":"PRODUCE"',
        '"requestApiKeyName":"PRODUCE","requestApiVersionDeprecated":true',
    )
    assert parsed(PRODUCE_V9, deprecated) == parsed(PRODUCE_V9)


def test_versions_without_a_throttle_time_in_the_response() -> None:
    v0 = ('"requestApiVersion":9', '"requestApiVersion":0')
    found = parsed(PRODUCE_V9, v0, (',"throttleTimeMs":0},"connection"', '},"connection"'))
    # 10 + 12; 2 + 4 + 4 + (2 + 6 + 4 + (8 + 16,384))
    assert found == parsed(PRODUCE_V9)._replace(api_version=0, charged_bytes=16_436)
    v0 = ('"requestApiVersion":12', '"requestApiVersion":0')
    found = parsed(FETCH_V12, v0, ('"response":{"throttleTimeMs":0,', '"response":{'))
    # 4 + 4 + (2 + 6 + 4 + (4 + 2 + 8 + 4 + 16,384))
    assert found.charged_bytes == 16_422
