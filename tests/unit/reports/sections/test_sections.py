"""The list of sections: each field of the report has one section, each file of the archive one writer."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from kquota_spark.reports.pages.page_data import csv_files
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.report_scope import Scope, open_scope
from kquota_spark.reports.sections import SECTIONS, WITHOUT_QUOTAS, AuditReport
from kquota_spark.store.reading import Tables
from tests.support.reports.drawn_report import empty_report
from tests.support.tables.report_tables import FROM_MS, TO_MS, write_report_tables


def test_each_field_comes_from_one_section_or_is_of_the_whole_report(tmp_path: Path) -> None:
    settings = write_report_tables(tmp_path)
    with Tables(settings) as tables:
        scope = open_scope(tables, settings, Period(FROM_MS, TO_MS), tenant=None, top=20)
        gathered = [name for section in SECTIONS for name in section.gather(scope)]
    of_the_whole = ["head", "confidence", "notes"]
    assert sorted([*gathered, *of_the_whole]) == sorted(one.name for one in fields(AuditReport))


def test_each_file_comes_from_one_section() -> None:
    report = empty_report()
    written = [name for section in SECTIONS for name in section.files(report)]
    assert sorted(["report.csv", *written]) == sorted(csv_files(report))


def test_a_page_without_any_quota_has_no_section_of_its_own() -> None:
    assert set(WITHOUT_QUOTAS) < set(SECTIONS)


def test_what_two_sections_need_is_asked_once(tmp_path: Path) -> None:
    settings = write_report_tables(tmp_path)
    asked: list[int] = []

    def ask(scope: Scope) -> list[int]:
        asked.append(scope.top)
        return [scope.top]

    with Tables(settings) as tables:
        scope = open_scope(tables, settings, Period(FROM_MS, TO_MS), tenant=None, top=7)
        assert scope.once(ask) is scope.once(ask)
    assert asked == [7]
