"""axe-core finds nothing on the report: for the cluster, with 8,400 buckets, for a tenant; wide, narrow, dark."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from kquota_spark.reports.pages.page_html import html_page
from kquota_spark.reports.sections import AuditReport
from tests.support.programs.chromium import Chromium
from tests.support.reports.drawn_report import all_buckets_report, full_report, tenant_report

AXE = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
VIOLATIONS = (
    "axe.run().then((found) => found.violations.map((one) => [one.id, one.nodes[0].html.slice(0, 200)]))"
)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize(
    "report", [full_report(), all_buckets_report(), tenant_report()], ids=["full", "all", "own"]
)
def test_no_rule_of_axe_is_violated(
    browser: Chromium, tmp_path: Path, report: AuditReport, width: int, theme: str
) -> None:
    (tmp_path / "page.html").write_text(html_page(report), encoding="utf-8")
    browser.open(tmp_path / "page.html", width, 900, theme=theme)
    browser.call("Runtime.evaluate", expression=AXE)
    assert browser.value(VIOLATIONS) == []


def test_axe_finds_what_is_wrong(browser: Chromium, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        '<html lang="en"><title>x</title><main><img src="x">', encoding="utf-8"
    )
    browser.load(tmp_path / "page.html")
    browser.call("Runtime.evaluate", expression=AXE)
    assert "image-alt" in {rule for rule, _ in browser.value(VIOLATIONS)}
