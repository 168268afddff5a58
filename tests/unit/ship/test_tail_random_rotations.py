"""Random lines, rotations and restarts: what comes out of the tail is what the broker wrote."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from kquota_spark.ship.rotated_files import Position
from kquota_spark.ship.tail import CHUNK_BYTES, KEPT_OF_LONG_LINE_BYTES
from tests.support.logs.followed_log import all_lines, append, compress, tail_of


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
        expected = [line if len(line) < CHUNK_BYTES else shortened(line) for line in world.expected()]
        assert world.got == expected
        world.tail.close()


def shortened(line: bytes) -> bytes:
    """Both of its ends, and between them what no line has."""
    return line[: KEPT_OF_LONG_LINE_BYTES - 16_384 - 1] + b"\0" + line[-16_384:]
