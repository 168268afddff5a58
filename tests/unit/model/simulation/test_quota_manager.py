"""Requests are charged and parked in the order and with the ties of the broker."""

from __future__ import annotations

from collections.abc import Mapping

from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.apis import Api
from kquota_spark.model.measure.combining import Applied
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, rule_periods
from kquota_spark.model.simulation.quota_manager import Limit, Limits, QuotaManager, Request, governed_limits

PRODUCE, FETCH, REQUEST = QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST
MUTATION = QuotaType.CONTROLLER_MUTATION
CONFIG = RateConfig()
NOTHING = Applied(0, None)
S_NS = 1_000_000_000


def limits(per_type: Mapping[QuotaType, float]) -> Limits:
    """The same limits for every client id, each with buckets of its own."""
    return lambda quota_type, _, client_id: Limit(client_id, per_type.get(quota_type))


def produce(size_bytes: int, client_id: str = "app", *, connection: int = 1, acks: int = -1) -> Request:
    return Request(Api.PRODUCE, "u", client_id, connection, 9, size_bytes, acks)


def fetch(size_bytes: int = 52_428_800, *, connection: int = 1) -> Request:
    return Request(Api.FETCH, "u", "app", connection, 12, size_bytes)


def test_the_worked_example_of_kip_13() -> None:
    manager = QuotaManager(limits({PRODUCE: 5_000_000.0}), CONFIG)
    # 10 MB every 2 s; until 8 s 50 MB in 10 s are at the limit of 5 MB/s.
    for second in (0, 2, 4, 6, 8):
        assert manager.check(produce(10_000_000), second * 1_000) == NOTHING
    # At 10 s the window is exactly 10 s: 60 MB are 6 MB/s; (60 - 50) / 5 = 2 s.
    assert manager.check(produce(10_000_000), 10_000) == (2_000, PRODUCE)
    assert manager.rate_per_s(PRODUCE, "u", "app", 10_000) == 6_000_000.0


def test_the_delay_queue_gives_out_what_is_due() -> None:
    manager = QuotaManager(limits({PRODUCE: 1_000_000.0}), CONFIG)
    manager.check(produce(15_000_000, "slow", connection=1), 0)
    manager.check(produce(12_000_000, "quick", connection=2), 0)
    assert manager.queue_size(PRODUCE) == 2
    assert manager.queue_size(REQUEST) == 0
    assert manager.expired(1_999) == []
    assert [parked.connection for parked in manager.expired(2_000)] == [2]
    assert [(parked.due_ms, parked.connection) for parked in manager.expired(9_000)] == [(5_000, 1)]
    assert manager.queue_size(PRODUCE) == 0


def test_of_those_due_together_the_first_parked_comes_first() -> None:
    manager = QuotaManager(limits({PRODUCE: 1_000_000.0}), CONFIG)
    for connection in (5, 3, 4):
        manager.check(produce(12_000_000, f"c{connection}", connection=connection), 0)
    assert [parked.connection for parked in manager.expired(2_000)] == [5, 3, 4]


def test_shutdown_releases_all_in_order() -> None:
    manager = QuotaManager(limits({PRODUCE: 1_000_000.0}), CONFIG)
    for connection, size_mb in ((1, 15), (2, 12), (3, 13)):
        manager.check(produce(size_mb * 1_000_000, f"c{connection}", connection=connection), 0)
    assert [parked.connection for parked in manager.shutdown()] == [2, 3, 1]
    assert manager.shutdown() == manager.expired(99_000) == []


