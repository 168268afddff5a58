"""Two throttles become one, and requests are charged or exempt, as in Kafka's request handlers."""

from __future__ import annotations

import math

import pytest

from kquota_spark.model.measure.apis import (
    Api,
    does_client_hold_back,
    is_mutation,
    is_request_quota_exempt,
    is_strict_mutation,
)
from kquota_spark.model.measure.combining import combined, does_cap_fetch, fetch_max_bytes
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType

REQUEST = QuotaType.REQUEST


@pytest.mark.parametrize("own", [QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.CONTROLLER_MUTATION])
def test_the_longer_throttle_wins_and_a_tie_is_the_request_quotas(own: QuotaType) -> None:
    assert combined(own, 300, 200) == (300, own)
    assert combined(own, 200, 300) == (300, REQUEST)
    assert combined(own, 300, 300) == (300, REQUEST)
    assert combined(own, 1, 0) == (1, own)
    assert combined(own, 0, 0) == (0, None)


def test_what_overflowed_below_zero_throttles_nobody() -> None:
    assert combined(QuotaType.PRODUCE, -1, 0) == (0, None)
    assert combined(QuotaType.PRODUCE, -1, -5) == (0, None)
    assert combined(QuotaType.PRODUCE, -1, 7) == (7, REQUEST)


@pytest.mark.parametrize(
    ("limit", "requested", "most"),
    [
        (1_000_000.0, 52_428_800, 10_000_000),  # 10 of 11 windows of 1 s
        (1_000_000.0, 5_000_000, 5_000_000),
        (None, 52_428_800, 52_428_800),
        (2.0**63, 52_428_800, 52_428_800),
        (math.inf, 52_428_800, 52_428_800),
        (math.nan, 52_428_800, 0),
        (0.0, 52_428_800, 0),
        (-math.inf, 52_428_800, -2_147_483_648),
    ],
)
def test_a_fetch_is_capped_to_what_a_cold_bucket_lets_pass(
    limit: float | None, requested: int, most: int
) -> None:
    assert fetch_max_bytes(requested, limit, RateConfig()) == most


def test_the_cap_goes_with_the_windows() -> None:
    # (5 - 1) * 2 s * 1,000 B/s; with one window nothing fits, and a first batch is sent whole.
    assert fetch_max_bytes(52_428_800, 1_000.0, RateConfig(5, 2_000)) == 8_000
    assert fetch_max_bytes(52_428_800, 1_000.0, RateConfig(1, 1_000)) == 0


@pytest.mark.parametrize(("version", "does"), [("2.4.1", False), ("2.5.0", True), ("3.9.1", True)])
def test_brokers_cap_since_2_5(version: str, does: bool) -> None:
    assert does_cap_fetch(version) is does


def test_who_is_exempt_from_the_request_quota() -> None:
    assert is_request_quota_exempt(Api.PRODUCE, acks=0)
    assert not is_request_quota_exempt(Api.PRODUCE, acks=1)
    assert is_request_quota_exempt(Api.FETCH, is_follower=True)
    assert not is_request_quota_exempt(Api.FETCH)
    # The handlers of Kafka 3.9.1's KafkaApis that answer without throttling.
    exempt = {api.value for api in Api if is_request_quota_exempt(api)}
    assert exempt == {4, 5, 6, 7, 27, 56}


@pytest.mark.parametrize(
    ("api", "first_strict"), [(Api.CREATE_TOPICS, 6), (Api.DELETE_TOPICS, 5), (Api.CREATE_PARTITIONS, 3)]
)
def test_mutations_are_strict_from_a_version_on(api: Api, first_strict: int) -> None:
    assert is_mutation(api)
    assert not is_strict_mutation(api, first_strict - 1)
    assert is_strict_mutation(api, first_strict)


def test_nothing_else_is_a_mutation() -> None:
    assert [api for api in Api if is_mutation(api)] == [
        Api.CREATE_TOPICS,
        Api.DELETE_TOPICS,
        Api.CREATE_PARTITIONS,
    ]
    assert not is_strict_mutation(Api.PRODUCE, 99)


@pytest.mark.parametrize(
    ("api", "version"),
    [  # read from the response classes of kafka-clients 3.9.1
        (Api.PRODUCE, 6),
        (Api.FETCH, 8),
        (Api.METADATA, 6),
        (Api.LIST_OFFSETS, 3),
        (Api.OFFSET_COMMIT, 4),
        (Api.OFFSET_FETCH, 4),
        (Api.FIND_COORDINATOR, 2),
        (Api.JOIN_GROUP, 3),
        (Api.SYNC_GROUP, 2),
        (Api.LEAVE_GROUP, 2),
        (Api.HEARTBEAT, 2),
        (Api.API_VERSIONS, 2),
        (Api.CREATE_TOPICS, 3),
        (Api.DELETE_TOPICS, 2),
        (Api.CREATE_PARTITIONS, 1),
    ],
)
def test_clients_hold_back_from_a_version_on(api: Api, version: int) -> None:
    assert not does_client_hold_back(api, version - 1)
    assert does_client_hold_back(api, version)


def test_brokers_do_not_hold_back_among_themselves() -> None:
    assert not does_client_hold_back(Api.LEADER_AND_ISR, 7)
