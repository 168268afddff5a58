"""Clients over their quota, event by event: what each kind of client gets, and when."""

from __future__ import annotations

import pytest

from kquota_spark.model.measure.apis import Api
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.simulation.broker import Broker, Simulation
from kquota_spark.model.simulation.clients import Behaviour, Client
from kquota_spark.model.simulation.quota_manager import Limit, Limits
from tests.support.logs.simulated_requests import totals

MB = 1_000_000
OBEYING, IGNORING, RECONNECTING = Behaviour


def bandwidth(limit_per_s: float | None) -> Limits:
    """The same produce and fetch limit for every client id."""
    types = (QuotaType.PRODUCE, QuotaType.FETCH)
    return lambda quota_type, _, client_id: Limit(client_id, limit_per_s if quota_type in types else None)


def run(*clients: Client, until_ms: int, limit: float = 1e6, version: str = "3.9") -> Simulation:
    simulation = Simulation(clients, bandwidth(limit), seed=7, broker=Broker(version=version))
    simulation.run_until(until_ms)
    return simulation


# A client that sends 4 MB as fast as it may, with a broker that takes 1 ms: it is charged at 1, 2 and 3 ms. The
# third is 12 MB in 10,002 ms (cold, 2 ms old): 12,000 - 10,002 = 1,998 ms.


def test_an_obeying_client_sends_again_when_its_throttle_is_over() -> None:
    found = run(Client("app", 4 * MB), until_ms=8_001).exchanges
    assert [(e.sent_ms, e.charged_ms, e.throttle_ms, e.muted_until_ms, e.received_ms) for e in found] == [
        (0, 1, 0, 1, 1),
        (1, 2, 0, 2, 2),
        (2, 3, 1_998, 2_001, 3),
        # 16 MB; elapsed 2,001 ms, of which 1 is beyond whole windows: 16,000 - 10,001 = 5,999 ms.
        (2_001, 2_002, 5_999, 8_001, 2_002),
    ]


def test_an_ignoring_client_is_slowed_by_the_mute() -> None:
    found = run(Client("app", 4 * MB, behaviour=IGNORING), until_ms=8_001).exchanges
    assert [(e.sent_ms, e.charged_ms, e.throttle_ms, e.received_ms) for e in found] == [
        (0, 1, 0, 1),
        (1, 2, 0, 2),
        (2, 3, 1_998, 3),
        (3, 2_002, 5_999, 2_002),  # sent at once, read at 2,001
        (2_002, None, 0, None),
    ]


def test_an_old_client_is_slowed_like_an_ignoring_one() -> None:
    # Produce v5 knows nothing of KIP-219.
    old = run(Client("app", 4 * MB, version=5), until_ms=8_001).exchanges
    assert [e.sent_ms for e in old] == [0, 1, 2, 3, 2_002]


def test_before_2_0_the_response_comes_late() -> None:
    found = run(Client("app", 4 * MB), until_ms=8_001, version="1.1").exchanges
    assert [(e.sent_ms, e.charged_ms, e.throttle_ms, e.received_ms) for e in found] == [
        (0, 1, 0, 1),
        (1, 2, 0, 2),
        (2, 3, 1_998, 2_001),
        (2_001, 2_002, 5_999, None),
    ]


def test_a_reconnecting_client_escapes_the_mute_and_not_its_bucket() -> None:
    clients = Client("app", 4 * MB, behaviour=RECONNECTING), Client("app", 1, first_send_ms=6)
    found = run(*clients, until_ms=8).exchanges
    assert [(e.connection, e.sent_ms, e.charged_ms, e.throttle_ms) for e in found] == [
        (1, 0, 1, 0),
        (1, 1, 2, 0),
        (1, 2, 3, 1_998),
        (3, 4, 5, 5_996),  # 1 ms to connect; 16,000 - 10,004
        (2, 6, 7, 5_994),  # another client of that bucket pays too: 16,000 - 10,006
        (4, 6, 7, 9_994),  # 20,000 - 10,006
    ]


def test_what_is_in_flight_behind_a_mute_waits() -> None:
    pipelining = Client("app", 4 * MB, max_in_flight=5)
    other = Client("other", 1_000, interval_ms=1_000)
    simulation = run(pipelining, other, until_ms=9_000)
    found = [e for e in simulation.exchanges if e.client is pipelining]
    assert [(e.sent_ms, e.charged_ms, e.throttle_ms) for e in found[:5]] == [
        (0, 1, 0),
        (0, 2, 0),
        (0, 3, 1_998),
        (0, 2_002, 5_999),
        (0, 8_002, 9_999),  # 20,000 - 10,001
    ]
    # The other connection goes on.
    others = [e for e in simulation.exchanges if e.client is other]
    assert [e.received_ms for e in others] == [1, 1_001, 2_001, 3_001, 4_001, 5_001, 6_001, 7_001, 8_001]


def test_without_acks_only_the_mute_shows() -> None:
    found = run(Client("app", 12 * MB, acks=0, interval_ms=1_000), until_ms=2_500).exchanges
    assert [(e.sent_ms, e.charged_ms, e.throttle_ms, e.received_ms) for e in found] == [
        (0, 1, 2_000, None),
        (1_000, 2_002, 14_000 - 1, None),  # read at 2,001; 24,000 - 10,001
        (2_000, None, 0, None),
    ]


@pytest.mark.parametrize("behaviour", [OBEYING, IGNORING])
def test_a_client_over_its_quota_settles_at_its_limit(behaviour: Behaviour) -> None:
    found = run(Client("app", 100_000, behaviour=behaviour), until_ms=1_100_000).exchanges
    settled = [e for e in found if e.charged_ms is not None and e.charged_ms >= 100_000]
    # 1 MB/s for 1,000 s are 10,000 requests of 100 kB; 9,991 are 0.09 % fewer.
    assert totals(settled).requests == 9_991


