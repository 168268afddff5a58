"""`kquota notify`: wrong routes are named at once, a test reaches its route alone, a dry run sends nothing."""

from __future__ import annotations

from pathlib import Path

from tests.support.programs.command_output import run
from tests.support.programs.receivers import http_receiver
from tests.support.tables.table_rows import violation, write_table

ROUTES = """
cluster_id: demo
tables: {root}
notifications:
  routes:
    ops: {{kind: slack, url: "{url}/ops-canary"}}
    alice: {{kind: webhook, url: "{url}/alice", secret: hush-canary-0123, users: [alice]}}
"""
WRONG = """
tables: {root}
notifications:
  routes:
    ops: {{kind: slack, url: "hooks.example.com/canary"}}
    a: {{kind: webhook, url: "https://x y/", secret: s, users: ["(", "alice"]}}
    mx:
      {{kind: mail, host: mx, security: none, user: u, password: canary, sender: "me\\r\\nBcc: x@example.com", to: [a]}}
"""


def written(root: Path, text: str, url: str = "") -> str:
    path = root / "kquota.yaml"
    path.write_text(text.format(root=root, url=url), encoding="utf-8")
    return str(path)


def test_all_problems_of_all_routes_are_named_and_no_secret(tmp_path: Path) -> None:
    code, out, err = run("notify", "--once", "--config", written(tmp_path, WRONG))
    assert (code, out) == (1, "")
    head = "kquota: notifications.routes."
    address = "url: not an address, expected http:// or https:// with a host, in printable ASCII"
    assert err.splitlines() == [
        f"{head}ops.{address}",
        f"{head}a.users[0]: '(' is no regular expression (missing ): ()",
        f"{head}a.{address}",
        f"{head}a.secret: shorter than 16 characters: make one with openssl rand -hex 32",
        f"{head}mx.sender: 'me\\r\\nBcc: x@example.com', expected an address such as ops@example.com",
        f"{head}mx.to[0]: 'a', expected an address such as ops@example.com",
        f"{head}mx.security: none with a login, expected starttls or tls: the password would be sent in the clear",
    ]


def test_a_webhook_that_anybody_could_sign_for_is_refused(tmp_path: Path) -> None:
    short = "shorter than 16 characters: make one with openssl rand -hex 32"
    for secret in ("''", "hush-canary-012"):
        text = ROUTES.replace("hush-canary-0123", secret)
        assert run("notify", "--once", "--config", written(tmp_path, text, "https://example.com")) == (
            1,
            "",
            f"kquota: notifications.routes.alice.secret: {short}\n",
        )


def test_without_routes_it_says_where_they_belong(tmp_path: Path) -> None:
    code, _, err = run("notify", "--once", "--config", written(tmp_path, "tables: {root}"))
    assert code == 1
    assert err == (
        "kquota: notifications.routes: no route in the settings: add one, see kquota help notifications\n"
    )


def test_a_kind_of_route_that_there_is_not(tmp_path: Path) -> None:
    config = written(tmp_path, "notifications: {{routes: {{ops: {{kind: pager}}, x: {{kind: slack}}}}}}")
    code, _, err = run("notify", "--once", "--config", config)
    assert code == 1
    assert err.splitlines() == [
        f"kquota: {config}: notifications.routes.ops.kind: 'pager', expected one of webhook, slack, alertmanager, mail",
        f"kquota: {config}: notifications.routes.x.url: missing",
    ]


def test_a_test_message_reaches_its_route_alone(tmp_path: Path) -> None:
    with http_receiver() as received:
        code, out, err = run("notify", "--test", "alice", "--config", written(tmp_path, ROUTES, received.url))
    assert (code, err) == (0, "")
    assert [post.path for post in received.posts] == ["/alice"]
    identity = received.posts[0].headers["Kquota-Message-Id"]
    assert out == f"delivered to alice: test message {identity}\n"
    assert not (tmp_path / "_kquota").exists()


def test_a_test_message_that_does_not_arrive_and_a_route_that_there_is_not(tmp_path: Path) -> None:
    with http_receiver() as received:
        received.answers = [(404, {})]
        config = written(tmp_path, ROUTES, received.url)
        assert run("notify", "--test", "ops", "--config", config) == (
            1, "", "kquota: route ops: the test message was not delivered: HTTP 404\n",
        )  # fmt: skip
        assert run("notify", "--test", "opps", "--config", config) == (
            1, "", "kquota: notifications.routes: no route 'opps', expected one of ops, alice\n",
        )  # fmt: skip


def test_a_dry_run_prints_what_would_be_sent_and_sends_and_writes_nothing(tmp_path: Path) -> None:
    write_table(
        tmp_path, "violations", violation(0, None, bucket_user="\x1b[2J\r\n<!channel>", users=["alice"])
    )
    with http_receiver() as received:
        code, out, err = run("notify", "--dry-run", "--config", written(tmp_path, ROUTES, received.url))
    assert (code, err, received.posts) == (0, "", [])
    lines = out.splitlines()
    assert [line.partition(",")[0] for line in lines[::2]] == [
        "to ops (slack)", "to alice (webhook)", "nothing was sent; messages: 2",
    ]  # fmt: skip
    assert "user \\\\x1b[2J\\\\x0d\\\\x0a&lt;!channel&gt;, produce, broker 1: above its limit" in lines[1]
    assert "canary" not in out
    assert not (tmp_path / "_kquota").exists()


def test_tables_that_are_not_there(tmp_path: Path) -> None:
    config = written(tmp_path, ROUTES.replace("{root}", "{root}/gone"), "http://127.0.0.1:1")
    assert run("notify", "--once", "--config", config) == (
        1, "", f"kquota: tables path {tmp_path}/gone does not exist: run the audit first, or correct tables:\n",
    )  # fmt: skip
    assert not (tmp_path / "gone").exists()
