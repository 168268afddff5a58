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
from tests.support.reports.served import PERIOD, PROXY_SECRET, TOKEN, by_proxy, served, write_canary_tables


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return write_canary_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def app(settings: Settings) -> Flask:
    return served(settings)


PROXY = {"X-Kquota-Proxy-Secret": PROXY_SECRET}


def code(client: FlaskClient, path: str = "/", peer: str = "127.0.0.1", **headers: str) -> int:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.get(path, headers=sent, environ_base={"REMOTE_ADDR": peer}).status_code


@pytest.mark.parametrize("address", ["0.0.0.0", "10.1.2.3", "::", "kafka.example.com"])
def test_an_address_that_others_reach_needs_a_token_or_a_header(address: str) -> None:
    said = f"--address {address}: other machines could read everything: set serve.token or serve.user_header"
    with pytest.raises(UserError, match=f"^{said}$"):
        Access(Serve(), address)
    assert Access(Serve(token=TOKEN), address).has_token
    assert not Access(Serve(user_header="X-User", proxy_secret=PROXY_SECRET), address).is_open


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


@pytest.mark.parametrize("given", ["", "hunter2hunter2x"])
def test_a_user_header_needs_a_secret_of_the_proxy_that_nobody_guesses(given: str) -> None:
    said = (
        "serve.proxy_secret: shorter than 16 characters: make one with openssl rand -hex 32, "
        "and let the proxy send it as X-Kquota-Proxy-Secret; without it serve.user_header cannot be trusted"
    )
    with pytest.raises(UserError, match=f"^{said}$"):
        Access(Serve(token=TOKEN, user_header="X-User", proxy_secret=given), "127.0.0.1")


def test_a_request_to_a_rebound_name_is_refused_before_anything_is_read(app: Flask) -> None:
    client = app.test_client()
    rebound = {"Host": "evil.example.com", "X_Forwarded_User": "operator"}
    for path in ("/", "/tenants", "/login", "/style.css"):
        assert code(client, path, **rebound, **PROXY) == 400
        assert code(client, path, **rebound, Authorization=f"Bearer {TOKEN}") == 400
    answer = client.get("/tenants", headers={"Host": "evil.example.com", "X-Forwarded-User": "operator"})
    assert (answer.status_code, "serve.hosts" in answer.text, "canary" in answer.text) == (400, True, False)


@pytest.mark.parametrize(
    "given",
    ["", "x", PROXY_SECRET[:-1], f"{PROXY_SECRET}x", PROXY_SECRET.upper(), "\xe4", TOKEN],
)
def test_the_header_counts_with_the_whole_secret_of_the_proxy_alone(app: Flask, given: str) -> None:
    client = app.test_client()
    assert code(client, "/plans", X_Forwarded_User="operator", X_Kquota_Proxy_Secret=given) == 401
    assert code(client, "/plans", X_Forwarded_User="operator") == 401
    assert code(client, "/plans", X_Forwarded_User="operator", **PROXY) == 200


@pytest.mark.parametrize(
    ("hosts", "address", "answered", "refused"),
    [
        ((), "127.0.0.1", ("127.0.0.1:9193", "localhost", "[::1]:9193", "LOCALHOST"),
         ("10.1.2.3", "evil.example.com", "127.0.0.1.evil.example.com", "localhost.", "", "[::1", "x@localhost")),
        ((), "10.1.2.3", ("10.1.2.3:9193", "127.0.0.1"), ("10.1.2.4", "kquota.example.com")),
        ((), "kafka.example.com", ("kafka.example.com",), ("example.com",)),
        ((), "0.0.0.0", ("10.1.2.3", "[2001:db8::1]:9193"), ("evil.example.com",)),
        (("Quotas.example.com", "2001:DB8::1"), "127.0.0.1",
         ("quotas.EXAMPLE.com:443", "[2001:db8:0::1]", "127.0.0.1"), ("example.com", "xquotas.example.com")),
    ],
)  # fmt: skip
def test_only_known_names_of_the_server_are_answered(
    hosts: tuple[str, ...], address: str, answered: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    access = Access(Serve(token=TOKEN, hosts=hosts), address)
    assert [host for host in answered if not access.is_host(host)] == []
    assert [host for host in refused if access.is_host(host)] == []


@pytest.mark.parametrize(
    "host", ["", "https://quotas.example.com", "quotas.example.com:443", "a/b", "*", "[::1]"]
)
def test_a_host_that_is_no_name_is_refused_at_the_start(host: str) -> None:
    with pytest.raises(UserError) as refused:
        Access(Serve(token=TOKEN, hosts=("ok.example.com", host)), "127.0.0.1")
    assert str(refused.value) == (
        f"serve.hosts[1]: {host!r} is no host name, expected one without scheme, port and path, e.g. quotas.example.com"
    )


def test_the_header_counts_from_the_proxy_alone(app: Flask) -> None:
    client = by_proxy(app)
    assert code(client, X_Forwarded_User="alice") == 200
    assert code(client, X_Forwarded_User="alice", peer="10.0.0.9", **PROXY) == 401
    assert code(client, X_Forwarded_User="operator", peer="10.0.0.9", path="/plans", **PROXY) == 401
    assert code(client, X_Forwarded_User="operator", path="/plans") == 200
    assert code(client, X_Forwarded_User="alice", path="/plans") == 404
    assert code(client, X_Forwarded_User="") == 401
    assert code(client, X_Forwarded_User=" ") == 401
    assert code(client, X_Forwarded_User="\xff") == 401
    assert code(client) == 401


def test_a_proxy_that_names_a_tenant_goes_before_a_token(app: Flask) -> None:
    client = by_proxy(app)
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
    client = by_proxy(app)
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
    answer = by_proxy(app).get(f"/report?period={PERIOD}", headers={"X-Forwarded-User": "operator"})
    policy = answer.headers["Content-Security-Policy"]
    [scripts] = [part for part in policy.split("; ") if part.startswith("script-src")]
    assert re.fullmatch(r"script-src( 'sha256-[\w+/]+=')+", scripts)
    assert policy.endswith("; frame-ancestors 'none'")


def test_nothing_but_the_login_takes_anything(app: Flask) -> None:
    writing = {
        rule.rule for rule in app.url_map.iter_rules() if set(rule.methods or ()) - {"GET", "HEAD", "OPTIONS"}
    }
    assert writing == {"/login", "/logout"}
