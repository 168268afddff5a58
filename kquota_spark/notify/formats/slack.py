"""A message for an incoming webhook of Slack. Text from clients is plain text, in which nothing is a mention."""

from __future__ import annotations

import json
import re
from typing import Any

from kquota_spark.notify.formats.text import markup_text, rest, sentence, title
from kquota_spark.notify.news.lanes import Message

_MOST_BLOCKS = 45
"""Maximum blocks per message; Slack accepts 50."""
_MOST_TEXT = 2_900
"""Maximum characters per block; Slack accepts 3,000."""


def body(cluster_id: str, message: Message) -> bytes:
    """The message as JSON in ASCII."""
    content = {
        "text": markup_text(title(cluster_id, message)),
        "mrkdwn": False,
        "parse": "none",
        "link_names": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [_block(text) for text in _texts(cluster_id, message)],
    }
    return json.dumps(content).encode("ascii")


def _texts(cluster_id: str, message: Message) -> list[str]:
    shown = message.events[:_MOST_BLOCKS]
    texts = [markup_text(title(cluster_id, message)), *(sentence(event, markup_text) for event in shown)]
    left = len(message.events) - len(shown) + message.left_out
    return [*texts, *([rest(left)] if left else [])]


def _block(text: str) -> dict[str, Any]:
    # The cut may be inside an escape.
    cut = text if len(text) <= _MOST_TEXT else re.sub(r"&\w*$", "", text[:_MOST_TEXT]) + "…"
    return {"type": "section", "text": {"type": "plain_text", "text": cut, "emoji": False}}
