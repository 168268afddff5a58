"""Signed JSON for any receiver: `Kquota-Signature` is the HMAC-SHA256 of `Kquota-Timestamp`, a dot and the body."""

from __future__ import annotations

import hashlib
import hmac
import json

from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.notify.formats.text import sentence, title
from kquota_spark.notify.news.lanes import Message

FORM = 1


def body(cluster_id: str, message: Message) -> bytes:
    """The message as JSON, the same bytes at each attempt; in ASCII only, without control characters."""
    content = {
        "form": FORM,
        "message_id": message.message_id,
        "cluster_id": cluster_id,
        "title": title(cluster_id, message),
        "events": [
            {
                "event_id": event.event_id,
                "kind": event.kind,
                "status": event.status,
                "at": iso_time(event.at_ms),
                "since": iso_time(event.since_ms),
                "text": sentence(event, terminal_text),
                "facts": event.facts,
            }
            for event in message.events
        ],
        "left_out": message.left_out,
    }
    return json.dumps(content).encode("ascii")


def headers(secret: str, message: Message, data: bytes, now_s: int) -> dict[str, str]:
    """Headers of one attempt.

    Args:
        secret: secret of the route; it signs time and body.
        message: the message; its id is the same at each attempt.
        data: the body of the request.
        now_s: time of the attempt, epoch seconds.
    """
    return {
        "Content-Type": "application/json",
        "Kquota-Message-Id": message.message_id,
        "Kquota-Timestamp": str(now_s),
        "Kquota-Signature": f"v1={signature(secret, data, now_s)}",
    }


def signature(secret: str, data: bytes, now_s: int) -> str:
    """The signature of time and body, hexadecimal."""
    return hmac.new(secret.encode(), b"%d.%s" % (now_s, data), hashlib.sha256).hexdigest()
