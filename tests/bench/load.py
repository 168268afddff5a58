"""Request-log lines of now, at a fixed rate, and the decisions that a reader sees meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from deltalake import DeltaTable

from tests.bench.job import Place
from tests.bench.lines import BROKERS, EVEN, START_MS, Population, lines

_TICK_S = 0.05
_PARTS = 10
"""Requests that stand for those of a second: they are spread over it."""


class Load:
    """Lines of now, so many per second, and a heartbeat of each broker every second.

    Args:
        place: whose topic.
        lines_per_s: how many.
        population: whose.
    """

    def __init__(self, place: Place, lines_per_s: int, population: Population = EVEN) -> None:
        self._topic = place.topic
        self._producer = Producer({**place.cluster.client_settings(), "linger.ms": 20})
        self._lines_per_s, self._population = lines_per_s, population
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        began_ms, sent, beats = now_ms(), 0, 0
        while not self._is_over.wait(_TICK_S):
            due = (now_ms() - began_ms) * self._lines_per_s // 1_000
            due_lines = range(sent, due)
            for line in lines(due_lines, began_ms - START_MS, self._lines_per_s, self._population):
                key = str(line.broker_id).encode()
                self._producer.produce(self._topic, line.text, key, partition=line.broker_id - 1)
            sent = due
            if now_ms() - began_ms >= beats * 1_000:
                beats += 1
                self._beat(now_ms())
            self._producer.poll(0)
        self._producer.close()

    def _beat(self, time_ms: int) -> None:
        text = f'{{"kquota_heartbeat":{{"time_ms":{time_ms},"is_end":false}}}}'.encode()
        for broker_id in range(1, BROKERS + 1):
            self._producer.produce(self._topic, text, str(broker_id).encode(), partition=broker_id - 1)


class Seen(NamedTuple):
    """The newest second of `decisions`, and when it was first there; epoch ms."""

    second_ms: int
    at_ms: int


def follow(tables: Path, until_s: float) -> Iterator[Seen]:
    """Each newer second, as soon as a reader sees it. The first one may have been there before."""
    table, version, newest_ms = None, -1, 0
    while time.time() < until_s:
        time.sleep(_TICK_S)
        if table is None:
            if not DeltaTable.is_deltatable(str(tables / "decisions")):
                continue
            table = DeltaTable(str(tables / "decisions"))
        table.update_incremental()
        if table.version() == version:
            continue
        version = table.version()
        actions = table.get_add_actions(flatten=True)
        if "max.second" not in actions.schema.names:
            continue
        found = max(
            (round(each.timestamp() * 1_000) for each in actions.column("max.second").to_pylist()), default=0
        )
        if found > newest_ms:
            newest_ms = found
            yield Seen(found, now_ms())


def latencies_s(seen: Sequence[Seen]) -> list[float]:
    """Seconds from the time in a request's record until its decision was seen, of requests after the first second."""
    return [
        (after.at_ms - second_ms - part * 1_000 // _PARTS) / 1_000
        for before, after in pairwise(seen)
        for second_ms in range(before.second_ms + 1_000, after.second_ms + 1_000, 1_000)
        for part in range(_PARTS)
    ]


def now_ms() -> int:
    """This machine's clock."""
    return time.time_ns() // 1_000_000
