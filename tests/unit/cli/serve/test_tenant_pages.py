"""A tenant of `kquota serve` sees nothing of others: every route, asked in every way, searched for canaries."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from flask import Flask

from kquota_spark.enforce.changes import Mode, StepId
from kquota_spark.enforcement.edges.log import EnforcementLog
from tests.support.clock import set_clock
from tests.support.reports.served import (
    CANARIES,
    NOW_MS,
    PERIOD,
    REASON,
    VICTIM,
    by_proxy,
    planned_step,
    readable,
    served,
    write_canary_tables,
)

QUERIES = ("", "?period=last:1h", f"?period=last:1h&user={VICTIM}", "?period=last:1h&user=alice",
           f"?period=last:1h&user=alice&user={VICTIM}", f"?tenant={VICTIM}&period=last:1h",
           f"?period={PERIOD}", f"?period={PERIOD}&user={VICTIM}", f"?period={PERIOD}&user=alice",
           f"?user={VICTIM}", "?user=", "?user=%00", f"?period={VICTIM}", f"?period={PERIOD}&user=alice&user={VICTIM}",
           f"?tenant={VICTIM}&period={PERIOD}", f"?broker=1&type=produce&user={VICTIM}",
           "?broker=1&type=produce&user=alice", "?filter=canary&sort=rate")  # fmt: skip
ROUTES = {
    "/",
    "/live",
    "/timeline",
    "/report",
    "/tenants",
    "/plans",
    "/shadow",
    "/login",
    "/logout",
    "/style.css",
    "/live.js",
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Flask:
    return served(write_canary_tables(tmp_path_factory.mktemp("tables")))


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, lambda: NOW_MS)


def answers(app: Flask, user: str) -> dict[str, tuple[int, str]]:
    """What this user gets from every route of the application by every method: status, and headers and page."""
    found = {}
    client = by_proxy(app)
    for rule in app.url_map.iter_rules():
        for method in sorted(rule.methods or ()):
            for query in QUERIES:
                headers = {"X-Forwarded-User": user}
                answer = client.open(rule.rule + query, method=method, headers=headers)
                text = f"{answer.headers}\n{answer.text}"
                found[f"{method} {rule.rule}{query}"] = answer.status_code, readable(text)
    return found


def seen(found: dict[str, tuple[int, str]]) -> dict[str, list[str]]:
    """The answers in which each canary is."""
    return {
        what: [where for where, (_, text) in found.items() if any(form in text for form in forms)]
        for what, forms in CANARIES.items()
    }


def test_every_route_is_known_here(app: Flask) -> None:
    assert {rule.rule for rule in app.url_map.iter_rules()} == ROUTES


def test_no_route_shows_a_tenant_a_name_or_a_number_of_another_user(app: Flask) -> None:
    found = answers(app, "alice")
    # What alice herself has asked for comes back in the error: the victim's name that she typed.
    typed = f"?period={VICTIM}"
    searched = {where: answer for where, answer in found.items() if not where.endswith(typed)}
    assert seen(searched) == {what: [] for what in CANARIES}
    assert found["GET /report?period=last:1h"][0] == 200
    assert found["GET /report?period=last:1h&user=alice"][0] == 200
    assert found[f"GET /report?period=last:1h&user={VICTIM}"][0] == 404
    of_operators = ("/tenants", "/plans", "/timeline?broker=1&type=produce&user=alice")
    assert {found[f"GET {route}"][0] for route in of_operators} == {404}


def test_the_search_finds_each_canary_in_what_an_operator_sees(app: Flask) -> None:
    assert [what for what, where in seen(answers(app, "operator")).items() if not where] == []


def test_the_victim_sees_their_own_page(app: Flask) -> None:
    found = seen(answers(app, VICTIM))
    assert [bool(found[what]) for what in ("user", "client id", "rate", "limit", "delay")] == [True] * 5
    assert found["reason of a plan"] == []


def test_a_tenant_that_nobody_has_seen_gets_the_same_answer_as_one_without_traffic(app: Flask) -> None:
    client = by_proxy(app)
    asked = {
        user: client.get("/report?period=last:1h", headers={"X-Forwarded-User": user})
        for user in ("nobody", "alicE")
    }
    assert {answer.status_code for answer in asked.values()} == {404}
    for user, answer in asked.items():
        assert f"<p>No traffic of {user} in the last week.</p>" in answer.text
    assert asked["nobody"].text.replace("nobody", "alicE") == asked["alicE"].text
    page = client.get("/", headers={"X-Forwarded-User": "nobody"}).text
    assert '<p class="verdict">No traffic of nobody in the last week.</p>' in page
    assert "No traffic" not in client.get("/", headers={"X-Forwarded-User": "alice"}).text


def test_a_tenant_with_traffic_at_another_time_is_not_told_that_there_was_none(app: Flask) -> None:
    period = "?period=last:1h"
    # An hour after the tables end; the week before has alice's requests.
    answer = by_proxy(app).get(f"/report{period}", headers={"X-Forwarded-User": "alice"})
    assert answer.status_code == 200
    early = by_proxy(app).get("/report?period=day", headers={"X-Forwarded-User": "alice"})
    assert early.status_code == 404
    assert "<p>There is nothing of yours to show for this time.</p>" in early.text


@pytest.mark.parametrize("address", ["/nowhere", "/plans", "/tenants", f"/report?user={VICTIM}&period=day"])
def test_a_page_that_is_not_there_or_not_a_tenants_says_the_same_and_has_the_tenants_links(
    app: Flask, address: str
) -> None:
    answer = by_proxy(app).get(address, headers={"X-Forwarded-User": "alice"})
    assert answer.status_code == 404
    assert "<h1>Page not found</h1>" in answer.text
    assert "<p>There is no such page, or it is not yours to see.</p>" in answer.text
    assert re.findall('<a href="(.*?)"', answer.text) == ["/", "/live", "/report"]


def test_an_operator_gets_all_links_on_a_page_that_is_not_there_and_a_stranger_none(app: Flask) -> None:
    found = by_proxy(app).get("/nowhere", headers={"X-Forwarded-User": "operator"})
    assert (found.status_code, "Page not found" in found.text) == (404, True)
    assert re.findall('<a href="(.*?)"', found.text) == [
        "/",
        "/live",
        "/report",
        "/tenants",
        "/plans",
        "/shadow",
    ]
    stranger = app.test_client().get("/nowhere")
    assert (stranger.status_code, "<nav" in stranger.text) == (404, False)


def test_a_plan_is_shown_whole_with_what_happens_next(app: Flask, tmp_path: Path) -> None:
    page = by_proxy(app).get("/plans", headers={"X-Forwarded-User": "operator"}).text
    assert f"<h2>users/{VICTIM}: producer_byte_rate</h2>" in page
    assert f"<dt>why</dt><dd>penalty: {REASON}</dd>" in page
    assert '<dd class="next">kquota enforce approve p-1</dd>' in page
    settings = write_canary_tables(tmp_path)
    reason = "a reason of many words " * 40
    step = planned_step()
    proposal = replace(step.proposal, reason=reason.strip())
    observed = replace(step, step_id=StepId("p-2", 1), mode=Mode.OBSERVE, proposal=proposal)
    EnforcementLog(settings).append([observed])
    page = by_proxy(served(settings)).get("/plans", headers={"X-Forwarded-User": "operator"}).text
    assert f"<dd>penalty: {reason.strip()}</dd>" in page
    assert '<dd class="next">nothing: mode observe writes it down, and never sends it</dd>' in page


def test_a_name_is_text_wherever_it_stands(app: Flask) -> None:
    name = "<script>alert(1)</script>\u202e"
    answer = by_proxy(app).get("/", headers={"X-Forwarded-User": name.encode().decode("latin-1")})
    assert answer.status_code == 200
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e" in answer.text
    assert "<script" not in answer.text
    asked = by_proxy(app).get(f"/report?period={quote(name)}", headers={"X-Forwarded-User": "alice"})
    assert (asked.status_code, "<script" in asked.text) == (400, False)
