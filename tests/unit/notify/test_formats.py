"""What each receiver gets, to the letter."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from email.policy import SMTP
from pathlib import Path
from typing import Any

from kquota_spark.config.loader import load_settings
from kquota_spark.config.routes import Mail
from kquota_spark.notify.formats import alertmanager, mail, slack, webhook
from kquota_spark.notify.formats.text import markup_text, sentence
from kquota_spark.notify.job import checked_routes
from kquota_spark.notify.news.events import Event, over, trial
from kquota_spark.notify.news.lanes import Message, message_id
from tests.support.places import CONF, ROOT
from tests.support.tables.table_rows import T0_MS

PLAIN = SMTP.clone(linesep="\n")
FACTS: dict[str, Any] = {
    "broker_id": 1, "quota_type": "produce", "user": "alice", "client_id": "", "tags": None, "rule": "users/alice",
    "limit_per_s": 1e6, "peak_rate_per_s": 1_234_567.0, "peak_quota_used_percent": 123.4567, "delay_ms": 12_345,
    "throttled_requests": 42,
}  # fmt: skip
CHANGE: dict[str, Any] = {
    "plan_id": "p-1", "step": 2, "entity": "users/alice", "user": "alice", "key": "producer_byte_rate",
    "value_before": 1e6, "value_after": None, "policy": "penalty", "reason": "six violations", "actor": "enforcer",
    "detail": "timed out", "expires_ms": T0_MS + 86_400_000,
}  # fmt: skip
BEGUN = Event("demo/violation/e0", "violation", "begins", T0_MS, T0_MS, FACTS)
OVER = over(BEGUN, T0_MS + 30_000)
APPLIED = Event("demo/applied/p-1/2/5", "applied", "once", T0_MS, T0_MS, CHANGE)
MESSAGE = Message("m1", T0_MS + 31_000, [BEGUN, OVER], left_out=3)
BEGUN_TEXT = (
    "user alice, produce, broker 1: above its limit since 2026-11-21T05:40:00Z; peak 1.2 MB/s, 123.5 % of 1.0 MB/s; "
    "total delay 12.3 s of 42 throttled requests; rule users/alice"
)
OVER_TEXT = (
    "user alice, produce, broker 1: no longer above its limit after 30.0 s, it began at 2026-11-21T05:40:00Z; "
    "peak 1.2 MB/s, 123.5 % of 1.0 MB/s; total delay 12.3 s of 42 throttled requests; rule users/alice"
)


def test_each_kind_of_event_is_one_sentence() -> None:
    def text(kind: str, facts: dict[str, Any], *, is_over: bool = False) -> str:
        event = Event("id", kind, "begins", T0_MS, T0_MS, facts)
        return sentence(over(event, T0_MS + 60_000) if is_over else event, str)

    assert text("plan_waiting", CHANGE) == (
        "plan p-1 step 2, policy penalty: waits for approval of users/alice producer_byte_rate, 1.0 MB/s to not set; "
        "six violations; next: kquota enforce approve p-1 --yes"
    )
    assert text("plan_waiting", CHANGE, is_over=True) == (
        "plan p-1 step 2, policy penalty: waits no longer for approval (users/alice producer_byte_rate, 1.0 MB/s to "
        "not set)"
    )
    assert text("applied", CHANGE) == (
        "users/alice producer_byte_rate is not set, before 1.0 MB/s, until 2026-11-22T05:40:00Z; plan p-1 step 2, "
        "policy penalty, by enforcer; six violations"
    )
    assert text("rolled_back", CHANGE) == (
        "users/alice producer_byte_rate is again 1.0 MB/s, it was not set; plan p-1 step 2, policy penalty, by enforcer"
    )
    assert text("failed", CHANGE) == (
        "users/alice producer_byte_rate was not changed between 1.0 MB/s and not set; plan p-1 step 2, policy penalty; "
        "timed out; next: kquota enforce status"
    )
    frozen = {"actor": "ops", "reason": "incident"}
    assert text("frozen", frozen) == (
        "enforcement is frozen since 2026-11-21T05:40:00Z by ops: incident; next: kquota unfreeze"
    )
    assert text("frozen", frozen, is_over=True) == (
        "enforcement is no longer frozen; it was since 2026-11-21T05:40:00Z"
    )
    behind = {"part": "quotas", "newest_ms": T0_MS - 1_000}
    assert text("audit_behind", behind) == (
        "the audit is behind: quotas are known through 2026-11-21T05:39:59Z: is the audit running, and does the source "
        "of the quotas answer?; next: kquota doctor"
    )
    assert text("audit_behind", behind, is_over=True) == (
        "the audit is no longer behind (quotas); it was since 2026-11-21T05:40:00Z"
    )
    assert text("audit_disagreeing", {"agreement_percent": 97.2, "requests_judged": 12_345}) == (
        "the audit disagrees with the brokers: 97.20 % of 12,345 certain verdicts of the last hour agree; next: kquota "
        "agreement"
    )
    assert sentence(trial("demo", "ops", T0_MS), str) == "a test of the route ops: nothing has happened"


def test_a_webhook_gets_signed_json_that_is_the_same_at_each_attempt() -> None:
    data = webhook.body("demo", MESSAGE)
    told = json.loads(data)
    first, second = told.pop("events")
    assert told == {
        "form": 1, "message_id": "m1", "cluster_id": "demo", "left_out": 3,
        "title": "kquota demo: 2 events (violation)",
    }  # fmt: skip
    assert first == {
        "event_id": "demo/violation/e0", "kind": "violation", "status": "begins", "at": "2026-11-21T05:40:00Z",
        "since": "2026-11-21T05:40:00Z", "text": BEGUN_TEXT, "facts": FACTS,
    }  # fmt: skip
    assert (second["event_id"], second["status"], second["text"]) == (
        "demo/violation/e0/over",
        "over",
        OVER_TEXT,
    )
    headers = webhook.headers("secret", MESSAGE, data, 1_795_239_631)
    signed = hmac.new(b"secret", b"1795239631." + data, hashlib.sha256).hexdigest()
    assert headers == {
        "Content-Type": "application/json",
        "Kquota-Message-Id": "m1",
        "Kquota-Timestamp": "1795239631",
        "Kquota-Signature": f"v1={signed}",
    }


def test_slack_gets_plain_text_blocks() -> None:
    title = "kquota demo: 2 events (violation)"
    told = json.loads(slack.body("demo", MESSAGE))
    left = "3 more events are left out: see kquota violations and kquota enforce status"
    assert told == {
        "text": title, "mrkdwn": False, "parse": "none", "link_names": False, "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [
            {"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}}
            for text in (title, BEGUN_TEXT, OVER_TEXT, left)
        ],
    }  # fmt: skip


def test_slack_gets_50_blocks_at_most() -> None:
    told = json.loads(slack.body("demo", Message("m1", T0_MS, [BEGUN] * 100, left_out=3)))
    assert len(told["blocks"]) == 47
    assert told["blocks"][-1]["text"]["text"].startswith("58 more events are left out")


def test_an_alertmanager_gets_an_alert_that_its_end_resolves() -> None:
    begun, ended, once = json.loads(alertmanager.body("demo", [BEGUN, OVER, APPLIED], T0_MS + 31_000))
    labels = {
        "alertname": "KquotaViolation", "cluster_id": "demo", "broker_id": "1", "quota_type": "produce",
        "user": "alice",
    }  # fmt: skip
    assert begun == {
        "labels": labels,
        "annotations": {"summary": BEGUN_TEXT, "event_id": "demo/violation/e0"},
        "startsAt": "2026-11-21T05:40:00Z",
    }
    assert ended == {
        "labels": labels,
        "annotations": {"summary": OVER_TEXT, "event_id": "demo/violation/e0/over"},
        "startsAt": "2026-11-21T05:40:00Z",
        "endsAt": "2026-11-21T05:40:30Z",
    }
    # What happened once is active for ten minutes from when it is sent.
    assert once["labels"]["alertname"] == "KquotaApplied"
    assert (once["labels"]["plan_id"], once["labels"]["step"]) == ("p-1", "2")
    assert (once["startsAt"], once["endsAt"]) == ("2026-11-21T05:40:00Z", "2026-11-21T05:50:31Z")


def test_a_mail_is_plain_text_and_the_same_at_each_attempt() -> None:
    route = Mail(kind="mail", host="mx", sender="kquota@example.com", to=("a@example.com", "b@example.com"))
    made = mail.mail("demo", MESSAGE, route)
    assert dict(made.items()) == {
        "From": "kquota@example.com",
        "To": "a@example.com, b@example.com",
        "Subject": "kquota demo: 2 events (violation)",
        "Date": "Sat, 21 Nov 2026 05:40:31 -0000",
        "Message-ID": "<m1@example.com>",
        "Auto-Submitted": "auto-generated",
        "Content-Type": 'text/plain; charset="utf-8"',
        "Content-Transfer-Encoding": "quoted-printable",
        "MIME-Version": "1.0",
    }
    left = "3 more events are left out: see kquota violations and kquota enforce status"
    assert made.get_content() == f"{BEGUN_TEXT}\n\n{OVER_TEXT}\n\n{left}\n"
    assert mail.mail("demo", MESSAGE, route).as_bytes() == made.as_bytes()


def test_a_mention_in_a_client_id_is_no_mention() -> None:
    facts = FACTS | {"user": "", "client_id": "<!channel> & \x1b[31m\u202e"}
    event = Event("id", "violation", "begins", T0_MS, T0_MS, facts)
    text = sentence(event, markup_text)
    assert text.startswith(
        "client &lt;!channel&gt; &amp; \\x1b[31m\\u202e, produce, broker 1: above its limit"
    )


PAGE = (ROOT / "kquota_spark" / "docs" / "notifications.md").read_text(encoding="utf-8")


def block(form: str) -> str:
    found = re.search(rf"<!-- format: {form} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_page_shows_each_format_as_it_is_sent() -> None:
    message = Message(message_id("operators", [BEGUN]), T0_MS + 31_000, [BEGUN])
    route = Mail(kind="mail", host="mx", sender="kquota@example.com", to=("ops@example.com",))
    assert json.loads(block("webhook")) == json.loads(webhook.body("demo", message))
    assert json.loads(block("slack")) == json.loads(slack.body("demo", message))
    assert json.loads(block("alertmanager")) == json.loads(alertmanager.body("demo", [BEGUN, OVER], T0_MS))
    sent = mail.mail("demo", message, route).as_string(policy=PLAIN)
    assert block("mail") == sent


def test_the_check_of_the_page_takes_our_signature_and_no_other() -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "notifications.md", "exec"), names)
    data = webhook.body("demo", MESSAGE)
    now_s = int(names["time"].time())
    headers = webhook.headers("secret", MESSAGE, data, now_s)
    is_genuine = names["is_genuine"]
    assert is_genuine(b"secret", headers, data)
    assert not is_genuine(b"other", headers, data)
    assert not is_genuine(b"secret", headers, data + b" ")
    assert not is_genuine(b"secret", webhook.headers("secret", MESSAGE, data, now_s - 301), data)


def test_the_example_of_conf_has_a_valid_route_of_each_kind(tmp_path: Path) -> None:
    text = (CONF / "notifications.example.yaml").read_text(encoding="utf-8")
    for name in ("slack-url", "mail-password", "webhook-secret"):
        (tmp_path / name).write_text("https://example.com/x\n", encoding="utf-8")
        (tmp_path / name).chmod(0o600)
    path = tmp_path / "kquota.yaml"
    path.write_text(text.replace("/etc/kquota", str(tmp_path)), encoding="utf-8")
    routes = checked_routes(load_settings(path).notifications.routes, None)
    assert {route.kind for route in routes.values()} == {"webhook", "slack", "alertmanager", "mail"}
