"""The closed loop of a broker: identical quotas change nothing, and the bounds contain what simulated clients do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kquota_spark.model.loops.open_loop import Judged, judged
from kquota_spark.model.loops.tried import Bound, Closed, Key, closed_loop
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.decision import GovernedSecond, judge_bucket, replay_of
from kquota_spark.model.replay.replay import Verdict
from kquota_spark.model.simulation.broker import Broker, Simulation
from kquota_spark.model.simulation.clients import Behaviour, Client
from kquota_spark.model.simulation.quota_manager import Limit
from tests.support.logs.captures import ALL, BUSY, KRAFT43_SHARE, Capture, buckets_of
from tests.support.pipeline.unchanged_buckets import unchanged

RING = RateConfig()
KEY: Key = (QuotaType.PRODUCE, Bucket("", "a"))
RUN_MS = 30_000


@pytest.fixture(scope="module", params=[*ALL, KRAFT43_SHARE, *BUSY], ids=lambda capture: capture.name)
def capture(request: pytest.FixtureRequest) -> Capture:
    found: Capture = request.param
    return found


def test_the_throttles_of_real_logs_are_those_of_the_audit(capture: Capture) -> None:
    compared = 0
    for key, of_bucket in buckets_of(capture).items():
        is_mutation = key.quota_type is QuotaType.CONTROLLER_MUTATION
        ring = RateConfig() if is_mutation else capture.config
        verdicts: list[Verdict] = []
        judge_bucket(replay_of(key.quota_type, ring), of_bucket, verdicts)
        ours = judged(key.quota_type, of_bucket, ring, is_recorded=True)
        assert [(each.point, each.throttle_ms) for each in ours] == [
            (each.point, each.throttle_ms) for each in verdicts
        ]
        compared += len(ours)
    assert compared > 200


def test_identical_quotas_give_zero_to_the_byte_on_real_logs_without_a_short_cut(capture: Capture) -> None:
    delay_ms = 0
    for broker_id in {key.broker_id for key in buckets_of(capture)} - {-1}:
        was = {
            (key.quota_type, key.bucket): judged(key.quota_type, of_bucket, capture.config, is_recorded=True)
            for key, of_bucket in buckets_of(capture).items()
            if key.broker_id == broker_id
        }
        from_ms = min(each[0].point.record_time_ms for each in was.values()) + 20_000
        until_ms = max(each[-1].point.record_time_ms for each in was.values()) + 1
        expected = {key: unchanged(of_bucket, from_ms, until_ms) for key, of_bucket in was.items()}
        # All buckets are called changed, so that all are replayed.
        assert closed_loop(was, was, set(was), capture.config, from_ms, until_ms) == expected
        delay_ms += sum(each.throttled_ms for each in expected.values())
    assert delay_ms > 0 or capture.name == "jmx-telegraf"


def requests_of(bucket: Sequence[Point], limit: float) -> list[Judged]:
    governed = GovernedSecond(0, "", "a", Governing(limit), None, None, None, bucket)
    return judged(QuotaType.PRODUCE, [governed], RING, is_recorded=True)


def simulated(limit: float, *clients: Client, until_ms: int = RUN_MS) -> list[Point]:
    simulation = Simulation(clients, lambda *_: Limit("a", limit), seed=1, broker=Broker())
    simulation.run_until(until_ms)
    return sorted(
        Point(each.charged_ms, each.charged_ms, each.connection, number, each.charged_bytes, each.throttle_ms,
              int(PointKind.PRODUCE))
        for number, each in enumerate(simulation.exchanges)
        if each.charged_ms is not None and each.charged_ms < until_ms
    )  # fmt: skip


def predicted(points: Sequence[Point], was: float, tried: float) -> Closed:
    one, other = ({KEY: requests_of(points, limit)} for limit in (was, tried))
    return closed_loop(one, other, {KEY}, RING, 0, RUN_MS)[KEY]


def delay_ms(points: Sequence[Point]) -> int:
    return sum(point.observed_throttle_ms for point in points)


def saturated(**changed: object) -> Client:
    return Client("a", 10_000, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("behaviour", [Behaviour.OBEYING, Behaviour.IGNORING])
@pytest.mark.parametrize("in_flight", [1, 5])
def test_a_cut_of_a_saturated_client_is_predicted_to_the_millisecond(
    behaviour: Behaviour, in_flight: int
) -> None:
    client = saturated(behaviour=behaviour, max_in_flight=in_flight)
    found = predicted(simulated(200_000, client), 200_000, 100_000)
    truth = simulated(100_000, client)
    assert found.throttled_ms == delay_ms(truth) > 15_000
    assert found.served == sum(point.amount for point in truth)
    assert (found.is_censored, found.requests) == (False, len(truth))


def test_a_raise_for_a_saturated_client_is_a_lower_bound() -> None:
    found = predicted(simulated(100_000, saturated()), 100_000, 200_000)
    assert found.is_censored and found.delay.high is None and found.served_bound.high is None
    assert found.delay.low <= delay_ms(simulated(200_000, saturated()))


@pytest.mark.parametrize(
    ("was", "tried"), [(100_000, 60_000), (60_000, 100_000), (60_000, 200_000), (200_000, 60_000)]
)
@pytest.mark.parametrize("clients", [1, 4])
def test_the_bound_contains_what_clients_do_that_send_by_the_clock(
    was: int, tried: int, clients: int
) -> None:
    # 130,000 B/s together.
    senders = [
        Client("a", 13_000, interval_ms=100 * clients, first_send_ms=7 * number) for number in range(clients)
    ]
    found = predicted(simulated(was, *senders), was, tried)
    truth = delay_ms(simulated(tried, *senders))
    open_ms = sum(each.throttle_ms for each in requests_of(simulated(was, *senders), tried))
    assert found.delay.low <= truth
    assert found.delay.high is None or truth <= found.delay.high
    assert abs(found.throttled_ms - truth) <= abs(open_ms - truth)


def test_a_client_that_is_throttled_all_the_time_shows_its_clock_before_the_period() -> None:
    """Four connections want 87,000 B/s: unthrottled for 12 s, then each request waits longer than its 400 ms.

    Without what came before, they would have always more to send: 202 s, and at least 186 s, instead of 173 s.
    """
    clients = [Client("a", 8_700, interval_ms=400, first_send_ms=73 * place) for place in range(4)]
    points, truth = (simulated(limit, *clients, until_ms=90_000) for limit in (70_000, 46_000))
    one, other = ({KEY: requests_of(points, limit)} for limit in (70_000, 46_000))
    found = closed_loop(one, other, {KEY}, RING, 36_000, 90_000, settle_ms=12_000)[KEY]
    delay = delay_ms([point for point in truth if point.record_time_ms >= 36_000])
    assert found.delay.low <= delay <= (found.delay.high or 0)
    assert abs(found.throttled_ms - delay) <= 0.05 * delay


def test_a_reconnecting_client_keeps_its_times() -> None:
    client = Client("a", 13_000, interval_ms=100, behaviour=Behaviour.RECONNECTING)
    points = simulated(60_000, client)
    found = predicted(points, 60_000, 50_000)
    assert found.throttled_ms == sum(each.throttle_ms for each in requests_of(points, 50_000))
    assert found.deferred == 0


def test_the_bound_of_a_client_that_does_not_wait_has_its_delay_under_one_percent_more_and_less() -> None:
    # 130,000 B/s: just above the limit a percent decides much, because delays of a client that does not wait add up.
    client = Client("a", 13_000, interval_ms=100, behaviour=Behaviour.RECONNECTING)
    points = simulated(60_000, client)
    found = predicted(points, 60_000, 125_000)
    least, usual, most = (
        [each.throttle_ms for each in requests_of(points, limit)] for limit in (126_250, 125_000, 123_750)
    )
    # 5 % and one throttle more at both ends.
    assert found.delay == Bound(
        max(round(sum(least) * 0.95) - max(usual), 0), round(sum(most) * 1.05) + max(usual)
    )
    assert found.throttled_ms == sum(usual)
    assert sum(most) > 1.2 * sum(usual)


def test_only_buckets_that_a_connection_links_to_a_changed_one_are_replayed() -> None:
    def sent(connection: int) -> list[Point]:
        return [
            Point(1_000, 1_001, connection, 1, 12_000_000, 0, 0),
            Point(1_100, 1_101, connection, 2, 5, 0, 0),
        ]

    keys = [(QuotaType.PRODUCE, Bucket(name, "")) for name in ("a", "b", "c")]
    was = {key: requests_of(sent(connection), 1e9) for key, connection in zip(keys, (7, 7, 8), strict=True)}
    tried = {**was, keys[0]: requests_of(sent(7), 1e6)}
    found = closed_loop(was, tried, {keys[0]}, RING, 0, 2_000)
    # 12 MB at 1 MB/s: 2 s. So the second request of connection 7 leaves the period in both of its buckets.
    assert set(found) == set(keys[:2])
    assert [each.deferred for each in found.values()] == [5, 5]


def test_bounds_add_up_and_an_open_one_stays_open() -> None:
    assert Bound(1, 2) + Bound(10, 20) == Bound(11, 22)
    assert Bound(1, None) + Bound(10, 20) == Bound(11, None)


def test_what_is_sent_before_the_period_settles_under_the_tried_quotas_and_does_not_count() -> None:
    client = saturated()
    points = simulated(200_000, client)
    one, other = ({KEY: requests_of(points, limit)} for limit in (200_000, 100_000))
    whole, first = (
        closed_loop(one, other, {KEY}, RING, 0, until_ms)[KEY] for until_ms in (RUN_MS, RUN_MS // 2)
    )
    late = closed_loop(one, other, {KEY}, RING, RUN_MS // 2, RUN_MS, settle_ms=RUN_MS // 2)[KEY]
    assert (late.requests, late.served) == (whole.requests - first.requests, whole.served - first.served)
    assert late.throttled_ms == whole.throttled_ms - first.throttled_ms > 0
    # Without it the window still holds what came under 200,000 B/s: fewer throttles, each longer.
    unsettled = closed_loop(one, other, {KEY}, RING, RUN_MS // 2, RUN_MS)[KEY]
    assert (late.throttled_requests, unsettled.throttled_requests) == (25, 12)


def test_the_last_throttles_of_four_connections_widen_the_bound_by_two() -> None:
    # Four connections send 1 MB each at once, under 200,000 B/s instead of 1 MB/s: 5, 10, 15 and 20 s of 10 s.
    found = predicted([Point(0, 1, name, 1, 1_000_000, 0, 0) for name in range(4)], 1_000_000, 200_000)
    assert found.throttled_ms == 5_000 + 10_000
    # 5 % and twice the longest throttle; with one throttle at the end the bound would end at 25,750 ms.
    assert found.delay == Bound(0, 15_750 + 2 * 10_000)
