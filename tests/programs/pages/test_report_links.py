"""In a real Chromium, names, tiles, bars and cells of the report lead to the bucket or the section that they show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kquota_spark.process.processes import wait_for
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.pages.page_html import html_page
from kquota_spark.reports.scope.period import Period
from tests.support.programs.chromium import Chromium
from tests.support.tables.report_tables import FROM_MS, MADE_AT_MS, TO_MS, write_report_tables

TARGET = "document.querySelector('#buckets tr.target')"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    settings = write_report_tables(folder / "tables")
    report = gather_report(settings, Period(FROM_MS, TO_MS), made_at_ms=MADE_AT_MS)
    page = folder / "report.html"
    page.write_text(html_page(report), encoding="utf-8")
    return page


@pytest.fixture
def opened(browser: Chromium, page: Path) -> Chromium:
    """The page without a hash, with its table of all buckets."""
    browser.call("Page.navigate", url="about:blank")
    browser.open(page, 1280, 900)
    wait_for(lambda: browser.value("document.documentElement?.dataset.buckets") == "ready", within_s=60)
    return browser


def click(browser: Chromium, element: str, from_top: float | None = None) -> None:
    """A click of the mouse into an element, as a reader does it: in its middle, or so many pixels below its top."""
    down = "height / 2" if from_top is None else from_top
    x, y = browser.value(f"""(() => {{ const node = {element};
      node.scrollIntoView({{ block: "center", behavior: "instant" }});
      const {{ left, top, width, height }} = node.getBoundingClientRect();
      return [left + width / 2, top + {down}]; }})()""")
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def target_after_click(browser: Chromium, element: str, from_top: float | None = None) -> Any:
    """The name in the row of all buckets that a click leads to."""
    click(browser, element, from_top)
    wait_for(lambda: browser.value(f"{TARGET} !== null"), within_s=60)
    row = browser.value(f"(() => {{ const {{ top, bottom }} = {TARGET}.getBoundingClientRect(); return "
                        f"[{TARGET}.cells[0].textContent, top >= 0 && bottom <= innerHeight]; }})()")  # fmt: skip
    name, is_in_view = row
    assert is_in_view
    return name


def test_a_name_of_the_first_screen_leads_to_its_bucket(opened: Chromium) -> None:
    worst = "document.querySelector('.worst .name a')"
    assert opened.value(f"{worst}.textContent") == "user alice, produce"
    assert target_after_click(opened, worst) == "user alice"


def test_a_bar_leads_to_the_bucket_of_its_row(opened: Chromium) -> None:
    assert (
        target_after_click(opened, "document.querySelector('#chart-throttled .bars .point path')")
        == "user alice"
    )


def test_a_row_of_a_table_leads_to_its_bucket(opened: Chromium) -> None:
    opened.value("document.querySelector('#throttled details').open = true")
    link = "document.querySelector('#throttled tbody td a')"
    assert opened.value(f"{link}.textContent") == "user alice"
    assert target_after_click(opened, link) == "user alice"


def test_a_row_of_the_heat_map_leads_to_its_bucket(opened: Chromium) -> None:
    # Its cells are one picture; the first row has the bucket that was highest.
    first = opened.value(
        "JSON.parse(document.getElementById('data').textContent)['chart-heat-produce'].data.labels[0]"
    )
    cells = "document.querySelector('#chart-heat-produce .hm image')"
    # A row is 20 pixels high or more.
    assert target_after_click(opened, cells, from_top=8) == first


def test_every_link_of_the_page_has_a_place_on_it(opened: Chromium) -> None:
    nowhere = opened.value("""[...document.querySelectorAll('a[href^="#"]')].map((one) => one.getAttribute("href"))
      .filter((href) => !href.startsWith("#bucket=") && !document.getElementById(href.slice(1)))""")
    assert nowhere == []
    sections = opened.value(
        "[...document.querySelectorAll('.others a')].map((one) => one.getAttribute('href'))"
    )
    assert sections == ["#limits", "#unprotected", "#changes"]
    click(opened, "document.querySelector('a.badge')")
    top = "document.getElementById('trust').getBoundingClientRect().top"
    wait_for(lambda: -1 <= opened.value(top) < 100, within_s=60)
