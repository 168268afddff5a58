"""Lines read by column and lines read one by one give the same rows, whatever stands in them and beside them."""

from __future__ import annotations

import re

import pyarrow as pa

from kquota_spark.formats.messages.envelopes import AUTO
from kquota_spark.formats.messages.messages import SOURCES, MessageFormat
from kquota_spark.pipeline.ingest import IngestSettings, MessageReader, parsed, parsed_one_by_one
from tests.property.formats.test_request_log_fuzz import LINES, MUTATIONS
from tests.support.chance import Chance

BATCHES = 150
LINES_A_BATCH = 60
WRITTEN_MS = 1_793_000_000_000
"""2026-10-26 09:33:20 UTC, so that some lines are ahead of their messages."""
_JSON_LINES = [line for line in LINES if b' DEBUG Completed request:{"' in line]
_PRODUCES, _FETCHES = (
    [
        line
        for line in _JSON_LINES
        if b'"requestApiKey":%d,' % key in line and line.endswith(b" (kafka.request.logger)")
    ]
    for key in (0, 1)
)
_CLOCKS_BACK = b"[2026-10-25 02:30:00,000]"  # shown twice in Berlin
_OTHERS = (
    None, b"", b"[", b'{"kquota_heartbeat":{"time_ms":1792912800000}}', b'{"kquota_gap":{"from_ms":1,"to_ms":2}}',
    b'{"message":"[2026-10-25 12:00:00,000] DEBUG Completed request:{}"}',
    # As long as the name of the logger, and no logger's name.
    _PRODUCES[0].replace(b" (kafka.request.logger)", b" a b (kafka.request.lo)"),
    b"{" + _PRODUCES[0][1:],  # an envelope that is none
    # From 5 ms on a produce had waited, from 50 ms on a fetch.
    *(re.sub(rb'"remoteTimeMs":[^,]+', b'"remoteTimeMs":5.0', line) for line in _PRODUCES[:9]),
    *(re.sub(rb'"remoteTimeMs":[^,]+', b'"remoteTimeMs":50.0', line) for line in _FETCHES[:9]),
    # Numbers beyond all times and beyond 64 bits once they are multiplied.
    *(LINES[0].replace(b'"sendTimeMs":', b'"sendTimeMs":' + digits) for digits in (b"1e308,\"x\":", b"9e15,\"x\":")),
)  # fmt: skip
BROKERS = (b"1", b"2", b"broker-3.example", b"nobody", b"", None)


def settings(envelope: str) -> IngestSettings:
    messages = MessageFormat(
        envelope, broker_from=SOURCES, broker_ids={"broker-3.example": 3}, topic_pattern=r"log\.(\d+)"
    )
    return IngestSettings("demo", "UTC", 60_000, 5_000, 4_096, messages, {2: "Europe/Berlin"})


def batch(chance: Chance) -> pa.RecordBatch:
    """Real lines, some with something else in their place: broken, another layout, another kind of message."""
    count, kinds = chance.choice(((LINES_A_BATCH, 9), (1, 9), (10 * LINES_A_BATCH, 1_000)))
    values = [value(chance, kinds) for _ in range(count)]
    return pa.RecordBatch.from_pydict(
        {
            "topic": [chance.choice(("log.4", "log.5", "other")) for _ in range(count)],
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp_ms": pa.array([WRITTEN_MS] * count, pa.int64()),
            "written_by_ms": pa.array(
                [WRITTEN_MS + chance.randrange(-(10**11), 10**11) for _ in range(count)], pa.int64()
            ),
            "value": pa.array(values, pa.binary()),
            "broker": pa.array(
                [chance.choice(BROKERS[: 1 if kinds > 9 else None]) for _ in range(count)], pa.binary()
            ),
        }
    )


def value(chance: Chance, kinds: int) -> bytes | None:
    """One line; three in so many are something else."""
    line, kind = chance.choice(_JSON_LINES if kinds > 9 else LINES), chance.randrange(kinds)
    if kind == 0:
        return chance.choice(MUTATIONS)(line, chance)
    if kind == 1:
        return chance.choice(_OTHERS)
    if kind == 2:
        return _CLOCKS_BACK + line[len(_CLOCKS_BACK) :]
    return line


def test_by_column_and_one_by_one_are_the_same_rows(chance: Chance) -> None:
    by_lines, by_envelopes = (MessageReader(settings(envelope)) for envelope in (AUTO, "fluent-bit"))
    read = 0
    for number in range(BATCHES):
        reader = by_lines if number % 10 else by_envelopes
        messages = batch(chance)
        rows = parsed(messages, reader)
        assert rows.equals(parsed_one_by_one(messages, reader))
        read += rows["kind"].to_pylist().count("request")
    # Where every line is refused there is nothing to compare.
    assert read > BATCHES * 10
