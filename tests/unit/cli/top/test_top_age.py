"""`kquota top`: tables that nobody writes any more are never shown as if they were of now."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kquota_spark.cli.text.page import Tone
from kquota_spark.cli.text.render import Colour, table_report
from kquota_spark.cli.top.age import Age, age_of, length_text, stale_after_ms
from kquota_spark.cli.top.command import top_report
from kquota_spark.cli.top.page import screen
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Stream
from tests.support.clock import set_clock
from tests.support.programs.command_output import run
from tests.support.tables.table_rows import T0_MS, decision, write_table
from tests.unit.cli.top.test_top_page import row, texts, view

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def test_the_limit_is_the_lateness_and_six_triggers_and_half_a_minute() -> None:
    # 20 s + 6 x 10 s + 30 s
    assert stale_after_ms(Stream(allowed_lateness=Duration(20_000), trigger=Duration(10_000))) == 110_000
    assert not age_of(T0_MS, T0_MS + 110_000, 110_000).is_stale
    assert age_of(T0_MS, T0_MS + 110_001, 110_000).is_stale
    assert age_of(T0_MS + 5_000, T0_MS, 0) == Age(T0_MS + 5_000, 0, False)


@pytest.mark.parametrize(
    ("length_ms", "text"),
    [(0, "0 s"), (119_999, "119 s"), (120_000, "2 min"), (63 * MINUTE_MS, "63 min"), (2 * HOUR_MS, "2 h"),
     (47 * HOUR_MS, "47 h"), (48 * HOUR_MS, "2 days")],
)  # fmt: skip
def test_a_length_is_in_the_largest_unit_of_which_it_has_two(length_ms: int, text: str) -> None:
    assert length_text(length_ms) == text


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    set_clock(monkeypatch, lambda: T0_MS + 63 * MINUTE_MS)
    write_table(tmp_path, "decisions", decision(quota_used_percent=150.0))
    return tmp_path


def test_one_table_of_an_hour_ago_begins_with_stale(tables: Path) -> None:
    code, out, _ = run("top", "--once", "--tables", str(tables))
    assert code == 0
    assert out.splitlines()[0] == "STALE: newest second 63 min ago (2026-11-21 05:40:00 UTC)"
    assert out.splitlines()[-1] == "1 bucket, by used"
    code, out, _ = run("top", "--once", "--tables", str(tables), "--user", "nobody")
    assert out == (
        "STALE: newest second 63 min ago (2026-11-21 05:40:00 UTC)\n"
        "no buckets in the last minute of the tables; the newest second is 2026-11-21 05:40:00 UTC\n"
    )


def test_json_has_the_age_and_whether_it_is_stale(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def envelope() -> dict[str, object]:
        found = json.loads(run("top", "--output", "json", "--tables", str(tables))[1])
        return {name: found[name] for name in ("is_stale", "newest_second", "age_ms")}

    stale = {"is_stale": True, "newest_second": "2026-11-21T05:40:00Z", "age_ms": 63 * MINUTE_MS}
    assert envelope() == stale
    # The settings' own: 5 s + 6 x 5 s + 30 s.
    set_clock(monkeypatch, lambda: T0_MS + 65_000)
    assert envelope() == stale | {"is_stale": False, "age_ms": 65_000}


def test_no_row_of_a_stale_table_is_red() -> None:
    answer = view(row()).answer
    assert answer is not None
    live, stale = (top_report(answer, 100, Age(59_000, 1_000, is_stale)) for is_stale in (False, True))
    assert [live.colour(row()), stale.colour(row())] == [Colour.RED, None]
    assert "\x1b[31m" in table_report(live, 100, has_colour=True)
    assert "\x1b" not in table_report(stale, 100, has_colour=True)


def test_the_full_screen_is_red_in_its_title_only_while_it_is_stale() -> None:
    def red(stale_after: int) -> list[str]:
        lines = screen(replace(view(row()), stale_after_ms=stale_after), 59_000 + 63 * MINUTE_MS, 100, 24)
        return [
            text
            for line, text in zip(lines, texts(lines), strict=True)
            if any(piece.tone is Tone.OVER for piece in line.pieces)
        ]

    [title] = red(30_000)
    assert title.endswith("STALE: newest second 63 min ago (1970-01-01 00:00:59 UTC)")
    [bucket] = red(64 * MINUTE_MS)
    assert "alice / etl" in bucket
