"""Claims about the report as a browser shows it: a real Chromium opens the file from a disk, without a network."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kquota_spark.reports.pages.page_html import html_page
from tests.support.programs.chromium import Chromium
from tests.support.reports.drawn_report import HOSTILE, empty_report, full_report, tenant_report

WIDE, NARROW, HEIGHT = 1280, 390, 900
CHARTS = (
    "chart-throttled", "chart-worst", "chart-lengths", "chart-heat-produce", "chart-lines",
    "chart-talkers-produce", "chart-talkers-fetch", "chart-skew", "chart-brokers", "chart-changes", "chart-sizes",
    "chart-calibration", "chart-budgets",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Pages and their pictures; these are kept where KQUOTA_SCREENSHOTS says."""
    folder = tmp_path_factory.mktemp("pages")
    for name, report in (("full", full_report()), ("empty", empty_report()), ("tenant", tenant_report())):
        (folder / f"{name}.html").write_text(html_page(report), encoding="utf-8")
    yield folder
    kept = os.environ.get("KQUOTA_SCREENSHOTS")
    if kept:
        Path(kept).mkdir(parents=True, exist_ok=True)
        for picture in [*folder.glob("*.png"), *folder.glob("*.pdf")]:
            shutil.copy(picture, kept)


@pytest.fixture
def opened(browser: Chromium, folder: Path) -> Chromium:
    """The full page in a wide window, light."""
    browser.open(folder / "full.html", WIDE, HEIGHT)
    return browser


def background(browser: Chromium) -> str:
    return str(browser.value("getComputedStyle(document.body).backgroundColor"))


def assert_quiet(browser: Chromium, page: Path) -> None:
    """Nothing complained, nothing was asked for but the file and pictures inside it, no name ran as a script."""
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [page.as_uri()]
    assert browser.value("typeof window.__pwned") == "undefined"


@pytest.mark.parametrize(
    ("name", "width", "theme"),
    [
        *(("full", width, theme) for width in (WIDE, NARROW) for theme in ("light", "dark")),
        *(
            (name, width, theme)
            for name in ("empty", "tenant")
            for width, theme in ((WIDE, "light"), (NARROW, "dark"))
        ),
    ],
)
def test_a_page_is_drawn_without_a_complaint_a_request_or_an_overflow(
    browser: Chromium, folder: Path, name: str, width: int, theme: str
) -> None:
    browser.open(folder / f"{name}.html", width, HEIGHT, theme=theme)
    browser.screenshot(folder / f"{name}-{width}-{theme}.png")
    assert_quiet(browser, folder / f"{name}.html")
    assert browser.value("document.documentElement.dataset.charts") == "drawn"
    assert browser.value("document.documentElement.scrollWidth") == width
    dark, light = "rgb(15, 19, 24)", "rgb(255, 255, 255)"
    assert background(browser) == (dark if theme == "dark" else light)


def test_the_delay_and_the_share_of_a_worst_bucket_are_on_one_line(browser: Chromium, folder: Path) -> None:
    report = full_report()
    part = replace(report, head=replace(report.head, covered_percent=40.0, is_covered=False))
    (folder / "part.html").write_text(html_page(part), encoding="utf-8")
    browser.open(folder / "part.html", 1_440, HEIGHT)
    shown = browser.value("""[...document.querySelectorAll(".worst .figures")].map(({children: [delay, share]}) =>
      [share.textContent.replaceAll("\u00a0", " "), share.offsetTop - delay.offsetTop,
       share.offsetHeight / delay.offsetHeight])""")
    assert shown == [[f"{percent} % of the time covered", 0, 1] for percent in ("41.5", "3.2", "2.5")]


def test_every_chart_has_points(opened: Chromium) -> None:
    assert tuple(opened.value("[...document.querySelectorAll('.chart')].map((node) => node.id)")) == CHARTS
    points = {
        anchor: opened.value(f"document.querySelectorAll('#{anchor} :is(.point, .hm image)').length")
        for anchor in CHARTS
    }
    # 18 bars; the heat map is one picture; the line has a point for each of 48 slots and a sign on 14 of them, from
    # 08:00 on above the limit, until that moves at 15:00; 18 talkers, each a bar and a point of the running share; one
    # bucket on 3 brokers and 16 on 2; 14 entities, one of them with two changes.
    drawn = opened.value("document.querySelectorAll('#chart-lines .scatterlayer .trace').length")
    assert drawn == 3
    assert points["chart-throttled"] == 18
    # Nine panels of the same line, each with its signs.
    assert points["chart-worst"] == 9 * 14
    assert points["chart-heat-produce"] == points["chart-brokers"] == 1
    # An uncertain pair and two certain ones; of 8 users the half, the 95 % and the longest.
    assert points["chart-calibration"] == 1 + 2
    assert points["chart-lengths"] == 8 * 3
    assert points["chart-lines"] == 48 + 14
    assert points["chart-talkers-produce"] == points["chart-talkers-fetch"] == 18 + 18
    assert points["chart-skew"] == 3 + 16 * 2
    assert points["chart-changes"] == 15


