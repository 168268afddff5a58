"""The section of causes: a waterfall that adds up, who slowed whom, and on a tenant's page no name of another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.model.attribution.detectors import Cause
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.pages.page import page_of
from kquota_spark.reports.pages.page_data import csv_files, plain_report
from kquota_spark.reports.pages.page_html import html_page
from kquota_spark.reports.pages.page_markdown import markdown_page
from kquota_spark.reports.parts.page_parts import Section
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.sections import AuditReport
from tests.support.attribution.labelled import CAUSES
from tests.support.attribution.simulated import FROM_MS, TO_MS
from tests.support.attribution.tables import write_recording
from tests.support.chance import Chance
from tests.support.reports.gathered_report import gathered, throttled

APP = Entity(client_id="app")


def _report(root: Path, tenant: str | None = None) -> AuditReport:
    settings = Settings(cluster_id="demo", tables=str(root))
    return gather_report(settings, Period(FROM_MS, TO_MS), made_at_ms=TO_MS, tenant=tenant)


def _section(report: AuditReport) -> Section:
    [found] = [section for section in page_of(report).sections if section.anchor == "why"]
    return found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shared")
    write_recording(root, CAUSES[Cause.SHARED_BUCKET](Chance(4)), APP)
    return root


def test_the_steps_of_the_waterfall_add_up_to_its_total(shared: Path) -> None:
    report = _report(shared)
    section = _section(report)
    chart = section.blocks[0].chart
    assert chart is not None
    assert chart.kind == "waterfall"
    *steps, total = chart.data["values"]
    assert chart.data["labels"] == ["without these causes", "shared bucket", "total delay"]
    assert round(sum(steps), 3) == total == report.why[0].by_replay_ms / 1_000
    assert section.lead.startswith("client app: 100 % of the delay: 4 clients share the bucket")


def test_a_replay_that_is_not_the_delay_of_the_brokers_is_named(shared: Path) -> None:
    report = _report(shared)
    near = replace(report.why[0], delay_ms=133_000, by_replay_ms=134_330)  # 1 % more
    apart = replace(near, by_replay_ms=134_331)
    notes = [_section(replace(report, why=(one,))).blocks[0].note for one in (near, apart)]
    assert notes[1] == f"{notes[0]} Causes are parts of the replay, 134 s; brokers had 133 s."


def test_each_client_of_a_shared_bucket_has_a_row_and_a_line_of_the_archive(shared: Path) -> None:
    report = _report(shared)
    [why] = report.why
    table = _section(report).blocks[1].table
    assert table is not None
    assert sorted(row[0].text for row in table.rows) == [f"user{number} / app" for number in range(4)]
    assert sum(each.caused_ms for each in why.clients) == why.by_replay_ms
    assert sum(each.suffered_ms for each in why.clients) == why.by_replay_ms
    files = csv_files(report)
    assert len(files["slowed.csv"].splitlines()) == 1 + 4
    assert len(files["causes.csv"].splitlines()) == 1 + 2
    assert plain_report(report)["why"][0]["causes"][0]["cause"] == "shared_bucket"


def test_the_column_of_the_worst_buckets_and_the_card_have_the_same_cause(shared: Path) -> None:
    report = _report(shared)
    sentence = report.why[0].sentence
    assert [one.cause for one in report.causes] == [sentence]
    assert [one.cause for one in report.recommendations if one.bucket is not None] == [sentence]


def test_the_page_of_a_tenant_has_one_sum_of_others_and_none_of_their_names(shared: Path) -> None:
    report = _report(shared, tenant="user1")
    [why] = report.why
    assert (why.causes, why.clients) == ((), ())
    assert why.by_others_ms is not None
    assert 0 < why.by_others_ms < why.delay_ms
    percent = f"{100 * why.by_others_ms / why.delay_ms:.0f} %"
    assert why.sentence.startswith(f"others in the bucket caused {percent} of your ")
    for text in (html_page(report), markdown_page(report), *csv_files(report).values()):
        assert not any(name in text for name in ("user0", "user2", "user3"))


def test_a_page_without_recorded_requests_has_no_such_section(tmp_path: Path) -> None:
    report = gathered(tmp_path, decisions=[throttled(second, 5_000) for second in range(5)])
    assert report.throttled
    assert [section.anchor for section in page_of(report).sections if section.anchor == "why"] == []
