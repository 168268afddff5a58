"""The right sizes of policies are those of the last midnight: read once per day, and left out where reading is slow."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Mode
from kquota_spark.enforce.policies.policy import Policies, Raise
from kquota_spark.enforcement.right_sizes import DaySizes, raised_buckets
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.rightsize.recommended import recommendations
from kquota_spark.store.reading import Tables
from tests.right_size.tables import FIRST, write_weeks
from tests.support.enforcement.observed_uses import DAY, WRITE, place, seen, use

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
