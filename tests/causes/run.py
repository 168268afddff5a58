"""Runs the scenarios of one seed side by side on a real cluster, and keeps the request logs and the quotas."""

from __future__ import annotations

import gzip
import json
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kquota_spark.embedded.admin import alter_quota, create_topics
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.errors import UserError
from kquota_spark.kafka import clients as kafka_clients
from kquota_spark.process.clock import now_ms
from kquota_spark.process.processes import wait_for
from tests.causes.plan import BROKERS, END_S, TOPIC, Reader, Scenario, Sender, user_of
from tests.causes.scenarios import drawn
from tests.causes.wire import Connection, RefusedError
from tests.support.chance import Chance

FEEDER = "feeder"
RUN_FILE = "run.json"
_LEAST_BYTES = 100
_HISTORY_RECORD = 4_000
_WARM_UP_REQUESTS = 3_000
_OF_USER = re.compile(rb'"principal":"User:[^"]*"')
_IS_DATA = re.compile(rb'"requestApiKeyName":"(?:PRODUCE|FETCH)"')
_LEADERS_WITHIN_S = 30.0
_SETTLES_S = 1.0
_SPREAD_S = 0.05
_RECONNECTS = 0.15
"""Share of requests after which a client that reconnects does so."""


def users(seeds: Iterable[int], labels: Sequence[str]) -> dict[str, str]:
    """The users of a cluster with their passwords."""
    return {
        name: f"{name}-secret"
        for name in [FEEDER, *(user_of(seed, label) for seed in seeds for label in labels)]
    }


def prepare(cluster: Cluster) -> None:
    """Create the topic of all producers, and use it until the brokers are warm.

    Its segments are small, so that the disk does not fill. A cold JVM takes ten times as long for a request.
    """
    create_topics(
        cluster, {TOPIC: BROKERS}, config={"retention.bytes": "10000000", "segment.bytes": "10000000"}
    )
    for place in _leaders(cluster, TOPIC, BROKERS):
        connection = Connection(place.port, FEEDER, cluster.users[FEEDER], FEEDER)
        for _ in range(_WARM_UP_REQUESTS):
            with suppress(RefusedError):
                connection.produce(TOPIC, place.partition, _LEAST_BYTES)
        connection.close()


@dataclass(frozen=True, slots=True)
class _Place:
    """A partition and the port of its leader."""

    topic: str
    partition: int
    port: int


@dataclass(slots=True)
class _Session:
    """One seed on a cluster."""

    cluster: Cluster
    seed: int
    places: list[_Place] = field(default_factory=list)
    """Those of the common topic, by place of the broker."""
    histories: dict[str, tuple[_Place, int]] = field(default_factory=dict)
    """By topic of the plan: where it is, and its records before the run."""
    started_s: float = 0.0

    def now_s(self) -> float:
        return time.monotonic() - self.started_s

    def wait_until(self, at_s: float) -> bool:
        """Wait; False if the run is over by then."""
        time.sleep(max(0.0, min(at_s, END_S) - self.now_s()))
        return at_s < END_S

    def connected(self, place: _Place, user: str, client_id: str) -> Connection:
        return Connection(place.port, user, self.cluster.users[user], client_id)


def record_seed(cluster: Cluster, seed: int, labels: Sequence[str], folder: Path) -> None:
    """Run the scenarios of a seed at the same time, and write what is needed to judge them.

    Args:
        cluster: with the users of `users`, after `prepare`.
        seed: of the scenarios.
        labels: which scenarios.
        folder: gets the request log of each broker, and `RUN_FILE`.
    """
    session, scenarios = _Session(cluster, seed), [drawn(seed, label) for label in labels]
    session.places = _leaders(cluster, TOPIC, BROKERS)
    _write_histories(session, scenarios)
    changes = {one.label: [(_set(session, one, one.limit), one.limit)] for one in scenarios}
    time.sleep(_SETTLES_S)
    begins = {broker.id: broker.request_log.stat().st_size for broker in cluster.brokers}
    from_ms = now_ms()
    session.started_s = time.monotonic()
    _run(session, scenarios, changes)
    time.sleep(_SETTLES_S)
    folder.mkdir(parents=True, exist_ok=True)
    for broker in cluster.brokers:
        with broker.request_log.open("rb") as file:
            file.seek(begins[broker.id])
            lines = own_lines(file.read(), [user_of(seed, label) for label in labels])
        (folder / f"broker-{broker.id}.log.gz").write_bytes(gzip.compress(lines, 9, mtime=0))
    cases = [
        {
            "label": one.label,
            "cause": None if one.cause is None else one.cause.value,
            "user": user_of(seed, one.label),
            "key": one.key.value,
            "changes": changes[one.label],
        }
        for one in scenarios
    ]
    run = {"seed": seed, "from_ms": from_ms, "to_ms": now_ms(), "cases": cases}
    (folder / RUN_FILE).write_text(json.dumps(run, indent=1) + "\n")


def own_lines(log: bytes, names: Sequence[str]) -> bytes:
    """The produces and fetches of some users in a request log; other seeds may run beside them."""
    users = {f'"principal":"User:{name}"'.encode() for name in names}
    chosen = [
        line
        for line in log.rpartition(b"\n")[0].split(b"\n")
        if (found := _OF_USER.search(line)) and found[0] in users and _IS_DATA.search(line)
    ]
    return b"".join(line + b"\n" for line in chosen)


