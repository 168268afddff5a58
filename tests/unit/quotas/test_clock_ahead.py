"""The auditor's own clock jumps ahead and comes back, or is behind: that switches nothing off and loses no edit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.znodes.nodes import Node, QuotaPayload, View
from kquota_spark.gateway.messages import Heartbeat
from kquota_spark.gateway.publisher import heartbeat
from kquota_spark.kafka.quota_admin import QuotaAdmin
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import END_MS, QuotaChange
from kquota_spark.quotas import watched_sources
from kquota_spark.quotas.ledger import Ledger
from kquota_spark.quotas.stored import stored_rules
from kquota_spark.quotas.watch import Watcher, with_check
from kquota_spark.quotas.watched_sources import FOLLOWED, ZooKeeperSource
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
    source = FOLLOWED["admin"](SETTINGS, lambda: next(clock))
    recorded = Ledger([], {})
    answers = [source.changes(recorded) for _ in range(3)]
    assert [answer and answer.known_through_ms for answer in answers] == [1_000, YEAR_2099_MS, 5_000]
    assert answers[2] is not None
    # Nobody knows when the poll of 2099 was made: the edit came after the one before it, which was there at the
    # first poll (0, since ever), and before this answer.
    assert answers[2].edits.changes == [
        QuotaChange(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE, 6.0, 5.0, 0, 6_000, 6_000)
    ]


ALICE, RATE = Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE
DAY_MS = 86_400_000


class Polled:
    """A watcher of brokers that describe one quota; the clock and the quota are set by the test."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms, self.rate = T0_MS, 1e6
        # Its thread waits for longer than the test takes: each look is one of the test.
        quotas = Quotas(source="admin", poll_interval=Duration(DAY_MS), apply_lag=Duration(0))
        self.settings = Settings(cluster_id="c", tables=str(root), quotas=quotas)
        self.watcher = Watcher(self.settings, clock_ms=lambda: self.now_ms)

        def ask(admin: QuotaAdmin, filters: Any) -> list[Any]:
            admin.has_zookeeper = True  # no lag of the metadata
            entity = [SimpleNamespace(entity_type="user", entity_name="alice")]
            values = [SimpleNamespace(key="producer_byte_rate", value=self.rate)]
            entries = [SimpleNamespace(entity=entity, values=values)]
            return [SimpleNamespace(error_code=0, error_message="", entries=entries)]

        monkeypatch.setattr(QuotaAdmin, "_ask", ask)

    def look(self, now_ms: int, rate: float) -> None:
        """Let the watcher look at this limit at this time of its clock."""
        self.now_ms, self.rate = now_ms, rate
        self.watcher.poll()

    def restart(self, now_ms: int, rate: float) -> None:
        """Stop the watcher; another one looks at this limit at this time."""
        self.watcher.stop()
        self.now_ms, self.rate = now_ms, rate
        self.watcher = Watcher(self.settings, clock_ms=lambda: self.now_ms)
        self.watcher.start()

    def rules(self) -> list[tuple[int, int | None, float | None, int | None]]:
        """From, to, limit and the time from which on it is certain, of alice as stored."""
        found = stored_rules(self.settings).periods
        return [
            (rule.valid_from_ms, rule.valid_to_ms, rule.values.get(RATE), rule.certain_from_ms)
            for rule in found
            if rule.entity == ALICE
        ]


@pytest.fixture
def polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Polled]:
    made = Polled(tmp_path, monkeypatch)
    made.watcher.start()
    yield made
    made.watcher.stop()


def test_an_edit_after_the_clock_came_back_counts_from_now_on(polled: Polled) -> None:
    polled.look(T0_MS + DAY_MS, 4e6)
    polled.look(T0_MS + DAY_MS + 1_000, 5e6)
    polled.look(T0_MS + 10_000, 2e6)
    # 4 MB/s and 5 MB/s came between the last look of the right clock and the next one of it, and so did 2 MB/s.
    assert polled.rules() == [(0, T0_MS, 1e6, T0_MS), (T0_MS, None, 2e6, T0_MS + 10_000)]


def test_an_edit_seen_by_a_clock_ahead_came_between_the_looks_of_the_right_one(polled: Polled) -> None:
    polled.look(T0_MS + DAY_MS, 4e6)
    polled.look(T0_MS + DAY_MS + 1_000, 5e6)
    polled.look(T0_MS + 10_000, 5e6)
    mended = [(0, T0_MS, 1e6, T0_MS), (T0_MS, None, 5e6, T0_MS + 10_000)]
    assert polled.rules() == mended
    # It stays so when that time has come: another run reads the mended times.
    polled.restart(T0_MS + 2 * DAY_MS, 5e6)
    assert polled.rules() == mended


