"""Following one log: whole lines, long lines, and a file that is truncated, away or none."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from kquota_spark.ship.tail import KEPT_OF_LONG_LINE_BYTES
from tests.support.logs.followed_log import MIB, all_lines, append, tail_of


def test_lines_come_without_their_line_ends_and_otherwise_untouched(log: Path) -> None:
    log.write_bytes(b"a\nb\r\n\r\n\nc\rd\n\xff\xfe\x00\n \xe2\x80\xa8 \n")
    assert all_lines(tail_of(log)) == [b"a", b"b", b"", b"", b"c\rd", b"\xff\xfe\x00", b" \xe2\x80\xa8 "]


def test_half_a_line_waits_for_its_rest(log: Path) -> None:
    log.write_bytes(b"one\ntw")
    tail = tail_of(log)
    assert tail.read().lines == [b"one"]
    half = tail.read()
    assert (half.lines, half.is_at_end, half.half_line_bytes) == ([], True, 2)
    append(log, b"o\nthree\n")
    assert all_lines(tail) == [b"two", b"three"]


def test_a_line_end_cut_between_cr_and_lf_is_one_line_end(log: Path) -> None:
    log.write_bytes(b"one\r")
    tail = tail_of(log)
    assert tail.read().lines == []
    append(log, b"\n")
    assert tail.read().lines == [b"one"]


def test_the_end_is_reached_only_when_all_was_returned(log: Path) -> None:
    line = b"x" * 1023
    log.write_bytes((line + b"\n") * 1500)
    tail = tail_of(log)
    first = tail.read()
    assert (len(first.lines), first.is_at_end) == (1024, False)
    second = tail.read()
    assert (len(second.lines), second.is_at_end) == (476, True)


def test_a_truncated_file_is_read_from_its_start(log: Path) -> None:
    said: list[str] = []
    log.write_bytes(b"one\ntwo\n")
    tail = tail_of(log, said=said)
    assert all_lines(tail) == [b"one", b"two"]
    log.write_bytes(b"3\n")
    assert all_lines(tail) == [b"3"]
    assert len(said) == 1
    assert "truncated or removed" in said[0]


def test_another_text_under_the_same_inode_is_read_from_its_start(log: Path) -> None:
    log.write_bytes(b"one\ntwo\n")
    tail = tail_of(log)
    assert all_lines(tail) == [b"one", b"two"]
    inode = log.stat().st_ino
    with log.open("r+b") as file:
        file.write(b"1st\n2nd\n3rd\n")
    assert log.stat().st_ino == inode
    assert all_lines(tail_of(log, tail.position)) == [b"1st", b"2nd", b"3rd"]


def test_the_same_text_under_another_inode_is_read_on(log: Path) -> None:
    log.write_bytes(b"one\ntwo\n")
    tail = tail_of(log)
    assert all_lines(tail) == [b"one", b"two"]
    copy = log.with_name("copy")
    copy.write_bytes(b"one\ntwo\nthree\n")
    copy.rename(log)
    assert all_lines(tail_of(log, tail.position)) == [b"three"]


def test_a_log_that_is_not_there_yet_is_waited_for(log: Path) -> None:
    said: list[str] = []
    tail = tail_of(log, said=said)
    assert [tail.read() for _ in range(3)] == [tail.read()] * 3
    assert said == [f"{log}: does not exist, waiting for it"]
    # It comes and is rotated away before we look.
    append(log.with_name("kafka-request.log.1"), b"1\n")
    append(log, b"2\n")
    assert all_lines(tail) == [b"1", b"2"]


def test_the_position_is_kept_while_the_directory_is_away(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "kafka-request.log"
    log.parent.mkdir()
    log.write_bytes(b"one\n")
    tail = tail_of(log)
    assert all_lines(tail) == [b"one"]
    log.parent.rename(tmp_path / "away")
    restarted = tail_of(log, tail.position)
    assert restarted.read().lines == []
    (tmp_path / "away").rename(log.parent)
    append(log, b"two\n")
    assert all_lines(restarted) == [b"two"]


def test_other_files_beside_the_log_are_none_of_it(log: Path) -> None:
    append(log, b"1\n", 1_000)
    tail = tail_of(log)
    assert all_lines(tail) == [b"1"]
    log.rename(log.with_name("kafka-request.log.1"))
    for name in ("kafka-request.log.bak", "kafka-request.log.swp", "kafka-request.log2", "server.log.1"):
        append(log.with_name(name), b"no\n")
    os.mkfifo(log.with_name("kafka-request.log.2"))
    log.with_name("kafka-request.log.3").symlink_to("/dev/zero")
    log.with_name("kafka-request.log.4").mkdir()
    append(log, b"2\n")
    assert all_lines(tail_of(log, tail.position)) == [b"2"]


def test_a_path_that_is_no_file_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    tail = tail_of(tmp_path, said=said)
    assert [tail.read().lines for _ in range(3)] == [[], [], []]
    assert said == [f"{tmp_path}: cannot be read: not a regular file; let the shipper's user read it"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("length", [999_000, 999_001, MIB - 1, MIB, MIB + 1, 3 * MIB, 3 * MIB + 7])
def test_a_long_line_is_cut_and_the_next_one_is_whole(log: Path, end: bytes, length: int) -> None:
    log.write_bytes(b"a" + end + b"x" * length + end + b"b" + end)
    tail = tail_of(log)
    got: list[tuple[bytes, int | None]] = []
    while not (batch := tail.read()).is_at_end or batch.lines:
        got += [(line, batch.cut.get(i)) for i, line in enumerate(batch.lines)]
    is_cut = length > 999_000
    # Both ends are kept, and what no line has between them.
    kept = b"x" * length
    if is_cut:
        kept = b"x" * (KEPT_OF_LONG_LINE_BYTES - 16_384 - 1) + b"\0" + b"x" * 16_384
    assert got == [(b"a", None), (kept, length if is_cut else None), (b"b", None)]


def test_a_line_of_100_mib_without_line_feed_takes_little_memory(log: Path) -> None:
    with log.open("wb") as file:
        file.truncate(100 * MIB)  # a sparse file of NULs, as after a crash
    tail = tail_of(log)
    tracemalloc.start()
    try:
        assert (tail.read().lines, tail.read().half_line_bytes) == ([], 100 * MIB)
        append(log, b"\nnext\n")
        long = tail.read()
        assert (len(long.lines[0]), long.cut) == (KEPT_OF_LONG_LINE_BYTES, {0: 100 * MIB})
        assert tail.read().lines == [b"next"]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 8 * MIB


def test_a_long_last_line_of_a_rotated_file_is_cut_too(log: Path) -> None:
    log.write_bytes(b"x" * (2 * MIB))
    tail = tail_of(log)
    assert tail.read().lines == []
    log.rename(log.with_name("kafka-request.log.1"))
    log.write_bytes(b"next\n")
    batches = [tail.read() for _ in range(3)]
    assert [batch.cut for batch in batches if batch.lines] == [{0: 2 * MIB}, {}]
    assert len(batches[0].lines[0]) == KEPT_OF_LONG_LINE_BYTES