def _leaders(cluster: Cluster, topic: str, count: int = 1) -> list[_Place]:
    """The partitions of a topic with the ports of their leaders, in order of the leaders.

    A broker that answers may not know all partitions yet, although another one did.
    """
    ports = {broker.id: broker.port for broker in cluster.brokers}
    admin, partitions = kafka_clients.admin(cluster.client_settings()), dict[int, Any]()

    def are_known() -> bool:
        partitions.update(admin.list_topics(topic, timeout=30).topics[topic].partitions)
        return len(partitions) == count and all(each.leader in ports for each in partitions.values())

    if not wait_for(are_known, within_s=_LEADERS_WITHIN_S):
        raise UserError(f"topic {topic} has leaders for {len(partitions)} of {count} partitions")
    ordered = sorted(partitions.values(), key=lambda each: (each.leader, each.id))
    return [_Place(topic, each.id, ports[each.leader]) for each in ordered]


def _write_histories(session: _Session, scenarios: Sequence[Scenario]) -> None:
    for one in scenarios:
        if not one.history:
            continue
        topic = f"{one.history}-{session.seed}"
        create_topics(session.cluster, {topic: 1})
        [place] = _leaders(session.cluster, topic)
        connection, count = session.connected(place, FEEDER, FEEDER), one.history_bytes // _HISTORY_RECORD
        written = 0
        while written < count:
            # A new leader may refuse the first ones.
            with suppress(RefusedError):
                connection.produce(topic, 0, _HISTORY_RECORD)
                written += 1
        connection.close()
        session.histories[one.history] = place, count


def _set(session: _Session, one: Scenario, limit: float) -> int:
    """Set a limit; when the broker had answered, epoch ms."""
    return alter_quota(session.cluster, {one.key.value: limit}, user=user_of(session.seed, one.label))


def _run(
    session: _Session, scenarios: Sequence[Scenario], changes: Mapping[str, list[tuple[int, float]]]
) -> None:
    count = sum(len(one.clients) for one in scenarios)
    with ThreadPoolExecutor(count + len(scenarios)) as pool:
        futures = [
            pool.submit(_Client(session, one, number).run)
            for one in scenarios
            for number in range(len(one.clients))
        ]
        futures += [pool.submit(_edit, session, one, changes[one.label]) for one in scenarios if one.edits]
        for future in futures:
            future.result()


def _edit(session: _Session, one: Scenario, changes: list[tuple[int, float]]) -> None:
    for at_s, limit in one.edits:
        session.wait_until(at_s)
        changes.append((_set(session, one, limit), limit))


class _Client:
    """One connection of a scenario at a time, in a thread."""

    def __init__(self, session: _Session, scenario: Scenario, number: int) -> None:
        self._session, self._client = session, scenario.clients[number]
        self._chance = Chance(f"{session.seed}/{scenario.label}/{number}")
        self._user, self._start_s = user_of(session.seed, scenario.label), number * _SPREAD_S
        self._name = f"{scenario.label} {number}"

    def run(self) -> None:
        try:
            if isinstance(self._client, Sender):
                self._produce(self._client)
            else:
                self._consume(self._client)
        except OSError as error:
            print(f"{self._name}: {error}", file=sys.stderr)

    def _produce(self, sender: Sender) -> None:
        session, chance = self._session, self._chance
        user = self._user
        if sender.topic:
            user, (place, _) = FEEDER, session.histories[sender.topic]
        else:
            place = session.places[sender.broker]
        if not session.wait_until(sender.from_s + self._start_s):
            return
        connection = session.connected(place, user, sender.client_id)
        while (at_s := session.now_s()) < END_S:
            size, waits_s = round(sender.size(at_s) * chance.uniform(0.7, 1.3)), 0.0
            if size >= _LEAST_BYTES:
                waits_s = connection.produce(place.topic, place.partition, size) / 1_000
                for _ in range(round(sender.retries(at_s))):
                    connection.close()
                    connection, waits_s = session.connected(place, user, sender.client_id), 0.0
                    connection.produce(place.topic, place.partition, size)
            pace_s = sender.pace_s(at_s) * chance.uniform(0.8, 1.2)
            session.wait_until(session.now_s() + waits_s + pace_s)
            if sender.does_reconnect and chance.random() < _RECONNECTS:
                connection.close()
                connection = session.connected(place, user, sender.client_id)
        connection.close()

    def _consume(self, reader: Reader) -> None:
        session, (place, count) = self._session, self._session.histories[reader.topic]
        session.wait_until(self._start_s)
        connection = session.connected(place, self._user, reader.client_id)
        offset, resets_s = (0 if reader.is_behind else count), reader.resets_s
        while (at_s := session.now_s()) < END_S:
            if resets_s is not None and at_s >= resets_s:
                offset, resets_s = 0, None
            found = connection.fetch(place.topic, place.partition, offset, reader.most_bytes)
            offset = found.next_offset
            session.wait_until(session.now_s() + found.throttle_ms / 1_000)
        with suppress(OSError):
            connection.close()
