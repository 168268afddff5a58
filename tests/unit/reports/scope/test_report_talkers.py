"""Who uses how much, what brokers have in threads, and what happened to the quotas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.reports.pages.page import page_of
from kquota_spark.reports.scope.shared_rows import Change
from kquota_spark.reports.sections.capacity import Capacity
from kquota_spark.reports.sections.usage import Talker
from kquota_spark.store.rows import entity_columns
from tests.support.reports.gathered_report import gathered
from tests.support.tables.table_rows import T0_MS, decision, second, usage


def test_amounts_are_of_all_brokers_and_shares_of_the_cluster(tmp_path: Path) -> None:
    rows = [
        usage(0, amount=4_000, requests=2, observed_throttle_ms=30),
        usage(0, broker_id=2, amount=1_000),
        usage(1, amount=1_000),
        usage(1, user="bob", amount=2_000),
        usage(2, user="carol", amount=1_500),
        usage(2, user="dave", amount=500),
    ]
    (produce,) = gathered(tmp_path, usages=rows, top=2).talkers
    # 4,000 + 1,000 + 1,000 of 10,000; 600 a second of ten; in second 0 both brokers, 5,000
    alice = Talker("alice", "etl", "produce", 6_000, 60.0, 4, 600.0, 5_000.0, 30)
    bob = Talker("bob", "etl", "produce", 2_000, 20.0, 1, 200.0, 2_000.0, 0)
    assert produce.talkers == (alice, bob)
    # carol, dave, and the two seconds at the ends, which used nothing
    assert (produce.total, produce.others, produce.others_amount) == (10_000, 3, 2_000)


def test_request_time_is_counted_in_microseconds_and_its_rate_in_percent(tmp_path: Path) -> None:
    rows = [usage(at_s, quota_type="request", amount=250_000) for at_s in (0, 1)]
    request = gathered(tmp_path, usages=rows).talkers[1].talkers[0]
    # 250 ms of a second are 25 %; 500 ms of ten seconds 5 %
    assert (request.amount, request.mean_per_s, request.peak_per_s) == (500_000, 5.0, 25.0)


def test_jmx_tells_rates_the_amount_is_their_mean_over_the_time_sampled(tmp_path: Path) -> None:
    none: dict[str, Any] = {"amount": None, "requests": None, "source": "jmx", "quota_type": "fetch",
                            "observed_throttle_ms": None}  # fmt: skip
    rows = [usage(0, **none, rate_per_s=100.0), usage(8, **none, rate_per_s=300.0)]
    rows += [usage(3, **none, broker_id=2, rate_per_s=50.0), usage(5, **none, broker_id=2, rate_per_s=50.0)]
    (fetch, _) = gathered(tmp_path, usages=rows).talkers
    # broker 1: (100 + 300) / 2 x 8 s; broker 2: 50 x 2 s; the peaks were never sampled together
    assert fetch.talkers[0].amount == 1_600 + 100
    assert fetch.talkers[0].peak_per_s == 350.0
    assert (fetch.talkers[0].requests, fetch.talkers[0].delay_ms) == (None, None)


def test_what_jmx_does_not_tell_is_no_zero_on_the_page(tmp_path: Path) -> None:
    of_jmx: dict[str, Any] = {"source": "jmx", "quota_type": "fetch", "broker_id": 2}
    none = of_jmx | dict.fromkeys(("amount", "requests", "observed_throttle_ms"))
    used = [usage(at_s, **none, rate_per_s=100.0) for at_s in (0, 8)]
    told = dict.fromkeys(("requests", "throttle_ms", "throttled_requests", "total_throttle_ms", "amount"))
    seen = decision(0, **of_jmx, **told, observed_throttle_ms=150, quota_used_percent=90.0)
    page = page_of(gathered(tmp_path, usages=used, decisions=[seen]))
    cells = {
        (column.title, row[0].text): cell.text
        for section in page.sections
        for block in section.blocks
        if block.table is not None
        for row in block.table.rows
        for column, cell in zip(block.table.columns, row, strict=True)
    }
    assert cells["requests", "alice / etl"] == cells["total delay by brokers", "alice / etl"] == "-"
    assert cells["total delay", "user alice"] == "-"


def _broker(broker_id: int | None, io_threads: int, *, since_s: int | None = None) -> dict[str, Any]:
    return {"cluster_id": "demo", "broker_id": broker_id, "num_io_threads": io_threads, "num_network_threads": 3,
            "valid_from": None if since_s is None else second(since_s)}  # fmt: skip


def test_capacity_is_100_percent_a_thread_and_the_use_what_was_charged(tmp_path: Path) -> None:
    brokers = [
        _broker(1, 8),
        _broker(1, 16, since_s=5),
        _broker(1, 99, since_s=60),
        _broker(2, 8),
        _broker(None, 1),
    ]
    used = [
        usage(0, quota_type="request", amount=2_000_000),
        usage(1, quota_type="request", user="bob", amount=1_000_000),
    ]
    page = gathered(tmp_path, usages=used, broker_configs=brokers)
    # (16 + 3) x 100; 3 s of threads in 10 s are 30 %
    assert page.capacity == [Capacity(1, 16, 3, 1_900.0, 30.0), Capacity(2, 8, 3, 1_100.0, None)]
    assert page.notes[-1].startswith(
        "request time is measured only of clients that some request_percentage covers"
    )


ALICE = Entity(user="alice")


def _edit(at_s: int, value: float | None, previous: float | None, entity: Entity = ALICE) -> dict[str, Any]:
    return {"cluster_id": "demo", **entity_columns(entity), "key": "producer_byte_rate", "value": value,
            "previous_value": previous, "changed_at": second(at_s), "version": at_s}  # fmt: skip


def _step(
    sequence: int, event: str, at_s: int, policy: str = "raise-throttled", **changed: Any
) -> dict[str, Any]:
    return {"cluster_id": "demo", "event_date": second(at_s).date(), "plan_id": "p", "step": 1, "event": event,
            "sequence": sequence, "at": second(at_s), **entity_columns(ALICE), "key": "producer_byte_rate",
            "value_before": 1e6, "value_after": 2e6, "policy": policy, "reason": "held back", "mode": "enforce",
            "actor": "enforcer", **changed}  # fmt: skip


def _change(at_s: int, before: float | None, after: float | None, what: str, by: str) -> Change:
    return Change(T0_MS + at_s * 1_000, "users/alice", "producer_byte_rate", before, after, what, by)


def test_edits_and_steps_of_enforcement_are_told_once_in_the_order_of_time(tmp_path: Path) -> None:
    edits = [_edit(-1, 5e6, None), _edit(1, 1e6, 5e6), _edit(3, 2e6, 1e6), _edit(9, None, 2e6)]
    log = [_step(1, "planned", 2), _step(2, "sending", 2), _step(3, "applied", 2), _step(4, "refused", 4)]
    page = gathered(tmp_path, quota_changes=edits, enforcement_log=log)
    # The edit at 3 is the echo of what was applied at 2.
    assert page.changes == [
        _change(1, 5e6, 1e6, "edit", ""),
        _change(2, 1e6, 2e6, "enforcement applied", "raise-throttled: held back"),
        _change(9, 2e6, None, "edit", ""),
    ]


def test_an_override_says_who_and_its_end_goes_back(tmp_path: Path) -> None:
    log = [
        _step(1, "applied", 2, "override", actor="dave", reason="backfill"),
        _step(2, "restored", 7, "override", reason="backfill"),
    ]
    page = gathered(
        tmp_path, enforcement_log=log, quota_changes=[_edit(2, 2e6, 1e6), _edit(8, 1e6, 2e6)], top=1
    )
    assert page.changes == [_change(7, 2e6, 1e6, "override restored", "enforcer: backfill")]
    assert page.changes_left_out == 1


def test_a_tenant_is_told_of_its_own_quotas_without_who_changed_them(tmp_path: Path) -> None:
    edits = [_edit(1, 1e6, None), _edit(2, 3.0, None, Entity("alice", "etl")), _edit(3, 1.0, None, Entity(user="bob")),
             _edit(4, 1.0, None, Entity(user=DEFAULT))]  # fmt: skip
    page = gathered(tmp_path, usages=[usage(0)], quota_changes=edits, enforcement_log=[_step(1, "applied", 6)],
                    tenant="alice")  # fmt: skip
    assert [(one.entity, one.by) for one in page.changes] == [
        ("users/alice", ""),
        ("users/alice/clients/etl", ""),
        ("users/alice", ""),
    ]
