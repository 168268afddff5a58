"""A default is proposed for traffic that no quota holds for, with whom it would have throttled."""

from __future__ import annotations

from dataclasses import replace

from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.guard_settings import Bounds, Exempt, GuardSettings
from kquota_spark.enforce.policies.observations import InForce
from kquota_spark.enforce.policies.policy import DefaultQuota
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from tests.support.enforcement.observed_uses import WRITE, client, only, place, seen, use, wanted

OF_CLIENTS = DefaultQuota(name="default", kind="default", values={"producer_byte_rate": 5_000_000.0})
OF_USERS = DefaultQuota(
    name="default", kind="default", entity="users/<default>", values={"producer_byte_rate": 5_000_000.0}
)
UNLIMITED = use(place(1, "", "etl"), rule=None, seconds=700, certain_seconds=690)
CLIENTS = (
    client("alice", "etl", 3_000_000.0),
    client("bob", "etl", 2_500_000.0),  # the same bucket as alice's etl: 5,500,000 together
    client("bob", "app", 4_000_000.0),
    client("carol", "app", 4_000_000.0, broker_id=2),  # on another broker: its own bucket there
)


def test_unlimited_client_ids_get_a_default_with_whom_it_would_throttle() -> None:
    found = only(wanted(OF_CLIENTS, seen(UNLIMITED, clients=CLIENTS)))
    assert found.quota == Quota(Entity(client_id=DEFAULT), WRITE)
    assert (found.before, found.after, found.expires_at_ms) == (None, 5_000_000.0, None)
    assert found.reason == (
        "2 client ids have no producer_byte_rate, and up to 5,500,000 B/s on a broker went through unlimited: "
        "5,000,000 B/s for each of them on each broker"
    )
    assert found.would_have == (
        "in the last day it would have throttled at most 1 of 2 client ids: an estimate from rates over ten "
        "seconds, not the broker's ring"
    )
    assert (found.evidence.seconds, found.evidence.certain_seconds) == (700, 690)
    assert found.evidence.numbers == {
        "names_without_quota": 2,
        "names_over_it": 1,
        "peak_rate_per_s": 5_500_000.0,
    }


def test_of_users_each_user_is_one_bucket() -> None:
    found = only(wanted(OF_USERS, seen(UNLIMITED, clients=CLIENTS)))
    assert found.quota == Quota(Entity(user=DEFAULT), WRITE)
    # alice 3.0, bob 2.5 + 4.0 = 6.5, carol 4.0
    assert found.evidence.numbers == {
        "names_without_quota": 3,
        "names_over_it": 1,
        "peak_rate_per_s": 6_500_000.0,
    }


def test_who_has_a_quota_is_not_counted_and_if_all_have_none_is_proposed() -> None:
    of_etl = {Quota(Entity(client_id="etl"), WRITE): InForce(1e6, 0)}
    found = only(wanted(OF_CLIENTS, seen(UNLIMITED, clients=CLIENTS, quotas=of_etl)))
    assert found.evidence.numbers["names_without_quota"] == 1
    of_all = {**of_etl, Quota(Entity(client_id="app"), WRITE): InForce(1e6, 0)}
    assert wanted(OF_CLIENTS, seen(UNLIMITED, clients=CLIENTS, quotas=of_all)) == []
    assert wanted(OF_CLIENTS, seen(UNLIMITED, clients=())) == []


def test_a_default_that_is_set_is_left_alone() -> None:
    is_set = {Quota(Entity(client_id=DEFAULT), WRITE): InForce(1e9, 0)}
    assert wanted(OF_CLIENTS, seen(UNLIMITED, clients=CLIENTS, quotas=is_set)) == []


def test_a_default_of_users_is_not_proposed_where_it_would_go_before_quotas_of_client_ids() -> None:
    for entity in (Entity(client_id="other"), Entity(client_id=DEFAULT)):
        of_clients = {Quota(entity, WRITE): InForce(100_000.0, 0)}
        assert wanted(OF_USERS, seen(UNLIMITED, clients=CLIENTS, quotas=of_clients)) == []


def test_an_exempt_name_under_it_keeps_it_away() -> None:
    observed = seen(UNLIMITED, clients=CLIENTS)
    assert wanted(OF_CLIENTS, observed, Exempt(users=("carol",))) == []
    assert wanted(OF_CLIENTS, observed, Exempt(patterns=("et.",))) == []
    assert wanted(OF_CLIENTS, observed, Exempt(users=("dave",)))
    with_own = {Quota(Entity(user="carol"), WRITE): InForce(1e9, 0)}
    assert wanted(OF_CLIENTS, seen(UNLIMITED, clients=CLIENTS, quotas=with_own), Exempt(users=("carol",)))


def test_a_client_without_an_id_is_not_held_by_a_default_of_client_ids() -> None:
    nameless = (client("alice", ""),)
    assert wanted(OF_CLIENTS, seen(UNLIMITED, clients=nameless)) == []
    assert wanted(OF_USERS, seen(UNLIMITED, clients=nameless))


def test_a_client_that_did_nothing_in_the_last_day_is_not_counted() -> None:
    assert wanted(OF_CLIENTS, seen(UNLIMITED, clients=(client("alice", "etl", 0.0),))) == []


def test_the_bounds_hold() -> None:
    guards = GuardSettings(bounds={WRITE.value: Bounds(floor=1.0, ceiling=4_999_999.0)})
    assert wanted(OF_CLIENTS, seen(UNLIMITED, clients=CLIENTS), guards=guards) == []


def test_a_default_is_not_proposed_for_less_than_a_hundredth_of_the_traffic() -> None:
    limited = use(place(1, "alice", ""), mean_rate_per_s=990_001.0)
    little = use(place(1, "", "etl"), rule=None, mean_rate_per_s=9_999.0)  # 9,999 of 1,000,000 B/s: 0.9999 %
    enough = use(place(1, "", "etl"), rule=None, mean_rate_per_s=10_001.0)  # 10,001 of 1,000,002 B/s
    assert wanted(OF_CLIENTS, seen(limited, little, clients=CLIENTS)) == []
    assert wanted(OF_CLIENTS, seen(limited, enough, clients=CLIENTS))


def test_our_own_traffic_is_no_reason_for_a_default_and_no_part_of_one() -> None:
    ours = replace(client("kquota", "kquota-audit", 9_000_000.0), is_ours=True)
    of_ours = replace(use(place(1, "", "kquota-audit"), rule=None, seconds=900), is_ours=True)
    assert wanted(OF_CLIENTS, seen(of_ours, clients=(ours,))) == []
    assert wanted(OF_CLIENTS, seen(UNLIMITED, of_ours, clients=(*CLIENTS, ours))) == wanted(
        OF_CLIENTS, seen(UNLIMITED, clients=CLIENTS)
    )


def test_our_own_clients_keep_a_default_away_where_they_are_exempt() -> None:
    ours = replace(client("kquota", "kquota-audit", 9_000_000.0), is_ours=True)
    assert wanted(OF_CLIENTS, seen(UNLIMITED, clients=(*CLIENTS, ours)), Exempt(users=("kquota",))) == []
