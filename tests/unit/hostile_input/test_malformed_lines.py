"""A log with 1 %, half or all of its lines malformed: each is counted by its reason, and the others as without it."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from kquota_spark.pipeline.ingest import IngestSettings, MessageReader, parsed
from tests.support.chance import Chance
from tests.support.logs.log_lines import PRODUCE_V9
from tests.support.logs.replayed_captures import PLAIN, found, run
from tests.support.logs.text_lines import PRODUCE_27

NO_MARKER = "no 'Completed request:' near the start"
NOT_JSON = "not valid JSON (cut in half, or not UTF-8)"
_Broken = tuple[Callable[[bytes, Chance], bytes], str]
KINDS: tuple[_Broken, ...] = (
    (lambda line, dice: b"", NO_MARKER),
    (lambda line, dice: b"\0" * len(line), NO_MARKER),
    (lambda line, dice: b"\tat kafka.server.KafkaApis.handle(KafkaApis.scala:180)", NO_MARKER),
    (lambda line, dice: line[1:], "no log time [yyyy-mm-dd hh:mm:ss,mmm] at the start"),
    (lambda line, dice: line[: dice.randrange(100, line.rindex(b"}"))], NOT_JSON),
    (lambda line, dice: line.replace(b'"clientId":"', b'"clientId":"\xff'), NOT_JSON),
    (lambda line, dice: line + line, NOT_JSON),
    (lambda line, dice: line.replace(b'"principal":"User:', b'"principal":"'), "a principal that is not `type:name`"),
    (
        lambda line, dice: line.replace(b'"correlationId":', b'"correlationId":9999999999'),
        "JSON: Expected `int` <= 2147483647 - at `$.requestHeader.correlationId`",
    ),
    (
        lambda line, dice: line.replace(b'"isForwarded":false,', b""),
        "JSON: Object missing required field `isForwarded`",
    ),
)  # fmt: skip
LINES = 2_000
COPIES = 100
BROKER_ID = 7


class Mixed(NamedTuple):
    """A log with malformed lines, and what it was made of."""

    lines: list[bytes]
    sound: list[bytes]
    """The lines that are not malformed, without the copies."""
    copies: int
    reasons: Counter[str]


def mixed(percent: int, chance: Chance) -> Mixed:
    """The beginning of the capture with so many lines malformed in place, then copies of sound lines."""
    with gzip.open(PLAIN.logs[0]) as file:
        lines = file.read().splitlines()[:LINES]
    chosen = set(chance.sample(range(len(lines)), round(len(lines) * percent / 100)))
    sound = [line for index, line in enumerate(lines) if index not in chosen]
    reasons: Counter[str] = Counter()
    for index in chosen:
        broken, reason = chance.choice(KINDS)
        lines[index] = broken(lines[index], chance)
        reasons[reason] += 1
    produces = [line for line in sound if b'"requestApiKeyName":"PRODUCE"' in line]
    copies = chance.sample(produces, min(COPIES, len(produces)))
    return Mixed(lines + copies, sound, len(copies), reasons)


RATES = pytest.mark.parametrize("percent", [1, 50, 100])


def replayed(folder: Path, lines: list[bytes]) -> dict[str, Any]:
    folder.mkdir()
    path = folder / f"broker-{BROKER_ID}.log"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return found([*PLAIN.arguments("--by", "request")[:-1], str(path)])


@RATES
def test_lines_are_requests_and_unreadable_ones_and_the_others_are_judged_as_without_these(
    percent: int, tmp_path: Path, chance: Chance
) -> None:
    log = mixed(percent, chance)
    assert sum(log.reasons.values()) == {1: 20, 50: 1_000, 100: 2_000}[percent]
    answer = replayed(tmp_path / "mixed", log.lines)
    alone = replayed(tmp_path / "sound", log.sound)
    assert answer["unreadable_reasons"] == dict(log.reasons)
    assert answer["unreadable"] == sum(log.reasons.values())
    assert (alone["unreadable"], alone["duplicates"], alone["lines"]) == (0, 0, len(log.sound))
    # A line of an API without a quota is neither counted nor unreadable.
    uncounted = alone["lines"] - alone["counted"]
    assert answer["duplicates"] == log.copies == (0 if percent == 100 else COPIES)
    assert answer["lines"] == LINES + log.copies
    assert answer["counted"] == alone["counted"] + answer["duplicates"]
    assert answer["lines"] == answer["counted"] + uncounted + answer["unreadable"]
    # Requests of unreadable lines are judged too, as far as it is known whose they are.
    assert len(answer["requests"]) == answer["verdicts"]
    assert len(alone["requests"]) >= {1: 1_500, 50: 750, 100: 0}[percent]
    assert _amounts(alone) <= _amounts(answer)
    assert answer["false_positive"] == answer["false_negative"] == 0
    # The others lack what these were charged: that makes verdicts uncertain, and none of them wrong.
    assert answer["uncertain"] > alone["uncertain"]


def _amounts(answer: dict[str, Any]) -> Counter[tuple[Any, ...]]:
    """The requests with what they were charged."""
    names = ("record_time", "quota_type", "bucket_user", "bucket_client_id", "amount")
    return Counter(tuple(row[name] for name in names) for row in answer["requests"])


@RATES
def test_every_line_is_a_row_of_requests_with_its_place(percent: int, chance: Chance) -> None:
    log = mixed(percent, chance)
    rows, sound = (_rows(lines) for lines in (log.lines, log.sound))
    assert [row["kafka_offset"] for row in rows] == list(range(len(log.lines)))
    kinds = Counter(row["kind"] for row in rows)
    assert kinds == Counter(request=len(log.sound) + log.copies, unreadable=sum(log.reasons.values()))
    assert Counter(row["reason"] for row in rows if row["kind"] == "unreadable") == log.reasons
    requests = [{**row, "kafka_offset": None} for row in rows if row["kind"] == "request"]
    assert requests[: len(log.sound)] == [{**row, "kafka_offset": None} for row in sound]


def _rows(lines: list[bytes]) -> list[dict[str, Any]]:
    """As the job parses them, without Spark."""
    if not lines:
        return []
    count, written_ms = len(lines), 1_800_000_000_000
    messages = pa.RecordBatch.from_pydict(
        {
            "topic": ["log"] * count,
            "partition": pa.array([0] * count, pa.int32()),
            "offset": list(range(count)),
            "timestamp_ms": [written_ms] * count,
            "written_by_ms": [written_ms] * count,
            "value": lines,
            "broker": [str(BROKER_ID).encode()] * count,
        }
    )
    reader = MessageReader(IngestSettings("demo", "UTC", 60_000, 5_000, 40))
    rows: list[dict[str, Any]] = parsed(messages, reader).to_pylist()
    return rows


MIB, KIB = 1 << 20, 1 << 10
HUGE: dict[str, Callable[[bytes], bytes]] = {
    "JSON": lambda filling: PRODUCE_V9.replace(b"checkout-svc", filling),
    "JSON that is cut": lambda filling: PRODUCE_V9[:200] + filling,
    "text": lambda filling: PRODUCE_27.replace(b"shop", filling),
    "text that is cut": lambda filling: PRODUCE_27[:200] + filling,
    "neither": lambda filling: filling,
    "envelope": lambda filling: b'{"message":"' + filling + b'"}',
    "envelope that is cut": lambda filling: b'{"message":"' + filling,
}


def _peak_bytes(line: bytes) -> int:
    """Most memory that reading one line takes beside the line itself."""
    reader = MessageReader(IngestSettings("demo", "UTC", 60_000, 5_000, 4_096))
    reader.read(b"", b"1", "log", 1_800_000_000_000)
    tracemalloc.start()
    try:
        read = reader.read(line, b"1", "log", 1_800_000_000_000)
        assert len(read.raw_text or "") <= 4_096
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", HUGE)
def test_a_line_of_megabytes_takes_a_few_times_its_length_and_beyond_the_longest_little(kind: str) -> None:
    # A line is read up to 4 MiB, an envelope up to 9 MiB. The text form takes most: the line as text, and its parts.
    assert _peak_bytes(HUGE[kind](b"x" * (3 * MIB))) <= 3 * 3 * MIB + 64 * KIB
    # Of a longer one both ends are looked at, 256 KiB each, whatever its length: as bytes, as text, and their parts.
    assert _peak_bytes(HUGE[kind](b"x" * (20 * MIB))) <= 4 * 2 * 256 * KIB


@pytest.mark.parametrize(
    ("percent", "status", "share"),
    [
        (0, "ok", "0 of 2,100 lines (0.000 %)"),
        (1, "warn", "20 of 2,100 lines (0.952 %)"),
        (50, "warn", "1,000 of 2,100 lines (47.619 %)"),
        (100, "fail", "2,000 of 2,000 lines (100.000 %)"),
    ],
)
def test_the_doctor_warns_of_many_malformed_lines(
    percent: int, status: str, share: str, tmp_path: Path, chance: Chance
) -> None:
    config, log = tmp_path / "kquota.yaml", tmp_path / "log"
    config.write_text(f"cluster_id: demo\ntables: {tmp_path}/tables\ncheckpoints: {tmp_path}/checkpoints\n")
    made = mixed(percent, chance)
    log.write_bytes(b"".join(line + b"\n" for line in made.lines))
    assert run(["backfill", "--config", str(config), "--file", f"{BROKER_ID}={log}"])[0] == 0
    _, out, _ = run(["doctor", "--config", str(config), "--output", "json"])
    [check] = [row for row in json.loads(out)["rows"] if row["what"] == "unreadable"]
    most = sorted(made.reasons.items(), key=lambda item: (-item[1], item[0]))[:3]
    told = "; ".join(f"{times:,} {reason}" for reason, times in most)
    assert (check["status"], check["evidence"]) == (status, f"demo: {share}" + (f": {told}" if told else ""))
    advice = "kept in requests with reason and raw_text: fix what writes them, or the format"
    assert check["advice"] == ("" if status == "ok" else advice)
