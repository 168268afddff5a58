"""The figures of some buckets are those of all traffic: clients that share buckets with theirs are judged too."""

from __future__ import annotations

import os
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.govern.govern import Governed, RuleGovernor
from kquota_spark.model.loops.tried import Key
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.quotas.rules import RuleBook, RulePeriod
from kquota_spark.reports.clients import judging_processes
from kquota_spark.reports.clients.judged_groups import Figures, Period, judged_group, summed
from kquota_spark.reports.clients.linked_clients import Identity, Linked, linked_clients, with_buckets
from kquota_spark.reports.clients.stored_usage import stored_usage
from kquota_spark.reports.clients.what_if import WARM_UP_MS, what_if
from tests.support.chance import Chance
from tests.support.tables.table_rows import T0_MS, usage, write_table

PRODUCE, CONSUME = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
SECONDS = 40
WHOLE = (T0_MS - WARM_UP_MS, T0_MS + 1_000 * SECONDS)
NAMES = [(f"user-{number}", client_id) for number in range(6) for client_id in ("etl", "app", "job")]
"""In the bucket of client `etl`, of three users, or of the pair, by the quotas below."""


def governor(etl: float, user: float) -> RuleGovernor:
    quotas: dict[Entity, dict[AnyKey, float]] = {
        Entity(None, "etl"): {PRODUCE: etl},
        Entity(DEFAULT, None): {CONSUME: user},
        **{Entity(f"user-{number}"): {PRODUCE: user} for number in range(3)},
    }
    return RuleGovernor(RuleBook(RulePeriod(entity, values, 0, None, 1) for entity, values in quotas.items()))


def written(root: Path, chance: Chance) -> Settings:
    """Clients that produce and fetch on the same connection, on two brokers."""
    rows: list[dict[str, Any]] = []
    for place, (user, client_id) in enumerate(NAMES):
        for quota_type, kind in (("produce", PointKind.PRODUCE), ("fetch", PointKind.FETCH)):
            for second in range(0, SECONDS, 2):
                time_ms = T0_MS + 1_000 * second + chance.randrange(900)
                amount = chance.randrange(1_000, 60_000)
                point = Point(
                    time_ms, time_ms + 1, 100 + place, chance.randrange(10**6), amount, 0, int(kind)
                )
                rows.append(
                    usage(second, user=user, client_id=client_id, quota_type=quota_type, amount=amount,
                          broker_id=1 + place % 2, points=[point._asdict()])
                )  # fmt: skip
    write_table(root / "tables", "usage", *rows)
    write_table(root / "tables", "decisions")
    return Settings(tables=str(root / "tables"), cluster_id="demo")


GOVERNORS = governor(60_000.0, 40_000.0), governor(30_000.0, 20_000.0)


def of_all_traffic(settings: Settings) -> dict[Key, Figures]:
    """The figures with all clients of a broker in one group."""
    found: dict[Key, Figures] = {}
    for broker_id in (1, 2):
        rows = list(stored_usage(settings, *WHOLE, tuple(QuotaType), broker_id=broker_id))
        rings = RateConfig(), RateConfig()
        judged = judged_group(rows, GOVERNORS, rings, Period(T0_MS, WHOLE[1]))
        for key, figures in judged.figures.items():
            found[key] = summed(found[key], figures) if key in found else figures
    return found


@pytest.fixture
def settings(tmp_path: Path, chance: Chance) -> Settings:
    return written(tmp_path, chance)


def test_each_bucket_alone_has_the_figures_of_all_traffic(settings: Settings) -> None:
    moved = 0
    for key, figures in of_all_traffic(settings).items():
        found = what_if(settings, *GOVERNORS, T0_MS, WHOLE[1], wanted={key: [WHOLE]}).differences
        [one] = [each for each in found if (each.quota_type, each.bucket) == key]
        assert (one.before, one.after, one.closed) == (figures.before, figures.after, figures.closed)
        moved += figures.closed is not None and figures.closed.throttled_ms > 0
    assert moved >= 4


def identity(
    user: str, client_id: str, quota_type: QuotaType = QuotaType.PRODUCE, broker_id: int = 1
) -> Identity:
    return Identity(broker_id, quota_type, Principal("User", user), client_id, T0_MS, 1)


