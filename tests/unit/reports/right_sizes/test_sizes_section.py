"""The section on right sizes: the buckets of the period with the limits that are furthest from their targets."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.pages.page import page_of
from kquota_spark.reports.pages.page_data import csv_files
from kquota_spark.reports.parts.page_parts import Section, Tone
from kquota_spark.reports.right_sizes import period_sizes
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.sections import AuditReport
from tests.right_size.tables import FIRST, write_weeks
from tests.support.programs.command_output import as_json
from tests.support.reports.drawn_report import empty_report, full_report, tenant_report
from tests.support.reports.drawn_sizes import size_row

DAY_MS = 86_400_000
END_MS = int(FIRST.timestamp() * 1_000) + 15 * DAY_MS


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifteen days of five clients; carol has three days."""
    return write_weeks(tmp_path_factory.mktemp("weeks"), 15)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading takes as long as it takes: a busy machine must not leave sizes out."""
    monkeypatch.setattr(period_sizes, "LEAST_S", 600.0)
    monkeypatch.setattr(period_sizes, "MOST_S", 600.0)


def gathered(weeks: Path, *, tenant: str | None = None, to_ms: int = END_MS) -> AuditReport:
    settings = Settings(cluster_id="weeks", tables=str(weeks.parent / "tables"))
    return gather_report(settings, Period(to_ms - DAY_MS, to_ms), made_at_ms=to_ms, tenant=tenant)


def sections(report: AuditReport) -> list[Section]:
    return [one for one in page_of(report).sections if one.anchor == "sizes"]


def test_the_rows_are_those_of_the_command_the_furthest_from_its_target_first(weeks: Path) -> None:
    report = gathered(weeks)
    found = as_json("rightsize", "--config", str(weeks))["rows"]
    sized = [row for row in found if row["target_per_s"] is not None]
    sized.sort(key=lambda row: -abs(math.log(row["limit_per_s"] / row["target_per_s"])))
    assert [row["bucket_user"] for row in sized] == ["bob", "erin", "dave", "alice"]
    of_file = list(csv.DictReader(io.StringIO(csv_files(report)["right_sizes.csv"])))
    names = ("bucket_user", "target_per_s", "lower_per_s", "reason")
    assert [[row[name] for name in names] for row in of_file] == [
        [str(row[name]) for name in names] for row in sized
    ]
    assert report.right_sizes_chosen == 5


def test_before_two_weeks_there_is_no_section(weeks: Path) -> None:
    report = gathered(weeks, to_ms=END_MS - 2 * DAY_MS)
    assert (report.right_sizes, sections(report)) == ([], [])
    assert sections(empty_report()) == []


def test_a_tenant_has_no_section_of_limits(weeks: Path) -> None:
    assert gathered(weeks, tenant="bob").right_sizes == ()
    assert sections(tenant_report()) == []


def test_sizes_that_take_too_long_are_left_out_with_a_sentence(
    weeks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(period_sizes, "MOST_S", 1e-9)
    report = gathered(weeks)
    [section] = sections(report)
    assert section.lead == (
        "They are left out: reading four weeks takes too long for this page. kquota rightsize shows them."
    )
    assert (section.blocks, report.right_sizes) == ((), [])
    notes = gathered(weeks, tenant="bob").notes
    assert any("right sizes are left out" in note for note in notes)


def test_the_sentence_counts_limits_that_do_not_fit_and_names_the_furthest() -> None:
    rows = (
        size_row("bob", 200_000.0, 453_000.0, (375_000.0, 432_000.0)),
        size_row("erin", 1e5, 187_000.0, None),
        size_row("alice", 2e5, 152_000.0, (128_000.0, 148_000.0)),
    )
    [section] = sections(replace(full_report(), right_sizes=rows))
    assert section.lead == (
        "1 limit is too low and 1 too high, of 3 sized. The furthest from its target is user bob: 200 kB/s, and its "
        "target is 453 kB/s."
    )
    assert section.tone is Tone.NEAR
    [block] = section.blocks
    assert block.chart is not None and block.table is not None
    # In percent of the limit: 375 of 200 kB/s are 187.5 %; of erin only the least demand is known, 187 / 1.1 of 100.
    assert (block.chart.data["lower"], block.chart.data["upper"]) == (
        [187.5, 170.0, 64.0],
        [216.0, None, 74.0],
    )
    assert (block.chart.data["target"], block.chart.data["texts"][0]) == (
        [226.5, 187.0, 76.0],
        "200 kB/s → 453 kB/s",
    )
    assert [cell.text for cell in block.table.rows[1]] == [
        "user erin", "produce", "100 kB/s", "≥ 170 kB/s", "187 kB/s", "-", "28 days", "throttles hide the demand",
    ]  # fmt: skip
