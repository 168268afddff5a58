"""The right sizes of policies are those of the last midnight: read once per day, and left out where reading is slow."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Mode
from kquota_spark.enforce.policies.policy import Policies, Raise
from kquota_spark.enforce.policies.proposing import proposals
from kquota_spark.enforcement.input import observations
from kquota_spark.enforcement.right_sizes import DaySizes, raised_buckets
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.rightsize.recommended import recommendations
from kquota_spark.store.reading import Tables
from tests.right_size.tables import FIRST, write_weeks
from tests.support.enforcement.observed_uses import ALICE as ALICE_ENTITY
from tests.support.enforcement.observed_uses import DAY, GUARDS, WRITE, only, place, seen, use
from tests.support.reports.gathered_report import rule, throttled
from tests.support.tables.table_rows import T0_MS, decision, usage, write_table

DAY_MS = 86_400_000
MIDNIGHT_MS = int(FIRST.timestamp() * 1_000) + 15 * DAY_MS
ALICE, BOB, CAROL = ((QuotaType.PRODUCE, Bucket(user, "")) for user in ("alice", "bob", "carol"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    write_weeks(tmp_path, 15)
    return Settings(cluster_id="weeks", tables=str(tmp_path / "tables"))


def test_a_bucket_is_read_once_per_day(settings: Settings) -> None:
    with Tables(settings) as tables:
        every = {one.place.user: one.size for one in recommendations(tables, "weeks", MIDNIGHT_MS)}
    sizes = DaySizes()
    # Carol has three days of history: no size.
    assert sizes.of(settings, [BOB, CAROL, BOB], MIDNIGHT_MS + 5_000) == {BOB: every["bob"]}
    shutil.rmtree(settings.tables)
    assert sizes.of(settings, [BOB, CAROL], MIDNIGHT_MS + DAY_MS - 1) == {BOB: every["bob"]}
    with pytest.raises(UserError):  # another bucket, or another day, is read
        sizes.of(settings, [ALICE], MIDNIGHT_MS + 5_000)
    with pytest.raises(UserError):
        sizes.of(settings, [BOB], MIDNIGHT_MS + DAY_MS)


def test_after_a_read_that_is_too_slow_no_other_begins_on_that_day(settings: Settings) -> None:
    sizes = DaySizes(most_s=1e-9)
    assert sizes.of(settings, [BOB], MIDNIGHT_MS) == {}
    shutil.rmtree(settings.tables)
    assert sizes.of(settings, [BOB, ALICE], MIDNIGHT_MS) == {}


def test_only_policies_that_are_on_ask_for_right_sizes() -> None:
    policy = Raise(name="up", kind="raise", broker_capacity_per_s={WRITE.value: 1e9}, mode=Mode.ENFORCE)
    periods = dict(seen(use(throttled_seconds=400)).periods)
    assert raised_buckets(Policies(policies=(policy,)), periods) == [(QuotaType.PRODUCE, place().bucket)]
    assert periods[DAY].buckets
    assert raised_buckets(Policies(mode=Mode.OFF, policies=(policy,)), periods) == []


def test_a_raise_from_tables_of_two_weeks_goes_towards_the_right_size(tmp_path: Path) -> None:
    # Fifteen days with 100 windows of 13,000,000 B each: 1,300,000 B/s, in bin 288. Then a minute of throttles.
    rows = [decision(-day * 86_400 + 10 * n, amount=13_000_000) for day in range(1, 16) for n in range(100)]
    write_table(tmp_path, "decisions", *rows, *(throttled(at_s, amount=1_100_000) for at_s in range(60)))
    write_table(tmp_path, "usage", usage(0), usage(59))
    write_table(tmp_path, "quota_rules", rule(ALICE_ENTITY, since_s=-20 * 86_400, producer_byte_rate=1e6))
    up = Raise(
        name="up",
        kind="raise",
        broker_capacity_per_s={WRITE.value: 60e6},
        least_seconds=60,
        step_percent=50.0,
    )
    policies = Policies(guards=GUARDS, policies=(up,))
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    found = observations(settings, policies, T0_MS + 60_000)
    [(key, size)] = found.sizes.items()
    # The history ends at midnight, 14 days and 18 hours after the first second.
    assert (key, size.days) == (ALICE, 14)
    assert size.target == pytest.approx(1.1 * 1.05 ** (288 + 0.99))
    proposal = only(proposals(policies, found, T0_MS + 60_000))
    assert proposal.after == 1_460_000
    assert "; its right size of 14 days is 1,460,000 B/s, for a demand of " in proposal.reason
