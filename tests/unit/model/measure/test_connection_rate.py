"""New connections are limited as KIP-612 says: acceptors wait, refused addresses are closed and taken back."""

from __future__ import annotations

from kquota_spark.model.measure.connection_rate import UNLIMITED_PER_S, ConnectionLimits, ConnectionRates
from kquota_spark.model.measure.sampled_rate import RateConfig

FREE = {"CLIENTS": UNLIMITED_PER_S, "BROKERS": UNLIMITED_PER_S}
A, B = "10.0.0.1", "10.0.0.2"


def rates(limits: ConnectionLimits, window_ms: int = 1_000) -> ConnectionRates:
    return ConnectionRates(limits, RateConfig(window_ms=window_ms))


def test_the_fifty_first_connection_of_an_address_at_five_a_second() -> None:
    found = rates(ConnectionLimits(FREE, "BROKERS", ips={A: 5}))
    delays_ms = []
    for _ in range(51):
        assert found.accept("CLIENTS", 0) == 0
        delays_ms.append(found.serve("CLIENTS", A, 0))
    # 50 / 10 s is the limit; 51 are 5.1 a second: 0.1 / 5 * 10 s.
    assert delays_ms == [0] * 50 + [200]
    # It was taken back, so the next is the fifty-first again.
    assert found.serve("CLIENTS", A, 0) == 200
    # Another address has its own rate.
    assert found.serve("CLIENTS", B, 0) == 0


def test_a_refused_connection_counts_nowhere() -> None:
    limits = ConnectionLimits({"CLIENTS": 1, "BROKERS": UNLIMITED_PER_S}, "BROKERS", broker=1, default_ip=1)
    found = rates(limits)
    for _ in range(10):
        found.accept("CLIENTS", 0)
        assert found.serve("CLIENTS", A, 0) == 0
    # The eleventh: 1.1 a second on all three; 0.1 / 1 * 10 s is 1 s. Taken back, every rate is at 1.0 again.
    assert found.accept("CLIENTS", 0) == 1_000
    assert found.serve("CLIENTS", A, 0) == 1_000
    # Were it still counted by broker or listener, this one would be the twelfth there, and without the cap wait
    # 2 s; with limits of 2 a second it is one of 11 and passes, as one of 21 would not.
    found.limits = ConnectionLimits({"CLIENTS": 2, "BROKERS": 2}, "BROKERS", broker=2)
    assert [found.accept("CLIENTS", 0) for _ in range(11)] == [0] * 10 + [500]  # 21 in 10 s: 0.1 / 2 * 10 s


def test_a_delay_is_at_most_one_window() -> None:
    found = rates(ConnectionLimits({"CLIENTS": 1}, "CLIENTS"))
    waits_ms = [found.accept("CLIENTS", 0) for _ in range(30)]
    # The twelfth would be 2 s.
    assert waits_ms == [0] * 10 + [1_000] * 20
    longer = rates(ConnectionLimits({"CLIENTS": 1}, "CLIENTS"), window_ms=2_000)
    # 20 fit in 20 s; the 21st is 1 s too many, the 22nd and all others 2 s.
    assert [longer.accept("CLIENTS", 0) for _ in range(24)] == [0] * 20 + [1_000] + [2_000] * 3


def test_the_acceptor_waits_for_the_longer_of_broker_and_listener() -> None:
    found = rates(ConnectionLimits({"CLIENTS": 5, "BROKERS": UNLIMITED_PER_S}, "BROKERS", broker=4))
    waits_ms = [found.accept("CLIENTS", 0) for _ in range(51)]
    assert waits_ms[39:42] == [0, 250, 500]  # 41 at 4 a second: 0.1 / 4 * 10 s
    # The 51st: broker 11 / 4 s, capped; listener 200 ms.
    assert waits_ms[50] == 1_000


def test_the_inter_broker_listener_is_free_of_the_brokers_limit() -> None:
    found = rates(ConnectionLimits(FREE, "BROKERS", broker=1))
    assert [found.accept("BROKERS", 0) for _ in range(100)] == [0] * 100
    # Nor does it count: the eleventh client is the first that waits.
    assert [found.accept("CLIENTS", 0) for _ in range(11)] == [0] * 10 + [1_000]


def test_an_only_listener_is_under_the_brokers_limit() -> None:
    found = rates(ConnectionLimits({"BROKERS": UNLIMITED_PER_S}, "BROKERS", broker=1))
    assert [found.accept("BROKERS", 0) for _ in range(11)] == [0] * 10 + [1_000]


def test_the_inter_broker_listener_has_its_own_limit() -> None:
    found = rates(ConnectionLimits({"CLIENTS": UNLIMITED_PER_S, "BROKERS": 1}, "BROKERS"))
    assert [found.accept("BROKERS", 0) for _ in range(11)] == [0] * 10 + [1_000]


def test_an_address_without_a_limit_is_not_measured() -> None:
    found = rates(ConnectionLimits(FREE, "BROKERS", ips={B: UNLIMITED_PER_S}, default_ip=5))
    for ip in (A, B):
        found.accept("CLIENTS", 0)
        assert found.serve("CLIENTS", ip, 0) == 0
    assert found.measured_ips == {A}
    assert ConnectionLimits(FREE, "BROKERS").of_ip(A) == 2_147_483_647


def test_an_address_may_not_connect_at_all_at_zero() -> None:
    found = rates(ConnectionLimits(FREE, "BROKERS", ips={A: 0}))
    found.accept("CLIENTS", 0)
    # Long.MAX ms, capped to one window: unlike bandwidth, 0 does refuse.
    assert found.serve("CLIENTS", A, 0) == 1_000
