"""The review replays only hours in which a limit could throttle, and finds the delay of a replay of everything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from kquota_spark.config.governor import make_governor
from kquota_spark.config.settings import Settings
from kquota_spark.model.measure.points import Point
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_callback import LeaderBook
from kquota_spark.model.quotas.rules import BEGINNING_MS, RuleBook, RulePeriod
from kquota_spark.reports.clients.what_if import what_if
from kquota_spark.reports.review.screen import HOUR_MS, spans
from tests.support.chance import Chance
from tests.support.programs.command_output import run
from tests.support.reports.reviewed_tables import PRODUCE, Quotas, quota_file
from tests.support.tables.table_rows import T0_MS, usage, write_table

CLIENTS, HOURS, SECONDS = 40, 4, 25
BASE: Quotas = {Entity(DEFAULT): {PRODUCE: 100_000.0}, Entity("user-1"): {PRODUCE: 60_000.0}}
HEAD: Quotas = {Entity(DEFAULT): {PRODUCE: 80_000.0}, Entity("user-1", "app"): {PRODUCE: 50_000.0}}


def _second(client: int, client_id: str, at_s: int, rate: int) -> dict[str, Any]:
    """A second of a client with three requests."""
    time_ms = T0_MS + 1_000 * at_s
    points = [
        Point(time_ms + place * 300, time_ms, client, place, rate // 3, 0, 0)._asdict() for place in range(3)
    ]
    names = {"user": f"user-{client}", "client_id": client_id}
    return usage(at_s, amount=3 * (rate // 3), requests=3, points=points, **names)


def _bursts(chance: Chance) -> Iterator[dict[str, Any]]:
    """Bursts of clients over the edges of hours; about half of them come near a limit in some hour."""
    for client in range(CLIENTS):
        for hour in range(HOURS):
            # T0 is 20 minutes before a full hour.
            start_s = hour * 3_600 + 1_200 - chance.randint(0, 30)
            rate = chance.choice((1_000, 20_000, 70_000, 90_000, 130_000))
            for second in range(SECONDS):
                yield _second(client, chance.choice(("app", "job")), start_s + second, rate)


def _reviewed(root: Path, rows: Iterable[dict[str, Any]]) -> tuple[Settings, dict[str, Any]]:
    """The settings of tables with this usage, and what a review of `BASE` and `HEAD` finds in them."""
    write_table(root / "tables", "usage", *rows)
    write_table(root / "tables", "decisions")
    tables, config = str(root / "tables"), root / "kquota.yaml"
    config.write_text(f"cluster_id: demo\ntables: {json.dumps(tables)}\n")
    base, head = quota_file(root, "base.yaml", BASE), quota_file(root, "head.yaml", HEAD)
    words = ("--base", str(base), "--head", str(head), "--config", str(config))
    _, out, _ = run("review", *words, "--output", "json")
    return Settings(tables=tables, cluster_id="demo"), json.loads(out)


def _ms(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1_000)


def _delays(settings: Settings, from_ms: int, to_ms: int) -> tuple[int, int, int]:
    """The total delay of a replay of all requests before, and after in both loops, ms."""
    before, after = (
        make_governor(
            settings,
            RuleBook(RulePeriod(entity, values, BEGINNING_MS, None, None) for entity, values in quotas.items()),
            LeaderBook(),
        )
        for quotas in (BASE, HEAD)
    )  # fmt: skip
    found = what_if(settings, before, after, from_ms, to_ms).differences
    was, now = (sum(one.throttled_ms[side] for one in found) for side in (0, 1))
    return was, now, sum(one.closed.throttled_ms for one in found if one.closed is not None)


def test_the_delay_is_that_of_a_replay_of_everything(tmp_path: Path, chance: Chance) -> None:
    settings, answer = _reviewed(tmp_path, _bursts(chance))
    found = tuple(
        sum(one[f"delay_ms_{when}"] for one in answer["affected"])
        for when in ("before", "after", "after_closed")
    )
    # All clients change, so their groups have all the delay there is.
    assert found == _delays(settings, _ms(answer["from"]), _ms(answer["to"]))
    assert 0 < found[0] < found[2] < found[1]


def test_a_throttle_beyond_the_newest_second_is_no_delay_of_the_period(tmp_path: Path) -> None:
    """A burst of 20 s that ends with the tables: what a throttle moves beyond them is deferred (seed 127366)."""
    settings, answer = _reviewed(tmp_path, [_second(2, "app", second, 90_000) for second in range(20)])
    [group] = answer["affected"]
    end_ms = T0_MS + 20_000
    assert _ms(answer["to"]) == end_ms
    assert group["delay_ms_after_closed"] == _delays(settings, T0_MS, end_ms)[2] == 1_650
    # The delay moves the requests of 18.6, 19.0, 19.3 and 19.6 s to 20.25 s and later.
    assert group["deferred_bytes"] == 4 * 30_000
    # There, another throttle of 1,650 ms would follow.
    assert _delays(settings, T0_MS, end_ms + HOUR_MS)[2] == 2 * 1_650


def test_hours_beside_each_other_are_one_period() -> None:
    assert spans({3: 1, 4: 1, 9: 1}, 1_000, 500) == [
        (3 * HOUR_MS - 1_000, 5 * HOUR_MS + 500),
        (9 * HOUR_MS - 1_000, 10 * HOUR_MS + 500),
    ]
