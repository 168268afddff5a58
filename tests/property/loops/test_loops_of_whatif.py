"""What holds of the open and the closed loop whatever the requests are."""

from __future__ import annotations

from dataclasses import replace

from kquota_spark.model.loops.open_loop import Judged, bandwidth_throttles, judged
from kquota_spark.model.loops.reach import reached
from kquota_spark.model.loops.tried import Bound, Closed, Key, closed_loop
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.decision import GovernedSecond
from tests.support.chance import Chance
from tests.support.pipeline.unchanged_buckets import unchanged

CASES = 100
RINGS = (RateConfig(), RateConfig(variant=RingVariant.UP_TO_3_7), RateConfig(5, 2_000))
T0, SPAN_MS = 1_000_000, 40_000
BANDWIDTH_KINDS = {
    QuotaType.PRODUCE: (PointKind.PRODUCE,),
    QuotaType.FETCH: (PointKind.FETCH, PointKind.FETCH, PointKind.THROTTLED_FETCH, PointKind.SHARE_FETCH),
}


def drawn_points(chance: Chance, quota_type: QuotaType, connections: list[int]) -> list[Point]:
    points = set()
    for number in range(chance.randrange(1, 60)):
        kind = chance.choice(BANDWIDTH_KINDS[quota_type])
        time_ms = T0 + chance.randrange(SPAN_MS)
        is_sized = kind in (PointKind.PRODUCE, PointKind.FETCH)
        amount = chance.randrange(1, 200_000) if is_sized else 0
        throttle_ms = chance.randrange(1, 3_000) if kind is PointKind.THROTTLED_FETCH else 0
        points.add(
            Point(time_ms, time_ms + 1, chance.choice(connections), number, amount, throttle_ms, int(kind))
        )
    return sorted(points)


def drawn_broker(chance: Chance, ring: RateConfig) -> tuple[dict[Key, list[Judged]], dict[Key, list[Judged]]]:
    """Buckets of one broker with connections in common, and the same with thread time of the produces."""
    connections = [chance.randrange(10) for _ in range(4)]
    was: dict[Key, list[Judged]] = {}
    for quota_type in BANDWIDTH_KINDS:
        for name in ("a", "b"):
            points = drawn_points(chance, quota_type, connections)
            limit = chance.choice([None, chance.uniform(1_000, 100_000)])
            was[quota_type, Bucket(name, "")] = of_bucket(quota_type, points, limit, ring)
    timed = [
        each.point._replace(
            amount=chance.randrange(200_000),
            kind=int(PointKind.SHARED_REQUEST),
            network_time_us=chance.randrange(9_000),
        )
        for each in was[QuotaType.PRODUCE, Bucket("a", "")]
    ]
    key = QuotaType.REQUEST, Bucket("a", "")
    return was, {**was, key: of_bucket(QuotaType.REQUEST, timed, chance.uniform(1, 40), ring)}


def of_bucket(
    quota_type: QuotaType, points: list[Point], limit: float | None, ring: RateConfig
) -> list[Judged]:
    governed = GovernedSecond(T0, "u", "c", Governing(limit), None, None, None, points)
    return judged(quota_type, [governed], ring, is_recorded=True)


