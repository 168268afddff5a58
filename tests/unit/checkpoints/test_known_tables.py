"""What a worker reads from the tables: only its cluster's, and again only when files have changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from kquota_spark.checkpoints.known import KnownLoader, KnownRules, LimitsLoader, WatchedGaps
from kquota_spark.checkpoints.pinned import Pinned
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.measure.points import CONTROLLER_ID
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import DEFAULT, Entity, IpEntity
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey, QuotaType
from kquota_spark.model.quotas.rules import QuotaChange
from kquota_spark.pipeline.known import IpLimit, Known
from kquota_spark.schema.gap_tables import BROKER_START, CUT_LINE, MID_STREAM
from kquota_spark.store.delta import table as stored_table
from kquota_spark.store.rules_tables import NodeProblem, RulesTables
from tests.support.spark.queries import CLUSTER, change, settings_at, write_rules
from tests.support.tables.table_rows import T0_MS, second, write_table


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_at(tmp_path)


def limit_of_alice(known: Known) -> float | None:
    return known.governor.govern(
        1, QuotaType.PRODUCE, Principal("User", "alice"), "etl", T0_MS
    ).governing.limit_per_s


def test_quotas_are_those_of_the_cluster_and_kept_until_one_changes(settings: Settings) -> None:
    rules = RulesTables(settings.tables, CLUSTER, source="zookeeper", apply_lag_ms=0)
    rules.append([change("alice", None, 1.0)], [], 0)
    rules.write_rules(None)
    write_rules(settings, change("alice", None, 2.0), cluster_id="other")
    load = KnownLoader(settings)
    first = load()
    assert (limit_of_alice(first), first.known_through_ms) == (1.0, None)
    # The watcher says every second that nothing has changed; a neighbour's edit is none of ours.
    rules.write_known_through(T0_MS)
    write_rules(settings, change("alice", None, 3.0), cluster_id="other")
    second_look = KnownLoader(settings)()
    assert second_look.known_through_ms == T0_MS
    assert second_look.governor is first.governor
    rules.append([change("alice", None, 5.0, T0_MS)], [], 0)
    rules.write_rules(T0_MS + 1_000)
    third = load()
    assert (limit_of_alice(third), third.known_through_ms) == (5.0, T0_MS + 1_000)


def test_edits_whose_commit_was_made_and_its_answer_lost_are_recorded_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = RulesTables(settings.tables, CLUSTER, source="zookeeper", apply_lag_ms=0)
    written = write_deltalake
    lost = [CommitFailedError("the answer is lost")]

    def writes_and_loses_the_answer(*args: Any, **options: Any) -> None:
        written(*args, **options)
        if lost:
            raise lost.pop()

    monkeypatch.setattr(stored_table, "write_deltalake", writes_and_loses_the_answer)
    edits = [change("alice", None, 1.0, T0_MS), change("bob", None, 2.0, T0_MS)]
    broken = NodeProblem("users/%zz", None, "malformed name", T0_MS, 7)
    rules.append(edits, [broken], T0_MS)
    assert lost == []
    found = DeltaTable(f"{settings.tables}/quota_changes").to_pyarrow_table().to_pylist()
    assert sorted(row["entity"] for row in found) == ["users/%zz", "users/alice", "users/bob"]
    again = RulesTables(settings.tables, CLUSTER, source="zookeeper", apply_lag_ms=0)
    assert again.changes == edits


def test_windows_and_gaps_come_from_their_tables_as_soon_as_they_are_there(settings: Settings) -> None:
    write_rules(settings)
    load = KnownLoader(settings)
    assert load().windows.at(1, T0_MS) == RateConfig()
    root, told = Path(settings.tables), {"sample_ring": "<=3.7", "quota_window_num": 5}
    of_broker = {"cluster_id": CLUSTER, "broker_id": 1, "quota_window_size_seconds": 2, **told}
    # First what the file says for all brokers, which the settings say themselves; then a neighbour.
    write_table(
        root,
        "broker_configs",
        {**of_broker, "broker_id": None},
        {**of_broker, "broker_id": 2, "cluster_id": "other"},
        {**of_broker, "valid_from": second(10)},
    )
    gap = {
        "cluster_id": CLUSTER,
        "broker_id": 1,
        "from_time": second(2),
        "to_time": second(4),
        "reason": MID_STREAM,
    }
    write_table(
        root,
        "log_gaps",
        gap,
        {**gap, "broker_id": 2, "reason": BROKER_START},
        {**gap, "broker_id": 3, "cluster_id": "other"},
    )
    known = load()
    windows = [known.windows.at(broker_id, T0_MS + 10_000).name for broker_id in (1, 2)]
    assert windows == ["<=3.7/5x2000ms", "3.8+/11x1000ms"]
    assert known.windows.at(1, T0_MS + 9_999) == RateConfig()
    missing = (T0_MS + 2_000, T0_MS + 4_000)
    assert known.gaps == {1: [missing], CONTROLLER_ID: [missing]}
    assert known.begun == {1, 2}
    # A task looks through no gap that one before it has seen.
    again = KnownLoader(settings)()
    assert again.gaps is known.gaps
    assert again.begun is known.begun


def test_of_gaps_that_ended_a_day_before_the_open_seconds_no_file_is_opened(settings: Settings) -> None:
    root = Path(settings.tables)
    hour_s, open_from_s = 3_600, 400 * 86_400
    gap = {"cluster_id": CLUSTER, "broker_id": 1, "from_time": second(2)}
    kept = {**gap, "to_time": second(open_from_s - 24 * hour_s), "reason": CUT_LINE}
    begin = {**gap, "to_time": second(4), "reason": MID_STREAM}
    write_table(root, "log_gaps", begin)
    write_table(root, "log_gaps", {**gap, "to_time": second(open_from_s - 25 * hour_s), "reason": CUT_LINE})
    write_table(root, "log_gaps", kept)
    gaps = WatchedGaps(settings, "log_gaps")
    gaps.refresh(None)
    assert len(gaps.rows) == 3
    [old] = [
        path
        for path in (root / "log_gaps").glob("*.parquet")
        if pq.read_table(path)["to_time"].to_pylist() == [second(open_from_s - 25 * hour_s)]
    ]
    old.unlink()  # so a look at it would fail
    later = WatchedGaps(settings, "log_gaps")
    later.refresh(Pinned({}, T0_MS + open_from_s * 1_000))
    found = sorted(row["to_time"] for row in later.rows)
    assert found == [T0_MS + 4_000, T0_MS + (open_from_s - 24 * hour_s) * 1_000]


def test_without_quotas_nothing_is_judged(settings: Settings) -> None:
    with pytest.raises(UserError, match="no table quota_rules: run kquota watch or the audit first"):
        KnownLoader(settings)()


def test_limits_are_those_of_buckets_and_addresses_and_of_a_callback_only_addresses(
    settings: Settings,
) -> None:
    of_ip = QuotaChange(IpEntity(DEFAULT), IpQuotaKey.CONNECTION_CREATION_RATE, 10.0, None, 0, 0)
    write_rules(settings, change("alice", None, 1.0), of_ip)
    limits = LimitsLoader(settings)()
    assert len(limits.governor.book) == 1
    # A file's first period begins with all time, and no edit of it is known.
    assert limits.ips == {"ips/<default>": [IpLimit(0, None, 10.0, 0)]}
    with_callback = replace(settings, quotas=replace(settings.quotas, callback="module:Class"))
    of_callback = LimitsLoader(with_callback)()
    assert (len(of_callback.governor.book), of_callback.ips) == (0, limits.ips)


def test_of_many_rules_only_the_edited_ones_are_written_and_made_again(settings: Settings) -> None:
    users = [f"user{number}" for number in range(500)]
    rules = RulesTables(settings.tables, CLUSTER, source="zookeeper", apply_lag_ms=0)
    rules.append([change(user, None, 1.0, T0_MS) for user in users], [], 0)
    rules.write_rules(T0_MS)
    known = KnownRules()
    assert known.take_rules(stored(settings))
    before = {user: known.book.of(Entity(user)) for user in users}
    rules.append([change("user7", None, 2.0, T0_MS + 1_000), change("new", None, 3.0, T0_MS + 1_000)], [], 0)
    rules.write_rules(T0_MS + 2_000)
    # Two periods of each: before its first edit there were none. The source's own row is one more.
    assert stored(settings).num_rows == 2 * 501 + 1 + 1
    assert known.take_rules(stored(settings))
    after = {user: known.book.of(Entity(user)) for user in users}
    assert [user for user in users if after[user][0] is not before[user][0]] == ["user7"]
    values = [period.values.get(QuotaKey.PRODUCER_BYTE_RATE) for period in after["user7"]]
    assert values == [None, 1.0, 2.0]
    assert known.book.at(Entity("new"), T0_MS + 1_000).values == {QuotaKey.PRODUCER_BYTE_RATE: 3.0}  # type: ignore[union-attr]
    assert not known.take_rules(stored(settings))
    # The next start writes the same anew, of all: nothing differs.
    RulesTables(settings.tables, CLUSTER, source="zookeeper", apply_lag_ms=0).write_rules(T0_MS + 3_000)
    assert not known.take_rules(stored(settings))


def test_rules_that_ended_long_before_the_open_seconds_are_left_out(settings: Settings) -> None:
    # An edit each minute for a day: 1,440 periods, and one before the first.
    edits = [change("alice", None, float(minute), T0_MS + minute * 60_000) for minute in range(1_440)]
    write_rules(settings, *edits)
    known = KnownRules()
    known.take_rules(stored(settings))
    assert len(known.book.of(Entity("alice"))) == 1_441
    at_noon_ms = T0_MS + 720 * 60_000
    pruned = KnownRules()
    pruned.take_rules(stored(settings), at_noon_ms)
    # What ended in the ten minutes before is kept for lines that are late.
    kept = pruned.book.of(Entity("alice"))
    assert kept[0].valid_to_ms == at_noon_ms - 600_000 + 60_000
    assert len(kept) == 720 + 10
    assert pruned.book.at(Entity("alice"), at_noon_ms) == known.book.at(Entity("alice"), at_noon_ms)


def stored(settings: Settings) -> pa.Table:
    return DeltaTable(f"{settings.tables}/quota_rules").to_pyarrow_table()
