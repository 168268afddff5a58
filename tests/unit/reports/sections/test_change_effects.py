"""What a change of a quota did to throttling: the broker's sums in two periods of one length around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kquota_spark.model.quotas.entities import Entity
from kquota_spark.reports.scope.shared_rows import Change, Effect
from kquota_spark.reports.sections.changes import length_ms
from kquota_spark.store.rows import entity_columns
from tests.support.reports.gathered_report import gathered
from tests.support.tables.table_rows import T0_MS, decision, request, second

BOB, KEY = "users/bob", "producer_byte_rate"


def change(at_s: int, entity: str = BOB, key: str = KEY) -> Change:
    return Change(T0_MS + at_s * 1_000, entity, key, 2.0, 1.0, "edit", "")


def test_both_periods_have_the_length_of_the_shorter_side() -> None:
    every = [
        change(100),
        change(250),
        change(700),
        change(200, entity="users/carol"),
        change(240, key="other"),
    ]
    from_ms, to_ms = T0_MS, T0_MS + 10_000_000
    assert [length_ms(one, every, from_ms, to_ms) for one in every] == [
        100_000,  # from the begin of what is covered
        150_000,  # 250 - 100, shorter than 700 - 250
        450_000,  # 700 - 250
        200_000,
        240_000,
    ]
    # Ten minutes at most, and nothing beyond what is covered.
    assert length_ms(change(5_000), [], from_ms, to_ms) == 600_000
    assert length_ms(change(5_000), [], from_ms, T0_MS + 5_001_000) == 1_000
    assert length_ms(change(0), [], from_ms, to_ms) == 0


def _decision(at_s: int, delay_ms: int, rule: str = BOB, **more: Any) -> dict[str, Any]:
    return decision(
        at_s, bucket_user="bob", bucket_client_id="", rule=rule, users=["bob"], throttled_requests=9,
        total_throttle_ms=99_999, observed_total_throttle_ms=delay_ms, observed_throttled_requests=delay_ms // 100,
        **more,
    )  # fmt: skip


def test_the_effect_is_by_brokers_and_of_the_buckets_that_the_entity_governs(tmp_path: Path) -> None:
    edit = {
        "cluster_id": "demo", **entity_columns(Entity("bob", None)), "key": KEY, "value": 1e6, "previous_value": 2e6,
        "changed_at": second(4), "version": 4,
    }  # fmt: skip
    decisions = [
        _decision(0, 5_000),  # 4 s before; as long as what is known after it, 3 s, does not reach it
        _decision(1, 100), _decision(2, 200), _decision(3, 0),
        _decision(4, 1_000), _decision(5, 2_000), _decision(6, 3_000),
        _decision(5, 7_000, rule="users/carol", broker_id=2),
    ]  # fmt: skip
    page = gathered(tmp_path, seconds=7, decisions=decisions, quota_changes=[edit])
    assert [one.effect for one in page.changes] == [
        # 100 + 200 + 0; 1,000 + 2,000 + 3,000; requests are a hundredth of the delays here.
        Effect(3_000, delay_before_ms=300, delay_after_ms=6_000, requests_before=3, requests_after=60)
    ]


def test_a_change_that_met_nobody_has_no_effect(tmp_path: Path) -> None:
    edit = {
        "cluster_id": "demo", **entity_columns(Entity("dora", None)), "key": KEY, "value": 1e6,
        "previous_value": None, "changed_at": second(3), "version": 4,
    }  # fmt: skip
    page = gathered(tmp_path, decisions=[_decision(1, 100)], quota_changes=[edit])
    assert [one.effect for one in page.changes] == [None]


def test_an_edit_names_the_client_that_asked_a_broker_for_it(tmp_path: Path) -> None:
    edit = {
        "cluster_id": "demo", **entity_columns(Entity("bob", None)), "key": KEY, "value": 1e6,
        "previous_value": 2e6, "changed_at": second(4), "version": 4,
    }  # fmt: skip
    asked = {"api_key": 49, "quota_type": None, "user": "admin", "client_id": "cli"}
    requests = [
        request(0, T0_MS + 3_900, **asked, altered_quotas=json.dumps([[BOB, KEY, 1e6]])),
        # Another value, and another time.
        request(1, T0_MS + 4_000, **asked | {"user": "eve"}, altered_quotas=json.dumps([[BOB, KEY, 3e6]])),
        request(2, T0_MS + 9_000, **asked | {"user": "eve"}, altered_quotas=json.dumps([[BOB, KEY, 1e6]])),
    ]
    page = gathered(tmp_path / "all", decisions=[_decision(1, 100)], quota_changes=[edit], requests=requests)
    assert [one.by for one in page.changes] == ["user admin (cli)"]
    own = gathered(
        tmp_path / "own", decisions=[_decision(1, 100)], tenant="bob", quota_changes=[edit], requests=requests
    )
    assert [one.by for one in own.changes] == [""]


def test_the_editor_of_the_first_second_is_found_in_a_file_from_before_the_period(tmp_path: Path) -> None:
    edit = {
        "cluster_id": "demo", **entity_columns(Entity("bob", None)), "key": KEY, "value": 1e6,
        "previous_value": 2e6, "changed_at": second(0), "version": 4,
    }  # fmt: skip
    asked = {"api_key": 49, "quota_type": None, "user": "admin", "client_id": "cli"}
    requests = [request(0, T0_MS - 100, **asked, altered_quotas=json.dumps([[BOB, KEY, 1e6]]))]
    page = gathered(tmp_path, decisions=[_decision(1, 100)], quota_changes=[edit], requests=requests)
    assert [one.by for one in page.changes] == ["user admin (cli)"]
