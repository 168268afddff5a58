"""Runs the clients of a plan on a real broker, and keeps its request log without the bodies of requests."""

from __future__ import annotations

import gzip
import json
import os
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path

from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.settings import BrokerSettings
from kquota_spark.formats.request_log.line import MARKER
from kquota_spark.process.clock import now_ms
from tests.causes.wire import Connection, RefusedError
from tests.closed_loop_pairs.produces import wire_text
from tests.slow_broker.plan import ANTAGONIST, BEFORE_S, END_S, NAMES, Activity, Run
from tests.slow_broker.requests import (
    COSTLY,
    PACKED,
    PARTITIONS,
    PLAIN,
    SMALL_TOPICS,
    TINY,
    WIDE,
    Kind,
    Wire,
    wires,
)
from tests.support.chance import Chance

RUN_FILE, LOG_FILE = "run.json", "broker-1.log.gz"
_LIST_OFFSETS = 2
_PRESSURE = Path("/proc/pressure/cpu")
_SPREAD_S = 0.03
_IDLE_S = 0.05
_WARM_UP_S = 3.0
_SETTLES_S = 1.5
_SMALL = {"retention.bytes": "50000000", "segment.bytes": "20000000"}
_FILLED = 20
"""Records of each partition of the wide topic."""


def settings_of(io_threads: int) -> BrokerSettings:
    """A broker with few threads."""
    properties = {
        "num.io.threads": str(io_threads),
        "num.network.threads": "2",
        "message.max.bytes": "4000000",
    }
    return BrokerSettings(users={name: f"{name}-secret" for name in NAMES}, properties=properties, kraft=True)


def prepare(cluster: Cluster) -> Mapping[Kind, Wire]:
    """Create the topics, fill the wide one, and let each kind of request run until the broker is warm."""
    create_topics(cluster, {PLAIN: 1, TINY: 1}, config=_SMALL)
    create_topics(cluster, {PACKED: 1}, config={**_SMALL, "compression.type": "zstd"})
    create_topics(cluster, {WIDE: PARTITIONS, **dict.fromkeys(SMALL_TOPICS, 1)})
    found = wires()
    connection = _connected(cluster, NAMES[0])
    for kind in (Kind.WIDE_PRODUCE,) * _FILLED:
        connection.ask(*found[kind][:3])
    for kind in (Kind.PRODUCE, *COSTLY, Kind.LARGE_PRODUCE, Kind.ASK):
        until_s = time.monotonic() + _WARM_UP_S
        while time.monotonic() < until_s:
            connection.ask(*found[kind][:3])
    connection.close()
    return found


def record_run(
    cluster: Cluster, known: Mapping[Kind, Wire], run: Run, seed: int, io_threads: int, folder: Path
) -> None:
    """Let the clients of a run send, and write what is needed to judge it.

    Args:
        cluster: after `prepare`, with one broker.
        known: of `prepare`.
        run: the clients.
        seed: of the run.
        io_threads: request handlers of the broker.
        folder: gets `LOG_FILE` and `RUN_FILE`.
    """
    [broker] = cluster.brokers
    time.sleep(_SETTLES_S)
    begin, load, from_ms, started_s = (
        broker.request_log.stat().st_size,
        os.getloadavg()[0],
        now_ms(),
        time.monotonic(),
    )
    with ThreadPoolExecutor(sum(each.connections for each in run.activities)) as pool:
        number = count()
        futures = [
            pool.submit(_send, cluster, known, each, Chance(f"{seed}/{run.number}/{next(number)}"), started_s)
            for each in run.activities
            for _ in range(each.connections)
        ]
        for future in futures:
            future.result()
    time.sleep(_SETTLES_S)
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(folder / LOG_FILE, "wb", 6, mtime=0) as packed:
        for line in _without_bodies(broker.request_log, begin):
            packed.write(line + b"\n")
    antagonist = run.antagonist
    facts = {
        "seed": seed, "number": run.number, "io_threads": io_threads, "load": load,
        "from_ms": from_ms, "since_ms": from_ms + round(BEFORE_S * 1_000), "to_ms": from_ms + round(END_S * 1_000),
        "antagonist": antagonist and antagonist.user, "kind": antagonist and antagonist.kind.value,
        "clients": {each.user: f"{each.role}: {each.kind.value}" for each in run.activities},
    }  # fmt: skip
    (folder / RUN_FILE).write_text(json.dumps(facts, indent=1) + "\n")


def wait_until_quiet(most_percent: float) -> None:
    """Wait until programs wait for a processor in less than this share of 10 s; without such a counter do not wait."""
    while _PRESSURE.exists() and float(_PRESSURE.read_text().split()[1].partition("=")[2]) > most_percent:
        time.sleep(1)


def _connected(cluster: Cluster, user: str) -> Connection:
    return Connection(cluster.brokers[0].port, user, cluster.users[user], f"{user}-app")


def _send(
    cluster: Cluster, known: Mapping[Kind, Wire], each: Activity, chance: Chance, started_s: float
) -> None:
    """One connection of a client, until the end of the run."""
    time.sleep(chance.uniform(0, _SPREAD_S))
    connection: Connection | None = None
    offset = 0
    try:
        while (at_s := time.monotonic() - started_s) < END_S:
            pause_s = each.pause(at_s)
            if pause_s is None:
                time.sleep(_IDLE_S)
                continue
            if connection is None:
                connection = _connected(cluster, each.user)
                offset = _end_of(connection) if each.kind is Kind.CONSUME else 0
            if each.kind is Kind.CONSUME:
                with suppress(RefusedError):
                    offset = connection.fetch(PLAIN, 0, offset, 100_000).next_offset
            else:
                wire = known[each.kind]
                connection.ask_together(*wire[:3], wire.depth if each.role == ANTAGONIST else 1)
            if pause_s:
                time.sleep(pause_s * chance.uniform(0.7, 1.3))
    except OSError as error:
        print(f"{each.user}: {error}", file=sys.stderr)
    if connection is not None:
        connection.close()


def _end_of(connection: Connection) -> int:
    """The offset after the newest record of the plain topic."""
    body = struct.pack(">ii", -1, 1) + wire_text(PLAIN) + struct.pack(">iiq", 1, 0, -1)
    found: int = struct.unpack(">q", connection.ask(_LIST_OFFSETS, 1, body)[-8:])[0]
    return found


def _without_bodies(log: Path, begin: int) -> Iterator[bytes]:
    """The lines from a place on, with empty requests and responses: those of wide requests have 100 kB."""
    with log.open("rb") as file:
        file.seek(begin)
        for line in file:
            head, marker, rest = line.rstrip(b"\n").partition(MARKER)
            body, end, logger = rest.rpartition(b"}")
            if marker and line.endswith(b"\n"):
                fields = json.loads(body + end) | {"request": {}, "response": {}}
                yield head + marker + json.dumps(fields, separators=(",", ":")).encode() + logger
