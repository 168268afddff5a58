"""No byte is charged that was not sent, none that was handled is forgotten, and nobody is served while muted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.measure.apis import Api
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.simulation.broker import Broker, Simulation
from kquota_spark.model.simulation.clients import Behaviour, Client
from kquota_spark.model.simulation.quota_manager import Limit, Limits
from tests.support.logs.simulated_requests import totals

_SETTINGS = settings(deadline=None, max_examples=60, print_blob=True)
UNTIL_MS = 9_000  # below (N - 1) windows: every charge is still in its bucket
CLIENTS = st.lists(
    st.builds(
        Client,
        client_id=st.sampled_from(["a", "b"]),
        size_bytes=st.integers(1, 3_000_000),
        api=st.sampled_from([Api.PRODUCE, Api.FETCH]),
        version=st.sampled_from([5, 12]),
        interval_ms=st.integers(100, 1_000),
        jitter_ms=st.integers(0, 50),
        max_in_flight=st.just(1),
        behaviour=st.sampled_from(Behaviour),
        acks=st.sampled_from([0, -1]),
    )
    | st.builds(
        Client,
        client_id=st.sampled_from(["a", "b"]),
        size_bytes=st.integers(1, 3_000_000),
        interval_ms=st.integers(100, 1_000),
        max_in_flight=st.integers(2, 5),
        behaviour=st.sampled_from([Behaviour.OBEYING, Behaviour.IGNORING]),
    ),
    min_size=1,
    max_size=4,
)
BROKERS = st.builds(
    Broker,
    version=st.sampled_from(["1.1", "2.4", "3.7", "3.9"]),
    latency_ms=st.integers(0, 30),
    service_ms=st.integers(1, 30),
    connect_ms=st.integers(0, 10),
)


def limits(limit: float | None) -> Limits:
    return lambda _, __, client_id: Limit(client_id, limit)


@_SETTINGS
@given(CLIENTS, BROKERS, st.sampled_from([None, 1e5, 1e6]), st.integers(0, 9))
def test_bytes_charged_are_bytes_sent(
    clients: list[Client], broker: Broker, limit: float | None, seed: int
) -> None:
    simulation = Simulation(clients, limits(limit), seed=seed, broker=broker)
    simulation.run_until(UNTIL_MS)
    for e in simulation.exchanges:
        if e.charged_ms is None:
            assert (e.charged_bytes, e.throttle_ms, e.received_ms) == (0, 0, None)
        elif e.client.api is Api.FETCH and e.throttle_ms > 0:
            assert e.charged_bytes == 0
        else:
            assert e.charged_bytes == e.sent_bytes
    for api, quota_type in ((Api.PRODUCE, QuotaType.PRODUCE), (Api.FETCH, QuotaType.FETCH)):
        for client_id in ("a", "b"):
            of = [e for e in simulation.exchanges if e.client.api is api and e.client.client_id == client_id]
            in_bucket = simulation.manager._ring(quota_type, "", client_id).measure(UNTIL_MS)[0]
            assert in_bucket == totals(of).charged_bytes


@_SETTINGS
@given(CLIENTS, BROKERS, st.sampled_from([None, 1e5, 1e6]), st.integers(0, 9))
def test_a_connection_is_handled_in_order_and_never_while_muted(
    clients: list[Client], broker: Broker, limit: float | None, seed: int
) -> None:
    simulation = Simulation(clients, limits(limit), seed=seed, broker=broker)
    simulation.run_until(UNTIL_MS)
    free_ms: dict[int, int] = {}
    for e in simulation.exchanges:
        if e.charged_ms is None:
            continue
        assert e.muted_until_ms is not None
        began_ms = e.charged_ms - broker.service_ms
        assert began_ms >= max(free_ms.get(e.connection, 0), e.sent_ms + broker.latency_ms)
        free_ms[e.connection] = e.muted_until_ms
        if e.received_ms is not None:
            sent_ms = e.muted_until_ms if broker.version == "1.1" else e.charged_ms
            assert e.received_ms == sent_ms + broker.latency_ms


@_SETTINGS
@given(CLIENTS, BROKERS)
def test_without_limits_nobody_waits(clients: list[Client], broker: Broker) -> None:
    simulation = Simulation(clients, limits(None), seed=0, broker=broker)
    simulation.run_until(UNTIL_MS)
    assert totals(simulation.exchanges).throttle_ms == 0
