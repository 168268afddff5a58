"""What the report says to do, with the arithmetic of every value, and the command that would do it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from kquota_spark.cli.chosen.entity_options import asked_entity
from kquota_spark.cli.main import parser
from kquota_spark.cli.quotas import alter
from kquota_spark.enforce.changes import Quota
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey
from kquota_spark.reports.advice.quota_command import alter_command
from kquota_spark.reports.advice.raise_reasons import Case, alternatives_of
from kquota_spark.reports.advice.throttle_causes import Use, Uses, cause_of
from kquota_spark.reports.scope.shared_rows import Alternative, BucketName, Recommendation, ThrottledBucket
from kquota_spark.store.rows import entity_columns
from tests.support.reports.gathered_report import Row, gathered, rule, throttled
from tests.support.tables.report_tables import HOSTILE
from tests.support.tables.table_rows import decision, second, usage

ALICE = Entity(user="alice")
PRODUCE = "producer_byte_rate"
OF_ALICE = rule(ALICE, producer_byte_rate=1e6)


def _todo(
    root: Path, rows: list[Row], *, seconds: int = 100, usages: Sequence[Row] = (), quota_rules: Sequence[Row]
) -> list[Recommendation]:
    page = gathered(root, decisions=rows, seconds=seconds, usages=usages, quota_rules=quota_rules)
    return list(page.recommendations)


def _steady(offset_s: int, throttle_ms: int = 100, **changed: object) -> Row:
    """A throttled second with as many bytes as its rate."""
    return throttled(offset_s, throttle_ms, amount=1_100_000, **changed)


def test_who_is_throttled_much_is_to_be_raised_to_what_it_wanted_about(tmp_path: Path) -> None:
    # 80 seconds of 1,100,000 B/s, 60 of them throttled: demand 1,100,000 x (1 + 0.75) = 1,925,000; two digits, up
    rows = [_steady(at_s) for at_s in range(60)]
    rows += [decision(at_s, rate_per_s=900_000.0, amount=900_000) for at_s in range(60, 80)]
    assert _todo(tmp_path, rows, quota_rules=[OF_ALICE]) == [
        Recommendation(
            entity="users/alice",
            key=PRODUCE,
            present=1e6,
            recommended=2_000_000.0,
            reason="throttled in 75 % of 80 seconds with traffic on broker 1 under 1,000,000 B/s. It got 1,100,000 "
            "B/s, and it wanted about 2,000,000 B/s by the share of its time throttled",
            command="kquota alter --name user=alice --add producer_byte_rate=2000000 --dry-run",
            delay_ms=6_000,  # 60 x 100 ms
            cause="a steady load above the limit",
            confidence="fair: it was throttled half of the time or more",
            expected="not known: no request of it is replayed",  # usage has no requests of alice's
            headroom="45 % of the value is above what it got",  # 900,000 of 2,000,000
            alternatives=(
                Alternative("compress and batch at the client (compression.type, linger.ms, batch.size)"),
                Alternative(
                    "the value for two hours only",
                    "kquota override set --user=alice --key producer_byte_rate --value 2000000 --for 2h --reason "
                    "throttled",
                ),
            ),
            brokers=(1,),
            bucket=BucketName("produce", "alice", ""),
            estimate="share of throttled seconds",
        )
    ]


def test_a_limit_of_a_default_is_raised_for_the_one_and_not_for_all(tmp_path: Path) -> None:
    of_default: Row = {"bucket_user": "", "bucket_client_id": "etl", "rule": "clients/<default>", "level": 8}
    rows = [throttled(at_s, 100, **of_default) for at_s in range(60)]
    (one,) = _todo(tmp_path, rows, quota_rules=[rule(Entity(client_id=DEFAULT), producer_byte_rate=1e6)])
    assert (one.entity, one.recommended) == ("clients/etl", 2_200_000.0)  # 1,100,000 x 2
    assert "under 1,000,000 B/s of clients/<default>." in one.reason
    assert one.command == "kquota alter --name client-id=etl --add producer_byte_rate=2200000 --dry-run"


def test_seconds_under_an_older_limit_say_nothing_of_the_present_one(tmp_path: Path) -> None:
    # It was raised already: under the new limit nothing is throttled.
    rows = [throttled(at_s) for at_s in range(40)]
    rows += [decision(at_s, limit_per_s=2e6) for at_s in range(40, 100)]
    assert _todo(tmp_path, rows, quota_rules=[rule(ALICE, producer_byte_rate=2e6)]) == []


def test_a_minute_of_traffic_is_the_least_and_a_fifth_of_it_in_throttle(tmp_path: Path) -> None:
    short = [throttled(at_s) for at_s in range(59)]
    little = [throttled(at_s, bucket_user="bob") for at_s in range(20)]
    little += [decision(at_s, bucket_user="bob") for at_s in range(20, 100)]
    assert _todo(tmp_path, short + little, quota_rules=[OF_ALICE]) == []


def test_who_takes_more_than_its_limit_all_the_same_is_to_be_looked_at(tmp_path: Path) -> None:
    # 1,210,000 bytes in each of 60 seconds under a limit of 1,000,000 a second
    rows = [throttled(at_s, amount=1_210_000) for at_s in range(60)]
    (one,) = _todo(tmp_path, rows, quota_rules=[OF_ALICE])
    assert (one.recommended, one.command) == (None, "")
    assert "and took 121 % of it. Check the clients before the limit" in one.reason
    assert one.cause == "many connections that wait at once, or clients that do not wait"


def test_a_tenant_is_told_what_to_ask_for_without_a_command(tmp_path: Path) -> None:
    rows = [throttled(at_s) for at_s in range(60)]
    page = gathered(tmp_path, decisions=rows, seconds=100, tenant="alice", quota_rules=[OF_ALICE])
    (one,) = page.recommendations
    assert (one.recommended, one.command) == (2_200_000.0, "")
    assert [other.command for other in one.alternatives] == [""]


def test_the_most_total_delay_comes_first_and_a_cut_is_its_cause(tmp_path: Path) -> None:
    rows = [_steady(at_s, 100) for at_s in range(60)]
    of_bob: Row = {"bucket_user": "bob", "rule": "users/bob", "users": ["bob"]}
    rows += [throttled(at_s, 900, **of_bob) for at_s in range(60)]
    edit = {
        "cluster_id": "demo", **entity_columns(Entity(user="bob")), "key": PRODUCE, "value": 1e6,
        "previous_value": 2e6, "changed_at": second(0), "version": 1, "source": "zookeeper",
        "observed_at": second(0),
    }  # fmt: skip
    page = gathered(
        tmp_path, decisions=rows, seconds=100, quota_changes=[edit],
        quota_rules=[OF_ALICE, rule(Entity(user="bob"), producer_byte_rate=1e6)],
    )  # fmt: skip
    bob, alice = page.recommendations
    assert (bob.entity, bob.delay_ms, alice.entity, alice.delay_ms) == (
        "users/bob",
        54_000,
        "users/alice",
        6_000,
    )
    assert bob.cause == "the limit went from 2.0 MB/s to 1.0 MB/s at 11-21 05:40:00"
    assert bob.confidence.startswith("low: ")
    assert alice.cause == "a steady load above the limit"


@pytest.mark.parametrize(
    ("amount", "cause"),
    [
        # 60 x 1,780,000 in 120 seconds, half of them without traffic: 89 % of 1,000,000 B/s
        (1_780_000, "bursts: its mean rate over the time is 89 % of the limit"),
        (
            9_000,
            "bursts: its mean rate over the time is less than 1 % of the limit",
        ),  # 60 x 9,000 in 120 s: 0.45 %
        (1_800_000, "a steady load above the limit"),  # 60 x 1,800,000 in 120 seconds: 90 %
    ],
)
def test_a_load_with_pauses_is_in_bursts(amount: int, cause: str, tmp_path: Path) -> None:
    rows = [throttled(at_s, amount=amount) for at_s in (*range(30), *range(90, 120))]
    (one,) = _todo(tmp_path, rows, seconds=120, quota_rules=[OF_ALICE])
    assert one.cause == cause


def test_clients_that_share_a_bucket_are_its_cause_and_one_may_get_its_own(tmp_path: Path) -> None:
    rows = [_steady(at_s, client_ids=["a", "b"]) for at_s in range(60)]
    (one,) = _todo(tmp_path, rows, quota_rules=[OF_ALICE])
    assert one.cause == "2 clients share the limit: alice / a, alice / b"
    assert "a quota of its own for one of the clients inside" in one.alternatives[1].text


@pytest.mark.parametrize(
    ("bucket", "count", "clients"),
    [
        (BucketName("produce", "", "etl"), 2, "2 clients"),
        (BucketName("produce", "", "etl"), 4, "4 clients"),
        # Five names are the most of a list, so there may be a sixth.
        (BucketName("produce", "", "etl"), 5, "5 clients or more"),
        # Of a bucket of tags only the users are known, each of them with one client id or several.
        (BucketName("produce", "", "", '{"team": "a"}'), 2, "2 clients or more"),
    ],
)
def test_the_number_of_clients_that_share_a_bucket_is_exact_where_all_are_known(
    bucket: BucketName, count: int, clients: str
) -> None:
    names = tuple(f"u{number} / etl" for number in range(count))
    one = ThrottledBucket(bucket, 1.0, 1, 1, 1, 1.0, 1, 1, None, names)
    cause = cause_of(one, Uses(10.0, None, (Use(1, 60, 60, 1.0, 1.0, 1.0),)), ())
    assert cause is not None
    assert cause.sentence == f"{clients} share the limit: {', '.join(names)}"


@pytest.mark.parametrize(
    "entity", [*(Entity(name, name) for name in HOSTILE), Entity(DEFAULT, DEFAULT), Entity(client_id="-x")]
)
def test_the_override_parses(entity: Entity) -> None:
    one = ThrottledBucket(BucketName("produce", "", ""), 1.0, 1, 1, 1, 1.0, 1, 1, None, ())
    case = Case(one, Quota(entity, QuotaKey.PRODUCER_BYTE_RATE), Uses(10.0, str(entity), ()))
    found = alternatives_of(case, 12.0, is_tenant=False)
    *_, override = found
    options = parser().parse_args(shlex.split(override.command)[1:])
    user = DEFAULT if options.user_default else options.user
    client_id = DEFAULT if options.client_default else options.client_id
    assert Entity(user, client_id) == entity
    assert (options.key, options.value, options.reason) == ("producer_byte_rate", "12", "throttled")


def _unlimited(client_id: str, rate: float, broker_id: int = 1, **changed: object) -> Row:
    return decision(0, bucket_user="", bucket_client_id=client_id, broker_id=broker_id, rate_per_s=rate,
                    limit_per_s=None, quota_used_percent=None, rule=None, level=None, **changed)  # fmt: skip


def test_where_nothing_is_set_it_says_where_to_begin_and_how_many_that_covers(tmp_path: Path) -> None:
    rows = [_unlimited("a", 4e6), _unlimited("a", 4.9e6, 2), _unlimited("b", 5e6), _unlimited("c", 6e6),
            _unlimited("", 1e9), _unlimited("d", 1e6, quota_type="fetch")]  # fmt: skip
    page = gathered(tmp_path, decisions=rows)
    assert page.head.is_first_look
    assert "no quota is set: nobody is limited, and what follows is what everybody used" in page.notes
    produce, fetch, request, connections = page.recommendations
    # 5 MB/s hold a and b on each broker; c went above; an empty client id is nobody's default
    assert produce == Recommendation(
        "clients/<default>", PRODUCE, None, 5e6,
        "5,000,000 B/s for each client id on each broker is where to begin, meant to cover about 80 % of applications; "
        "it would cover 2 of the 3 unlimited client ids seen (66.7 %), the largest went up to 6,000,000 B/s; an empty "
        "client id it does not match: set client.id, or a quota for the user",
        "kquota alter --default client-id --add producer_byte_rate=5000000 --dry-run",
    )  # fmt: skip
    assert "cover 1 of the 1 unlimited client ids seen (100.0 %)" in fetch.reason
    assert (fetch.recommended, request.recommended, connections.recommended) == (15e6, 100.0, 250.0)
    assert request.command == "kquota alter --default client-id --add request_percentage=100 --dry-run"
    assert "request time is measured once a quota of it is set" in request.reason
    assert connections.command == "kquota alter --default ip --add connection_creation_rate=250 --dry-run"
    assert "connections are not in the request log" in connections.reason


def test_unlimited_traffic_beside_quotas_gets_a_default_unless_there_is_one(tmp_path: Path) -> None:
    rows = [_unlimited("a", 1e6), _unlimited("b", 1e6, quota_type="fetch"), decision(1)]
    rules = [OF_ALICE, rule(Entity(client_id=DEFAULT), consumer_byte_rate=1e6)]
    (one,) = _todo(tmp_path, rows, quota_rules=rules)
    assert (one.entity, one.key, one.recommended) == ("clients/<default>", PRODUCE, 5e6)


DAY_S = 86_400


def test_rules_that_do_nothing_for_a_day_are_to_be_removed(tmp_path: Path) -> None:
    rules = [rule(Entity(user="gone"), since_s=-9, producer_byte_rate=7.0, consumer_byte_rate=9.0), OF_ALICE,
             rule(Entity(client_id="etl"), since_s=-9, producer_byte_rate=8.0),
             rule(Entity(user="past"), since_s=-9, until_s=9, producer_byte_rate=7.0)]  # fmt: skip
    used = [usage(at_s) for at_s in (0, DAY_S - 1)]
    shadowed, gone = _todo(
        tmp_path, [decision(0, rate_per_s=6e5)], seconds=DAY_S, usages=used, quota_rules=rules
    )
    assert (shadowed.entity, shadowed.present) == ("clients/etl", 8.0)
    assert shadowed.reason == "it limits nobody: users/alice comes before it"
    assert gone.command == (
        "kquota alter --name user=gone --delete producer_byte_rate --delete consumer_byte_rate --dry-run"
    )
    assert "nobody that it names was seen in 1.0 days of usage" in gone.reason


def test_nobody_is_gone_whom_only_jmx_could_have_told_of(tmp_path: Path) -> None:
    # A broker without a log: its beans name buckets, e.g. that of a default, and not the clients inside.
    rules = [rule(Entity(user="gone"), since_s=-9, producer_byte_rate=7.0), OF_ALICE,
             rule(Entity(client_id="etl"), since_s=-9, producer_byte_rate=8.0)]  # fmt: skip
    of_jmx: Row = {"broker_id": 2, "user": "bob", "amount": None, "requests": None, "source": "jmx"}
    used = [usage(at_s, **changed) for at_s in (0, DAY_S - 1) for changed in ({}, of_jmx)]
    assert _todo(tmp_path, [decision(0, rate_per_s=6e5)], seconds=DAY_S, usages=used, quota_rules=rules) == []


@pytest.mark.parametrize(
    ("peak", "wanted"),
    # one step of 20 % down, and not below 150 % of the peak; half of the limit is not unused
    [(100_000.0, 800_000.0), (499_999.0, 800_000.0), (500_000.0, None)],
)
def test_a_limit_that_nobody_came_near_to_in_a_day_goes_one_step_down(
    tmp_path: Path, peak: float, wanted: float | None
) -> None:
    used = [usage(at_s) for at_s in (0, DAY_S - 1)]
    todo = _todo(tmp_path, [decision(1, rate_per_s=peak)], seconds=DAY_S, usages=used, quota_rules=[OF_ALICE])
    assert [one.recommended for one in todo] == ([] if wanted is None else [wanted])


def test_a_limit_is_not_unused_after_less_than_a_day_or_if_it_was_throttled_by_anything(
    tmp_path: Path,
) -> None:
    hour = [decision(1, rate_per_s=1.0)]
    assert _todo(tmp_path / "hour", hour, seconds=3_600, quota_rules=[OF_ALICE]) == []
    held = [decision(1, rate_per_s=1.0, observed_throttle_ms=5)]
    used = [usage(at_s) for at_s in (0, DAY_S - 1)]
    assert _todo(tmp_path / "held", held, seconds=DAY_S, usages=used, quota_rules=[OF_ALICE]) == []


def test_what_does_not_fit_is_counted(tmp_path: Path) -> None:
    page = gathered(tmp_path, decisions=[_unlimited("a", 1.0)], top=1)
    assert (len(page.recommendations), page.recommendations_left_out) == (1, 3)


@pytest.mark.parametrize(
    ("entity", "add", "words"),
    [
        (Entity("alice", "etl"), {QuotaKey.PRODUCER_BYTE_RATE: 1.5e9},
         ["--name", "user=alice", "--name", "client-id=etl", "--add", "producer_byte_rate=1500000000"]),
        (Entity(DEFAULT, "etl"), {QuotaKey.REQUEST_PERCENTAGE: 12.5},
         ["--default", "user", "--name", "client-id=etl", "--add", "request_percentage=12.5"]),
        (IpEntity("10.0.0.1"), {IpQuotaKey.CONNECTION_CREATION_RATE: 250.0},
         ["--name", "ip=10.0.0.1", "--add", "connection_creation_rate=250"]),
        *((Entity(user=name), {}, ["--name", f"user={name}"]) for name in HOSTILE),
    ],
)  # fmt: skip
def test_a_shell_reads_every_name_as_one_word_and_the_command_takes_it(
    entity: AnyEntity, add: dict[AnyKey, float], words: list[str]
) -> None:
    read = shlex.split(alter_command(entity, add))
    assert read == ["kquota", "alter", *words, "--dry-run"]
    parser = argparse.ArgumentParser()
    alter.add_commands(parser.add_subparsers())
    options = parser.parse_args(read[1:])
    assert asked_entity(options) == entity
    assert options.dry_run
