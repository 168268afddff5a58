"""The auditor's own clock jumps ahead and comes back: what it wrote meanwhile switches nothing off."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kquota_spark.config.settings import Duration, Quotas, Settings
from kquota_spark.enforce.decision_messages import Heartbeat
from kquota_spark.enforcement.decision_publisher import heartbeat
from kquota_spark.kafka.quota_admin import QuotaAdmin
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import END_MS, QuotaChange
from kquota_spark.quotas.ledger import Ledger
from kquota_spark.quotas.stored import stored_rules
from kquota_spark.quotas.watched_sources import AdminSource
from kquota_spark.store.rules_tables import RulesTables
from tests.support.tables.table_rows import T0_MS

YEAR_2099_MS = 4_070_908_800_000
SETTINGS = Settings(quotas=Quotas(source="admin", poll_interval=Duration(1)))


def rules(root: Path, *, now_ms: int) -> RulesTables:
    return RulesTables(str(root), "c", source="zookeeper", apply_lag_ms=0, now_ms=now_ms)


def known_through_ms(root: Path) -> int | None:
    return stored_rules(Settings(cluster_id="c", tables=str(root))).known_through_ms


def test_one_look_of_the_year_2099_does_not_stay_known(tmp_path: Path) -> None:
    tables = rules(tmp_path, now_ms=T0_MS)
    tables.write_rules(T0_MS)
    tables.write_known_through(YEAR_2099_MS)
    tables.write_known_through(T0_MS + 1_000)
    assert known_through_ms(tmp_path) == T0_MS + 1_000


def test_a_stored_time_of_the_future_is_not_believed_at_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules(tmp_path, now_ms=YEAR_2099_MS).write_rules(YEAR_2099_MS)
    with caplog.at_level(logging.WARNING):
        tables = rules(tmp_path, now_ms=T0_MS)
    assert tables.known_through_ms is None
    assert "known through 2099-01-01 00:00:00 UTC, which is ahead of this clock" in caplog.text
    # What the first commit of the start writes, before the source has said anything that is sure.
    tables.write_rules(None)
    assert known_through_ms(tmp_path) is None


def test_a_stored_time_that_has_passed_is_known(tmp_path: Path) -> None:
    rules(tmp_path, now_ms=T0_MS).write_rules(T0_MS)
    assert rules(tmp_path, now_ms=T0_MS).known_through_ms == T0_MS


def test_a_poll_of_the_year_2099_says_nothing_of_the_edits_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    entity = [SimpleNamespace(entity_type="user", entity_name="alice")]
    values = iter((5.0, 5.0, 6.0))

    def ask(self: QuotaAdmin, filters: Any) -> list[Any]:
        self.has_zookeeper = True  # no lag of the metadata
        value = SimpleNamespace(key="producer_byte_rate", value=next(values))
        return [
            SimpleNamespace(
                error_code=0, error_message="", entries=[SimpleNamespace(entity=entity, values=[value])]
            )
        ]

    monkeypatch.setattr(QuotaAdmin, "_ask", ask)
    clock: Iterator[int] = iter((1_000, 2_000, YEAR_2099_MS, YEAR_2099_MS, 5_000, 6_000))
    source = AdminSource(SETTINGS, lambda: next(clock))
    source.open(Ledger([], {}), None)
    answers = [source.read() for _ in range(3)]
    assert [answer and answer.known_through_ms for answer in answers] == [1_000, YEAR_2099_MS, 5_000]
    assert answers[2] is not None
    # Nobody knows when the poll of 2099 was made: the edit came after the one before it, which was there at the
    # first poll (0, since ever), and before this answer.
    assert answers[2].edits.changes == [
        QuotaChange(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE, 6.0, 5.0, 0, 6_000, 6_000)
    ]


@pytest.mark.parametrize(
    ("known_ms", "expected"),
    [
        (None, None),
        (T0_MS - 1, Heartbeat(T0_MS - 1, 7)),
        # Hosts differ by 5 s at most; a heartbeat never speaks of times that have not come.
        (T0_MS + 5_000, Heartbeat(T0_MS, 7)),
        (T0_MS + 5_001, None),
        (YEAR_2099_MS, None),
        # A quota file knows everything.
        (END_MS, Heartbeat(T0_MS, 7)),
    ],
)
def test_gates_get_no_heartbeat_for_rules_known_through_the_future(
    known_ms: int | None, expected: Heartbeat | None
) -> None:
    assert heartbeat(known_ms, T0_MS, issued_ms=7) == expected
