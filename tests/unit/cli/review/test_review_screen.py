"""The review replays only hours in which a limit could throttle, and finds the delay of a replay of everything."""

from __future__ import annotations

import json
from pathlib import Path

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


def _write(root: Path, chance: Chance) -> None:
    """Bursts of clients over the edges of hours; about half of them come near a limit in some hour."""
    rows = []
    for client in range(CLIENTS):
        for hour in range(HOURS):
            # T0 is 20 minutes before a full hour.
            start_s = hour * 3_600 + 1_200 - chance.randint(0, 30)
            rate = chance.choice((1_000, 20_000, 70_000, 90_000, 130_000))
            for second in range(SECONDS):
                time_ms = T0_MS + 1_000 * (start_s + second)
                points = [
                    Point(time_ms + place * 300, time_ms, client, place, rate // 3, 0, 0)._asdict()
                    for place in range(3)
                ]
                names = {"user": f"user-{client}", "client_id": chance.choice(("app", "job"))}
                rows.append(
                    usage(start_s + second, amount=3 * (rate // 3), requests=3, points=points, **names)
                )
    write_table(root / "tables", "usage", *rows)
    write_table(root / "tables", "decisions")


def _delays(settings: Settings) -> tuple[int, int, int]:
    """The total delay of a replay of all requests before, and after in both loops, ms."""
    before, after = (
        make_governor(
            settings,
            RuleBook(RulePeriod(entity, values, BEGINNING_MS, None, None) for entity, values in quotas.items()),
            LeaderBook(),
        )
        for quotas in (BASE, HEAD)
    )  # fmt: skip
    found = what_if(settings, before, after, T0_MS, T0_MS + 5 * HOUR_MS).differences
    was, now = (sum(one.throttled_ms[side] for one in found) for side in (0, 1))
    return was, now, sum(one.closed.throttled_ms for one in found if one.closed is not None)


def test_the_delay_is_that_of_a_replay_of_everything(tmp_path: Path, chance: Chance) -> None:
    _write(tmp_path, chance)
    settings = Settings(tables=str(tmp_path / "tables"), cluster_id="demo")
    (tmp_path / "kquota.yaml").write_text(
        f"cluster_id: demo\ntables: {json.dumps(str(tmp_path / 'tables'))}\n"
    )
    base, head = quota_file(tmp_path, "base.yaml", BASE), quota_file(tmp_path, "head.yaml", HEAD)
    words = ("--base", str(base), "--head", str(head), "--config", str(tmp_path / "kquota.yaml"))
    _, out, _ = run("review", *words, "--output", "json")
    groups = json.loads(out)["affected"]
    found = tuple(
        sum(one[f"delay_ms_{when}"] for one in groups) for when in ("before", "after", "after_closed")
    )
    # All clients change, so their groups have all the delay there is.
    assert found == _delays(settings)
    assert 0 < found[0] < found[2] < found[1]


def test_hours_beside_each_other_are_one_period() -> None:
    assert spans({3: 1, 4: 1, 9: 1}, 1_000, 500) == [
        (3 * HOUR_MS - 1_000, 5 * HOUR_MS + 500),
        (9 * HOUR_MS - 1_000, 10 * HOUR_MS + 500),
    ]