def test_colours_of_the_heat_map_break_at_80_and_100(opened: Chromium) -> None:
    colours = opened.value("""(() => {
      const plot = document.getElementById("chart-heat-produce");
      const [trace] = plot.data;
      const probe = (name) => getComputedStyle(document.querySelector(`.legend .${name}`)).backgroundColor;
      return {
        scale: trace.colorscale.map(([, colour]) => colour), range: [trace.zmin, trace.zmax],
        legend: [0, 1, 2, 3, 4, 5].map((i) => probe(`band-${i}`)),
      };
    })()""")
    # Six colours in steps: each stands at both ends of its sixth of -0.5 to 5.5, so a band never shades into the next.
    assert colours["scale"] == [colour for colour in colours["legend"] for _ in range(2)]
    assert len(set(colours["legend"])) == 6
    assert colours["range"] == [-0.5, 5.5]
    legend = opened.value("document.querySelector('#chart-heat-produce + .legend').textContent")
    assert "near: 80 to 100 %" in legend
    assert "over: 100 to 150 %" in legend


CONTRAST = """(colour, other) => {
  const light = (text) => { const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map((value) => {
    const part = value / 255; return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const [a, b] = [light(colour), light(other)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); }"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_cells_and_edges_have_the_contrast_that_wcag_asks_of_graphics(
    browser: Chromium, folder: Path, theme: str
) -> None:
    browser.open(folder / "full.html", WIDE, HEIGHT, theme=theme)
    lowest = browser.value(f"""(() => {{
      const contrast = {CONTRAST};
      const page = getComputedStyle(document.body).backgroundColor;
      const style = (selector) => getComputedStyle(document.querySelector(selector));
      return {{
        cells: Math.min(...[0, 1, 2, 3, 4].map((i) => contrast(style(`.legend .band-${{i}}`).backgroundColor, page))),
        edges: Math.min(...["#search", "#theme", "#choice", ".tiles", ".legend i", "td"].map((selector) =>
          contrast(style(selector).borderBottomColor, page))),
      }};
    }})()""")
    # WCAG 2.2, 1.4.11: 3:1 for parts of graphics and edges of controls.
    assert lowest["cells"] >= 3
    assert lowest["edges"] >= 3


def test_a_cell_of_the_heat_map_names_its_length_and_its_beginning(opened: Chromium) -> None:
    hover = "document.getElementById('chart-heat-produce').data[0].customdata[3][24]"
    # Row 3 has 99 % at noon; each of 48 cells is 30 minutes of the day.
    said = "99 % of the quota<br>30 min from 2026-11-20 12:00:00"
    assert (
        opened.value(hover)
        == f"mallory / &lt;/script&gt;&lt;script&gt;window.__pwned=2&lt;/script&gt;<br>{said}"
    )


def test_the_axis_of_top_talkers_ends_a_little_after_the_data(browser: Chromium, folder: Path) -> None:
    full = full_report()
    small = tuple(replace(one, share_percent=0.5) for one in full.talkers[0].talkers)
    report = replace(full, talkers=(replace(full.talkers[0], talkers=small), full.talkers[1]))
    (folder / "small.html").write_text(html_page(report), encoding="utf-8")
    browser.open(folder / "small.html", WIDE, HEIGHT)
    ends = "document.getElementById('chart-talkers-{}').layout.xaxis.range"
    # 18 clients of 0.5 % come to 9 %, and a 16th more is 9.5625; halved shares come to nearly all.
    assert browser.value(ends.format("produce")) == [0, 9.5625]
    assert browser.value(ends.format("fetch")) == [0, 101]


def test_names_are_texts_in_charts(opened: Chromium) -> None:
    labels = opened.value(
        "[...document.querySelectorAll('#chart-throttled .ytick text')].map((node) => node.textContent)"
    )
    # 25 characters, 15 from the beginning and 9 from the end; tags and entities are not read.
    assert labels[2] == "mallory / <scri…</script>"
    assert labels[17] == "mallory / <b>&amp;</b>"
    assert labels[14] == "mallory / @SUM(1+1)"
    assert opened.value("document.querySelectorAll('.chart a').length") == 0


def test_the_limit_is_a_step_and_another_bucket_can_be_chosen(opened: Chromium) -> None:
    shape = "document.getElementById('chart-lines').data[1].line.shape"
    assert opened.value(shape) == "hv"
    names = opened.value("[...document.querySelectorAll('#choice option')].map((node) => node.textContent)")
    assert len(names) == 1 + len(HOSTILE)
    opened.value("""(() => { const choice = document.getElementById("choice"); choice.value = "3";
      choice.dispatchEvent(new Event("change")); })()""")
    # The rate, the limit, what was throttled, and edits of the limit, of which this bucket has none.
    assert opened.value("document.getElementById('chart-lines').data.map((one) => one.x.length).at(-1)") == 0
    assert opened.complaints() == []


def test_the_button_changes_the_theme_and_the_charts_with_it(browser: Chromium, folder: Path) -> None:
    browser.open(folder / "full.html", WIDE, HEIGHT)
    text_colour = "getComputedStyle(document.querySelector('#chart-throttled .ytick text')).fill"
    button = "document.getElementById('theme')"
    assert (background(browser), browser.value(f"{button}.textContent")) == (
        "rgb(255, 255, 255)",
        "Dark theme",
    )
    before = browser.value(text_colour)
    browser.value(f"{button}.click()")
    assert (background(browser), browser.value(f"{button}.textContent")) == ("rgb(15, 19, 24)", "Light theme")
    assert browser.value(text_colour) != before
    browser.value(f"{button}.click()")
    assert (background(browser), browser.value(text_colour)) == ("rgb(255, 255, 255)", before)


def test_the_search_leaves_rows_with_the_text_and_opens_their_tables(browser: Chromium, folder: Path) -> None:
    browser.open(folder / "full.html", WIDE, HEIGHT)

    def search(text: str) -> tuple[int, str]:
        browser.value(f"""(() => {{ const box = document.getElementById("search"); box.value = {text!r};
          box.dispatchEvent(new Event("input")); }})()""")
        shown = "[...document.querySelectorAll('tbody tr')].filter((row) => row.checkVisibility()).length"
        return browser.value(shown), browser.value("document.getElementById('found').textContent")

    open_before, _ = search("")
    # @SUM(1+1) is in every table once, in talkers twice: throttled, heat, lines, two of talkers, spread, by broker,
    # cluster limits, changes, findings, error budgets, right sizes.
    assert search("@sum(1+1)") == (12, "12 rows match")
    assert search("no such client") == (0, "0 rows match")
    assert search("")[0] > open_before


def test_print_is_light_has_every_table_and_every_page_its_chart(browser: Chromium, folder: Path) -> None:
    browser.open(folder / "full.html", WIDE, HEIGHT, theme="dark")
    browser.value("""addEventListener("beforeprint", () => { window.printing = {
      scheme: getComputedStyle(document.documentElement).colorScheme,
      closed: document.querySelectorAll("details:not([open])").length,
      widths: [...document.querySelectorAll(".chart .main-svg:first-child")].map((node) => node.clientWidth) }; })""")
    closed = browser.value("document.querySelectorAll('details:not([open])').length")
    printed = browser.pdf(folder / "full.pdf")
    during = browser.value("window.printing")
    assert printed.startswith(b"%PDF-")
    assert during["scheme"] == "light"
    assert during["closed"] == 0
    # The calibration is about a square.
    assert during["widths"] == [560 if anchor == "chart-calibration" else 1000 for anchor in CHARTS]
    # 18 throttled buckets, with names of up to 300 characters; no section begins a page of its own.
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 20
    assert browser.value("document.querySelectorAll('details:not([open])').length") == closed > 0
    assert background(browser) == "rgb(15, 19, 24)"


def test_text_has_the_contrast_that_wcag_asks_for(browser: Chromium, folder: Path) -> None:
    for theme in ("light", "dark"):
        browser.open(folder / "full.html", WIDE, HEIGHT, theme=theme)
        lowest = browser.value("""(() => {
          const light = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((value) => {
            const part = value / 255; return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const behind = (node) => { for (let one = node; one; one = one.parentElement) {
            const colour = getComputedStyle(one).backgroundColor;
            if (!colour.endsWith(", 0)") && colour !== "transparent") return colour; } return "rgb(255,255,255)"; };
          const texts = [...document.querySelectorAll("main *, aside *")].filter((node) =>
            !node.closest("svg") && [...node.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim()));
          return Math.min(...texts.map((node) => {
            const [a, b] = [light(getComputedStyle(node).color), light(behind(node))];
            return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); }));
        })()""")
        assert lowest >= 4.5, theme


def test_a_browser_that_cannot_unpack_says_so_and_shows_the_tables(browser: Chromium, folder: Path) -> None:
    old = browser.call("Page.addScriptToEvaluateOnNewDocument", source="delete window.DecompressionStream")
    try:
        browser.open(folder / "full.html", WIDE, HEIGHT)
    finally:
        browser.call("Page.removeScriptToEvaluateOnNewDocument", **old)
    assert browser.value("document.documentElement.dataset.charts") == "failed"
    said = browser.value("getComputedStyle(document.getElementById('chart-throttled'), '::after').content")
    assert said == '"This browser could not draw the chart; its numbers are in the table below."'
    assert_quiet(browser, folder / "full.html")


def test_without_scripts_every_table_can_be_read(browser: Chromium, folder: Path) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.load(folder / "full.html")
        browser.screenshot(folder / "full-without-scripts.png")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    rows = browser.value("document.querySelectorAll('tbody tr').length")
    assert rows > 9 * len(HOSTILE)
    assert browser.value("document.getElementById('search').hidden") is True
