"""What the tables know of now: how far everything is decided, and what makes the view not whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforcement.situation import override_evidence, situation
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from tests.support.tables.table_rows import (
    T0_MS,
    decision,
    heartbeat,
    request,
    second,
    source,
    usage,
    write_table,
)

NOW_MS = T0_MS + 100_000
SILENT_MS = 60_000


def tables(
    root: Path, *, requests: Any = (), usages: Any = (), decisions: Any = (), edits: Any = ()
) -> Settings:
    write_table(root, "requests", *requests)
    write_table(root, "usage", *usages)
    write_table(root, "decisions", *decisions)
    write_table(root, "quota_rules", source(95))
    write_table(root, "quota_changes", *edits)
    return Settings(cluster_id="demo", tables=str(root))


def test_all_is_decided_through_the_newest_second_of_the_slowest_broker(tmp_path: Path) -> None:
    settings = tables(
        tmp_path,
        requests=[request(1, T0_MS + 99_000), request(2, T0_MS + 99_000, broker_id=2)],
        usages=[usage(90), usage(90, broker_id=2), usage(80)],
        decisions=[decision(90), decision(80, broker_id=2)],
    )
    found = situation(settings, NOW_MS, silent_after_ms=SILENT_MS)
    assert (found.decided_through_ms, found.rules_known_through_ms) == (T0_MS + 80_000, T0_MS + 95_000)
    assert (found.is_view_whole, found.problems) == (True, ())


def test_a_broker_without_traffic_is_decided_as_far_as_seconds_are_closed_and_it_was_heard_of(
    tmp_path: Path,
) -> None:
    beats = [heartbeat(1, T0_MS + 99_000), {**heartbeat(2, T0_MS + 98_000), "broker_id": 2}]
    settings = tables(
        tmp_path, requests=beats, usages=[usage(90), usage(5, broker_id=2)],
        decisions=[decision(90), decision(5, broker_id=2)],
    )  # fmt: skip
    assert situation(settings, NOW_MS, silent_after_ms=SILENT_MS).decided_through_ms == T0_MS + 90_000
    write_table(tmp_path, "requests", {**heartbeat(3, T0_MS + 50_000), "broker_id": 3})
    found = situation(settings, NOW_MS, silent_after_ms=SILENT_MS)
    assert found.decided_through_ms == T0_MS + 50_000
    assert found.is_view_whole  # 50 s ago, and 60 s are allowed


def test_a_broker_that_spoke_within_the_hour_and_is_silent_now_is_missed(tmp_path: Path) -> None:
    settings = tables(
        tmp_path, requests=[heartbeat(1, T0_MS + 99_000), {**heartbeat(2, T0_MS + 39_999), "broker_id": 2}],
        usages=[usage(90)], decisions=[decision(90)],
    )  # fmt: skip
    found = situation(settings, NOW_MS, silent_after_ms=SILENT_MS)
    assert not found.is_view_whole
    assert found.problems == ("broker 2 was last heard of at 2026-11-21 05:40:39 UTC",)
    # An hour later it is no longer expected: broker 1 has spoken since.
    write_table(tmp_path, "requests", heartbeat(3, T0_MS + 3_640_000))
    write_table(tmp_path, "usage", usage(3_630))
    write_table(tmp_path, "decisions", decision(3_630))
    later = situation(settings, T0_MS + 3_640_000, silent_after_ms=SILENT_MS)
    assert (later.is_view_whole, later.decided_through_ms) == (True, T0_MS + 3_630_000)


def test_nothing_is_decided_in_tables_without_rows_or_with_usage_only(tmp_path: Path) -> None:
    settings = tables(tmp_path)
    assert situation(settings, NOW_MS, silent_after_ms=SILENT_MS).decided_through_ms is None
    write_table(tmp_path, "usage", usage(90))
    assert situation(settings, NOW_MS, silent_after_ms=SILENT_MS).decided_through_ms == 0


def edit(version: int, key: str | None = "producer_byte_rate", **more: Any) -> dict[str, Any]:
    return {
        "cluster_id": "demo", "entity": "users/alice", "level": 3, "user": "alice", "key": key, "version": version,
        "changed_at": second(version), "observed_at": second(version + 1), "source": "zookeeper", **more,
    }  # fmt: skip


def test_a_node_that_cannot_be_read_makes_the_view_not_whole_until_it_can(tmp_path: Path) -> None:
    broken = edit(20, key=None, problem="not JSON")
    settings = tables(
        tmp_path, usages=[usage(99)], decisions=[decision(99)], edits=[edit(10, value=1.0), broken]
    )
    found = situation(settings, NOW_MS, silent_after_ms=SILENT_MS)
    assert (found.is_view_whole, found.problems) == (False, ("/config/users/alice: not JSON",))
    alice = Quota(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE)
    assert found.edited_at_ms == {alice: T0_MS + 10_000}
    write_table(tmp_path, "quota_changes", edit(30, value=2.0))
    repaired = situation(settings, NOW_MS, silent_after_ms=SILENT_MS)
    assert repaired.is_view_whole
    assert repaired.edited_at_ms == {alice: T0_MS + 30_000}


def test_ips_are_none_of_ours_and_a_polled_edit_counts_from_when_it_was_found(tmp_path: Path) -> None:
    of_ip = {"entity": "ips/10.0.0.1", "level": None, "user": None}
    polled = edit(40, changed_before=second(42))
    settings = tables(tmp_path, edits=[edit(10, key="connection_creation_rate", **of_ip), polled])
    found = situation(settings, NOW_MS, silent_after_ms=SILENT_MS)
    assert found.edited_at_ms == {Quota(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE): T0_MS + 42_000}


def test_of_a_cluster_that_is_audited_by_jmx_alone_the_decisions_tell(tmp_path: Path) -> None:
    tables(tmp_path, usages=[usage(90, source="jmx")], decisions=[decision(90, source="jmx")])
    settings = Settings(
        cluster_id="demo", tables=str(tmp_path), kafka=Kafka(topic="", jmx_topic="kquota.jmx")
    )
    found = situation(settings, NOW_MS, silent_after_ms=SILENT_MS)
    assert (found.decided_through_ms, found.is_view_whole) == (T0_MS + 90_000, True)


def test_a_missing_table_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="table usage is missing"):
        situation(Settings(tables=str(tmp_path)), NOW_MS, silent_after_ms=SILENT_MS)


def test_an_override_rests_on_seconds_that_the_broker_throttled_whatever_the_replay_says(
    tmp_path: Path,
) -> None:
    by_broker = {"observed_total_throttle_ms": 9, "throttled_requests": 0, "observed_throttled_requests": 1}
    by_replay = {"observed_total_throttle_ms": 0, "throttled_requests": 1, "observed_throttled_requests": 0}
    settings = tables(
        tmp_path, decisions=[decision(1, **by_broker), decision(2, **by_broker), decision(3, **by_replay)]
    )
    found = override_evidence(settings, Quota(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE), NOW_MS)
    assert (found.seconds, found.certain_seconds, found.throttled_seconds) == (3, 3, 2)
