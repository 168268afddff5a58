"""Who may look at the pages of `kquota serve`, and what an answer carries to keep it so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from kquota_spark.cli.serve.access import Access
from kquota_spark.config.settings import Serve, Settings
from kquota_spark.errors import UserError
from tests.support.programs.command_output import run
from tests.support.reports.served import PERIOD, TOKEN, served, write_canary_tables


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return write_canary_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def app(settings: Settings) -> Flask:
    return served(settings)


def code(client: FlaskClient, path: str = "/", peer: str = "127.0.0.1", **headers: str) -> int:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.get(path, headers=sent, environ_base={"REMOTE_ADDR": peer}).status_code


@pytest.mark.parametrize("address", ["0.0.0.0", "10.1.2.3", "::", "kafka.example.com"])
def test_an_address_that_others_reach_needs_a_token_or_a_header(address: str) -> None:
    said = f"--address {address}: other machines could read everything: set serve.token or serve.user_header"
    with pytest.raises(UserError, match=f"^{said}$"):
        Access(Serve(), address)
    assert Access(Serve(token=TOKEN), address).has_token
    assert not Access(Serve(user_header="X-User"), address).is_open


@pytest.mark.parametrize("address", ["127.0.0.1", "127.5.0.1", "::1", "localhost"])
def test_loopback_needs_none(address: str) -> None:
    assert Access(Serve(), address).is_open


def test_the_command_refuses_before_it_listens(tmp_path: Path) -> None:
    said = "--address 0.0.0.0: other machines could read everything: set serve.token or serve.user_header"
    assert run("serve", "--address", "0.0.0.0", "--tables", str(tmp_path)) == (1, "", f"kquota: {said}\n")


def test_a_token_that_can_be_guessed_is_refused_and_not_shown() -> None:
    with pytest.raises(UserError) as refused:
        Access(Serve(token="hunter2hunter2x"), "127.0.0.1")
    assert str(refused.value) == (
        "serve.token: shorter than 16 characters: make one with openssl rand -hex 32"
    )


def test_the_header_counts_from_the_proxy_alone(app: Flask) -> None:
    client = app.test_client()
    assert code(client, X_Forwarded_User="alice") == 200
    assert code(client, X_Forwarded_User="alice", peer="10.0.0.9") == 401
    assert code(client, X_Forwarded_User="operator", peer="10.0.0.9", path="/plans") == 401
    assert code(client, X_Forwarded_User="operator", path="/plans") == 200
    assert code(client, X_Forwarded_User="alice", path="/plans") == 404
    assert code(client, X_Forwarded_User="") == 401
    assert code(client, X_Forwarded_User=" ") == 401
    assert code(client, X_Forwarded_User="\xff") == 401
    assert code(client) == 401


def test_a_proxy_that_names_a_tenant_goes_before_a_token(app: Flask) -> None:
    client = app.test_client()
    assert code(client, "/plans", X_Forwarded_User="alice", Authorization=f"Bearer {TOKEN}") == 404
    assert code(client, "/plans", Authorization=f"Bearer {TOKEN}") == 200


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer \xe4",
    ],
)
def test_nothing_but_the_whole_token_opens_a_page(app: Flask, given: str) -> None:
    assert code(app.test_client(), Authorization=given) == 401


def test_a_login_leaves_a_cookie_that_scripts_and_other_sites_do_not_get_and_no_token_anywhere(
    app: Flask,
) -> None:
    client = app.test_client()
    assert client.post("/login", data={"token": "wrong"}).status_code == 403
    assert code(client) == 401
    answer = client.post("/login", data={"token": TOKEN})
    cookie = answer.headers["Set-Cookie"]
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert code(client, "/plans") == 200
    assert TOKEN not in f"{answer.headers}{answer.text}{client.get('/').text}"
    assert client.post("/logout").headers["Location"] == "/login"
    assert code(client, "/plans") == 401
    by_tls = client.post("/login", data={"token": TOKEN}, headers={"X-Forwarded-Proto": "https"})
    assert "Secure" in by_tls.headers["Set-Cookie"].split("; ")


def test_a_session_of_another_start_opens_nothing(app: Flask, settings: Settings) -> None:
    cookie = app.test_client().post("/login", data={"token": TOKEN}).headers["Set-Cookie"].partition(";")[0]
    assert code(app.test_client(use_cookies=False), Cookie=cookie) == 200
    assert code(served(settings).test_client(use_cookies=False), Cookie=cookie) == 401


def test_without_a_token_a_foreign_host_name_is_refused(settings: Settings) -> None:
    client = served(settings.changed(serve=Serve())).test_client()
    assert [code(client, Host=host) for host in ("127.0.0.1:9193", "localhost:9193", "[::1]:9193")] == [
        200
    ] * 3
    assert [code(client, Host=host) for host in ("evil.example.com", "127.0.0.1.evil.example.com")] == [
        400
    ] * 2
    assert code(client, "/login") == 404


def test_every_answer_has_the_headers_that_browsers_go_by(app: Flask) -> None:
    client = app.test_client()
    for rule in app.url_map.iter_rules():
        for user in ("alice", "operator", ""):
            answer = client.get(rule.rule, headers={"X-Forwarded-User": user})
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            scripts = [part for part in policy.split("; ") if part.startswith("script-src")]
            assert scripts == (["script-src 'self'"] if rule.rule == "/live" and user else [])
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["X-Frame-Options"] == "DENY"
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            is_file = rule.rule in ("/style.css", "/live.js")
            assert answer.headers["Cache-Control"] == ("max-age=3600" if is_file else "no-store")


def test_a_report_names_its_scripts_by_hash_in_the_header_too(app: Flask) -> None:
    answer = app.test_client().get(f"/report?period={PERIOD}", headers={"X-Forwarded-User": "alice"})
    policy = answer.headers["Content-Security-Policy"]
    [scripts] = [part for part in policy.split("; ") if part.startswith("script-src")]
    assert re.fullmatch(r"script-src( 'sha256-[\w+/]+=')+", scripts)
    assert policy.endswith("; frame-ancestors 'none'")


def test_nothing_but_the_login_takes_anything(app: Flask) -> None:
    writing = {
        rule.rule for rule in app.url_map.iter_rules() if set(rule.methods or ()) - {"GET", "HEAD", "OPTIONS"}
    }
    assert writing == {"/login", "/logout"}
