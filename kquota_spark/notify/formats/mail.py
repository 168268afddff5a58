"""A mail in plain text. No header contains text from clients, and no such text can begin a header."""

from __future__ import annotations

from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate

from kquota_spark.config.routes import Mail
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.notify.formats.text import rest, sentence, title
from kquota_spark.notify.news.lanes import Message


def mail(cluster_id: str, message: Message, route: Mail) -> EmailMessage:
    """The mail of a message, the same at each attempt: Message-ID and Date come from the message."""
    made = EmailMessage(policy=SMTP)
    made["From"] = route.sender
    made["To"] = ", ".join(route.to)
    made["Subject"] = title(cluster_id, message)
    made["Date"] = formatdate(message.sealed_ms / 1_000)
    made["Message-ID"] = f"<{message.message_id}@{route.sender.rpartition('@')[2]}>"
    made["Auto-Submitted"] = "auto-generated"
    texts = [sentence(event, terminal_text) for event in message.events]
    texts += [rest(message.left_out)] if message.left_out else []
    made.set_content("\n\n".join(texts) + "\n", charset="utf-8")
    return made
