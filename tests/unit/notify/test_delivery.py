"""Real receivers get each event at least once, whatever is killed, and copies of a message have one id."""

from __future__ import annotations

import email
import hashlib
import hmac
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from kquota_spark.cli.main import main as kquota
from kquota_spark.config.loader import load_settings
from kquota_spark.notify.job import Notifier
from kquota_spark.notify.outbox import Outbox
from tests.support.places import ROOT
from tests.support.programs.receivers import Receiver, http_receiver, smtp_receiver
from tests.support.tables.table_rows import T0_MS, second, violation, write_table

NOW_MS = T0_MS + 60_000
KILLED = 137
# The process is gone at once, as after SIGKILL: nothing of it is written or closed.
DIE = """
import os, sys
from kquota_spark.cli.main import main
from kquota_spark.notify import job
deliver, where = job.deliver, sys.argv.pop(1)
def killed(*arguments):
    if where == "after":
        deliver(*arguments)
    os._exit(137)
job.deliver = killed
sys.exit(main(sys.argv[1:]))
"""


def settings_file(root: Path, **routes: dict[str, Any]) -> Path:
    """Settings of the demo cluster whose only news is one open violation."""
    write_table(root, "violations", violation(0, None))
    path = root / "kquota.yaml"
    told = {"cluster_id": "demo", "tables": str(root), "notifications": {"routes": routes}}
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    return path


def killed(config: Path, where: str) -> bool:
    """Whether `kquota notify --once`, in a process of its own, was killed before or after it sent the message."""
    command = [sys.executable, "-c", DIE, where, "notify", "--once", "--config", str(config)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60)
    return done.returncode == KILLED


def once(config: Path) -> int:
    return kquota(["notify", "--once", "--config", str(config)])


def hook(received: Receiver, **changed: Any) -> dict[str, Any]:
    return {
        "kind": "webhook",
        "url": f"{received.url}/hook?token=canary",
        "secret": "hush-hush-hush-0",
        **changed,
    }


def event_ids(received: Receiver) -> list[str]:
    return [event["event_id"] for post in received.posts for event in json.loads(post.body)["events"]]


def test_a_kill_between_outbox_and_send_loses_nothing_and_copies_have_one_id(tmp_path: Path) -> None:
    with http_receiver() as received:
        config = settings_file(tmp_path, ops=hook(received))
        assert killed(config, "before")
        assert received.posts == []
        assert killed(config, "after")
        assert [once(config), once(config)] == [0, 0]
    # Sent twice, because nobody knew of the first time; delivered once to a receiver that keeps ids.
    assert [post.body for post in received.posts] == [received.posts[0].body] * 2
    assert len({post.headers["Kquota-Message-Id"] for post in received.posts}) == 1
    assert event_ids(received) == ["demo/violation/e0"] * 2
    post = received.posts[1]
    signed = hmac.new(
        b"hush-hush-hush-0", post.headers["Kquota-Timestamp"].encode() + b"." + post.body, hashlib.sha256
    )
    assert post.headers["Kquota-Signature"] == f"v1={signed.hexdigest()}"


def test_so_it_is_with_mail(tmp_path: Path) -> None:
    with smtp_receiver() as received:
        route = {
            "kind": "mail", "host": "127.0.0.1", "port": received.port, "security": "none",
            "sender": "kquota@example.com", "to": ["ops@example.com"],
        }  # fmt: skip
        config = settings_file(tmp_path, ops=route)
        assert [killed(config, "before"), killed(config, "after"), once(config)] == [True, True, 0]
    first, second_one = (email.message_from_bytes(data) for data in received.mails)
    assert first["Message-ID"] == second_one["Message-ID"]
    assert first.get_payload() == second_one.get_payload()
    assert "user alice, produce, broker 1: above its limit" in str(first.get_payload(decode=True))


def notifier(config: Path, said: list[str]) -> Notifier:
    made = Notifier(load_settings(config), said.append)
    made.begin()
    return made


def test_a_receiver_that_is_away_gets_the_same_message_later(tmp_path: Path) -> None:
    said: list[str] = []
    with http_receiver() as received:
        received.answers = [(503, {}), (429, {})]
        made = notifier(settings_file(tmp_path, ops=hook(received)), said)
        turns = [made.turn(NOW_MS + at_ms, is_waiting=False) for at_ms in (0, 4_999, 5_000, 15_000, 15_001)]
    assert turns == [False, True, False, True, True]
    assert [post.body for post in received.posts] == [received.posts[0].body] * 3
    identity = json.loads(received.posts[0].body)["message_id"][:8]
    assert said == [
        f"message {identity} to ops: HTTP 503; it is sent again in 5.00 s",
        f"message {identity} to ops: HTTP 429; it is sent again in 10.0 s",
        f"message {identity} to ops: delivered, with 1 event",
    ]


def test_a_message_that_is_refused_for_good_is_given_up(tmp_path: Path) -> None:
    said: list[str] = []
    with http_receiver() as received:
        received.answers = [(413, {})]
        made = notifier(settings_file(tmp_path, ops=hook(received)), said)
        assert [made.turn(NOW_MS + at_ms, is_waiting=False) for at_ms in (0, 900_000)] == [False, True]
    assert [line.partition(": ")[2] for line in said] == ["HTTP 413; it is given up"]


