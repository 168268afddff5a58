"""`kquota serve` as a process and in a browser: login, an operator's pages, a tenant's own, and its end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import pytest

from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.process.processes import wait_for
from tests.support.places import CONF, ROOT
from tests.support.programs.chromium import Chromium
from tests.support.reports.served import PROXY_SECRET, TOKEN, planned_step
from tests.support.tables.report_tables import write_report_tables

AXE = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
VIOLATIONS = (
    "axe.run().then((found) => found.violations.map((one) => [one.id, one.nodes[0].html.slice(0, 200)]))"
)
PERIOD = "2026-11-21T05:40:00..2026-11-21T05:50:00"
TIMELINE = "/timeline?broker=1&type=produce&user=alice"
PAGES = {"overview": "/", "live": "/live", "timeline": TIMELINE, "tenants": "/tenants", "plans": "/plans"}
LOOKS = ((1440, "light"), (1280, "dark"), (390, "light"), (390, "dark"))
BY_PROXY = ("X-Kquota-Proxy-Secret", PROXY_SECRET)
OPERATOR = dict([BY_PROXY, ("X-Forwarded-User", "operator")])
ALICE = dict([BY_PROXY, ("X-Forwarded-User", "alice")])


class Served(NamedTuple):
    """A running server."""

    process: subprocess.Popen[str]
    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("serve")
    settings = write_report_tables(folder / "tables")
    shutil.rmtree(folder / "tables" / "enforcement_log")
    EnforcementLog(settings).append([planned_step(round(time.time() * 1_000))])
    (folder / "kquota.yaml").write_text(
        f"cluster_id: demo\ntables: {folder}/tables\nquotas: {{source: file, file: quotas.yaml}}\n"
        f"enforcement: {{policy_file: {CONF}/policy.yaml}}\n"
        "serve: {token: '${SERVE_TOKEN}', user_header: X-Forwarded-User, proxy_secret: '${PROXY_SECRET}',\n"
        "  operators: [operator]}\n",
        encoding="utf-8",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "kquota_spark.cli.main", "serve", "--port", "0", "--config",
         str(folder / "kquota.yaml")],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "SERVE_TOKEN": TOKEN, "PROXY_SECRET": PROXY_SECRET},
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.fullmatch(r"serve: answering http://127\.0\.0\.1:(\d+)/; stop with Ctrl-C\n", line)
    assert found is not None, line
    yield Served(process, int(found[1]), folder)
    process.kill()
    process.communicate()
    if kept := os.environ.get("KQUOTA_SCREENSHOTS"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        for picture in folder.glob("*.png"):
            shutil.copy(picture, kept)


def assert_well(browser: Chromium, served: Served, name: str, width: int, theme: str) -> None:
    """A picture is kept; nothing complained, nothing came from elsewhere, nothing sticks out, axe finds nothing."""
    browser.screenshot(served.folder / f"serve-{name}-{width}-{theme}.png")
    assert browser.complaints() == []
    assert {url.partition("/")[0] for url in browser.requests()} <= {"http:", "data:"}
    assert all(url.startswith((f"{served.url}/", "data:")) for url in browser.requests())
    assert browser.value("document.documentElement.scrollWidth") == width
    browser.call("Runtime.evaluate", expression=AXE)
    assert browser.value(VIOLATIONS) == []


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_pages_fit_and_complain_of_nothing_for_an_operator_and_a_tenant(
    browser: Chromium, served: Served, width: int, theme: str
) -> None:
    browser.resize(width, 900)
    browser.media(theme)
    for name, address in PAGES.items():
        browser.visit(served.url + address, **OPERATOR)
        assert_well(browser, served, name, width, theme)
    for name in ("overview", "live"):
        browser.visit(served.url + PAGES[name], **ALICE)
        assert_well(browser, served, f"alice-{name}", width, theme)


@pytest.mark.parametrize("width", [1440, 390])
def test_a_waiting_plan_can_be_read_whole_and_a_missing_page_leads_back(
    browser: Chromium, served: Served, width: int
) -> None:
    browser.resize(width, 900)
    browser.media("light")
    browser.visit(f"{served.url}/plans", **OPERATOR)
    # Nothing of a plan is cut or outside of the page: each part is as wide and high as its text.
    parts = "[...document.querySelectorAll('.plans li, .plans dd')]"
    assert browser.value(f"{parts}.length") == 6
    assert browser.value(f"{parts}.every((one) => one.scrollHeight <= one.clientHeight + 1)") is True
    assert browser.value(f"{parts}.every((one) => one.getBoundingClientRect().right <= innerWidth)") is True
    browser.visit(f"{served.url}/nowhere", **ALICE)
    browser.screenshot(served.folder / f"serve-missing-{width}-light.png")
    assert browser.value("document.documentElement.scrollWidth") == width
    assert browser.value("document.querySelector('main').innerText").split("\n\n") == [
        "Page not found", "There is no such page, or it is not yours to see.",
    ]  # fmt: skip
    assert browser.value("[...document.querySelectorAll('nav a')].map((one) => one.pathname).join()") == (
        "/,/live,/report"
    )


def test_the_live_view_reads_itself_again_while_the_box_is_ticked(browser: Chromium, served: Served) -> None:
    browser.visit(f"{served.url}/live", **ALICE)
    rows = browser.value("document.querySelectorAll('#rows tbody tr').length")
    browser.value("document.getElementById('rows').textContent = ''")
    while browser.value("document.querySelectorAll('#rows tbody tr').length") != rows:
        pass
    assert rows > 0
    assert browser.complaints() == []
    assert not browser.value("document.getElementById('again').closest('p').hidden")


def test_a_name_in_the_filter_leaves_its_rows_and_stays_in_the_address(
    browser: Chromium, served: Served
) -> None:
    browser.visit(f"{served.url}/live", **OPERATOR)
    names = "[...document.querySelectorAll('#rows tbody tr')].map((row) => row.cells[0].textContent)"
    assert "user jmx-reader" in browser.value(names)
    browser.value("""(() => { const box = document.getElementById("filter"); box.value = "ALICE";
      box.dispatchEvent(new Event("input")); })()""")
    wait_for(lambda: "user jmx-reader" not in browser.value(names), within_s=60)
    # The buckets of her bytes and of her request time.
    assert browser.value(names) == ["user alice", "user alice"]
    assert browser.value("location.search") == "?filter=ALICE"
    assert browser.complaints() == []


def test_a_page_of_one_user_is_drawn_under_its_policy(browser: Chromium, served: Served) -> None:
    browser.resize(1280, 900)
    browser.media("light")
    browser.visit(f"{served.url}/report?user=alice&period={PERIOD}", **OPERATOR)
    while browser.value("document.documentElement.dataset.charts") not in {"drawn", "failed"}:
        pass
    browser.screenshot(served.folder / "serve-alice-report-1280-light.png")
    assert browser.value("document.documentElement.dataset.charts") == "drawn"
    assert browser.complaints() == []
    assert "user alice on cluster demo" in browser.value("document.body.innerText")
    assert "bob" not in browser.value("document.body.innerText")


def test_a_person_logs_in_with_the_token_and_out_again(browser: Chromium, served: Served) -> None:
    browser.resize(1280, 900)
    browser.media("light")
    browser.visit(f"{served.url}/login")
    assert_well(browser, served, "login", 1280, "light")
    browser.enter("wrong-token-of-a-guess")
    assert "This is not the token." in browser.value("document.body.innerText")
    browser.enter(TOKEN)
    assert browser.value("location.pathname") == "/"
    assert "cluster demo" in browser.value("document.querySelector('h1').innerText")
    assert browser.value("document.cookie") == ""
    assert not [url for url in browser.requests() if TOKEN in url]
    browser.leave("document.querySelector('nav form').requestSubmit()")
    assert browser.value("location.pathname") == "/login"


def asked(served: Served, *headers: tuple[str, str]) -> tuple[int, str | None]:
    """Status and the program that the answer names, of a request with exactly these headers."""
    connection = HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.putrequest("GET", "/plans", skip_host=any(name == "Host" for name, _ in headers))
    for name, value in headers:
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    connection.close()
    return answer.status, answer.getheader("Server")


def test_a_header_that_a_client_adds_or_spells_otherwise_makes_no_operator(served: Served) -> None:
    operator, alice = ("X-Forwarded-User", "operator"), ("X-Forwarded-User", "alice")
    assert asked(served, BY_PROXY, operator) == (200, None)
    assert asked(served, BY_PROXY, alice, operator)[0] == 404
    assert asked(served, BY_PROXY, operator, alice)[0] == 404
    assert asked(served, BY_PROXY, ("X_Forwarded_User", "operator"))[0] == 401
    assert asked(served, BY_PROXY, alice, ("X_Forwarded_User", "operator"))[0] == 404
    assert asked(served, operator)[0] == 401
    assert asked(served, ("X_Kquota_Proxy_Secret", PROXY_SECRET), operator)[0] == 401
    assert asked(served, BY_PROXY, BY_PROXY, operator)[0] == 401


def test_a_page_of_the_web_that_rebinds_its_name_reads_nothing(served: Served) -> None:
    rebound = ("Host", "evil.example.com")
    assert asked(served, rebound, ("X-Forwarded-User", "operator"))[0] == 400
    assert asked(served, rebound, BY_PROXY, ("X-Forwarded-User", "operator"))[0] == 400
    assert asked(served, ("Host", "localhost"), BY_PROXY, ("X-Forwarded-User", "operator"))[0] == 200


def test_it_ends_when_told_to_and_has_said_no_token(served: Served) -> None:
    served.process.send_signal(signal.SIGTERM)
    _, said = served.process.communicate(timeout=30)
    assert (served.process.returncode, TOKEN in said, "Traceback" in said) == (0, False, False)
