"""Following a log through rotation: nothing lost, nothing twice, nothing half."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from tests.support.chance import Chance
from tests.support.logs.followed_log import MIB, all_lines, append, compress, tail_of


def test_a_renamed_file_is_read_to_its_end_before_the_new_one(log: Path) -> None:
    log.write_bytes(b"one\n")
    tail = tail_of(log)
    assert all_lines(tail) == [b"one"]
    append(log, b"two\nlast without line feed")
    log.rename(log.with_name("kafka-request.log.2026-11-21-07"))
    log.write_bytes(b"three\n")
    assert all_lines(tail) == [b"two", b"last without line feed", b"three"]


def test_a_renamed_file_is_not_at_its_end_before_there_is_a_new_one(log: Path) -> None:
    said: list[str] = []
    log.write_bytes(b"one\n")
    tail = tail_of(log, said=said)
    assert all_lines(tail) == [b"one"]
    append(log, b"ha")
    log.rename(log.with_name("kafka-request.log.1"))
    batches = [tail.read() for _ in range(3)]
    assert [(batch.lines, batch.is_at_end) for batch in batches] == [([], False)] * 3
    assert tail.is_waiting_for_file
    append(log.with_name("kafka-request.log.1"), b"lf\n")
    assert tail.read().lines == [b"half"]
    assert said == [f"{log}: vanished, waiting for it"]
    log.write_bytes(b"two\n")
    assert all_lines(tail) == [b"two"]
    assert not tail.is_waiting_for_file


def test_several_rotations_while_we_were_down_are_read_in_order_of_mtime(log: Path) -> None:
    old = log.with_name("kafka-request.log.0-old")
    append(old.with_name("kafka-request.log.2026-11-21-04"), b"before us\n", 1_000)
    append(log, b"1\n2\n", 2_000)
    tail = tail_of(log)
    assert all_lines(tail) == [b"1", b"2"]
    append(log, b"3\n", 2_500)
    # The names say nothing: only the times do.
    log.rename(log.with_name("kafka-request.log.2026-11-21-09"))
    append(log.with_name("kafka-request.log.2026-11-21-05"), b"4\n", 3_000)
    append(log.with_name("kafka-request.log.2026-11-21-08"), b"5", 4_000)
    append(log.with_name("kafka-request.log.2026-11-21-03"), b"6\n", 5_000)
    append(log, b"7\n", 6_000)
    restarted = tail_of(log, tail.position)
    assert all_lines(restarted) == [b"3", b"4", b"5", b"6", b"7"]


def test_of_files_of_the_same_mtime_a_higher_number_is_older_and_a_later_date_newer(log: Path) -> None:
    append(log, b"1\n", 1_000)
    tail = tail_of(log)
    assert all_lines(tail) == [b"1"]
    log.rename(log.with_name("kafka-request.log.11"))
    append(log.with_name("kafka-request.log.10"), b"2\n", 1_000)
    append(log.with_name("kafka-request.log.9"), b"3\n", 1_000)
    append(log, b"4\n", 1_000)
    assert all_lines(tail_of(log, tail.position)) == [b"2", b"3", b"4"]

    for number in (9, 10, 11):
        log.with_name(f"kafka-request.log.{number}").unlink()
    tail = tail_of(log)
    assert all_lines(tail) == [b"4"]
    log.rename(log.with_name("kafka-request.log.2026-11-21-07"))
    append(log.with_name("kafka-request.log.2026-11-21-08"), b"5\n", 1_000)
    append(log, b"6\n", 1_000)
    assert all_lines(tail_of(log, tail.position)) == [b"5", b"6"]


def test_a_rotated_file_is_read_on_inside_its_gz(log: Path) -> None:
    first = b"".join(b"line %d\n" % i for i in range(300_000))
    append(log, first, 1_000)
    tail = tail_of(log)
    done = tail.read().lines
    log.rename(log.with_name("kafka-request.log.1"))
    compress(log.with_name("kafka-request.log.1"))
    append(log, b"new\n", 2_000)
    done += all_lines(tail_of(log, tail.position))
    assert done == [*first.split(b"\n")[:-1], b"new"]


def test_a_gz_that_is_younger_than_the_next_file_is_not_read_again(log: Path) -> None:
    append(log, b"1\n", 1_000)
    tail = tail_of(log)
    assert all_lines(tail) == [b"1"]
    log.rename(log.with_name("kafka-request.log.2026-11-21-07"))
    append(log, b"2\n", 2_000)
    assert all_lines(tail) == [b"2"]
    compress(log.with_name("kafka-request.log.2026-11-21-07"), mtime_s=3_000)
    log.rename(log.with_name("kafka-request.log.2026-11-21-08"))
    append(log, b"3\n", 4_000)
    assert all_lines(tail) == [b"3"]


def test_a_gz_that_is_younger_than_the_next_file_hides_none(log: Path) -> None:
    append(log, b"1\n2\n", 1_000)
    tail = tail_of(log)
    assert tail.read().lines == [b"1", b"2"]
    append(log, b"3\n", 1_500)
    log.rename(log.with_name("kafka-request.log.2026-11-21-07"))
    append(log.with_name("kafka-request.log.2026-11-21-08"), b"4\n", 2_000)
    compress(log.with_name("kafka-request.log.2026-11-21-07"), mtime_s=3_000)
    append(log, b"5\n", 4_000)
    assert all_lines(tail_of(log, tail.position)) == [b"3", b"4", b"5"]


def test_a_gz_is_left_alone_while_the_file_itself_is_there(log: Path) -> None:
    append(log, b"1\n", 1_000)
    tail = tail_of(log)
    assert all_lines(tail) == [b"1"]
    log.rename(log.with_name("kafka-request.log.1"))
    append(log.with_name("kafka-request.log.1"), b"2\n", 2_000)
    log.with_name("kafka-request.log.1.gz").write_bytes(gzip.compress(b"1\n2\n")[:15])
    append(log, b"3\n", 3_000)
    assert all_lines(tail_of(log, tail.position)) == [b"2", b"3"]


def test_a_damaged_gz_is_said_once_and_passed_over(log: Path) -> None:
    said: list[str] = []
    text = Chance(1).randbytes(3 * MIB).replace(b"\n", b".") + b"\n"
    append(log, b"1\n", 1_000)
    tail = tail_of(log)
    assert all_lines(tail) == [b"1"]
    log.rename(log.with_name("kafka-request.log.2"))
    log.with_name("kafka-request.log.1.gz").write_bytes(gzip.compress(text)[: 2 * MIB])
    os.utime(log.with_name("kafka-request.log.1.gz"), (2_000, 2_000))
    append(log, b"2\n", 3_000)
    assert all_lines(tail_of(log, tail.position, said)) == [b"2"]
    assert len(said) == 1
    assert said[0].startswith(f"{log}.1.gz: damaged (")
    assert said[0].endswith("its lines from byte 0 on are missing")


def test_copy_truncate_loses_nothing_that_was_copied(log: Path) -> None:
    said: list[str] = []
    append(log, b"one\n", 1_000)
    tail = tail_of(log, said=said)
    assert all_lines(tail) == [b"one"]
    append(log, b"two\n")
    log.with_name("kafka-request.log.1").write_bytes(log.read_bytes())
    os.truncate(log, 0)
    append(log, b"three, longer than all that was there before\n")
    assert all_lines(tail) == [b"two", b"three, longer than all that was there before"]
    assert said == []


def test_a_file_replaced_before_its_first_line_was_read_is_found_in_its_copy(log: Path) -> None:
    append(log, b"", 1_000)
    tail = tail_of(log)
    assert tail.read().is_at_end
    append(log, b"one\n")
    log.with_name("kafka-request.log.1").write_bytes(log.read_bytes())
    os.truncate(log, 0)
    append(log, b"two\n")
    assert all_lines(tail) == [b"one", b"two"]


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_restart_at_every_byte_the_log_ever_had_neither_loses_nor_doubles(
    tmp_path: Path, is_compressed: bool
) -> None:
    text = b"first\r\n\nthird line\nhalf"
    for size in range(len(text) + 1):
        log = tmp_path / str(size) / "kafka-request.log"
        log.parent.mkdir()
        append(log, text[:size], 1_000)
        tail = tail_of(log)
        lines = all_lines(tail)
        append(log, text[size:], 2_000)
        rotated = log.with_name("kafka-request.log.1")
        log.rename(rotated)
        if is_compressed:
            compress(rotated)
        append(log, b"next\n", 3_000)
        lines += all_lines(tail_of(log, tail.position))
        assert lines == [b"first", b"", b"third line", b"half", b"next"], size
