"""`/live` of `kquota serve`: whether its rows are of now."""

from __future__ import annotations

import re

import pytest

from kquota_spark.cli.serve import contents
from kquota_spark.config.settings import Settings
from tests.support.reports.served import NOW_MS, by_proxy, served, write_canary_tables
from tests.support.tables.table_rows import T0_MS

STALE = "STALE: newest second 63 min ago (2026-11-21 05:40:09 UTC). These rows are from then."


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return write_canary_tables(tmp_path_factory.mktemp("tables"))


def live(settings: Settings, user: str) -> str:
    """The page, from a new server: one that runs keeps it for some seconds."""
    return by_proxy(served(settings)).get("/live", headers={"X-Forwarded-User": user}).text


@pytest.mark.parametrize("user", ["operator", "alice"])
def test_rows_of_an_hour_ago_are_stale_and_none_is_red(
    settings: Settings, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "now_ms", lambda: T0_MS + 9_000 + 63 * 60_000)
    page = live(settings, user)
    [stale] = re.findall('<p class="problem stale">(.*)</p>', page)
    assert stale == STALE
    assert set(re.findall('<tr class="(.*?)">', page)) == {""}


def test_rows_of_ten_seconds_ago_are_live_and_a_client_over_its_limit_is_red(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "now_ms", lambda: NOW_MS)
    page = live(settings, "operator")
    assert "STALE" not in page
    assert "over" in set(re.findall('<tr class="(.*?)">', page))
