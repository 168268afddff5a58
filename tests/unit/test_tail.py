"""Following a log through rotation: nothing lost, nothing twice, nothing half."""

from __future__ import annotations

import gzip
import os
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from kquota_spark.io.rotated_files import Position
from kquota_spark.io.tail import CHUNK_BYTES, KEPT_OF_LONG_LINE_BYTES, Tail

MIB = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "kafka-request.log"


def tail_of(log: Path, position: Position | None = None, said: list[str] | None = None) -> Tail:
    return Tail(log, position, notice=(said if said is not None else []).append)


def all_lines(tail: Tail) -> list[bytes]:
    lines: list[bytes] = []
    while True:
        batch = tail.read()
        lines += batch.lines
        if not batch.lines and (batch.is_at_end or tail.is_waiting_for_file):
            return lines


def append(path: Path, data: bytes, mtime_s: float | None = None) -> None:
    with path.open("ab") as file:
        file.write(data)
    if mtime_s is not None:
        os.utime(path, (mtime_s, mtime_s))


def compress(path: Path, mtime_s: float | None = None) -> None:
    """As gzip does: the .gz keeps the mtime of the file and takes its place."""
    when = path.stat().st_mtime if mtime_s is None else mtime_s
    target = path.with_name(path.name + ".gz")
    target.write_bytes(gzip.compress(path.read_bytes()))
    os.utime(target, (when, when))
    path.unlink()


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
    text = os.urandom(3 * MIB).replace(b"\n", b".") + b"\n"
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


def test_a_truncated_file_is_read_from_its_start(log: Path) -> None:
    said: list[str] = []
    log.write_bytes(b"one\ntwo\n")
    tail = tail_of(log, said=said)
    assert all_lines(tail) == [b"one", b"two"]
    log.write_bytes(b"3\n")
    assert all_lines(tail) == [b"3"]
    assert len(said) == 1
    assert "truncated or removed" in said[0]


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
    kept = b"x" * (KEPT_OF_LONG_LINE_BYTES if is_cut else length)
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


class World:
    """A broker that writes and rotates, a tail that reads and crashes, and what has to come out."""

    def __init__(self, directory: Path, naming: str) -> None:
        self.log = directory / "kafka-request.log"
        self.naming = naming
        self.clock_s = 1_000
        self.rotations = 0
        self.lines_written = 0
        self.said: list[str] = []
        self.complete: list[bytes] = []  # text of the rotated files
        self.live = b""
        self.stored: tuple[Position | None, int] = (None, 0)
        self.got: list[bytes] = []
        self.touch()
        self.tail = tail_of(self.log, said=self.said)

    def touch(self) -> None:
        self.clock_s += 1
        append(self.log, b"", self.clock_s)

    def write(self, length: int, ends: bytes) -> None:
        # Numbered: two lines of a request log are never equal.
        data = b"%d:" % self.lines_written + b"x" * length + ends
        self.lines_written += 1
        self.live += data
        append(self.log, data)
        self.touch()

    def name_of_rotated(self) -> Path:
        self.rotations += 1
        if self.naming == "date":
            return self.log.with_name(f"kafka-request.log.2026-11-21-{self.rotations:04d}")
        numbered = [p for p in self.log.parent.iterdir() if p.name != self.log.name]
        for path in sorted(numbered, key=lambda p: -int(p.name.split(".")[2])):
            parts = path.name.split(".")
            parts[2] = str(int(parts[2]) + 1)
            path.rename(path.with_name(".".join(parts)))
        return self.log.with_name("kafka-request.log.1")

    def rename(self) -> None:
        self.log.rename(self.name_of_rotated())
        self.start_anew()

    def copy_truncate(self) -> None:
        rotated = self.name_of_rotated()
        rotated.write_bytes(self.log.read_bytes())
        self.clock_s += 1
        os.utime(rotated, (self.clock_s, self.clock_s))
        os.truncate(self.log, 0)
        self.start_anew()

    def start_anew(self) -> None:
        self.complete.append(self.live)
        self.live = b""
        self.touch()

    def compress(self, which: int) -> None:
        plain = [p for p in self.log.parent.iterdir() if p != self.log and p.suffix != ".gz"]
        if plain:
            compress(sorted(plain)[which % len(plain)])

    def read(self, times: int) -> None:
        for _ in range(times):
            self.got += self.tail.read().lines

    def store(self) -> None:
        self.stored = (self.tail.position, len(self.got))

    def crash(self) -> None:
        """What was not stored is sent again: here that is as if it had not been sent."""
        position, count = self.stored
        if position is None:
            return
        self.got = self.got[:count]
        self.tail.close()
        self.tail = tail_of(self.log, position, self.said)

    def expected(self) -> list[bytes]:
        files = [text.replace(b"\r\n", b"\n").removesuffix(b"\n") for text in self.complete if text]
        last, _, _ = self.live.replace(b"\r\n", b"\n").rpartition(b"\n")
        return [line for text in [*files, *([last] if last else [])] for line in text.split(b"\n")]


_STEPS = st.one_of(
    st.tuples(
        st.just("write"), st.integers(0, 40) | st.just(CHUNK_BYTES), st.sampled_from([b"\n", b"\r\n", b""])
    ),
    st.tuples(st.just("rename")),
    st.tuples(st.just("copy_truncate")),
    st.tuples(st.just("compress"), st.integers(0, 9)),
    st.tuples(st.just("read"), st.integers(1, 3)),
    st.tuples(st.just("store")),
    st.tuples(st.just("crash")),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
@given(naming=st.sampled_from(["date", "counter"]), steps=st.lists(_STEPS, max_size=40))
@example(  # a .gz got the inode of the file that was to be read next
    naming="counter",
    steps=[
        ("write", 5, b""), ("rename",), ("rename",), ("read", 1), ("compress", 0), ("store",), ("read", 1),
        ("compress", 0), ("crash",),
    ],
)  # fmt: skip
def test_random_lines_rotations_and_restarts_lose_and_double_nothing(
    naming: str, steps: list[tuple[Any, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory), naming)
        world.store()
        for name, *arguments in steps:
            getattr(world, name)(*arguments)
        world.got += all_lines(world.tail)
        note(f"said: {world.said}")
        expected = [
            line if len(line) < CHUNK_BYTES else line[:KEPT_OF_LONG_LINE_BYTES] for line in world.expected()
        ]
        assert world.got == expected
        world.tail.close()
