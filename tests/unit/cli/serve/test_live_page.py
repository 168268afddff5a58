"""`/live` of `kquota serve`: whether its rows are of now, their order, their filter, and where they lead."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient

from kquota_spark.config.settings import Settings
from tests.support.clock import set_clock
from tests.support.reports.served import NOW_MS, VICTIM, by_proxy, served, write_canary_tables
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
    set_clock(monkeypatch, lambda: T0_MS + 9_000 + 63 * 60_000)
    page = live(settings, user)
    [stale] = re.findall('<p class="problem stale">(.*)</p>', page)
    assert stale == STALE
    assert set(re.findall('<tr class="(.*?)">', page)) == {""}


def test_rows_of_ten_seconds_ago_are_live_and_a_client_over_its_limit_is_red(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, lambda: NOW_MS)
    page = live(settings, "operator")
    assert "STALE" not in page
    assert "over" in set(re.findall('<tr class="(.*?)">', page))


@pytest.fixture
def client(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> FlaskClient:
    """A server whose clock shows ten seconds after the newest row."""
    set_clock(monkeypatch, lambda: NOW_MS)
    return by_proxy(served(settings))


def shown(client: FlaskClient, query: str = "", user: str = "operator") -> str:
    return client.get(f"/live{query}", headers={"X-Forwarded-User": user}).text


def buckets(page: str) -> list[Any]:
    """The names of the buckets, in the order of their rows."""
    return re.findall(r'<td class="name"><div class="text"><a href="[^"]*">([^<]*)</a></div></td>', page)


ALICE, OWN, SHARED = "user alice", f"user {VICTIM}", "client shared"


@pytest.mark.parametrize(
    ("query", "expected", "column", "order"),
    [
        # Shares of the limit: the victim's own 187 %, the others 25 %, of which the one without a user is first.
        ("", [OWN, SHARED, ALICE], "used", "descending"),
        ("?sort=used&reverse=1", [SHARED, ALICE, OWN], "used", "ascending"),
        # Names: `/shared` (no user) is before `alice`, and that before `canary-victim`.
        ("?sort=name", [SHARED, ALICE, OWN], "bucket", "ascending"),
        ("?sort=name&reverse=1", [OWN, ALICE, SHARED], "bucket", "descending"),
        ("?sort=nothing&reverse=2", [OWN, SHARED, ALICE], "used", "descending"),
    ],
)
def test_rows_have_the_order_of_the_address_and_its_column_is_marked(
    client: FlaskClient, query: str, expected: list[str], column: str, order: str
) -> None:
    page = shown(client, query)
    assert buckets(page) == expected
    marked = re.findall(r'<th [^>]*aria-sort="(\w+)"><a class="sort" href="[^"]*">([^<]*)</a>', page)
    assert marked == [(order, column)]


def test_a_click_on_the_head_of_a_column_orders_by_it_and_a_second_one_the_other_way_round(
    client: FlaskClient,
) -> None:
    page = shown(client, f"?filter={VICTIM}")
    heads = {
        title: html.unescape(address)
        for address, title in re.findall(r'<a class="sort" href="([^"]*)">([^<]*)</a>', page)
    }
    assert heads == {
        "broker": f"/live?sort=broker&filter={VICTIM}",
        "bucket": f"/live?sort=name&filter={VICTIM}",
        "rate": f"/live?sort=rate&filter={VICTIM}",
        "used": f"/live?sort=used&reverse=1&filter={VICTIM}",
        "total delay": f"/live?sort=delay&filter={VICTIM}",
    }


def test_a_filter_leaves_the_buckets_with_a_name_or_a_client_that_has_it(client: FlaskClient) -> None:
    # The shared bucket has the victim as a client.
    assert buckets(shown(client, f"?filter={VICTIM[:9].upper()}")) == [OWN, SHARED]
    assert buckets(shown(client, "?filter=etl")) == [ALICE]
    none = shown(client, "?filter=nobody-has-this")
    assert (buckets(none), "<p>No name of a bucket, a user or a client id matches the filter.</p>" in none) == (
        [], True,
    )  # fmt: skip


def test_a_tenants_filter_finds_nothing_of_others(client: FlaskClient) -> None:
    page = shown(client, f"?filter={VICTIM[:6]}", "alice")
    assert buckets(page) == []
    assert VICTIM not in page
    assert buckets(shown(client, "", "alice")) == [ALICE]


def test_a_filter_is_text(client: FlaskClient) -> None:
    hostile = '"><script>alert(1)</script>'
    page = shown(client, f"?filter={quote(hostile)}&sort={quote(hostile)}")
    assert re.findall("<script[^>]*>", page) == ['<script src="/live.js">']
    assert 'value="&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"' in page


def test_a_name_leads_to_the_bucket_in_the_report_and_the_bars_to_its_timeline(client: FlaskClient) -> None:
    page = shown(client, "?filter=shared")
    [report] = re.findall(r'<div class="text"><a href="([^"]*)">client shared</a>', page)
    [(timeline, label)] = re.findall(r'<td class="bars"><a href="([^"]*)" aria-label="([^"]*)">', page)
    assert report == "/report?period=last:24h#bucket=produce//shared/"
    assert label == "timeline of client shared, up to 25.0 % of the limit"
    assert html.unescape(timeline) == "/timeline?cluster=demo&broker=1&type=produce&client=shared"
    assert client.get(report, headers={"X-Forwarded-User": "operator"}).status_code == 200
    answer = client.get(html.unescape(timeline), headers={"X-Forwarded-User": "operator"})
    assert answer.status_code == 200
    assert '<p class="bucket">client shared, produce, broker 1, rule c/shared</p>' in answer.text
    # Ten seconds without a throttle, one request in each.
    said = "last 60 s: total delay 0 ms, throttled requests 0 of 10, time throttled 0 s"
    assert f"<p>{said}</p>" in answer.text


def test_rows_that_are_older_than_a_day_lead_to_a_report_that_has_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The newest second begins at 05:40:09 on 2026-11-21, and now is two days later.
    later_ms = T0_MS + 9_000 + 2 * 86_400_000
    set_clock(monkeypatch, lambda: later_ms)
    client = by_proxy(served(settings))
    [of_operator] = set(re.findall(r'<a href="(/report\?[^"#]*)#bucket', shown(client)))
    assert of_operator == "/report?period=2026-11-20T05:40:10..2026-11-21T05:40:10"
    [of_tenant] = set(re.findall(r'<a href="(/report\?[^"#]*)#bucket', shown(client, "", "alice")))
    assert of_tenant == "/report?period=week"
    for address, user in ((of_operator, "operator"), (of_tenant, "alice")):
        assert client.get(address, headers={"X-Forwarded-User": user}).status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?broker=1",
        "?type=produce",
        "?broker=x&type=produce",
        "?broker=1&type=nothing",
        "?broker=9999999999&type=fetch",
    ],
)
def test_a_timeline_of_no_bucket_is_not_there(client: FlaskClient, query: str) -> None:
    assert client.get(f"/timeline{query}", headers={"X-Forwarded-User": "operator"}).status_code == 404


def test_timelines_are_not_for_tenants(client: FlaskClient) -> None:
    assert "/timeline" not in shown(client, "", "alice")
    address = "/timeline?broker=1&type=produce&user=alice"
    assert client.get(address, headers={"X-Forwarded-User": "operator"}).status_code == 200
    assert client.get(address, headers={"X-Forwarded-User": "alice"}).status_code == 404