def test_identical_quotas_change_nothing_in_the_closed_loop(chance: Chance) -> None:
    for _ in range(CASES):
        ring = chance.choice(RINGS)
        from_ms = T0 + chance.choice([0, SPAN_MS // 2])
        for was in drawn_broker(chance, ring):
            expected = {key: unchanged(each, from_ms, T0 + SPAN_MS) for key, each in was.items()}
            settle_ms = chance.choice([0, 0, 12_000])
            found = closed_loop(was, was, set(was), ring, from_ms, T0 + SPAN_MS, settle_ms=settle_ms)
            assert found == expected


def test_what_a_change_does_not_reach_is_as_recorded(chance: Chance) -> None:
    """The whole loop of all changed buckets has the recorded figures in those that are not reached."""
    left_out = reaching = 0
    for _ in range(CASES):
        ring, until_ms = chance.choice(RINGS), T0 + SPAN_MS
        has_fetches = chance.random() < 0.3
        drawn = drawn_broker(chance, ring)[1]
        was = {key: each for key, each in drawn.items() if has_fetches or key[0] is not QuotaType.FETCH}
        changed = {key for key in was if chance.random() < 0.6}
        # Up to a tenth more or less: often no verdict changes.
        tried = {
            key: of_other_limit(chance, key, was[key], ring) if key in changed else was[key] for key in was
        }
        whole = closed_loop(was, tried, changed, ring, T0, until_ms)
        of_reached = closed_loop(was, tried, reached(was, tried, changed, ring), ring, T0, until_ms)
        for key, found in whole.items():
            assert (of_reached[key] if key in of_reached else as_recorded(was[key], found)) == found
        left_out += len(whole) - len(of_reached)
        reaching += len(of_reached)
    assert left_out > CASES / 4
    assert reaching > CASES / 4


def as_recorded(was: list[Judged], found: Closed) -> Closed:
    """The record of a bucket; open above where the whole loop expects more of a client under a higher limit."""
    expected = unchanged(was, T0, T0 + SPAN_MS)
    if not found.is_censored:
        return expected
    delay, served = Bound(expected.delay.low, None), Bound(expected.served, None)
    return replace(expected, delay=delay, served_bound=served, is_censored=True)


def test_a_higher_limit_that_changes_no_verdict_has_an_exact_answer() -> None:
    """All throttles have the maximum under both limits (seed 333612): nobody sends more, so nothing is left open."""
    ring, key = RateConfig(), (QuotaType.REQUEST, Bucket("a", ""))
    # Half a second of threads per second, 50 % of one: a throttle by 1 % or 1.1 % is longer than 1,000 ms.
    times_ms = [T0 + 1_001 * number for number in range(30)]
    kind = int(PointKind.SHARED_REQUEST)
    points = [Point(each, each + 1, 1, number, 500_000, 0, kind) for number, each in enumerate(times_ms)]
    was, tried = ({key: of_bucket(QuotaType.REQUEST, points, limit, ring)} for limit in (1.0, 1.1))
    assert (
        [each.throttle_ms for each in was[key]] == [each.throttle_ms for each in tried[key]] == [1_000] * 30
    )
    assert closed_loop(was, tried, {key}, ring, T0, T0 + SPAN_MS)[key].is_censored
    assert reached(was, tried, {key}, ring) == set()
    assert closed_loop(was, tried, set(), ring, T0, T0 + SPAN_MS) == {}


def of_other_limit(chance: Chance, key: Key, was: list[Judged], ring: RateConfig) -> list[Judged]:
    limit = was[0].limit_per_s
    factor = chance.choice([0.9, 1.0, 1.1, 3.0])
    points = [each.point for each in was]
    return of_bucket(key[0], points, None if limit is None else limit * factor, ring)


def test_a_lower_limit_never_lowers_the_total_delay_of_the_open_loop(chance: Chance) -> None:
    for _ in range(CASES):
        ring, points = chance.choice(RINGS), drawn_points(chance, QuotaType.PRODUCE, [1, 2])
        # From 1,000 B/s on no throttle has more than 31 bits, which brokers narrow it to.
        limits = sorted(chance.uniform(1_000, 200_000) for _ in range(6))
        delays = [sum(bandwidth_throttles(points, [limit] * len(points), ring)) for limit in limits]
        assert delays == sorted(delays, reverse=True)


def test_every_recorded_byte_of_a_produce_is_served_or_deferred(chance: Chance) -> None:
    for _ in range(CASES):
        ring, connections = chance.choice(RINGS), [1, 2, 3]
        points = drawn_points(chance, QuotaType.PRODUCE, connections)
        key, (was, tried) = (
            (QuotaType.PRODUCE, Bucket("a", "")),
            sorted(chance.uniform(1_000, 50_000) for _ in "ab"),
        )
        for before, after in ((was, tried), (tried, was)):
            one, other = (
                {key: of_bucket(QuotaType.PRODUCE, points, limit, ring)} for limit in (before, after)
            )
            found = closed_loop(one, other, {key}, ring, T0, T0 + SPAN_MS)[key]
            assert found.served + found.deferred == sum(point.amount for point in points) + found.added
            assert found.delay.low <= found.throttled_ms
            assert found.delay.high is None or found.throttled_ms <= found.delay.high
