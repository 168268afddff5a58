"""The overview of `kquota serve` begins with the first screen of the report, or with the reason for its absence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kquota_spark.cli.serve import contents
from kquota_spark.config.settings import Settings
from tests.support.clock import set_clock
from tests.support.reports.served import NOW_MS, VICTIM, by_proxy, served, write_canary_tables
from tests.support.tables.table_rows import T0_MS, write_table

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return write_canary_tables(tmp_path_factory.mktemp("tables"))


def overview(settings: Settings, monkeypatch: pytest.MonkeyPatch, user: str, now_ms: int = NOW_MS) -> str:
    """The page, from a new server at that time."""
    set_clock(monkeypatch, lambda: now_ms)
    return by_proxy(served(settings)).get("/", headers={"X-Forwarded-User": user}).text


def headline(page: str) -> list[str]:
    return re.findall('<p class="headline">([^<]*)</p>', page)


def test_an_operator_sees_the_answer_then_the_worst_bucket_then_the_state_of_the_audit(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = overview(settings, monkeypatch, "operator")
    [sentence] = headline(page)
    # Ten requests of the victim with 6,543 s of throttle each.
    assert sentence == "1 of 3 buckets was throttled: 18.2 h of delay in all."
    first, state = page.index("18.2 h of delay"), page.index("State of each part")
    assert first < state
    href = f"/report?period=last:24h#bucket=produce/{VICTIM}//"
    assert f'<span class="name"><a href="{href}">user {VICTIM}, produce</a></span>' in page


def test_a_tenant_sees_the_first_screen_of_their_own_report(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = overview(settings, monkeypatch, "alice")
    [sentence] = headline(page)
    assert "not throttled" in sentence
    assert "State of each part" not in page
    assert VICTIM not in page


def test_links_of_the_first_screen_lead_into_the_report(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = overview(settings, monkeypatch, "operator")
    header = page[page.index("<header>") : page.index("</header>")]
    assert {href.partition("#")[0] for href in re.findall('href="([^"]*)"', header)} == {
        "/report?period=last:24h"
    }


def test_tables_that_stopped_days_ago_have_the_first_screen_of_their_last_day(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = overview(settings, monkeypatch, "operator", T0_MS + 9_000 + 2 * DAY_MS)
    assert headline(page) == ["1 of 3 buckets was throttled: 18.2 h of delay in all."]
    [stale] = re.findall('<p class="problem stale">([^<]*)</p>', page)
    assert stale == "STALE: newest second 2 days ago (2026-11-21 05:40:09 UTC). The report has nothing later."
    assert "/report?period=2026-11-20T05:40:10..2026-11-21T05:40:10#trust" in page


def test_a_report_that_takes_long_is_left_to_its_own_page(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "_MOST_FIRST_S", 0.0)
    page = overview(settings, monkeypatch, "operator")
    assert headline(page) == []
    assert "<p>The report is being made, or takes long: open it below.</p>" in page
    assert 'href="/report?period=last%3A24h"' in page or 'href="/report?period=last:24h"' in page


@pytest.mark.parametrize("user", ["operator", "alice"])
def test_tables_without_rows_have_one_sentence(
    user: str, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("requests", "usage", "decisions", "violations", "quota_rules", "quota_changes"):
        write_table(tmp_path, name)
    page = overview(settings.changed(tables=str(tmp_path)), monkeypatch, user)
    assert headline(page) == []
    sentences = {
        "operator": "<p>There is no traffic to report on in the last 24 hours.</p>",
        "alice": '<p class="verdict">No traffic of alice in the last week.</p>',
    }
    assert sentences[user] in page