def test_clients_are_linked_by_buckets_of_any_type_before_or_after() -> None:
    seen = [
        identity("a", "x"), identity("b", "x"),  # the bucket of client x
        identity("b", "y", QuotaType.FETCH), identity("b", "x", QuotaType.FETCH),  # the fetches of user b
        identity("c", "z"), identity("d", "z"),  # the bucket of client z, after the change only
        identity("a", "x", broker_id=2),
    ]  # fmt: skip
    before = RuleGovernor(RuleBook([
        RulePeriod(Entity(None, "x"), {PRODUCE: 1.0}, 0, None, 1),
        RulePeriod(Entity("b"), {CONSUME: 1.0}, 0, None, 1),
        RulePeriod(Entity("c"), {PRODUCE: 1.0}, 0, None, 1),
    ]))  # fmt: skip
    after = RuleGovernor(RuleBook([
        RulePeriod(Entity(None, "z"), {PRODUCE: 1.0}, 0, None, 1),
        RulePeriod(Entity("b"), {CONSUME: 1.0}, 0, None, 1),
        RulePeriod(Entity(None, "x"), {PRODUCE: 1.0}, 0, None, 1),
    ]))  # fmt: skip
    found = linked_clients(seen, (before, after), WHOLE)
    assert [(each.broker_id, sorted(each.clients), each.requests) for each in found] == [
        (1, [("a", "x"), ("b", "x"), ("b", "y")], 4),
        (1, [("c", "z"), ("d", "z")], 2),
        (2, [("a", "x")], 1),
    ]
    # Of the groups with the fetches of user b, and their periods: those that overlap are one.
    key = QuotaType.FETCH, Bucket("b", "")
    [chosen] = with_buckets(found, {key: [(0, 10), (5, 20), (30, 40)]})
    assert (chosen.clients, chosen.spans) == (found[0].clients, ((0, 20), (30, 40)))


def test_a_bucket_that_an_edit_makes_in_the_period_links_its_clients() -> None:
    edited = RuleGovernor(RuleBook([
        RulePeriod(Entity("a"), {}, 0, T0_MS + 5_000, None),
        RulePeriod(Entity("a"), {PRODUCE: 1.0}, T0_MS + 5_000, None, 1),
    ]))  # fmt: skip
    seen = [identity("a", "x"), identity("a", "y")]
    assert [len(each.clients) for each in linked_clients(seen, (edited, edited), WHOLE)] == [2]
    assert [len(each.clients) for each in linked_clients(seen, (edited, edited), (0, T0_MS))] == [1, 1]


def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 100 requests per process the 720 of the tables would take seven; there are two cores."""
    monkeypatch.setattr(judging_processes, "LEAST_REQUESTS", 100)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


def test_two_processes_find_what_one_does(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    one = what_if(settings, *GOVERNORS, T0_MS, WHOLE[1])
    two_processes(monkeypatch)
    assert what_if(settings, *GOVERNORS, T0_MS, WHOLE[1]) == one
    assert one.requests == 2 * len(NAMES) * SECONDS // 2


class Dying(RuleGovernor):
    """Ends the process that asks it, if a replay started that."""

    def govern(
        self, broker_id: int, quota_type: QuotaType, principal: Principal, client_id: str, time_ms: int
    ) -> Governed:
        if parent_process() is not None:
            os._exit(1)
        return super().govern(broker_id, quota_type, principal, client_id, time_ms)


def test_a_process_that_ends_early_is_an_error(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    two_processes(monkeypatch)
    with pytest.raises(
        UserError, match="a process of the replay ended early, usually because memory ran out"
    ):
        what_if(settings, Dying(GOVERNORS[0].book), GOVERNORS[1], T0_MS, WHOLE[1])


def test_the_largest_groups_are_spread_over_processes() -> None:
    def group(requests: int) -> Linked:
        return Linked(1, frozenset(), None, requests, ())

    groups = [group(requests) for requests in (5, 90, 60, 40)]
    # 90 and 60 first; 40 beside 60, and 5 beside 90.
    assert judging_processes.places_of(groups, 2) == [[0, 1], [2, 3]]
    assert judging_processes.places_of(groups[:1], 2) == [[0]]
