"""Agreement of closed days is kept in a table of its own, counted once, and read together with today's."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kquota_spark.audit.past import maintain
from kquota_spark.config.settings import Settings
from kquota_spark.reports.agreement.agreement import of_day
from kquota_spark.store.reading import query
from tests.support.programs.command_output import as_json, run, shown
from tests.support.tables.table_rows import DAY, decision, write_table

roll_up_agreement = partial(maintain.roll_up_agreement, rows_of=of_day)
BEFORE = DAY - timedelta(days=1)
_DAY_S = 86_400


def of_before(offset_s: int, **changed: Any) -> dict[str, Any]:
    return decision(offset_s - _DAY_S, event_date=BEFORE, **changed)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_table(
        tmp_path,
        "decisions",
        of_before(
            0, requests_judged=10, requests_agreeing=9, false_negative=1, throttle_errors_ms=[0, -1, 5]
        ),
        of_before(1, requests_judged=10, requests_agreeing=10, throttle_errors_ms=[-70], uncertain=2),
        of_before(1, broker_id=2, requests_judged=5, requests_agreeing=5),
        decision(0, requests_judged=75, requests_agreeing=74, false_positive=1, excluded=3, late=1),
    )
    return tmp_path


def test_a_day_is_rolled_up_by_bucket_and_again_only_if_its_decisions_have_changed(root: Path) -> None:
    settings = Settings(tables=str(root))
    assert roll_up_agreement(settings, BEFORE) == 2
    assert kept(settings) == [
        # 4 throttle errors: 0, 1 and 5 ms, 70 ms.
        (BEFORE, 1, "alice", 20, 19, 0, 1, 2, 4, 2, 3, 70),
        (BEFORE, 2, "alice", 5, 5, 0, 0, 0, 0, 0, 0, None),
    ]
    # Nothing is newer: nothing is written.
    assert roll_up_agreement(settings, BEFORE) == 0
    write_table(root, "decisions", of_before(9, broker_id=2, requests_judged=7, requests_agreeing=7))
    assert roll_up_agreement(settings, BEFORE) == 2
    assert [row[3] for row in kept(settings)] == [20, 12]


def kept(settings: Settings) -> list[tuple[Any, ...]]:
    sql = (
        "select event_date, broker_id, bucket_user, requests_judged, requests_agreeing, false_positive, "
        "false_negative, uncertain, throttles_compared, throttle_within_1_ms, throttle_within_10_ms, "
        "throttle_error_max_ms from agreement order by all"
    )
    return query(settings, ["agreement"], sql).rows


@pytest.mark.parametrize("group", ["broker", "type", "bucket", "day"])
def test_rolled_up_days_and_live_ones_give_what_live_ones_alone_give(root: Path, group: str) -> None:
    live = as_json("agreement", "--tables", str(root), "--by", group)
    roll_up_agreement(Settings(tables=str(root)), BEFORE)
    assert as_json("agreement", "--tables", str(root), "--by", group) == live
    judged = {"broker": [95, 5], "type": [100], "bucket": [95, 5], "day": [25, 75]}
    assert [row["requests_judged"] for row in live["rows"]] == judged[group]


def test_a_rolled_up_day_outlives_its_decisions_and_its_restatement_counts(root: Path) -> None:
    settings = Settings(tables=str(root))
    roll_up_agreement(settings, BEFORE)
    roll_up_agreement(settings, DAY)
    DeltaTable(str(root / "decisions")).delete(f"event_date = '{BEFORE}'")
    assert "agreement 98.00 % of 100 certain verdicts" in shown("agreement", "--tables", str(root))
    assert roll_up_agreement(settings, BEFORE) == 0  # nothing to make it of: what was kept stays
    assert "agreement 98.00 % of 100 certain verdicts" in shown("agreement", "--tables", str(root))
    write_table(root, "decisions", decision(5, requests_judged=100, requests_agreeing=100))
    roll_up_agreement(settings, DAY)
    assert "agreement 99.00 % of 200 certain verdicts" in shown("agreement", "--tables", str(root))


def test_a_rolled_up_day_that_is_cut_is_read_live(root: Path) -> None:
    roll_up_agreement(Settings(tables=str(root)), BEFORE)
    since = ("--from", "2026-11-20T05:40:01Z", "--to", "2026-11-21T05:40:00Z")
    [first, second] = as_json("agreement", "--tables", str(root), *since)["rows"]
    assert (first["requests_judged"], second["requests_judged"]) == (10, 5)


def test_one_differing_verdict_is_not_rounded_away(tmp_path: Path) -> None:
    write_table(
        tmp_path, "decisions", decision(requests_judged=100_000, requests_agreeing=99_999, false_positive=1)
    )
    assert "agreement 99.99 % of 100,000 certain verdicts" in shown("agreement", "--tables", str(tmp_path))


def test_without_decisions_the_command_says_what_to_do(tmp_path: Path) -> None:
    code, out, err = run("agreement", "--tables", str(tmp_path))
    assert (code, out) == (1, "")
    assert err.startswith(f"kquota: table decisions is missing under {tmp_path}: run the audit first")
    write_table(tmp_path, "decisions")
    assert shown("agreement", "--tables", str(tmp_path)) == "no decisions in that time\n"


def test_a_span_has_to_end_after_its_start(root: Path) -> None:
    code, _, err = run("agreement", "--tables", str(root), "--from", "2026-11-21", "--to", "2026-11-20")
    assert (code, err) == (
        1,
        "kquota: --since 2026-11-21 00:00:00 UTC is not before --until 2026-11-20 00:00:00 UTC\n",
    )


def test_the_foot_has_one_number_for_days_that_are_kept_and_live(root: Path) -> None:
    write_table(root, "usage")
    roll_up_agreement(Settings(tables=str(root)), BEFORE)
    envelope = as_json("usage", "--tables", str(root))["agreement"]
    assert (envelope["requests_judged"], envelope["agreement_percent"]) == (100, 98.0)
