"""Claims about the report for spreadsheets and programs: raw numbers, every row, no formula."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from dataclasses import fields, replace

import pytest

from kquota_spark.reports.pages.page_data import csv_archive, csv_files, plain_report
from kquota_spark.reports.sections import AuditReport
from kquota_spark.schema.figures import FIGURES
from tests.support.reports.drawn_report import HOSTILE, SLOTS, empty_report, full_report, large_report

FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def rows(report: AuditReport, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_files(report)[name], newline="")))


def test_no_cell_of_any_file_begins_like_a_formula() -> None:
    texts = [
        cell
        for text in csv_files(full_report()).values()
        for row in csv.reader(io.StringIO(text, newline=""))
        for cell in row
    ]
    assert not [
        text for text in texts if text.startswith(FORMULAS) and not text[1:].replace(".", "").isdigit()
    ]
    assert "'=cmd|'/c calc'!A0" in texts
    assert "'@SUM(1+1)" in texts


def test_names_come_back_as_they_were_even_with_line_feeds() -> None:
    found = [row["client_id"] for row in rows(full_report(), "throttled.csv") if row["user"] == "mallory"]
    assert [name.removeprefix("'") if name[1:].startswith(("=", "@")) else name for name in found] == list(
        HOSTILE
    )


def test_every_row_has_the_columns_of_its_head() -> None:
    for name, text in csv_files(full_report()).items():
        lines = list(csv.reader(io.StringIO(text, newline="")))
        assert {len(line) for line in lines} == {len(lines[0])}, name


def test_numbers_are_raw_and_times_are_iso() -> None:
    first = rows(full_report(), "rates.csv")[0]
    assert (first["slot"], first["slot_ms"]) == ("2026-11-20T00:00:00Z", "1800000")
    # 600,000 + 900,000 x e to the -(24 / 9) squared
    assert first["rate_per_s"] == "600734.389051565"
    assert first["limit_per_s"] == "1000000.0"
    assert rows(full_report(), "capacity.csv")[1]["used_percent"] == ""


def test_all_that_was_gathered_is_there() -> None:
    # 17 buckets in 48 slots without the empty ones; every 11th slot of a row is empty.
    report = full_report()
    filled = sum(value is not None for row in report.heat[0].quota_used_percent for value in row)
    found = rows(report, "quota_used.csv")
    assert [row["is_certain"] for row in found].count("True") == filled < 17 * len(SLOTS)
    assert [row["is_certain"] for row in found].count("False") == 1
    many = replace(report, throttled=large_report().throttled)
    assert len(rows(many, "throttled.csv")) == 10_000
    beside = {row["name"]: row["value"] for row in rows(report, "report.csv")}
    assert (beside["throttled_left_out"], beside["trust"], beside["produce_other_clients"]) == (
        "40",
        "with care",
        "9983",
    )


def test_what_was_not_found_has_a_head_and_no_row() -> None:
    files = csv_files(empty_report())
    assert sorted(files) == [
        "agreement.csv", "brokers.csv", "buckets.csv", "budgets.csv", "calibration.csv", "capacity.csv", "causes.csv",
        "changes.csv", "quota_used.csv", "raises.csv", "rates.csv", "recommendations.csv", "report.csv",
        "right_sizes.csv", "shadow.csv", "slowed.csv", "throttled.csv", "throttles.csv", "unprotected.csv", "usage.csv",
    ]  # fmt: skip
    assert files["unprotected.csv"] == "kind,severity,subject,sentence,advice\n"


def test_the_archive_is_the_same_for_the_same_report_and_holds_the_files() -> None:
    archive = csv_archive(full_report())
    assert archive == csv_archive(full_report())
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        assert opened.testzip() is None
        assert {name: opened.read(name).decode() for name in opened.namelist()} == csv_files(full_report())


def test_json_has_every_part_in_its_own_words() -> None:
    plain = json.loads(json.dumps(plain_report(full_report()), allow_nan=False))
    names = [one.name for one in fields(AuditReport)]
    assert list(plain) == names
    assert plain["confidence"]["trust"] == "with care"
    assert plain["skew"][0]["used_per_s"] == {"1": 900_000.0, "2": 200_000.0, "3": 100_000.0}
    assert plain["throttled"][2]["bucket"] == {
        "quota_type": "produce", "user": "mallory", "client_id": HOSTILE[0], "tags": "",
    }  # fmt: skip


def test_every_column_of_a_delay_or_a_throttle_is_a_declared_figure() -> None:
    headers = {name: text.splitlines()[0].split(",") for name, text in csv_files(full_report()).items()}
    found = {
        (file, name)
        for file, header in headers.items()
        for name in header
        if ("throttle" in name or "delay" in name) and name not in FIGURES
    }
    assert found == set()
    assert headers["throttled.csv"][5:9] == [
        "delay_ms", "throttled_requests", "time_throttled_s", "time_throttled_percent",
    ]  # fmt: skip
    assert "delay_ms" in headers["usage.csv"]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_lacks_is_null(number: float) -> None:
    report = full_report()
    odd = replace(report, throttled=(replace(report.throttled[0], peak_quota_used_percent=number),))
    assert plain_report(odd)["throttled"][0]["peak_quota_used_percent"] is None
    assert rows(odd, "throttled.csv")[0]["peak_quota_used_percent"] == ""
