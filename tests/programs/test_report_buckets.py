"""Claims about the table of all buckets, in a real Chromium: search, filters, sort and links reach each of 8,401."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.process.processes import wait_for
from kquota_spark.reports.pages.page_html import html_page
from tests.support.programs.chromium import Chromium
from tests.support.reports.drawn_report import all_buckets_report

ROWS = "[...document.querySelectorAll('#buckets tbody tr')]"
NAMES = f"{ROWS}.map((row) => row.cells[0].textContent)"
HEADS = "[...document.querySelectorAll('#buckets th')]"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("page") / "all.html"
    page.write_text(html_page(all_buckets_report()), encoding="utf-8")
    return page


@pytest.fixture
def opened(browser: Chromium, page: Path) -> Chromium:
    browser.open(page, 1280, 900)
    is_ready(browser)
    return browser


def is_ready(browser: Chromium) -> None:
    wait_for(lambda: browser.value("document.documentElement?.dataset.buckets") == "ready", within_s=60)


def enter(browser: Chromium, control: str, text: str) -> str:
    """Fill in a control; how many buckets match, as the page says it."""
    browser.value(f"""(() => {{ const box = document.getElementById({control!r}); box.value = {text!r};
      box.dispatchEvent(new Event("input")); }})()""")
    return str(browser.value("document.getElementById('bucket-found').textContent"))


def test_the_search_finds_every_one_of_8_400_buckets(opened: Chromium) -> None:
    found = opened.value(f"""(() => {{
      const box = document.getElementById("search");
      return Array.from({{length: 1200}}, (_, user) => {{
        box.value = `user-${{String(user).padStart(4, "0")}} / client`;
        box.dispatchEvent(new Event("input"));
        return {NAMES};
      }});
    }})()""")
    assert found == [[f"user-{user:04} / client-{client}" for client in range(7)] for user in range(1_200)]
    assert enter(opened, "search", "USER-1199 / client-6") == "1 of 8,401 buckets match; 1 are shown."
    # No other table of the page has this user.
    assert opened.value("document.getElementById('found').textContent") == "0 rows match, 1 of 8,401 buckets"
    assert opened.complaints() == []


@pytest.mark.parametrize(
    ("control", "text", "found"),
    [
        # The even ones of 8,400, and the hostile one.
        ("bucket-type", "produce", "4,201 of 8,401 buckets match; 100 are shown."),
        # Users 1190 to 1199, 7 client ids each.
        ("bucket-user", "user-119", "70 of 8,401 buckets match; 70 are shown."),
        ("bucket-user", "119", "0 of 8,401 buckets match; 0 are shown."),
        ("bucket-broker", "3", "1 of 8,401 buckets match; 1 are shown."),
    ],
)
def test_filters_leave_what_has_the_value(opened: Chromium, control: str, text: str, found: str) -> None:
    assert enter(opened, control, text) == found
    assert enter(opened, control, "") == "8,401 of 8,401 buckets match; 100 are shown."


def test_enter_in_the_search_moves_to_the_first_match(opened: Chromium) -> None:
    enter(opened, "search", "user-1199 / client-6")
    opened.value("""document.getElementById("search").dispatchEvent(
      new KeyboardEvent("keydown", { key: "Enter", bubbles: true }))""")
    assert opened.value("document.activeElement.cells?.[0].textContent") == "user-1199 / client-6"
    assert opened.value("document.activeElement.getBoundingClientRect().top") < 900
    assert opened.value("document.activeElement.getBoundingClientRect().top") > 0


def test_more_rows_are_drawn_on_demand(opened: Chromium) -> None:
    assert opened.value(f"{ROWS}.length") == 100
    opened.value("document.getElementById('bucket-more').click()")
    assert opened.value(f"{ROWS}.length") == 200
    enter(opened, "bucket-user", "user-119")
    assert opened.value("document.getElementById('bucket-more').hidden") is True


def test_a_key_on_a_header_sorts_and_says_so(opened: Chromium) -> None:
    orders = f"{HEADS}.map((head) => head.ariaSort)"
    assert opened.value(orders) == ["none", "none", "descending", "none", "none", "none", "none", "none"]
    opened.value(f"{HEADS}[4].querySelector('button').focus()")

    def press() -> list[str]:
        for kind in ("keyDown", "keyUp"):
            opened.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r",
                        windowsVirtualKeyCode=13)  # fmt: skip
        names: list[str] = opened.value(NAMES)
        return names

    # Peaks are number / 100, none of client 6; the hostile bucket has 250 %. 8,398 is user 1,199 with client 5.
    first = press()
    assert first[1:3] == ["user-1199 / client-5", "user-1199 / client-4"]
    assert opened.value(orders)[2:5] == ["none", "none", "descending"]
    assert press()[:2] == ["user-0000 / client-0", "user-0000 / client-1"]
    assert opened.value(orders)[4] == "ascending"


def test_other_tables_sort_by_their_exact_values(opened: Chromium) -> None:
    rows = """[...document.querySelectorAll("#throttled tbody tr")].slice(0, 2)"""
    shares = f"{rows}.map((row) => row.cells[2].textContent)"
    opened.value("document.querySelector('#throttled th:nth-child(3) button').click()")
    assert opened.value(shares) == ["41.5 %", "3.2 %"]
    opened.value("document.querySelector('#throttled th:nth-child(3) button').click()")
    # 16 hostile names from 2.5 % on, each 0.1 less: the last two have 1.0 and 1.1 %.
    assert opened.value(shares) == ["1.0 %", "1.1 %"]


def test_a_link_opens_and_shows_its_bucket(browser: Chromium, page: Path) -> None:
    browser.call("Page.navigate", url="about:blank")
    browser.call("Page.navigate", url=f"{page.as_uri()}#bucket=fetch/user-1199/client-6/")
    is_ready(browser)
    seen = browser.value("""(() => { const row = document.querySelector("#buckets tr.target");
      const { top, bottom } = row.getBoundingClientRect();
      return [row.cells[0].textContent, top >= 0 && bottom <= innerHeight, document.activeElement === row]; })()""")
    assert seen == ["user-1199 / client-6", True, True]
    browser.value("location.hash = '#bucket=fetch/nobody//'")
    said = "document.getElementById('bucket-found').textContent"
    wait_for(lambda: browser.value(said) == "The bucket of this link is not in the report.", within_s=60)


def test_each_row_links_to_itself_also_with_a_hostile_name(opened: Chromium) -> None:
    links = opened.value(
        "[...document.querySelectorAll('#buckets td a')].map((link) => link.getAttribute('href'))"
    )
    script = "%3Cscript%3Ewindow.__pwned%3D1%3Balert(1)%3C%2Fscript%3E"
    assert links[:2] == [f"#bucket=produce/mallory/{script}/", "#bucket=produce/user-0000/client-0/"]
    opened.value("document.querySelector('#buckets td a').click()")
    wait_for(lambda: opened.value("document.querySelector('#buckets tr.target') !== null"), within_s=60)
    assert opened.value("typeof window.__pwned") == "undefined"
    assert opened.complaints() == []
