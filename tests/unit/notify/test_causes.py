"""The cause in a notification: one sentence of the violations that somebody receives, without the name of a client."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.model.attribution.detectors import Cause
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.notify.causes import with_causes
from kquota_spark.notify.formats.text import sentence
from kquota_spark.notify.news.events import Event, Fact, over
from tests.support.attribution.labelled import CAUSES
from tests.support.attribution.simulated import FROM_MS, TO_MS
from tests.support.attribution.tables import write_recording
from tests.support.chance import Chance
from tests.support.reports.gathered_report import rule
from tests.support.tables.table_rows import T0_MS, decision, usage, write_table

FACTS: dict[str, Fact] = {
    "broker_id": 1, "quota_type": "produce", "user": "", "client_id": "app", "tags": None, "rule": "clients/app",
    "limit_per_s": 160_000.0, "peak_rate_per_s": 240_000.0, "peak_quota_used_percent": 150.0, "delay_ms": 90_000,
    "throttled_requests": 100,
}  # fmt: skip
BEGUN = Event("demo/violation/e0", "violation", "begins", FROM_MS, FROM_MS, dict(FACTS))
ENDED = over(BEGUN, TO_MS)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    root = tmp_path_factory.mktemp("tables")
    write_recording(root, CAUSES[Cause.NEW_CLIENT](Chance(4)), Entity(client_id="app"))
    return Settings(cluster_id="demo", tables=str(root))


def test_the_end_of_a_violation_has_its_cause(settings: Settings) -> None:
    [(event, routes)] = with_causes(settings, [(ENDED, ["ops"])], TO_MS)
    assert (event.event_id, event.status, routes) == ("demo/violation/e0/over", "over", ["ops"])
    assert event.facts["why"] == "100 % of the delay: new client"
    assert sentence(event, str).endswith("; why: 100 % of the delay: new client")


def test_a_violation_that_still_lasts_is_explained_up_to_now(settings: Settings) -> None:
    [(event, _)] = with_causes(settings, [(BEGUN, ["ops"])], TO_MS)
    assert event.facts["why"] == "100 % of the delay: new client"
    # After one second there is nothing to explain yet.
    [(early, _)] = with_causes(settings, [(BEGUN, ["ops"])], FROM_MS + 1_000)
    assert early == BEGUN


def test_what_nobody_receives_and_what_is_no_violation_stays_as_it_is(settings: Settings) -> None:
    frozen = Event("demo/frozen/1", "frozen", "begins", 1, 1, {"actor": "ann", "reason": "x"})
    news = [(ENDED, list[str]()), (frozen, ["ops"])]
    assert with_causes(settings, news, TO_MS) == news


def test_without_tables_a_message_has_no_cause(tmp_path: Path) -> None:
    missing = Settings(cluster_id="demo", tables=str(tmp_path / "none"))
    assert with_causes(missing, [(ENDED, ["ops"])], TO_MS) == [(ENDED, ["ops"])]
    assert "why" not in sentence(ENDED, str)


def test_at_most_five_events_of_one_read_are_explained(settings: Settings) -> None:
    news = [(replace(ENDED, event_id=f"{ENDED.event_id}/{number}"), ["ops"]) for number in range(7)]
    found = with_causes(settings, news, TO_MS)
    assert ["why" in event.facts for event, _ in found] == [True] * 5 + [False] * 2


def test_a_violation_that_may_be_a_burst_is_not_sent_as_growth(tmp_path: Path) -> None:
    """alice had 10 kB/s, then 2 MB in 2 s. Her limit of 100 kB/s lets them through within a minute."""
    names = {"user": "alice", "client_id": "app"}
    calm = [usage(second, **names, amount=600_000, points=[]) for second in range(-720, 0, 60)]
    points = [
        Point(T0_MS + 100 * order, T0_MS + 100 * order + 1, order, order, 99_900 + order, 0, int(PointKind.PRODUCE))
        for order in range(20)
    ]  # fmt: skip
    burst = [
        usage(second, **names, amount=sum(each.amount for each in part), points=[each._asdict() for each in part])
        for second, part in enumerate((points[:10], points[10:]))
    ]  # fmt: skip
    write_table(tmp_path, "usage", *calm, *burst)
    write_table(tmp_path, "decisions", decision(0, model_variant="3.8+/11x1000ms"))
    limit = rule(Entity(client_id="app"), since_s=-86_400, producer_byte_rate=100_000.0)
    write_table(tmp_path, "quota_rules", limit)
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    begun = replace(BEGUN, since_ms=T0_MS, at_ms=T0_MS)

    def why() -> Fact:
        [(event, _)] = with_causes(settings, [(begun, ["ops"])], T0_MS + 2_000)
        return event.facts["why"]

    assert why() == "100 % of the delay: burst or growth, known at 11-21 05:41:00"
    # A minute later the tables show that nothing more came.
    write_table(tmp_path, "usage", usage(59, user="bob", client_id="other", points=[]))
    assert why() == (
        "100 % of the delay: a burst after a pause, 2.0 MB at 11-21 05:40:00; the limit lets it through within 60 s"
    )