def test_one_route_does_not_wait_for_another(tmp_path: Path) -> None:
    with http_receiver() as well, http_receiver() as away:
        away.answers = [(500, {})]
        made = notifier(settings_file(tmp_path, away=hook(away), well=hook(well)), [])
        assert made.turn(NOW_MS, is_waiting=False) is False
        write_table(tmp_path, "violations", violation(30, None))
        assert made.turn(NOW_MS + 1_000, is_waiting=False) is True
    assert event_ids(well) == ["demo/violation/e0", "demo/violation/e30"]
    assert event_ids(away) == ["demo/violation/e0"]


def test_no_login_and_no_body_follow_a_redirect_and_no_secret_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    with http_receiver() as received, http_receiver() as elsewhere:
        for status in (301, 302, 303, 307, 308):
            received.answers.append((status, {"Location": f"{elsewhere.url}/taken"}))
        route = {"kind": "alertmanager", "url": received.url, "user": "u", "password": "canary"}
        made = notifier(settings_file(tmp_path, am=route, ops=hook(received)), said)
        for turn in range(5):
            made.turn(NOW_MS + turn * 3_600_000, is_waiting=False)
    assert elsewhere.posts == []
    # The two routes send at the same time.
    logins = {post.headers.get("Authorization") for post in received.posts if post.path == "/api/v2/alerts"}
    assert logins == {"Basic dTpjYW5hcnk="}
    assert any("a redirect is not followed" in line for line in said)
    assert [line for line in said if "canary" in line or received.url in line] == []


def test_an_alertmanager_hears_each_minute_of_what_holds_and_of_its_end(tmp_path: Path) -> None:
    with http_receiver() as received:
        made = notifier(settings_file(tmp_path, am={"kind": "alertmanager", "url": received.url}), [])
        for at_ms in (0, 59_999, 60_000):
            made.turn(NOW_MS + at_ms)
        DeltaTable(str(tmp_path / "violations")).update(new_values={"end_time": second(90)})
        for at_ms in (61_000, 121_000):
            made.turn(NOW_MS + at_ms)
    assert {post.path for post in received.posts} == {"/api/v2/alerts"}
    ends = [[alert.get("endsAt") for alert in json.loads(post.body)] for post in received.posts]
    assert ends == [[None], [None], ["2026-11-21T05:41:30Z"]]


def test_a_mail_server_without_tls_gets_neither_the_login_nor_the_mail(tmp_path: Path) -> None:
    said: list[str] = []
    with smtp_receiver() as received:
        route = {
            "kind": "mail", "host": "127.0.0.1", "port": received.port, "user": "u", "password": "canary",
            "sender": "kquota@example.com", "to": ["ops@example.com"],
        }  # fmt: skip
        made = notifier(settings_file(tmp_path, ops=route), said)
        assert made.turn(NOW_MS, is_waiting=False) is False
    assert (received.mails, received.lines) == ([], [b"EHLO"])
    assert "the server offers no STARTTLS, or no login; it is sent again in" in said[0]


def test_an_address_where_nobody_listens_is_a_line(tmp_path: Path) -> None:
    with http_receiver() as received:
        route = hook(received)
    said: list[str] = []
    made = notifier(settings_file(tmp_path, ops=route), said)
    assert made.turn(NOW_MS, is_waiting=False) is False
    assert said[0].endswith(": Connection refused; it is sent again in 5.00 s")


def test_two_notifiers_of_one_cluster_do_not_run_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with http_receiver() as received:
        config = settings_file(tmp_path, ops=hook(received))
        with Outbox(load_settings(config)).held():
            assert kquota(["notify", "--once", "--config", str(config)]) == 1
    lock = f"{tmp_path}/_kquota/notify-demo.lock"
    assert capsys.readouterr().err == (
        f"kquota: {lock}: another kquota notify of this cluster is at work: stop it first\n"
    )


def test_an_outbox_that_is_none_is_an_error_and_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with http_receiver() as received:
        config = settings_file(tmp_path, ops=hook(received))
        path = tmp_path / "_kquota" / "notify-demo.json"
        path.parent.mkdir()
        for text in ("{", '{"form": 2}', '{"lanes": 5}'):
            path.write_text(text, encoding="utf-8")
            assert kquota(["notify", "--once", "--config", str(config)]) == 1
            assert path.read_text(encoding="utf-8") == text
            assert capsys.readouterr().err == (
                f"kquota: {path}: not an outbox of this release: delete it to begin anew, without what waits in it\n"
            )
    assert received.posts == []


def test_it_sends_until_it_is_stopped_and_ends_with_0(tmp_path: Path) -> None:
    with http_receiver() as received:
        config = settings_file(tmp_path, ops=hook(received))
        text = config.read_text(encoding="utf-8").replace(
            "routes:", "interval: 50 ms\n  group_wait: 1 ms\n  routes:"
        )
        config.write_text(text, encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "kquota_spark.cli.main", "notify", "--config", str(config)],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        with process:
            assert process.stderr is not None
            said = [process.stderr.readline() for _ in range(2)]
            process.send_signal(signal.SIGTERM)
            said += process.stderr.readlines()
    identity = received.posts[0].headers["Kquota-Message-Id"][:8]
    assert (process.returncode, len(received.posts)) == (0, 1)
    assert said[:2] == [
        "notify: routes: ops; stop with Ctrl-C\n",
        f"notify: message {identity} to ops: delivered, with 1 event\n",
    ]
