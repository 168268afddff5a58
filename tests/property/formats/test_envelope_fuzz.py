"""Mutated envelopes: never an exception, never a request that the bare line does not give."""

from __future__ import annotations

from kquota_spark.formats.messages.envelopes import KINDS, Envelopes
from kquota_spark.formats.messages.messages import SOURCES, MessageFormat
from kquota_spark.formats.request_log.line import RequestLogParser, Unreadable
from kquota_spark.pipeline.ingest import IngestSettings, MessageReader
from tests.support.chance import Chance
from tests.support.logs.log_lines import T0_MS
from tests.support.places import DATA

RUNS = 10_000
_SAMPLES = DATA / "envelopes"
_PIECES = (
    b'{', b'}', b'"', b'\\', b'\n', b'\x00', b'\xff', b'\\u0000', b'\\ud83d', b'[', b'null', b'1e999', b'-1', b',',
    b'"message":', b'"log":', b'"host":{}', b'"broker_id":"9999999999"', b':', b'[' * 3_000, b'{"a":' * 3_000,
    b'<134>1 ',
    b'"@timestamp":"0001-01-01T00:00:00+23:59"', b'"@timestamp":1e308', b'"fields":{"broker_id":[]}',
    b'2026-10-25 02:30:00,000',
)  # fmt: skip


def mutated(value: bytes, dice: Chance) -> bytes:
    """One to four cuts, swaps of a byte, insertions or repetitions."""
    for _ in range(dice.randint(1, 4)):
        start, end = sorted(dice.randrange(len(value) + 1) for _ in range(2))
        # Where it matters: the first and the last hundred bytes are the envelope.
        at = dice.choice(
            (start, min(start, dice.randrange(100)), max(0, len(value) - dice.randrange(1, 100)))
        )
        change = dice.randrange(5)
        if change == 0:
            value = value[:at]
        elif change == 1:
            value = value[:at] + bytes([dice.randrange(256)]) + value[at + 1 :]
        elif change == 2:
            value = value[:at] + dice.choice(_PIECES) + value[at:]
        elif change == 3:
            value = value[:at] + value[at + dice.randrange(1, 20) :]
        else:
            value = value[:end] + value[start:]
    return value


def test_no_mutated_envelope_raises_or_gives_a_line_that_is_not_in_it(chance: Chance) -> None:
    values = [
        value
        for file in sorted(_SAMPLES.glob("*.*"))
        if file.suffix in {".json", ".txt"}
        for value in file.read_bytes().splitlines()
        if value
    ]
    assert len(values) == 60
    readers = [
        MessageReader(
            IngestSettings(
                "c", "Europe/Berlin", 60_000, 5_000, 4_096, MessageFormat(kind, broker_from=SOURCES)
            )
        )
        for kind in KINDS
    ]
    bare, auto = RequestLogParser("Europe/Berlin"), Envelopes()
    kinds = dict.fromkeys(("request", "unreadable"), 0)
    for _ in range(RUNS):
        value = mutated(chance.choice(values), chance)
        row = chance.choice((readers[0], chance.choice(readers))).read(
            value, chance.choice((None, b"1")), "log", T0_MS
        )
        kinds[row[0]] += 1
        assert row[3] is None or len(row[3]) < 300
        found = readers[0].read(value, b"1", "log", T0_MS)
        try:
            expected: tuple[object, ...] = ("request", 1, bare.parse(auto.opened(value)[0], T0_MS))
        except Unreadable as reason:
            expected = ("unreadable", 1, str(reason))
        assert (
            found.kind,
            found.broker_id,
            found.request if found.kind == "request" else found.reason,
        ) == expected
    assert min(kinds.values()) > 300, kinds
