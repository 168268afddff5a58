"""After a real edit on a real broker: the prediction from the time before beside what the broker did after."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kquota_spark.cli.main import main
from kquota_spark.config.settings import Settings
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import BEGINNING_MS, QuotaChange, RuleBook, RulePeriod
from kquota_spark.reports.impact.edit_impact import Edit, Impact, Impacts, compared_before_ms, with_edit
from kquota_spark.reports.impact.kept_impacts import KeptImpacts
from tests.support.logs.captures import KRAFT41
from tests.support.tables.capture_tables import write_capture

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
BOB = Entity("bob", None)
CUT = Edit(BOB, PRODUCE, 160_000.0, 80_000.0, 1_795_291_456_477)
"""The edit of the capture: bob's limit is halved 45 s after it was set."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return write_capture(tmp_path_factory.mktemp("impact"), KRAFT41)


def test_an_edit_replaces_one_key_at_all_times() -> None:
    book = RuleBook([
        RulePeriod(BOB, {PRODUCE: 160.0, FETCH: 5.0}, BEGINNING_MS, 1_000, 1),
        RulePeriod(BOB, {PRODUCE: 80.0}, 1_000, None, 2),
    ])  # fmt: skip
    lower = with_edit(book, Edit(BOB, PRODUCE, 160.0, 80.0, 1_000))
    assert [rule.values for rule in lower.of(BOB)] == [{PRODUCE: 80.0, FETCH: 5.0}, {PRODUCE: 80.0}]
    removed = with_edit(book, Edit(BOB, PRODUCE, 160.0, None, 1_000))
    assert [rule.values for rule in removed.of(BOB)] == [{FETCH: 5.0}, {}]
    other = with_edit(book, Edit(Entity("eve", None), PRODUCE, None, 7.0, 1_000))
    assert [rule.values for rule in other.of(Entity("eve", None))] == [{PRODUCE: 7.0}]
    assert other.of(BOB) == book.of(BOB)


def test_the_measured_delay_is_compared_with_the_bound() -> None:
    impact = Impact(CUT, 60, 1, 0, 1_100, 900, 1_200, 1_000, "closed loop")
    assert (impact.error_percent, impact.is_within) == (10.0, True)
    above = Impact(CUT, 60, 1, 0, 1_100, 900, 999, 1_000, "closed loop")
    assert not above.is_within
    at_least = Impact(CUT, 60, 1, 0, 1_100, 900, None, 5_000, "closed loop")
    assert (at_least.error_percent, at_least.is_within) == (-78.0, True)
    assert Impact(CUT, 60, 1, 0, 5, 0, 5, 0, "closed loop").error_percent is None


def test_the_time_before_an_edit_begins_with_full_windows() -> None:
    """12 s fill the windows and 12 s settle; 30 s are the least to compare. The first request is at 100 s."""
    assert compared_before_ms(186_000, 100_000, 99_000) == 62_000  # 86 s - 2 x 12 s
    assert compared_before_ms(186_000, 100_000, 120_000) == 42_000  # 66 s after the earlier edit - 2 x 12 s
    assert compared_before_ms(154_000, 100_000, BEGINNING_MS) == 30_000
    # 53 - 24 = 29 s are too few. So only the 12 s after an earlier edit are left out, and none without one.
    assert compared_before_ms(153_000, 100_000, BEGINNING_MS) == 53_000
    assert compared_before_ms(153_000, 100_000, 108_000) == 33_000
    assert compared_before_ms(153_000, 100_000, 95_000) == 46_000  # its 12 s end at 107 s


def test_a_cut_on_a_real_broker_is_predicted(settings: Settings) -> None:
    impacts = Impacts(settings)
    assert CUT in impacts.edits
    found = impacts.of(CUT)
    assert found is not None
    assert (found.edit, found.buckets, found.method) == (CUT, 1, "closed loop")
    assert found.before_ms < found.measured_ms
    assert not found.is_complete


def test_the_command_shows_each_edit_with_its_error(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["impact", "--tables", settings.tables, "--output", "json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert (row["entity"], row["value_before"], row["value_after"]) == ("users/bob", 160_000.0, 80_000.0)
    found = Impacts(settings).of(CUT)
    assert found is not None
    assert row["predicted_ms"] == found.predicted_ms
    assert main(["impact", "--tables", settings.tables]) == 0
    assert "bob" in capsys.readouterr().out


def test_only_complete_impacts_are_kept_and_once(settings: Settings, tmp_path: Path) -> None:
    """The capture ends before the day after the edit has; a second edit of the same quota would end it."""
    assert KeptImpacts()(settings, date(2026, 11, 21)) == 0
    assert not (Path(settings.tables) / "edit_impact").exists()
    again = QuotaChange(BOB, PRODUCE, 90_000.0, 80_000.0, 1_795_291_500_000, 9)
    copy = write_capture(tmp_path, KRAFT41, quotas=lambda changes: [*changes, again])
    assert KeptImpacts()(copy, date(2026, 11, 21)) == 1
    assert KeptImpacts()(copy, date(2026, 11, 21)) == 0
    [row] = DeltaTable(f"{copy.tables}/edit_impact").to_pyarrow_table().to_pylist()
    found = Impacts(copy)
    [edit] = [each for each in found.edits if found.is_stored(each)]
    stored = found.of(edit)
    assert stored is not None
    assert (row["entity"], row["measured_ms"], row["error_percent"]) == (
        "users/bob", stored.measured_ms, stored.error_percent
    )  # fmt: skip
