"""The loop of plain requests takes the same steps as the closed loop of all requests."""

from __future__ import annotations

from kquota_spark.model.loops.clocks import Clock
from kquota_spark.model.loops.closed_loop import Charge, ClosedLoop, Connection, Reading, Sent
from kquota_spark.model.loops.meters import Meter
from kquota_spark.model.loops.plain_loop import PlainLoop, lanes_of
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant, SampleRing
from kquota_spark.model.measure.throttle_time import throttle_time_ms
from tests.support.chance import Chance

CASES = 300
RINGS = (RateConfig(), RateConfig(variant=RingVariant.UP_TO_3_7), RateConfig(1, 500))
SPAN_MS = 40_000


def drawn(chance: Chance, ring: RateConfig) -> tuple[list[Connection], int]:
    """Connections of a bucket under another limit, and how many requests come before the first other verdict."""
    times = sorted(chance.randrange(SPAN_MS) for _ in range(chance.randrange(1, 120)))
    was, tried = SampleRing(ring), SampleRing(ring)
    limits = [chance.choice([None, 0.0, *(chance.uniform(1_000, 60_000) for _ in range(6))]) for _ in "ab"]
    sent: dict[int, list[Sent]] = {}
    is_calm, calm = True, 0
    for order, time_ms in enumerate(times):
        amount = chance.randrange(60_000)
        found = [
            _throttle_ms(side, amount, time_ms, limit)
            for side, limit in zip((was, tried), limits, strict=True)
        ]
        is_calm = is_calm and found[0] == found[1]
        calm += is_calm
        charge = Charge(0, amount, amount, limits[1])
        sent.setdefault(chance.randrange(4), []).append(Sent(time_ms, order, found[0], found[0], (charge,)))
    connections = [
        Connection(
            of_one, chance.random() < 0.8, chance.choice([None, Clock(300, 2)]), chance.random() < 0.5,
            chance.randrange(300),
        )
        for of_one in sent.values()
    ]  # fmt: skip
    return connections, calm


def _throttle_ms(ring: SampleRing, amount: int, time_ms: int, limit: float | None) -> int:
    window_ms = ring.record(amount, time_ms)
    return max(throttle_time_ms(ring.total, window_ms, limit), 0)


def test_both_loops_end_in_the_same_figures(chance: Chance) -> None:
    calm_cases = moved_cases = 0
    for _ in range(CASES):
        ring = chance.choice(RINGS)
        connections, calm = drawn(chance, ring)
        lanes = lanes_of(connections)
        assert lanes is not None
        plain = PlainLoop(connections, lanes, Meter(SampleRing(ring)), calm)
        for reading in Reading:
            whole = ClosedLoop(connections, [Meter(SampleRing(ring))], reading, times_ms=None)
            whole.run(SPAN_MS)
            found, has_added = plain.run(reading, SPAN_MS)
            assert _figures(found) == _figures(whole.meters[0])
            assert has_added == whole.has_added
        calm_cases += calm > 0
        moved_cases += calm < sum(len(each.sent) for each in connections)
    assert calm_cases > CASES / 4
    assert moved_cases > CASES / 4


def _figures(meter: Meter) -> tuple[object, ...]:
    return (
        meter.requests, meter.throttled_requests, meter.delay_ms, meter.longest_ms, meter.served, meter.added,
        meter.mutes, meter.ring.memory, meter.ring.total,
    )  # fmt: skip


def test_a_request_in_two_buckets_or_with_an_inferred_throttle_is_not_plain() -> None:
    one = Charge(0, 5, 5, 1_000.0)
    assert lanes_of([Connection([Sent(0, 0, 0, 0, (one,))])]) is not None
    assert lanes_of([Connection([Sent(0, 0, 0, 0, (one, one._replace(meter=1)))])]) is None
    assert lanes_of([Connection([Sent(0, 0, 0, 0, (one._replace(inferred_ms=3),))])]) is None
