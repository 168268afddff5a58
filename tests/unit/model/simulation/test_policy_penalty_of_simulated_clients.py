"""The model's broker and clients, an hour each: who obeys is never penalised, who reconnects out of throttles is."""

from __future__ import annotations

import pytest

from kquota_spark.enforce.policies.observations import BucketUse
from kquota_spark.enforce.policies.policy import Penalty
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.simulation.broker import Broker, Simulation
from kquota_spark.model.simulation.clients import Behaviour, Client
from kquota_spark.model.simulation.quota_manager import Limit
from tests.support.enforcement.observed_uses import HOUR, seen, use, wanted

MB = 1_000_000
POLICY = Penalty(name="offenders", kind="penalty")


def _hour(limit: float, *clients: Client) -> BucketUse:
    """What all clients did to one bucket in the hour after their first minute."""
    limits = lambda quota_type, _, __: Limit("all", limit if quota_type is QuotaType.PRODUCE else None)  # noqa: E731
    simulation = Simulation(clients, limits, seed=7, broker=Broker())
    from_ms, to_ms = 60_000, 60_000 + HOUR
    simulation.run_until(to_ms)
    charged = [(one, one.charged_ms) for one in simulation.exchanges if one.charged_ms is not None]
    charged = [(one, at_ms) for one, at_ms in charged if at_ms >= from_ms]
    seconds = {at_ms // 1_000 for _, at_ms in charged}
    return use(
        limit_per_s=limit,
        seconds=len(seconds),
        certain_seconds=len(seconds),
        throttled_seconds=len(seconds),
        episodes=100,
        mean_rate_per_s=sum(one.charged_bytes for one, _ in charged) / 3_600,
        throttle_ms=sum(min(max(one.throttle_ms, 0), to_ms - at_ms) for one, at_ms in charged),
    )


OBEYING = {
    "one connection": (1e6, [Client("a", MB)], 100),
    "five requests in flight": (1e6, [Client("a", MB, max_in_flight=5)], 100),
    # 50 s of the limit in one request: it waits for 40 s, and by then the broker has forgotten it
    "requests beyond the windows": (1e5, [Client("a", 5 * MB)], 125),
    "twice the limit, and it waits": (1e5, [Client("a", 2_200_000)], 183),
    "ten connections": (1e6, [Client("a", MB) for _ in range(10)], 156),
    # muted by the broker: it cannot get more
    "ignores, on its connection": (1e6, [Client("a", MB, behaviour=Behaviour.IGNORING)], 100),
}


@pytest.mark.parametrize("name", OBEYING)
def test_who_waits_is_not_penalised_whatever_it_gets(name: str) -> None:
    limit, clients, used_percent = OBEYING[name]
    found = _hour(limit, *clients)
    assert round(100 * found.mean_rate_per_s / limit) == used_percent
    assert found.throttle_ms <= len(clients) * HOUR
    assert wanted(POLICY, seen(found)) == []


def test_who_goes_on_with_a_new_connection_is_penalised() -> None:
    # 20 requests of 100 kB a second under a limit of 1 MB/s
    reconnecting = Client("a", 100_000, interval_ms=50, behaviour=Behaviour.RECONNECTING)
    found = _hour(1e6, reconnecting)
    assert round(found.mean_rate_per_s / 1e4) == 200
    assert found.throttle_ms > 100 * HOUR
    assert len(wanted(POLICY, seen(found))) == 1