def test_a_throttled_consumer_gets_less_than_its_limit() -> None:
    found = run(Client("app", MB, api=Api.FETCH, version=12), until_ms=1_100_000).exchanges
    settled = [e for e in found if e.charged_ms is not None and e.charged_ms >= 100_000]
    # Every other fetch waits for bytes that it does not get: 909 MB instead of 1,000.
    assert totals(settled)[:4] == (1_909, 1_909 * MB, 909 * MB, 1_000)


def test_a_throttled_fetch_is_answered_empty() -> None:
    found = run(Client("app", 4 * MB, api=Api.FETCH, version=12), until_ms=2_003).exchanges
    assert [(e.charged_ms, e.throttle_ms, e.charged_bytes) for e in found] == [
        (1, 0, 4 * MB),
        (2, 0, 4 * MB),
        (3, 1_998, 0),
        (2_002, 1_999, 0),  # 8 MB are left, so it is 12,000 - 10,001 again
    ]


def test_a_fetch_beyond_the_cold_bucket_starves_before_2_5() -> None:
    consumer = Client("app", 20 * MB, api=Api.FETCH, version=11)
    starved = run(consumer, until_ms=100_000, version="2.4").exchanges
    assert {e.charged_bytes for e in starved} == {0}
    fed = run(consumer, until_ms=100_000, version="2.5").exchanges
    assert fed[0].charged_bytes == 10 * MB


def test_limits_change_during_the_run() -> None:
    simulation = Simulation([Client("app", 4 * MB)], bandwidth(1e6), seed=7)
    simulation.change_limits(2_002, bandwidth(2e6))
    simulation.change_limits(2_003, bandwidth(None))
    simulation.run_until(2_006)
    # At 2,002 the 16 MB are 8 s of the new limit: they fit, where 5,999 ms would have followed.
    assert [e.throttle_ms for e in simulation.exchanges] == [0, 0, 1_998, 0, 0, 0, 0, 0]
    with pytest.raises(ValueError, match="it is 2006 ms: limits cannot change at 2005 ms"):
        simulation.change_limits(2_005, bandwidth(1e6))


def test_the_request_quota_throttles_in_steps_of_a_window() -> None:
    def of(quota_type: QuotaType, _: str, client_id: str) -> Limit:
        return Limit(client_id, 10.0 if quota_type is QuotaType.REQUEST else None)

    busy = Client("app", 1, thread_time_ns=1_500_000_000)
    simulation = Simulation([busy], of, seed=7)
    simulation.run_until(3_000)
    # 150 % of a second in 10 s are 15 %: 5,000 ms, of which 1,000 are applied.
    assert [(e.charged_ms, e.throttle_ms) for e in simulation.exchanges[:2]] == [(1, 1_000), (1_002, 1_000)]


def test_a_run_can_be_stopped_and_continued() -> None:
    clients = [Client("a", 90_000, jitter_ms=9, interval_ms=50), Client("b", 70_000, max_in_flight=3)]
    whole = Simulation(clients, bandwidth(1e6), seed=3)
    whole.run_until(30_000)
    parts = Simulation(clients, bandwidth(1e6), seed=3)
    for time_ms in range(0, 30_001, 1_000):
        parts.run_until(time_ms)
        assert parts.now_ms == time_ms
    assert totals(parts.exchanges) == totals(whole.exchanges)
    assert [e.sent_ms for e in parts.exchanges] == [e.sent_ms for e in whole.exchanges]


def test_to_run_until_what_is_over_does_nothing() -> None:
    simulation = run(Client("a", 1, interval_ms=1_000), until_ms=500)
    simulation.run_until(300)
    assert simulation.now_ms == 500


def test_the_delay_queue_holds_who_is_muted() -> None:
    client = Client("app", 12 * MB, interval_ms=5_000)
    # Charged at 1 ms, muted for 2,000.
    assert run(client, until_ms=2_001).manager.queue_size(QuotaType.PRODUCE) == 1
    assert run(client, until_ms=2_002).manager.queue_size(QuotaType.PRODUCE) == 0


def test_only_the_seed_decides_about_jitter() -> None:
    def sent_ms(seed: int) -> list[int]:
        simulation = Simulation(
            [Client("a", 1, interval_ms=10, jitter_ms=90)], bandwidth(None), seed=seed, broker=Broker()
        )
        simulation.run_until(1_000)
        return [e.sent_ms for e in simulation.exchanges]

    assert sent_ms(1) == sent_ms(1) != sent_ms(2)


def test_latency_is_paid_both_ways() -> None:
    broker = Broker(latency_ms=20, service_ms=5)
    simulation = Simulation([Client("a", 1, interval_ms=1_000)], bandwidth(None), seed=7, broker=broker)
    simulation.run_until(1_000)
    assert [(e.sent_ms, e.charged_ms, e.received_ms) for e in simulation.exchanges] == [(0, 25, 45)]


def test_clients_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="a: a client produces or fetches, it does not METADATA"):
        Client("a", 1, api=Api.METADATA)
    with pytest.raises(ValueError, match="a: a reconnecting client has one request in flight"):
        Client("a", 1, behaviour=RECONNECTING, max_in_flight=2)
    with pytest.raises(ValueError, match="a: acks=0 without an interval sends without end"):
        Client("a", 1, acks=0)
    with pytest.raises(ValueError, match="service_ms is at least 1"):
        Broker(service_ms=0)
