"""JSON nested a hundred thousand times is an unreadable line, wherever in a message it stands, and ends no task."""

from __future__ import annotations

import pytest

from kquota_spark.pipeline.ingest import IngestSettings, MessageReader
from tests.support.logs.log_lines import PRODUCE_V9
from tests.support.tables.table_rows import T0_MS

DEPTH = 100_000
DEEP = b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
NOT_JSON = "not valid JSON (cut in half, or not UTF-8)"
HEADER = b'"requestHeader":{'
START, HEADER_FOUND, REST = PRODUCE_V9.partition(HEADER)
assert HEADER_FOUND


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (START + HEADER + b'"new":' + DEEP + b"," + REST, NOT_JSON),
        (PRODUCE_V9.replace(b',"principal":', b',"new":' + DEEP + b',"principal":'), NOT_JSON),
        (PRODUCE_V9.replace(b',"principal":', b',"new":' + b'{"a":' * DEPTH + b',"principal":'), NOT_JSON),
        (b'{"kquota_heartbeat":' + DEEP + b"}", "heartbeat that is not as kquota ship writes it"),
        (
            b'{"kquota_heartbeat":{"time_ms":1,"new":' + DEEP + b"}}",
            "heartbeat that is not as kquota ship writes it",
        ),
        (
            b'{"kquota_gap":{"from_ms":1,"to_ms":2,"new":' + DEEP + b"}}",
            "gap that is not as kquota ship writes it",
        ),
    ],
)
def test_objects_in_objects_without_end_are_unreadable(message: bytes, reason: str) -> None:
    reader = MessageReader(IngestSettings("demo", "UTC", 60_000, 5_000, 4_096))
    found = reader.read(message, b"1", "log", T0_MS)
    assert (found.kind, found.broker_id, found.reason) == ("unreadable", 1, reason)
