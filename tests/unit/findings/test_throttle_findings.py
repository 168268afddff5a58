"""Who is accused of ignoring throttles, and above all who is not: precision comes before recall."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.findings.findings import Kind
from kquota_spark.findings.throttle_findings import (
    EmptyRun,
    ThrottledClient,
    ThrottledEnd,
    starved_consumers,
    throttle_findings,
)
from kquota_spark.model.measure.apis import Api
from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.simulation.broker import Broker, Simulation
from kquota_spark.model.simulation.clients import Behaviour, Client
from kquota_spark.model.simulation.quota_manager import Limit
from kquota_spark.reports.clients.findings import findings
from tests.support.logs.simulated_requests import requests_of
from tests.support.tables.table_rows import T0_MS, request, usage, write_table

MB = 1_000_000
SEEDS = range(20)


def clients_of(seed: int) -> list[Client]:
    """One of each kind, all far above 1 MB/s; two processes of one application stand for a fleet."""
    user = f"seed-{seed}"

    def client(client_id: str, behaviour: Behaviour, in_flight: int = 1, interval_ms: int = 0) -> Client:
        size = (seed % 5 + 2) * MB // 2
        return Client(
            client_id, size, user=user, behaviour=behaviour, jitter_ms=50, first_send_ms=seed,
            max_in_flight=in_flight, interval_ms=interval_ms,
        )  # fmt: skip

    return [
        client("obeying", Behaviour.OBEYING),
        client("pipelining", Behaviour.OBEYING, 5),
        client("fleet", Behaviour.OBEYING, 5),
        client("fleet", Behaviour.OBEYING),
        client("ignoring", Behaviour.IGNORING),
        client("ignoring-pipelining", Behaviour.IGNORING, 5),
        client("reconnecting", Behaviour.RECONNECTING, interval_ms=500),
        Client("consumer", MB, Api.FETCH, 12, user=user, first_send_ms=seed),
        Client(
            "reconnecting-consumer",
            MB,
            Api.FETCH,
            12,
            user=user,
            interval_ms=500,
            behaviour=Behaviour.RECONNECTING,
        ),
    ]


def limit(quota_type: QuotaType, user: str, client_id: str) -> Limit:
    bandwidth = quota_type in (QuotaType.PRODUCE, QuotaType.FETCH)
    return Limit(f"{user}/{client_id}", float(MB) if bandwidth else None)


def test_over_seeds_only_reconnecting_clients_are_accused(tmp_path: Path) -> None:
    throttled = dict.fromkeys((client.client_id for client in clients_of(0)), 0)
    for seed in SEEDS:
        simulation = Simulation(clients_of(seed), limit, seed=seed)
        simulation.run_until(60_000)
        for exchange in simulation.exchanges:
            throttled[exchange.client.client_id] += exchange.throttle_ms >= 200
        write_table(tmp_path, "requests", *requests_of(simulation.exchanges))
    # Each kind was throttled in every seed on average: it could have been accused.
    assert min(throttled.values()) >= 5 * len(SEEDS), throttled
    write_table(tmp_path, "usage", usage(60))
    found = findings(Settings(cluster_id="demo", tables=str(tmp_path)))
    accused = {finding.subject for finding in found if finding.kind is Kind.IGNORES_THROTTLE}
    assert accused == {
        f"user seed-{seed}, client id {client_id} at 10.0.0.1"
        for seed in SEEDS
        for client_id in ("reconnecting", "reconnecting-consumer")
    }
    assert Kind.THROTTLE_BEYOND_TIMEOUT not in {finding.kind for finding in found}


def client_with(throttles: int, *versions: tuple[int, int, int], escapes: int = 0) -> ThrottledClient:
    end = ThrottledEnd(1, "c1", 10_000, 5_000, 40, "c2")
    return ThrottledClient("alice", "etl", "h", "kafka-go 0.4", throttles, escapes, [end], versions=versions)


@pytest.mark.parametrize(
    ("client", "is_accused"),
    [
        (client_with(10, escapes=5), True),
        (client_with(4, escapes=4), False),  # it may have been restarted four times
        (client_with(11, escapes=5), False),  # it obeyed six of eleven: 45 %
        (client_with(5, (Api.PRODUCE, 5, 5)), True),
        (client_with(5, (Api.PRODUCE, 5, 4), (Api.PRODUCE, 6, 50)), False),
        (client_with(5, (Api.FETCH, 7, 2), (Api.PRODUCE, 3, 3)), True),
        (client_with(5, (Api.FETCH, 8, 100), (60, 0, 100)), False),
    ],
)
def test_who_is_accused(client: ThrottledClient, is_accused: bool) -> None:
    assert [finding.kind for finding in throttle_findings([client])] == [Kind.IGNORES_THROTTLE] * is_accused


def test_an_accusation_says_how_likely_and_shows_its_rows() -> None:
    [finding] = throttle_findings([client_with(8, escapes=6)])
    assert finding.sentence == (
        "likely ignores throttling: after 6 of 8 throttles of 200 ms and more it left the connection and opened a "
        "new one within 2 s, inside the throttle (reported from 5 and 50 % on). It is kafka-go 0.4"
    )
    assert finding.evidence == (
        {
            "time_ms": 10_000, "broker_id": 1, "throttle_ms": 5_000, "connection": "c1", "back_after_ms": 40,
            "new_connection": "c2",
        },
    )  # fmt: skip


def connections(times: int, throttle_ms: int, gap_ms: int, **changed: Any) -> list[dict[str, Any]]:
    """One request a connection, throttled; the next connection begins so long after the response."""
    return [
        request(
            number, T0_MS + number * (1 + gap_ms), observed_throttle_ms=throttle_ms, user="alice",
            connection=f"h:9092-10.0.0.1:{40_000 + number}-{number}", **changed,
        )
        for number in range(times + 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        # One throttle more than ways back: 5 of 6.
        (connections(5, 5_000, 1_999), [Kind.IGNORES_THROTTLE]),
        (connections(5, 5_000, 2_000), []),  # neither at once nor in a time-out
        (connections(5, 60_000, 9_999), []),
        (connections(2, 60_000, 10_000), [Kind.THROTTLE_BEYOND_TIMEOUT]),
        (connections(1, 60_000, 10_000), []),
        (connections(2, 30_000, 30_000), []),  # back when the throttle is over
        # The line is written 1 ms after the request is recorded, and the mute has begun then.
        (connections(9, 200, 99), [Kind.IGNORES_THROTTLE]),
        (connections(9, 200, 100), []),  # within 100 ms of the end
        (connections(9, 199, 50), []),  # too short to tell
        (connections(9, 5_000, 50, is_forwarded=True), []),  # the controller's copies
        (connections(9, 5_000, 50, cluster_id="other"), []),
    ],
)
def test_what_connections_tell(tmp_path: Path, rows: list[dict[str, Any]], kinds: list[Kind]) -> None:
    write_table(tmp_path, "requests", *rows)
    write_table(tmp_path, "usage", usage(60))
    found = findings(Settings(cluster_id="demo", tables=str(tmp_path)))
    assert [finding.kind for finding in found] == kinds


@pytest.mark.parametrize(
    ("name", "value"),
    [("user", "u{}"), ("client_id", "c{}"), ("broker_id", 2), ("connection", "h:9092-10.0.1.{}:1-1")],
)
def test_another_client_host_or_broker_is_no_way_back(tmp_path: Path, name: str, value: str | int) -> None:
    rows = connections(19, 1_900, 1_000)  # every second row is changed: those alike are 2 s apart
    for number, row in enumerate(rows[::2]):
        row[name] = value.format(number) if isinstance(value, str) else value
    write_table(tmp_path, "requests", *rows)
    write_table(tmp_path, "usage", usage(60))
    assert findings(Settings(cluster_id="demo", tables=str(tmp_path))) == []


def test_a_connection_is_not_its_own_way_back(tmp_path: Path) -> None:
    # Its one line is written in the millisecond of the request; the next one comes long after the throttle.
    rows = [row | {"log_time_ms": row["record_time_ms"]} for row in connections(9, 1_000, 60_000)]
    write_table(tmp_path, "requests", *rows)
    write_table(tmp_path, "usage", usage(60))
    assert findings(Settings(cluster_id="demo", tables=str(tmp_path))) == []


def test_a_broker_whose_clock_is_centuries_ahead_keeps_nobody_from_an_answer(tmp_path: Path) -> None:
    last_ms = 253_402_300_799_999  # 9999-12-31 23:59:59.999, the last time that a line can have
    ahead = request(99, last_ms - 1, user="erin", connection="h:9092-10.0.0.2:1-1")
    write_table(tmp_path, "requests", *connections(9, 5_000, 50), ahead)
    write_table(tmp_path, "usage", usage(60))
    [finding] = findings(Settings(cluster_id="demo", tables=str(tmp_path)))
    assert finding.subject == "user alice, client id etl at 10.0.0.1"


def test_a_client_of_a_hundred_thousand_connections_is_found_too(tmp_path: Path) -> None:
    # Each beside each other one would be ten thousand million pairs, and minutes of a processor; it takes a second.
    write_table(tmp_path, "requests", *connections(99_999, 5_000, 50))
    write_table(tmp_path, "usage", usage(60))
    began_s = time.process_time()
    [finding] = findings(Settings(cluster_id="demo", tables=str(tmp_path)))
    assert "after 99,999 of 100,000 throttles" in finding.sentence
    assert time.process_time() - began_s < 30


def test_of_two_starts_in_the_millisecond_of_an_end_the_other_one_is_the_way_back(tmp_path: Path) -> None:
    times_ms = [T0_MS + number // 2 * 60_000 for number in range(10)]
    rows = [row | {"log_time_ms": time_ms, "record_time_ms": time_ms}
            for row, time_ms in zip(connections(9, 5_000, 0), times_ms, strict=True)]  # fmt: skip
    write_table(tmp_path, "requests", *rows)
    write_table(tmp_path, "usage", usage(60))
    [finding] = findings(Settings(cluster_id="demo", tables=str(tmp_path)))
    assert "after 10 of 10 throttles" in finding.sentence  # five pairs, each the way back of the other


def test_a_connection_ends_with_its_last_request(tmp_path: Path) -> None:
    rows = connections(9, 5_000, 50)
    before = [row | {"log_time_ms": row["log_time_ms"] - 9_000, "record_time_ms": row["record_time_ms"] - 9_000}
              for row in rows[:1]]  # fmt: skip
    write_table(tmp_path, "requests", *rows, *before)
    write_table(tmp_path, "usage", usage(60))
    [finding] = findings(Settings(cluster_id="demo", tables=str(tmp_path)))
    assert "after 9 of 11 throttles" in finding.sentence


@pytest.mark.parametrize(("correlation_id", "kinds"), [(1, [Kind.IGNORES_THROTTLE]), (3, [])])
@pytest.mark.parametrize("is_first", [True, False])
def test_of_one_millisecond_the_later_request_is_the_last(
    tmp_path: Path, correlation_id: int, kinds: list[Kind], is_first: bool
) -> None:
    throttled = [row | {"correlation_id": 2} for row in connections(9, 5_000, 50)]
    # Metadata, which no quota holds back: ahead of the throttled request, or behind it.
    beside = [row | {"correlation_id": correlation_id, "api_key": 3, "quota_type": None, "observed_throttle_ms": 0}
              for row in throttled]  # fmt: skip
    write_table(tmp_path, "requests", *(beside + throttled if is_first else throttled + beside))
    write_table(tmp_path, "usage", usage(60))
    found = findings(Settings(cluster_id="demo", tables=str(tmp_path)))
    assert [finding.kind for finding in found] == kinds


def test_a_connection_that_goes_on_after_its_throttle_was_not_left(tmp_path: Path) -> None:
    rows = connections(9, 5_000, 50)
    later = {"log_time_ms": 5_000, "record_time_ms": 5_000}
    after = [
        row | {name: row[name] + ms for name, ms in later.items()} | {"observed_throttle_ms": 0}
        for row in rows
    ]
    write_table(tmp_path, "requests", *rows, *after)
    write_table(tmp_path, "usage", usage(60))
    assert findings(Settings(cluster_id="demo", tables=str(tmp_path))) == []


@pytest.mark.parametrize(
    ("fetches", "lasted_ms", "is_found"), [(5, 30_000, True), (4, 60_000, False), (50, 29_999, False)]
)
def test_a_consumer_that_gets_nothing_is_starved(fetches: int, lasted_ms: int, is_found: bool) -> None:
    found = starved_consumers([EmptyRun("bob", "reader", 1, fetches, 1_000, 1_000 + lasted_ms, 9_000)])
    assert [finding.kind for finding in found] == [Kind.STARVED] * is_found


def starving(fetch_bytes: int, quota: float) -> Simulation:
    """A consumer whose only batch has so many bytes: KAFKA-9677 caps a fetch to ten windows of its quota."""
    reader = Client("reader", fetch_bytes, Api.FETCH, 12, user="bob", interval_ms=500)
    simulation = Simulation(
        [reader],
        lambda quota_type, user, client_id: Limit(
            client_id, quota if quota_type is QuotaType.FETCH else None
        ),
        seed=1,
        broker=Broker("2.4"),
    )
    simulation.run_until(300_000)
    return simulation


@pytest.mark.parametrize(("quota", "kinds"), [(100_000.0, [Kind.STARVED]), (1_000_000.0, [])])
def test_before_2_5_a_batch_beyond_ten_windows_never_arrives(
    tmp_path: Path, quota: float, kinds: list[Kind]
) -> None:
    # 2 MB at 100 kB/s: ten windows hold 1 MB; at 1 MB/s they hold 10 MB.
    write_table(tmp_path, "requests", *requests_of(starving(2 * MB, quota).exchanges))
    write_table(tmp_path, "usage", usage(300))
    found = findings(Settings(cluster_id="demo", tables=str(tmp_path)), kinds=[Kind.STARVED])
    assert [finding.kind for finding in found] == kinds
    if kinds:
        assert found[0].sentence.startswith("got nothing for ")


CONVERTED: dict[str, Any] = {
    "point_kind": int(PointKind.UNSIZED),
    "charged_bytes": None,
    "topics": ["orders"],
}
"""For an old client: the log has the size after the conversion only."""
CUT: dict[str, Any] = {
    "kind": "unreadable",
    "point_kind": int(PointKind.UNSIZED),
    "charged_bytes": None,
    "topics": [],
}
"""In a line of which only the ends can be read: whether records came is not known."""
UNSENT: dict[str, Any] = {"point_kind": int(PointKind.UNSIZED), "charged_bytes": None, "topics": []}
"""Without a response: nothing came."""


@pytest.mark.parametrize(("between", "kinds"), [(CONVERTED, []), (CUT, []), (UNSENT, [Kind.STARVED])])
def test_a_consumer_that_may_have_got_records_between_is_not_starved(
    tmp_path: Path, between: dict[str, Any], kinds: list[Kind]
) -> None:
    # Ten throttles of 9 s; after each of them a fetch that was not throttled.
    fetch = {"user": "bob", "client_id": "reader", "api_key": int(Api.FETCH), "quota_type": "fetch"}
    empty = {"point_kind": int(PointKind.THROTTLED_FETCH), "charged_bytes": 0, "observed_throttle_ms": 9_000}
    rows = []
    for number in range(10):
        rows.append(request(2 * number, T0_MS + number * 10_000, **fetch, **empty, topics=[]))
        rows.append(request(2 * number + 1, T0_MS + number * 10_000 + 9_000, **{**fetch, **between}))
    write_table(tmp_path, "requests", *rows)
    write_table(tmp_path, "usage", usage(300))
    found = findings(Settings(cluster_id="demo", tables=str(tmp_path)), kinds=[Kind.STARVED])
    assert [finding.kind for finding in found] == kinds
