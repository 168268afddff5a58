"""An archive of 260 kB that unpacks to 256 MB takes no more memory than any other log."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kquota_spark.formats.request_log.line import MAX_LINE_BYTES
from kquota_spark.replay.log_lines import line_parts, log_lines
from kquota_spark.ship.rotated_files import Position
from tests.support.logs.followed_log import MIB, all_lines, tail_of
from tests.support.logs.log_lines import PRODUCE_V9, changed
from tests.support.logs.replayed_captures import found
from tests.support.places import DATA
from tests.support.programs.peak_memory import run_with_peak

QUOTAS = str(DATA / "jmx-telegraf" / "quotas.yaml")
BOMB_MIB = 256
SHORT_LINES = 200_000
TOO_LONG = f"line longer than {MAX_LINE_BYTES} bytes"
NO_MARKER = "no 'Completed request:' near the start"
# A part is 16 MiB and a line of 4 MiB; the rest is what Python leaves lying about.
MOST_MORE_BYTES = 64 * MIB


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calm") / "broker-1.log.gz"
    path.write_bytes(gzip.compress(PRODUCE_V9 + b"\n"))
    return path


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """256 MiB without line feed, then 200,000 short lines, between two lines of a broker."""
    path = tmp_path_factory.mktemp("bomb") / "broker-1.log.gz"
    last = changed(PRODUCE_V9, ('"correlationId":4711', '"correlationId":4712'))
    with path.open("wb") as file:
        file.write(gzip.compress(PRODUCE_V9 + b"\n"))
        member = gzip.compress(b"\0" * (16 * MIB))
        for _ in range(BOMB_MIB // 16):
            file.write(member)
        file.write(gzip.compress(b"\n" + b"x\n" * SHORT_LINES + last + b"\n"))
    assert path.stat().st_size < MIB
    return path


def test_replay_of_an_archive_that_unpacks_to_much_takes_the_memory_of_a_calm_one(
    calm: Path, bomb: Path
) -> None:
    replay = ("replay", "--quotas", QUOTAS, "--output", "json")
    told, calm_bytes = run_with_peak(*replay, str(calm))
    assert json.loads(told)["counted"] == 1
    told, bomb_bytes = run_with_peak(*replay, str(bomb))
    answer = json.loads(told)
    assert (answer["lines"], answer["counted"]) == (SHORT_LINES + 3, 2)
    assert answer["unreadable_reasons"] == {TOO_LONG: 1, NO_MARKER: SHORT_LINES}
    print(f"calm {calm_bytes // MIB} MiB, bomb {bomb_bytes // MIB} MiB")
    assert bomb_bytes < calm_bytes + MOST_MORE_BYTES


def test_backfill_of_an_archive_that_unpacks_to_much_takes_the_memory_of_a_calm_one(
    calm: Path, tmp_path: Path
) -> None:
    bomb = tmp_path / "broker-1.log.gz"
    bomb.write_bytes(gzip.compress(b"\0" * (16 * MIB)) * 16 + gzip.compress(b"\n" + PRODUCE_V9 + b"\n"))
    peaks = {}
    for name, path in (("calm", calm), ("bomb", bomb)):
        config = tmp_path / f"{name}.yaml"
        config.write_text(
            f"cluster_id: past\ntables: {tmp_path}/{name}/tables\ncheckpoints: {tmp_path}/{name}/checkpoints\n"
        )
        _, peaks[name] = run_with_peak("backfill", "--config", str(config), "--file", f"1={path}")
    rows = DeltaTable(str(tmp_path / "bomb" / "tables" / "requests")).to_pyarrow_table().to_pylist()
    assert sorted((row["kafka_offset"], row["kind"], row["reason"]) for row in rows) == [
        (0, "unreadable", TOO_LONG),
        (1, "request", None),
    ]
    print({name: f"{peak // MIB} MiB" for name, peak in peaks.items()})
    assert peaks["bomb"] < peaks["calm"] + MOST_MORE_BYTES


def test_the_tail_of_an_archive_that_unpacks_to_much_takes_little_memory(log: Path, bomb: Path) -> None:
    rotated = log.with_name("kafka-request.log.1.gz")
    rotated.write_bytes(bomb.read_bytes())
    os.utime(rotated, (1_000, 1_000))
    log.write_bytes(b"live\n")
    tail = tail_of(log, Position(after_mtime_ns=1))
    cut: list[int] = []
    lines = short = most_lines = 0
    tracemalloc.start()
    try:
        while not (batch := tail.read()).is_at_end:
            cut += batch.cut.values()
            lines += len(batch.lines)
            short += batch.lines.count(b"x")
            most_lines = max(most_lines, len(batch.lines))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (cut, short, lines) == ([BOMB_MIB * MIB], SHORT_LINES, SHORT_LINES + 3)
    assert batch.lines == [b"live"]
    # A chunk is a mebibyte of text, which may be half a million lines of one byte.
    assert most_lines <= MIB // 2
    assert peak_bytes < 16 * MIB


def test_after_a_restart_the_tail_goes_on_behind_the_long_line_of_an_archive(log: Path) -> None:
    rotated = log.with_name("kafka-request.log.1.gz")
    rotated.write_bytes(gzip.compress(b"a\n" + b" " * (64 * MIB) + b"\nb\n"))
    os.utime(rotated, (1_000, 1_000))
    log.write_bytes(b"live\n")
    tail = tail_of(log, Position(after_mtime_ns=1))
    # Both ends are kept, and what no line has between them.
    kept = b" " * ((256 << 10) - 16_384 - 1) + b"\0" + b" " * 16_384
    assert [tail.read().lines for _ in range(2)] == [[b"a"], [kept]]
    assert all_lines(tail_of(log, tail.position)) == [b"b", b"live"]


def test_a_line_beyond_all_measure_is_one_line_and_no_part_of_it_is_another(tmp_path: Path) -> None:
    path = tmp_path / "log"
    longest = b"l" * MAX_LINE_BYTES
    # What is kept of it would be a line of the log, were its end taken for a line end; so would be what is left out.
    tricked = PRODUCE_V9 + b"\r" * (2 * MAX_LINE_BYTES) + PRODUCE_V9
    path.write_bytes(b"a\n" + longest + b"\r\n" + tricked + b"\n" + longest + b"l\nb")
    lines = list(log_lines(path))
    # It is still too long, with both of its ends.
    kept = tricked[: MAX_LINE_BYTES + 2] + tricked[-16_383:]
    assert lines == [b"a", longest, kept, longest + b"l", b"b"]


def test_lines_are_in_memory_by_thousands_or_by_megabytes() -> None:
    def parts(line: bytes, count: int) -> list[int]:
        return [len(part) for part in line_parts(line for _ in range(count))]

    assert parts(b"short", 25_000) == [10_000, 10_000, 5_000]
    assert parts(b"x" * (4 * MIB), 10) == [4, 4, 2]
    assert parts(b"x" * MIB, 16) == [16]
    assert parts(b"", 10_001) == [10_000, 1]
    assert parts(b"", 0) == []


def test_thousands_of_reasons_are_a_thousand_and_the_others(tmp_path: Path) -> None:
    def lines() -> Iterator[bytes]:
        for version in range(100, 2_100):
            yield changed(PRODUCE_V9, ('"requestApiVersion":9', f'"requestApiVersion":{version}'))

    path = tmp_path / "broker-1.log"
    path.write_bytes(b"".join(line + b"\n" for line in [*lines(), *lines()]))
    answer = found(["replay", "--quotas", QUOTAS, str(path)])
    assert (answer["lines"], answer["unreadable"], answer["counted"]) == (4_000, 4_000, 0)
    named = {f"PRODUCE v{version} is not known": 2 for version in range(100, 1_100)}
    assert answer["unreadable_reasons"] == {**named, "other reasons": 2_000}
