"""The cause in a notification: one sentence of the violations that somebody receives, without the name of a client."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.model.attribution.detectors import Cause
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.notify.causes import with_causes
from kquota_spark.notify.formats.text import sentence
from kquota_spark.notify.news.events import Event, Fact, over
from tests.support.attribution.labelled import CAUSES
from tests.support.attribution.simulated import FROM_MS, TO_MS
from tests.support.attribution.tables import write_recording
from tests.support.chance import Chance

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
