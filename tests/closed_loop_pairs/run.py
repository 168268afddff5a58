"""Runs the clients of pairs on a real broker, each under both limits at the same time, as two client ids."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from kquota_spark.embedded.admin import alter_quota, create_topics
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.settings import BrokerSettings
from tests.closed_loop_pairs.plan import SECONDS, Behaviour, Pair
from tests.closed_loop_pairs.produces import Producer

TOPIC = "pairs"
_NEVER_ROLLED = 1 << 30
"""Size (bytes) that no request log of a run reaches."""
_IN_FLIGHT = 5
_SETTLES_S = 1.0
"""Between the edit of a quota and the load; a KRaft broker acts on an edit within some ms."""
_SPREAD_S = 0.02
"""Between the first requests of two connections."""


def seeded_options(prog: str, description: str | None, of_what: str, most: int) -> argparse.ArgumentParser:
    """A parser with the options that the programs share: the seed, and how many of something to run.

    Args:
        prog: the command.
        description: of the command.
        of_what: what is counted; it names the option.
        most: its default.
    """
    options = argparse.ArgumentParser(prog=prog, description=description)
    options.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the only source of chance (default 1)"
    )
    options.add_argument(f"--{of_what}", type=int, default=most, metavar="N", help=f"default: {most}")
    return options


@contextmanager
def prepared_cluster(directory: Path) -> Iterator[Cluster]:
    """A broker with the topic; its segments are small, so that the disk does not fill."""
    settings = BrokerSettings(kraft=True, request_log_bytes=_NEVER_ROLLED)
    with embedded_cluster(directory, settings=settings) as cluster:
        limits = {"retention.bytes": "10000000", "segment.bytes": "10000000"}
        create_topics(cluster, {TOPIC: 1}, config=limits)
        yield cluster


def run_pairs(cluster: Cluster, pairs: Sequence[Pair]) -> None:
    """Run all pairs at the same time."""
    for pair in pairs:
        for side, limit in (("a", pair.limit_a), ("b", pair.limit_b)):
            alter_quota(cluster, {"producer_byte_rate": float(limit)}, client_id=pair.client_id(side))
    time.sleep(_SETTLES_S)
    port = cluster.brokers[0].port
    threads = sum(2 * pair.connections for pair in pairs)
    begin = threading.Barrier(threads)
    with ThreadPoolExecutor(threads) as pool:
        futures = [
            pool.submit(Sender(port, pair, side, number, begin).run)
            for pair in pairs
            for side in "ab"
            for number in range(pair.connections)
        ]
        for future in futures:
            future.result()


class Sender:
    """One connection of a client at a time."""

    def __init__(
        self,
        port: int,
        pair: Pair,
        side: str,
        number: int,
        begin: threading.Barrier,
        seconds: float = SECONDS,
    ) -> None:
        """The connection `number` of one side of a pair; it sends for so many seconds after `begin`."""
        self.pair, self.number, self.begin, self.seconds = pair, number, begin, seconds
        self.producer = Producer(port, pair.client_id(side), TOPIC, pair.value_bytes)
        self.until = 0.0

    def run(self) -> None:
        self.begin.wait()
        started = time.monotonic() + self.number * (_SPREAD_S + self.pair.interval_s / self.pair.connections)
        self.until = started + self.seconds + 1
        self._sleep_until(started)
        with suppress(ConnectionError, TimeoutError):
            if self.pair.behaviour in (Behaviour.PIPELINING, Behaviour.IGNORING):
                self._pipeline()
            else:
                self._one_by_one()
        self.producer.close()

    def _one_by_one(self) -> None:
        pair = self.pair
        while (began := time.monotonic()) < self.until:
            self.producer.send()
            throttle_ms = self.producer.receive()
            resume = time.monotonic()
            if throttle_ms and pair.behaviour is Behaviour.RECONNECTING:
                self.producer.reconnect()
            elif throttle_ms:
                resume += throttle_ms / 1_000
            due = resume + pair.interval_s if pair.does_think else max(resume, began + pair.interval_s)
            if not self._sleep_until(due):
                return

    def _pipeline(self) -> None:
        pair, in_flight, due, not_before = self.pair, 0, time.monotonic(), 0.0
        while (now := time.monotonic()) < self.until:
            next_send = max(due, not_before)
            if in_flight < _IN_FLIGHT and now >= next_send:
                self.producer.send()
                in_flight += 1
                due = max(due + pair.interval_s, now)
                continue
            waits_s = (self.until if in_flight == _IN_FLIGHT else min(next_send, self.until)) - now
            if in_flight == 0:
                self._sleep_until(now + waits_s)
                continue
            throttle_ms = self.producer.receive(max(waits_s, 0.001))
            if throttle_ms is None:
                continue
            in_flight -= 1
            if throttle_ms and pair.behaviour is Behaviour.PIPELINING:
                not_before = time.monotonic() + throttle_ms / 1_000

    def _sleep_until(self, due: float) -> bool:
        """Wait; False if the run is over by then."""
        time.sleep(max(0.0, min(due, self.until) - time.monotonic()))
        return due < self.until