def test_a_start_mends_what_a_run_with_a_clock_ahead_has_recorded(
    polled: Polled, caplog: pytest.LogCaptureFixture
) -> None:
    polled.restart(T0_MS + DAY_MS, 4e6)
    polled.restart(T0_MS + DAY_MS + 1_000, 5e6)
    polled.restart(T0_MS + 10_000, 2e6)
    assert polled.rules() == [(0, T0_MS, 1e6, T0_MS), (T0_MS, None, 2e6, T0_MS + 10_000)]
    # Which of the two clocks is wrong, this machine cannot know.
    said = "times ahead of this clock: it was ahead when they were seen, or is behind now"
    assert said in caplog.text


def zookeeper(monkeypatch: pytest.MonkeyPatch, clock: Iterator[int], *views: View) -> ZooKeeperSource:
    source, shown = ZooKeeperSource(Settings(), lambda: next(clock)), iter(views)
    monkeypatch.setattr(source, "_tree", SimpleNamespace(read=lambda: next(shown)))
    return source


def node(rate: float, changed_at_ms: int, version: int) -> View:
    return View({"users/alice": Node(QuotaPayload({RATE: rate}), changed_at_ms, version)}, {"users": 1})


def test_an_edit_of_a_zookeeper_host_whose_clock_is_ahead_came_between_two_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A look asks the clock before it reads, and again when it has read.
    clock = iter((1_000, 1_001, 9_000, 9_001, 20_000, 20_001))
    views = node(1.0, 500, 5), node(2.0, 9_001 + DAY_MS, 6), node(3.0, 15_000, 7)
    source = zookeeper(monkeypatch, clock, *views)
    recorded = Ledger([], {})
    found = [answer.edits.changes for answer in (source.changes(recorded) for _ in views) if answer]
    assert found == [
        [QuotaChange(ALICE, RATE, 1.0, None, 500, 5)],
        [QuotaChange(ALICE, RATE, 2.0, 1.0, 1_000, 6, 9_001)],
        [QuotaChange(ALICE, RATE, 3.0, 2.0, 15_000, 7)],
    ]


def test_a_zookeeper_clock_that_differs_as_clocks_do_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = zookeeper(monkeypatch, iter((1_000, 1_001)), node(1.0, 6_001, 5))
    answer = source.changes(Ledger([], {}))
    assert answer is not None
    assert answer.edits.changes == [QuotaChange(ALICE, RATE, 1.0, None, 6_001, 5)]


