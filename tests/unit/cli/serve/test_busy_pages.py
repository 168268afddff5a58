"""One viewer of `kquota serve` does not stop it for the others: reports are bounded, and made one at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from kquota_spark.cli.serve import contents
from kquota_spark.errors import UserError
from kquota_spark.reports.pages.gathering import gather_report
from tests.support.clock import set_clock
from tests.support.reports.served import NOW_MS, PERIOD, by_proxy, served, write_canary_tables

ANSWER_S = 60
"""A request that waits for the held report would never end."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_canary_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def app(tables: Any, monkeypatch: pytest.MonkeyPatch) -> Flask:
    set_clock(monkeypatch, lambda: NOW_MS)
    return served(tables)


class Held:
    """Reports begin and then wait until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

        def wait(*args: Any, **options: Any) -> Any:
            self.has_begun.set()
            assert self.may_go_on.wait(2 * ANSWER_S)
            return gather_report(*args, **options)

        monkeypatch.setattr(contents, "gather_report", wait)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    made = Held(monkeypatch)
    yield made
    made.may_go_on.set()


@pytest.fixture
def threads(held: Held) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(4)
    yield pool
    held.may_go_on.set()
    pool.shutdown()


def asked(app: Flask, path: str, user: str) -> TestResponse:
    return by_proxy(app).get(path, headers={"X-Forwarded-User": user})


def test_while_a_tenants_report_is_made_others_are_told_to_come_again_and_all_other_pages_answer(
    app: Flask, held: Held, threads: ThreadPoolExecutor
) -> None:
    slow: Future[TestResponse] = threads.submit(asked, app, "/report?period=today", "alice")
    assert held.has_begun.wait(ANSWER_S)
    busy = [("/report?period=last:1h", "alice"), ("/report", "canary-victim"), ("/report", "operator"),
            ("/tenants", "operator")]  # fmt: skip
    for path, user in busy:
        answer = threads.submit(asked, app, path, user).result(ANSWER_S)
        assert (answer.status_code, answer.headers.get("Retry-After")) == (503, "10")
        assert "Another report is being made: try again in some seconds." in answer.text
    for path, user in [("/live", "canary-victim"), ("/", "canary-victim"), ("/live", "operator"),
                       ("/", "operator"), ("/plans", "operator")]:  # fmt: skip
        assert threads.submit(asked, app, path, user).result(ANSWER_S).status_code == 200
    held.may_go_on.set()
    assert slow.result(ANSWER_S).status_code == 200
    assert [asked(app, path, user).status_code for path, user in busy] == [200, 200, 200, 200]


def test_a_report_that_is_kept_is_shown_while_another_one_is_made(
    app: Flask, held: Held, threads: ThreadPoolExecutor
) -> None:
    held.may_go_on.set()
    kept = asked(app, "/report", "alice")
    held.may_go_on.clear()
    held.has_begun.clear()
    slow = threads.submit(asked, app, "/report", "operator")
    assert held.has_begun.wait(ANSWER_S)
    assert threads.submit(asked, app, "/report", "alice").result(ANSWER_S).text == kept.text
    held.may_go_on.set()
    assert (kept.status_code, slow.result(ANSWER_S).status_code) == (200, 200)


def test_a_report_that_fails_is_in_nobodys_way(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise UserError("gone")

    with monkeypatch.context() as broken:
        broken.setattr(contents, "gather_report", fail)
        assert asked(app, "/report", "alice").status_code == 404
    assert asked(app, "/report", "alice").status_code == 200


def test_a_report_and_the_list_of_users_have_a_time_limit(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as late:
        late.setattr(contents, "_MOST_REPORT_S", 0.0)
        for path, user in (("/report", "alice"), ("/report", "operator"), ("/tenants", "operator")):
            answer = asked(app, path, user)
            assert (answer.status_code, answer.headers.get("Retry-After")) == (503, "10")
            assert "Reading the tables takes longer than 0 s: ask for a shorter period." in answer.text
    assert asked(app, "/report", "alice").status_code == 200


@pytest.mark.parametrize(
    "period",
    [
        "last:3650d",
        "last:61m",
        "last:3600s",
        "2026-11-21..2026-11-21",
        PERIOD,
        "today ",
        "%20today",
        "LAST:1H",
    ],
)
def test_a_tenant_has_the_periods_of_the_links_alone(app: Flask, period: str) -> None:
    assert asked(app, f"/report?period={period}", "alice").status_code == 400


@pytest.mark.parametrize("period", ["today", "last:1h", ""])
def test_and_those_it_has(app: Flask, period: str) -> None:
    path = f"/report?period={period}" if period else "/report"
    assert asked(app, path, "alice").status_code == 200


@pytest.mark.parametrize(
    ("period", "code"),
    [
        ("last:31d", 200),
        ("2026-10-22..2026-11-21", 200),
        ("last:2678401s", 400),
        ("2026-10-21..2026-11-21", 400),
        ("last:3650d", 400),
    ],
)
def test_an_operator_has_any_period_of_31_days_at_most(app: Flask, period: str, code: int) -> None:
    # 31 * 86_400 s = 2_678_400 s
    answer = asked(app, f"/report?period={period}", "operator")
    assert answer.status_code == code
    assert ("longer than 31 days: kquota report --period makes longer reports" in answer.text) == (
        code == 400
    )
