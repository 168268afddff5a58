"""What policies look at is what the tables say: of one cluster, one source, and the period asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Event, LogEntry, Mode, Quota, StepId
from kquota_spark.enforce.guard_settings import Bounds, GuardSettings
from kquota_spark.enforce.policies.observations import (
    BrokerUse,
    BucketUse,
    ClientUse,
    InForce,
    Observations,
    Place,
    RateSeconds,
)
from kquota_spark.enforce.policies.policy import DAY_MS, Penalty, Policies
from kquota_spark.enforce.policies.proposing import proposals
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.enforcement.input import observations
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from tests.support.enforcement.enforced_world import ALICE as FOR_A_TIME
from tests.support.enforcement.enforced_world import BOB as FOR_GOOD
from tests.support.enforcement.enforced_world import proposal
from tests.support.tables.table_rows import T0_MS, decision, second, source, usage, violation, write_table

MINUTE = 60_000
NOW_MS = T0_MS + 65_000
ALICE = Place(1, QuotaType.PRODUCE, Bucket("alice", ""))
WRITE, READ = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
POLICIES = Policies(
    guards=GuardSettings(bounds={WRITE.value: Bounds(floor=100_000.0, ceiling=1e8)}),
    policies=(
        Penalty(name="offenders", kind="penalty", within=Duration(MINUTE), expires_after=Duration(MINUTE)),
    ),
)
OVER: dict[str, Any] = {
    "rate_per_s": 1_500_000.0,
    "amount": 2_000_000,
    "throttled_requests": 3,
    "observed_throttled_requests": 3,
    "total_throttle_ms": 700,
}
RULE = {
    "cluster_id": "demo", "level": 3, "entity": "users/alice", "user": "alice", "version": 1, "source": "zookeeper",
}  # fmt: skip


def _rule(from_s: int, to_s: int | None, **quotas: float) -> dict[str, Any]:
    return {
        **RULE, "valid_from": second(from_s), "valid_to": None if to_s is None else second(to_s), **quotas
    }  # fmt: skip


def _observed(
    root: Path,
    *decisions: dict[str, Any],
    usages: tuple[dict[str, Any], ...] = (),
    violations: tuple[dict[str, Any], ...] = (),
    rules: tuple[dict[str, Any], ...] = (),
) -> Observations:
    write_table(root, "decisions", *decisions)
    write_table(root, "usage", *usages)
    write_table(root, "violations", *violations)
    write_table(root, "quota_rules", source(64), *rules)
    return observations(Settings(cluster_id="demo", tables=str(root)), POLICIES, NOW_MS)


def test_a_bucket_s_seconds_become_its_use(tmp_path: Path) -> None:
    quiet = [decision(offset) for offset in range(1, 57)]  # 56 seconds of 1,000 bytes at 250,000 B/s
    found = _observed(
        tmp_path,
        decision(0, rate_per_s=999.0),  # before the minute
        *quiet,
        decision(57, is_certain=False, requests=4, uncertain=3),
        decision(58, is_rules_behind=True),
        decision(59, **{**OVER, "is_certain": False, "requests": 5, "uncertain": 1}),
        decision(60, **OVER),
        decision(60, requests=0, amount=0, limit_per_s=None, rule=None, rate_per_s=0.0, late=2),
        violations=(violation(-9, 3), violation(-3, 4, peak_quota_used_percent=310.0), violation(59, None)),
    )
    period = found.periods[MINUTE]
    assert (period.from_ms, period.to_ms) == (T0_MS + 1_000, T0_MS + 61_000)
    (use,) = period.buckets
    assert use == BucketUse(
        place=ALICE,
        limit_per_s=1_000_000.0,
        rule=Entity(user="alice"),
        has_one_limit=True,
        seconds=60,
        certain_seconds=57,  # 57 + 1/4 + 4/5 are 58.05, none behind the rules, less one for what came late
        throttled_seconds=2,
        observed_throttled_seconds=2,
        mean_rate_per_s=(58 * 1_000 + 2 * 2_000_000) / 60,
        peak_rate_per_s=1_500_000.0,
        p95_rate_per_s=250_000.0,
        throttled_rate_per_s=1_500_000.0,
        throttle_ms=1_400,
        episodes=2,  # the one that ended at -6 s is over
        peak_used_percent=310.0,
    )
    assert found.rates == {
        ALICE: (RateSeconds(1_000.0, 1), RateSeconds(250_000.0, 58), RateSeconds(1_500_000.0, 2))
    }


def test_throttles_count_as_far_as_they_lie_in_the_period(tmp_path: Path) -> None:
    # Two waits of ten minutes: 41 s of the first are in the minute that ends at 60 s, and 1 s of the second.
    long = {"throttled_requests": 1, "total_throttle_ms": 600_000}
    found = _observed(tmp_path, decision(19, **long), decision(59, **long))
    assert [use.throttle_ms for use in found.periods[MINUTE].buckets] == [42_000]


def test_rates_are_kept_with_two_digits(tmp_path: Path) -> None:
    rates = (1_234_567.0, 1_244_999.0, 1_250_001.0, 9.96, 0.0)
    found = _observed(
        tmp_path, *(decision(offset, rate_per_s=rate) for offset, rate in enumerate(rates))
    ).rates
    assert found[ALICE] == (
        RateSeconds(0.0, 1),
        RateSeconds(10.0, 1),
        RateSeconds(1_200_000.0, 2),
        RateSeconds(1_300_000.0, 1),
    )


def test_other_clusters_callbacks_and_connections_are_left_out(tmp_path: Path) -> None:
    found = _observed(
        tmp_path,
        decision(0),
        decision(1, cluster_id="other"),
        decision(1, bucket_tags='{"group":"pay"}', bucket_user=""),
        decision(1, quota_type="connection", bucket_user=""),
        usages=(usage(0), usage(0, cluster_id="other", user="eve"), usage(0, quota_type="connection")),
    )
    assert [use.place for use in found.periods[DAY_MS].buckets] == [ALICE]
    assert [client.user for client in found.clients] == ["alice"]


def test_samples_of_jmx_count_only_where_the_log_tells_nothing(tmp_path: Path) -> None:
    sample = {
        "source": "jmx", "requests": None, "amount": None, "throttled_requests": None, "total_throttle_ms": None,
        "observed_throttled_requests": None, "is_certain": False, "observed_throttle_ms": 12, "rate_per_s": 7e5,
    }  # fmt: skip
    found = _observed(
        tmp_path,
        decision(0),
        decision(1, **sample),
        decision(6, broker_id=2, **sample),
        usages=(
            usage(0, amount=5_000),
            usage(0, source="jmx", amount=None, rate_per_s=7e5),
            usage(0, broker_id=2, source="jmx", amount=None, rate_per_s=7e5),
            usage(5, broker_id=2, source="jmx", amount=None, rate_per_s=5e5),
        ),
    )
    first, other = found.periods[MINUTE].buckets
    assert (first.seconds, first.peak_rate_per_s) == (1, 250_000.0)
    assert (other.place.broker_id, other.seconds, other.certain_seconds, other.throttled_seconds) == (
        2,
        1,
        0,
        1,
    )
    assert other.mean_rate_per_s == 7e5
    # 5,000 bytes in ten seconds; two samples of one ten seconds: their mean
    assert [broker.p95_rate_per_s for broker in found.brokers] == [500.0, 600_000.0]


def test_a_limit_that_changed_or_came_from_elsewhere_is_told(tmp_path: Path) -> None:
    of_broker = {"rule": "quota.producer.default", "level": 9, "bucket_user": "", "bucket_client_id": "old"}
    free = {"rule": None, "level": None, "limit_per_s": None, "bucket_user": "", "bucket_client_id": "free"}
    found = _observed(
        tmp_path,
        decision(0, limit_per_s=500_000.0),
        decision(1),
        decision(0, **of_broker),
        decision(0, **free),
    )
    uses = {use.place.bucket: use for use in found.periods[MINUTE].buckets}
    alice, old, none = (uses[Bucket(*names)] for names in (("alice", ""), ("", "old"), ("", "free")))
    assert (alice.limit_per_s, alice.has_one_limit) == (1_000_000.0, False)
    assert (old.limit_per_s, old.rule) == (1_000_000.0, None)
    assert (none.limit_per_s, none.rule, none.has_one_limit) == (None, None, True)


def test_clients_and_brokers_are_added_up_over_ten_seconds(tmp_path: Path) -> None:
    found = _observed(
        tmp_path,
        decision(40),
        usages=(
            usage(0, amount=40_000),
            usage(0, amount=10_000, tile=1),
            usage(9, amount=50_000),  # 100,000 in the first ten seconds
            usage(10, amount=70_000),
            usage(3, amount=30_000, user="bob"),  # 130,000 of both
            usage(3, amount=2_000_000, user="bob", quota_type="request"),  # 2 s of a thread in ten: 20 %
        ),
    )
    alice = {"broker_id": 1, "quota_type": QuotaType.PRODUCE, "user": "alice", "client_id": "etl"}
    assert found.clients == (
        ClientUse(**alice, peak_rate_per_s=10_000.0),  # type: ignore[arg-type]
        ClientUse(**{**alice, "user": "bob"}, peak_rate_per_s=3_000.0),  # type: ignore[arg-type]
        ClientUse(**{**alice, "user": "bob", "quota_type": QuotaType.REQUEST}, peak_rate_per_s=20.0),  # type: ignore[arg-type]
    )
    assert found.brokers == (
        BrokerUse(broker_id=1, quota_type=QuotaType.PRODUCE, p95_rate_per_s=13_000.0),
        BrokerUse(broker_id=1, quota_type=QuotaType.REQUEST, p95_rate_per_s=20.0),
    )


def test_quotas_in_force_and_since_when(tmp_path: Path) -> None:
    found = _observed(
        tmp_path,
        decision(0),
        rules=(
            _rule(-900, -600),
            _rule(-600, -300, producer_byte_rate=2e6),
            _rule(-300, -100, producer_byte_rate=1e6),
            _rule(-100, 90, producer_byte_rate=1e6, consumer_byte_rate=3e6),
            _rule(90, None, producer_byte_rate=9e6),  # not yet
        ),
    )
    assert found.quotas == {
        Quota(Entity(user="alice"), WRITE): InForce(1e6, T0_MS - 300_000),
        Quota(Entity(user="alice"), READ): InForce(3e6, T0_MS - 100_000),
    }


@pytest.mark.parametrize("client_id", ["etl", "kquota-evil"])
def test_an_offender_in_the_tables_gets_a_penalty_whatever_it_calls_itself(
    tmp_path: Path, client_id: str
) -> None:
    found = _observed(
        tmp_path,
        *(decision(offset, **{**OVER, "total_throttle_ms": 11_000}) for offset in range(60)),
        usages=(usage(59, client_id=client_id),),
        violations=tuple(violation(10 * number, 2) for number in range(6)),
        rules=(_rule(-900, None, producer_byte_rate=1e6),),
    )
    (penalty,) = proposals(POLICIES, found, NOW_MS)
    assert (penalty.quota, penalty.before, penalty.after) == (
        Quota(Entity(user="alice"), WRITE), 1e6, 500_000.0
    )  # fmt: skip
    # 60 seconds of 2,000,000 bytes under a limit of 1,000,000
    assert penalty.reason.startswith(
        "took 200 % of its limit on broker 1 since 2026-11-21 05:40 UTC: 6 episodes"
    )
    assert penalty.evidence.certain_seconds == penalty.evidence.seconds == 60
    assert "about 60 of 60 seconds" in penalty.would_have


def test_what_ends_by_itself_is_read_from_the_log_of_enforcement(tmp_path: Path) -> None:
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    log = EnforcementLog(settings)
    penalty, lasting = proposal(lasts_ms=MINUTE, quota=FOR_A_TIME), proposal(quota=FOR_GOOD)

    def write(*events: Event) -> None:
        log.append(
            [
                LogEntry(StepId("p-1", step), event, T0_MS, wanted, Mode.ENFORCE, "enforcer", fencing=1)
                for event in events
                for step, wanted in enumerate((penalty, lasting), 1)
            ]
        )

    write(Event.PLANNED)
    assert _observed(tmp_path).temporary == frozenset()
    write(Event.SENDING)  # it may have been done
    assert observations(settings, POLICIES, NOW_MS).temporary == {FOR_A_TIME}
    write(Event.APPLIED)
    assert observations(settings, POLICIES, NOW_MS).temporary == {FOR_A_TIME}
    write(Event.RESTORING, Event.RESTORED)
    assert observations(settings, POLICIES, NOW_MS).temporary == frozenset()


def test_tables_that_know_nothing_give_nothing_and_without_tables_it_is_an_error(tmp_path: Path) -> None:
    found = _observed(tmp_path)
    assert found.decisions_from_ms is None
    assert proposals(POLICIES, found, NOW_MS) == []
    with pytest.raises(UserError, match="does not exist"):
        observations(Settings(tables=str(tmp_path / "none")), POLICIES, NOW_MS)


def test_what_we_use_ourselves_is_marked_and_hidden_from_no_policy(tmp_path: Path) -> None:
    ours, of_user = {"bucket_user": "", "bucket_client_id": "kquota-enforcer"}, {"bucket_user": "kquota"}
    found = _observed(
        tmp_path,
        *(decision(60, **{**bucket, "rule": None, "limit_per_s": None}) for bucket in (ours, of_user)),
        decision(60, bucket_user="", bucket_client_id="kquotas", rule=None, limit_per_s=None),
        decision(60),
        usages=(
            usage(60, user="ANONYMOUS", client_id="kquota-enforcer"),
            usage(60, user="kquota", client_id="kquota-audit"),
            usage(60, user="ANONYMOUS", client_id="kquotas"),
            usage(60, user="alice", client_id="kquota-admin"),
            usage(60, user="alice", client_id="etl"),
        ),
    )
    assert [(one.user, one.client_id, one.is_ours) for one in found.clients] == [
        ("ANONYMOUS", "kquota-enforcer", True),
        ("ANONYMOUS", "kquotas", False),
        ("alice", "etl", False),
        ("alice", "kquota-admin", True),
        ("kquota", "kquota-audit", True),
    ]
    assert [(use.place.bucket, use.is_ours) for use in found.periods[MINUTE].buckets] == [
        (Bucket("", "kquota-enforcer"), True),
        (Bucket("", "kquotas"), False),
        (Bucket("alice", ""), False),  # only a part of it is ours
        (Bucket("kquota", ""), True),
    ]
    assert [place.bucket for place in found.rates] == [
        Bucket("", "kquota-enforcer"),
        Bucket("", "kquotas"),
        Bucket("alice", ""),
        Bucket("kquota", ""),
    ]