class Kept:
    """A watcher of a ZooKeeper in memory with one quota; the clock and the tree are set by the test."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms, self.view = T0_MS, node(1e6, T0_MS - 1_000, 1)
        tree = SimpleNamespace(
            start=lambda: None, stop=lambda: None, read=lambda: self.view, changed=threading.Event()
        )
        monkeypatch.setattr(watched_sources, "QuotaTree", lambda quotas: tree)
        # No thread: each look is one of the test.
        monkeypatch.setattr(Watcher, "_run", lambda self, source: None)
        quotas = Quotas(apply_lag=Duration(0))
        self.settings = Settings(cluster_id="c", tables=str(root), quotas=quotas)
        self.watcher = Watcher(self.settings, clock_ms=lambda: self.now_ms)

    def start(self, now_ms: int, view: View, **quotas: Any) -> None:
        """Another watcher that begins with this tree at this time of its clock."""
        self.watcher.stop()
        self.now_ms, self.view = now_ms, view
        settings = self.settings.changed(quotas=self.settings.quotas.changed(**quotas))
        self.watcher = Watcher(settings, clock_ms=lambda: self.now_ms)
        self.watcher.start()

    def look(self, now_ms: int, view: View) -> None:
        """Let the watcher look at this tree at this time of its clock."""
        self.now_ms, self.view = now_ms, view
        self.watcher.poll()

    def rules(self) -> list[tuple[int, int | None, float | None, int | None]]:
        """See `Polled.rules`."""
        found = stored_rules(self.settings).periods
        return [
            (rule.valid_from_ms, rule.valid_to_ms, rule.values.get(RATE), rule.certain_from_ms)
            for rule in found
        ]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    made = Kept(tmp_path, monkeypatch)
    made.watcher.start()
    yield made
    made.watcher.stop()


HOUR_MS = 3_600_000
FIRST, SECOND = node(1e6, T0_MS - 1_000, 1), node(2e6, T0_MS + HOUR_MS, 2)
TWO_PERIODS = [
    (0, T0_MS - 1_000, None, None),
    (T0_MS - 1_000, T0_MS + HOUR_MS, 1e6, None),
    (T0_MS + HOUR_MS, None, 2e6, None),
]
IS_BEHIND = (
    "the clock of this machine is behind: it and ZooKeeper timed an edit of users/alice alike, 2026-11-21 06:40:00 "
    "UTC, which has not come yet: set it (NTP) and start again. If it is right, both were ahead: start again with "
    "quotas.accept_mass_removal: true, or kquota watch --accept-removal"
)


def test_a_start_with_a_clock_behind_leaves_an_edit_as_zookeeper_timed_it(kept: Kept) -> None:
    kept.look(T0_MS + HOUR_MS + 10, SECOND)
    assert kept.rules() == TWO_PERIODS
    with pytest.raises(UserError) as said:
        kept.start(T0_MS + 60_000, SECOND)
    assert str(said.value) == IS_BEHIND
    # The clock is set, and another run reads what is stored.
    kept.start(T0_MS + 2 * HOUR_MS, SECOND)
    assert kept.rules() == TWO_PERIODS


def test_a_clock_that_falls_behind_ends_the_watch_and_leaves_the_edits(kept: Kept) -> None:
    kept.look(T0_MS + HOUR_MS + 10, SECOND)
    with pytest.raises(UserError, match="the clock of this machine is behind"):
        kept.look(T0_MS + 60_000, SECOND)
    assert kept.rules() == TWO_PERIODS


AHEAD_BY_A_MINUTE = node(2e6, T0_MS + 70_000, 2)
"""As a look at T0 + 10 s shows it."""


def test_an_edit_that_is_a_little_ahead_is_uncertain_until_zookeepers_time(kept: Kept) -> None:
    kept.look(T0_MS + 10_000, AHEAD_BY_A_MINUTE)
    # Our clock may be a minute behind: then the limit was 1 MB/s until T0 + 70 s. The look before was at T0.
    uncertain = [
        (0, T0_MS - 1_000, None, None),
        (T0_MS - 1_000, T0_MS, 1e6, None),
        (T0_MS, None, 2e6, T0_MS + 70_000),
    ]
    assert kept.rules() == uncertain
    # It stays so: no clock was ahead that has come back.
    kept.look(T0_MS + 11_000, AHEAD_BY_A_MINUTE)
    assert kept.rules() == uncertain
    kept.start(T0_MS + 12_000, AHEAD_BY_A_MINUTE)
    assert kept.rules() == uncertain


def test_an_edit_of_a_clock_ahead_is_mended_though_zookeeper_was_further_ahead(kept: Kept) -> None:
    kept.look(T0_MS + DAY_MS, node(2e6, T0_MS + DAY_MS + 60_000, 2))
    kept.look(T0_MS + 10_000, node(2e6, T0_MS + DAY_MS + 60_000, 2))
    assert kept.rules() == [
        (0, T0_MS - 1_000, None, None),
        (T0_MS - 1_000, T0_MS, 1e6, None),
        (T0_MS, None, 2e6, T0_MS + 10_000),
    ]


def test_two_clocks_that_were_ahead_together_are_put_right_on_demand(kept: Kept) -> None:
    kept.look(T0_MS + HOUR_MS + 10, SECOND)
    kept.start(T0_MS + 60_000, SECOND, accept_mass_removal=True)
    # Nobody remembers a look before: it came between the first edit and now.
    assert kept.rules() == [
        (0, T0_MS - 1_000, None, None),
        (T0_MS - 1_000, None, 2e6, T0_MS + 60_000),
    ]


def test_an_edit_pushed_behind_a_deletion_by_a_clock_ahead_is_no_sign_of_a_clock_behind(kept: Kept) -> None:
    kept.look(T0_MS + DAY_MS, View({}, {"users": 2}))
    # ZooKeeper's clock is right, but nothing is older than the deletion, which our clock timed.
    kept.look(T0_MS + DAY_MS + 1_000, node(2e6, T0_MS + 5_000, 3))
    kept.look(T0_MS + 10_000, node(2e6, T0_MS + 5_000, 3))
    assert kept.rules() == [
        (0, T0_MS - 1_000, None, None),
        (T0_MS - 1_000, T0_MS, 1e6, None),
        (T0_MS, None, 2e6, T0_MS + 10_000),
    ]


def test_looks_are_kept_as_the_ends_of_what_was_looked_at_without_a_pause() -> None:
    looks: list[int] = []
    for check_ms in (1_000, 2_000, 62_000, 200_000, 201_000, 3_000):
        looks = with_check(looks, check_ms)
    # 1 s to 62 s without a pause beyond 60 s; 200 s to 201 s; then the clock came back.
    assert looks == [62_000, 201_000, 3_000]


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
