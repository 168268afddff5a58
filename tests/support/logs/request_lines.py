"""The lines of a real request log by which the speed of a machine is told, as bytes."""

from __future__ import annotations

import gzip

from tests.support.places import DATA

_CAPTURE = "zk39-levels/broker-*.gz"


def request_lines() -> list[bytes]:
    """All lines of both brokers, without line ends."""
    return [
        line
        for file in sorted(DATA.glob(_CAPTURE))
        for line in gzip.decompress(file.read_bytes()).splitlines()
    ]


def json_bodies(lines: list[bytes]) -> list[bytes]:
    """The JSON object of each line."""
    return [line[line.index(b"{") : line.rindex(b"}") + 1] for line in lines]
