"""The offsets of fetches, from real lines; any other line has none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from kquota_spark.formats.request_log.fetch_positions import Fetch, fetch_positions
from kquota_spark.model.attribution.backlogs import Position
from tests.support.places import ROOT

SAMPLE = ROOT / "kquota_spark" / "samples" / "broker-1.kafka-request.log.gz"
LINE = (
    b'[2026-11-21 20:03:32,995] DEBUG Completed request:{"isForwarded":false,"requestHeader":{"requestApiKey":%d,'
    b'"requestApiVersion":12,"correlationId":7,"clientId":"reader","requestApiKeyName":"FETCH"},"request":{"topics":'
    b'[{"topic":"orders","partitions":[{"partition":0,"fetchOffset":12},{"partition":3,"fetchOffset":5}]}]},"response":'
    b'{"throttleTimeMs":0,"responses":[{"topic":"orders","partitions":[{"partitionIndex":0,"highWatermark":90},'
    b'{"partitionIndex":3,"highWatermark":-1}]}]},"connection":"a-b-1"} (kafka.request.logger)'
)


def _lines(path: Path) -> list[bytes]:
    with gzip.open(path) as file:
        return file.read().splitlines()


def test_a_fetch_has_the_offset_and_the_end_of_each_partition() -> None:
    assert fetch_positions(LINE % 1) == Fetch(
        "a-b-1", 7, (Position("orders", 0, 12, 90), Position("orders", 3, 5, None))
    )


def test_real_lines_have_the_topic_id_and_an_empty_answer_has_no_end() -> None:
    found = [fetch for line in _lines(SAMPLE) if (fetch := fetch_positions(line)) is not None]
    first = found[0]
    assert (first.correlation_id, first.connection) == (7, "127.0.0.1:53801-127.0.0.1:43432-1-14")
    assert first.positions == (Position("3zVww0mCSvKHxuvylpACoA", 1, 0, 4_991),)
    ends = {position.high_watermark for fetch in found for position in fetch.positions}
    assert None in ends


@pytest.mark.parametrize(
    "line",
    [
        LINE % 0,
        b"",
        b"{",
        b"\xff\xfe Completed request:{}",
        LINE[:-40] % 1,
        (LINE % 1).replace(b'"fetchOffset":12', b'"fetchOffset":"12"'),
        (LINE % 1).replace(b'"connection":"a-b-1"', b'"connection":7'),
    ],
)
def test_any_other_line_has_no_positions(line: bytes) -> None:
    assert fetch_positions(line) is None
