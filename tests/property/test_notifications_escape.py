"""Whatever clients call themselves, no format of a notification lets their text be anything but text."""

from __future__ import annotations

import email
import email.policy
import json
import re
import unicodedata
from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from kquota_spark.config.routes import Mail
from kquota_spark.notify.formats import alertmanager, mail, slack, webhook
from kquota_spark.notify.news.events import Event, Fact, fact
from kquota_spark.notify.news.lanes import Message

ROUTE = Mail(kind="mail", host="mx", sender="kquota@example.com", to=("ops@example.com",))
HEADERS = {
    "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "Content-Type", "Content-Transfer-Encoding",
    "MIME-Version",
}  # fmt: skip
ODD = "\n\r\0\x1b\x7f\x9b\u202e\u2028\ufeff\ud800<>&*_~`@#|:\"'\\%/.=,"
NAMES = st.text(st.one_of(st.sampled_from(ODD), st.characters()), max_size=400)
HOSTILE = (
    "<!channel> <@U123> <https://evil.example|click>",
    "x\r\nBcc: all@example.com\r\n\r\nbody",
    "\r\n.\r\nMAIL FROM:<x@example.com>",
    "\x1b]0;owned\x07\x9b31m\u202eevil",
    '"}],"left_out":0}',
    "{{ .Labels }} <script>alert(1)</script> &amp;",
    "\ud800" * 400,
    *("<" * 300 + "x" * shift + "&" * 400 for shift in range(6)),
)


def message(name: str, other: str) -> Message:
    cut, other_cut = str(fact(name)), str(fact(other))
    bucket: dict[str, Fact] = {
        "broker_id": 1, "quota_type": "produce", "user": cut, "client_id": other_cut, "tags": json.dumps({name: other}),
        "rule": cut, "limit_per_s": 1.0, "peak_rate_per_s": 2.0, "peak_quota_used_percent": 200.0, "delay_ms": 1,
        "throttled_requests": 1,
    }  # fmt: skip
    change: dict[str, Fact] = {
        "plan_id": "p-1", "step": 1, "entity": "users/x", "user": cut, "key": "producer_byte_rate", "value_before": 1.0,
        "value_after": 2.0, "policy": cut, "reason": other_cut, "actor": cut, "detail": other_cut, "expires_ms": None,
    }  # fmt: skip
    frozen: dict[str, Fact] = {"actor": cut, "reason": other_cut}
    events = [
        Event("demo/violation/e0", "violation", "begins", 0, 0, bucket),
        Event("demo/violation/e1", "violation", "over", 5, 0, bucket | {"tags": None}),
        *(
            Event(f"demo/{kind}/1", kind, "once", 0, 0, change)
            for kind in ("plan_waiting", "applied", "rolled_back", "failed")
        ),
        Event("demo/frozen/1", "frozen", "begins", 0, 0, frozen),
    ]
    return Message("m1", 0, events)


def shown(text: str) -> set[str]:
    """Characters that a terminal would act on, or not show."""
    return {char for char in text if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}} - {"\n"}


def with_examples(test: Callable[..., None]) -> Callable[..., None]:
    for name in HOSTILE:
        test = example(name=name, other="plain")(example(name="plain", other=name)(test))
    return test


@with_examples
@given(name=NAMES, other=NAMES)
def test_json_is_printable_ascii_and_gives_names_back_as_they_are(name: str, other: str) -> None:
    data = webhook.body("demo", message(name, other)).decode("ascii")
    assert data.isprintable()
    told = json.loads(data)
    assert len(told["events"]) == 7
    assert told["left_out"] == 0
    assert told["events"][0]["facts"]["user"] == fact(name)
    assert [shown(event["text"]) for event in told["events"]] == [set()] * 7


@with_examples
@given(name=NAMES, other=NAMES)
def test_slack_sees_plain_text_without_markup(name: str, other: str) -> None:
    told = json.loads(slack.body("demo", message(name, other)).decode("ascii"))
    assert (
        told["text"]
        == "kquota demo: 7 events (applied, failed, frozen, plan waiting, rolled back, violation)"
    )
    assert {block["text"]["type"] for block in told["blocks"]} == {"plain_text"}
    texts = [block["text"]["text"] for block in told["blocks"]]
    assert len(texts) == 8
    for text in texts:
        assert shown(text) == set()
        assert not re.search(r"[<>]|&(?!(?:amp|lt|gt);)", text)


@with_examples
@given(name=NAMES, other=NAMES)
def test_labels_are_names_as_kafka_writes_them_and_annotations_are_no_markup(name: str, other: str) -> None:
    for alert in json.loads(alertmanager.body("demo", message(name, other).events, 0).decode("ascii")):
        assert all(re.fullmatch(r"[\w.%-]+", value, re.ASCII) for value in alert["labels"].values())
        for text in alert["annotations"].values():
            assert shown(text) == set()
            assert not re.search(r"[<>]", text)


@with_examples
@given(name=NAMES, other=NAMES)
def test_a_mail_has_our_headers_alone_and_one_part_of_text(name: str, other: str) -> None:
    data = mail.mail("demo", message(name, other), ROUTE).as_bytes()
    read = email.message_from_bytes(data, policy=email.policy.default)
    assert set(read.keys()) == HEADERS
    assert (read["To"], read["Subject"].count("\n")) == ("ops@example.com", 0)
    assert read["Subject"].startswith("kquota demo: 7 events")
    assert not read.is_multipart()
    text = read.get_content().replace("\r\n", "\n")
    assert len(text.strip("\n").split("\n\n")) == 7
    assert shown(text) == set()