def test_a_produce_takes_the_longer_of_bandwidth_and_request_time() -> None:
    # 10 % is 100 in 10 s: 105 are (10.5 - 10) / 10 * 10 s = 500 ms.
    of = limits({PRODUCE: 1_000_000.0, REQUEST: 10.0})
    for size, expected in (
        (10_400_000, (500, REQUEST)),  # bandwidth 400 ms
        (10_500_000, (500, REQUEST)),  # a tie is the request quota's
        (10_600_000, (600, PRODUCE)),
    ):
        manager = QuotaManager(of, CONFIG)
        assert manager.check(produce(size), 0, 105 * S_NS // 100) == expected
        # Produced is produced: the bytes stay.
        assert manager.rate_per_s(PRODUCE, "u", "app", 0) == size / 10


def test_the_request_throttle_is_capped_and_skipped_without_acks() -> None:
    manager = QuotaManager(limits({REQUEST: 10.0}), CONFIG)
    assert manager.check(produce(1, acks=0), 0, 9 * S_NS) == NOTHING
    assert manager.rate_per_s(REQUEST, "u", "app", 0) == 0.0
    # 150 in 10 s are 15 %: 5,000 ms, at most 1,000.
    assert manager.check(produce(1), 0, 3 * S_NS // 2) == (1_000, REQUEST)


def test_a_throttled_fetch_is_taken_back() -> None:
    manager = QuotaManager(limits({FETCH: 1_000_000.0}), CONFIG)
    assert manager.on_response(fetch(), 0, response_bytes=8_000_000) == NOTHING
    # 12 MB in 10.2 s are 1,176,470.6 B/s: (12 - 10.2) s.
    assert manager.on_response(fetch(), 200, response_bytes=4_000_000) == (1_800, FETCH)
    assert manager.rate_per_s(FETCH, "u", "app", 200) == 8_000_000 / 10.2  # 784,313.7


def test_a_fetch_that_only_the_request_quota_throttles_is_taken_back_too() -> None:
    manager = QuotaManager(limits({FETCH: 1_000_000.0, REQUEST: 10.0}), CONFIG)
    applied = manager.on_response(fetch(), 0, response_bytes=4_000_000, thread_time_ns=105 * S_NS // 100)
    assert applied == (500, REQUEST)
    assert manager.rate_per_s(FETCH, "u", "app", 0) == 0.0
    # Its thread time is not taken back: 105 in 10 s.
    assert manager.rate_per_s(REQUEST, "u", "app", 0) == 10.5


def test_followers_are_not_charged() -> None:
    manager = QuotaManager(limits({FETCH: 1.0, REQUEST: 1.0}), CONFIG)
    follower = Request(Api.FETCH, "broker", "broker-2", 1, is_follower=True, size_bytes=52_428_800)
    assert manager.on_response(follower, 0, response_bytes=99_000_000, thread_time_ns=9 * S_NS) == NOTHING
    assert manager.fetch_max_bytes(follower) == 52_428_800


def test_a_fetch_may_be_charged_with_the_size_it_asks_for() -> None:
    manager = QuotaManager(limits({FETCH: 1_000_000.0}), CONFIG, charges_requested_fetch=True)
    assert manager.check(fetch(12_000_000), 0) == (2_000, FETCH)
    assert manager.on_response(fetch(12_000_000), 5, response_bytes=7) == NOTHING
    assert manager.rate_per_s(FETCH, "u", "app", 5) == 12_000_000 / 10.005


def test_other_requests_have_the_request_quota_only() -> None:
    manager = QuotaManager(limits({PRODUCE: 1.0, FETCH: 1.0, REQUEST: 10.0}), CONFIG)
    metadata = Request(Api.METADATA, "u", "app", 1, 12, size_bytes=500)
    assert manager.check(metadata, 0) == NOTHING
    assert manager.on_response(metadata, 0, thread_time_ns=S_NS) == NOTHING
    assert manager.on_response(metadata, 0, thread_time_ns=S_NS // 100) == (100, REQUEST)
    # A broker's own request is exempt.
    markers = Request(Api.WRITE_TXN_MARKERS, "u", "app", 1)
    assert manager.on_response(markers, 0, thread_time_ns=9 * S_NS) == NOTHING


def test_topics_take_the_longer_of_mutations_and_request_time() -> None:
    manager = QuotaManager(limits({MUTATION: 5.0, REQUEST: 10.0}), CONFIG)
    old = Request(Api.CREATE_TOPICS, "u", "app", 1, version=5)
    charge = manager.mutation_charge(old)
    assert charge.take(60, 1_000)
    # -5 tokens are 1,000 ms, of which 300 are over; the request quota's throttle is 100 ms.
    applied = manager.on_response(old, 1_300, thread_time_ns=101 * S_NS // 100, mutations=charge)
    assert applied == (700, MUTATION)
    # The strict version is refused while below 0, and shares the bucket.
    new = Request(Api.CREATE_TOPICS, "u", "app", 1, version=6)
    refused = manager.mutation_charge(new)
    assert not refused.take(1, 1_300)
    assert manager.on_response(new, 1_300, mutations=refused).throttle_ms == 700


def test_new_limits_judge_the_old_history() -> None:
    manager = QuotaManager(limits({PRODUCE: 1_000_000.0}), CONFIG)
    assert manager.check(produce(8_000_000), 0) == NOTHING
    manager.limits = limits({PRODUCE: 500_000.0})
    # 8,000,001 B in 10 s at 500,000 B/s: 16,000.002 - 10,000 ms.
    assert manager.check(produce(1), 0) == (6_000, PRODUCE)
    manager.limits = limits({})
    assert manager.check(produce(90_000_000), 0) == NOTHING
    # Without a limit it is measured all the same.
    assert manager.rate_per_s(PRODUCE, "u", "app", 0) == 9_800_000.1


def test_quotas_can_be_off_for_one_client() -> None:
    of: Limits = lambda _, __, client_id: Limit(client_id, None if client_id == "free" else 1.0)  # noqa: E731
    manager = QuotaManager(of, CONFIG)
    assert manager.check(produce(100, "free"), 0) == NOTHING
    assert manager.check(produce(100, "app"), 0) == (90_000, PRODUCE)


def test_quotas_can_be_off_for_the_cluster() -> None:
    manager = QuotaManager(limits(dict.fromkeys(QuotaType, 1.0)), CONFIG)
    manager.is_enabled = False
    assert manager.check(produce(1_000), 0, S_NS) == NOTHING
    assert manager.on_response(fetch(), 0, response_bytes=1_000) == NOTHING
    assert manager.fetch_max_bytes(fetch()) == 52_428_800
    charge = manager.mutation_charge(Request(Api.CREATE_TOPICS, "u", "app", 1, version=7))
    assert charge.take(1_000, 0) and charge.take(1_000, 0)
    manager.is_enabled = True
    # Nothing was measured meanwhile.
    assert manager.rate_per_s(PRODUCE, "u", "app", 0) == 0.0
    assert manager.fetch_max_bytes(fetch()) == 10


def test_switching_quotas_off_and_on_pays_no_debt_of_mutations() -> None:
    manager = QuotaManager(limits({MUTATION: 5.0}), CONFIG)
    create = Request(Api.CREATE_TOPICS, "u", "app", 1, version=7)
    assert manager.mutation_charge(create).take(60, 1_000)
    manager.is_enabled = False
    assert manager.mutation_charge(create).take(60, 1_000)
    manager.is_enabled = True
    assert not manager.mutation_charge(create).take(1, 1_999)
    assert manager.mutation_charge(create).take(1, 2_000)


def test_clients_of_one_bucket_share_its_limit() -> None:
    manager = QuotaManager(lambda _, user, __: Limit(user, 1_000_000.0), CONFIG)
    assert manager.check(produce(8_000_000, "a"), 0) == NOTHING
    assert manager.check(produce(4_000_000, "b"), 0) == (2_000, PRODUCE)


def test_quotas_of_a_cluster_limit_the_manager_as_of_a_moment() -> None:
    edits = [
        QuotaChange(Entity("u"), QuotaKey.PRODUCER_BYTE_RATE, 1e6, None, 0, 1),
        QuotaChange(Entity("u"), QuotaKey.PRODUCER_BYTE_RATE, 2e6, 1e6, 50_000, 2),
    ]
    governor = RuleGovernor(RuleBook(rule_periods(edits)))
    manager = QuotaManager(governed_limits(governor, 1, 0), CONFIG)
    # One bucket for all client ids of the user: 9 MB and 6 MB in 10 s, 15 - 10 = 5 s at 1 MB/s.
    assert manager.check(produce(9_000_000, "a"), 0) == NOTHING
    assert manager.check(produce(6_000_000, "b"), 0) == (5_000, PRODUCE)
    manager.limits = governed_limits(governor, 1, 50_000)
    assert manager.check(produce(0, "c"), 0) == NOTHING  # 15 MB in 10 s are 1.5 MB/s
