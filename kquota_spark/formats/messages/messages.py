"""A message of the log topic: its line, its broker, and the text of an unreadable line that may be stored.

The job and the doctor both use it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kquota_spark.formats.messages.envelopes import AUTO, Envelopes, Fields
from kquota_spark.formats.request_log.request import Unreadable

Source = Literal["header", "key", "field", "topic"]
"""Where a message contains its broker's id, in order of precedence; the first that is present decides."""

SOURCES: tuple[Source, ...] = ("header", "key", "field", "topic")
HEADER = "broker_id"
_NUMBER = re.compile(rb"[0-9]{1,9}")
_MOST_KEPT = 10_000
_SENSITIVE = re.compile(
    rb"sasl|scram|token|password|passwd|secret|jaas|authbytes|salt|hmac|alter_?configs|\.key|credential|requestdata",
    re.IGNORECASE,
)
# Quotation marks are escaped in the envelope of a shipper.
_API_KEY = re.compile(rb'"requestApiKey\\*":(\d+),')
_SENSITIVE_KEYS = {b"17", b"33", b"36", b"38", b"39", b"40", b"41", b"44", b"50", b"51", b"58"}

HEARTBEAT = b'{"kquota_heartbeat":'
GAP = b'{"kquota_gap":'
"""First bytes of a shipper's heartbeat, and of its report of lost lines."""


class BrokerIds:
    """Broker ids from the content of messages: a number, or a name from the settings.

    A number inside a host's name is never read as an id: `kafka-0` is broker 1 as often as 0.

    Args:
        ids: ids by name, e.g. `{"kafka-1.example": 1}`.
        topic_pattern: regular expression for a whole topic name; its group is the number or name. Empty for none.
    """

    def __init__(self, ids: Mapping[str, int], topic_pattern: str = "") -> None:
        self._ids = {name.encode(): broker_id for name, broker_id in ids.items()}
        self._pattern = re.compile(topic_pattern) if topic_pattern else None
        self._known: dict[bytes, int | None] = {}
        self._topics: dict[str, bytes | None] = {}

    def of_name(self, name: bytes) -> int | None:
        """The id; None for a text that is neither a name in the settings nor a number of up to nine digits."""
        try:
            return self._known[name]
        except KeyError:
            pass
        found = self._ids.get(name)
        if found is None and _NUMBER.fullmatch(name):
            found = int(name)
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        self._known[name] = found
        return found

    def of_host(self, host: bytes) -> int | None:
        """The id of a host; None if it is not among the names in the settings."""
        return self._ids.get(host)

    def in_topic(self, topic: str) -> bytes | None:
        """The part of a topic's name that identifies the broker; None if there is none."""
        if self._pattern is None:
            return None
        if topic not in self._topics:
            match = self._pattern.fullmatch(topic)
            self._topics[topic] = match[1].encode() if match and match[1] is not None else None
        return self._topics[topic]


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """The layout of messages, from the settings `kafka.*`; plain values, so that it can be sent to the workers."""

    envelope: str = AUTO
    message_field: str = ""
    broker_field: str = ""
    timestamp_field: str = ""
    broker_from: tuple[Source, ...] = SOURCES
    broker_ids: Mapping[str, int] = field(default_factory=dict)
    topic_pattern: str = ""


class LogMessages:
    """Reads messages of one format."""

    def __init__(self, of: MessageFormat) -> None:
        self._envelopes = Envelopes(
            of.envelope, message=of.message_field, broker=of.broker_field, timestamp=of.timestamp_field
        )
        self._ids = BrokerIds(of.broker_ids, of.topic_pattern)
        self._has_field, self._has_topic = "field" in of.broker_from, "topic" in of.broker_from
        self.takes_lines = self._envelopes.takes_lines
        """Whether a value that begins with `[` is a line of the log, without any further check."""
        self.opened = self._envelopes.opened
        self.read_ms = self._envelopes.read_ms
        self.no_broker = f"no broker id in {_listed(of)} (expected a number, or a name in kafka.broker_ids)"
        """Reason for a line of an unknown broker."""

    def line(self, value: bytes) -> tuple[bytes, Fields] | None:
        """The line in a message, and the fields of its envelope; None if there is none.

        Args:
            value: of the message.
        """
        if value.startswith(b"[") and self.takes_lines:
            return value, {}
        try:
            return self.opened(value)
        except Unreadable:
            return None

    def broker_id(self, named: bytes | None, fields: Fields, topic: str) -> int | None:
        """The id of the broker that a message is from; None if the message has none, or one that is not an id.

        Args:
            named: the message's header or key, if `broker_from` includes them.
            fields: fields of the envelope.
            topic: the message's topic.
        """
        if named is not None:
            return self._ids.of_name(named)
        if self._has_field and fields:
            named = self._envelopes.broker(fields)
            if named is None:
                host = self._envelopes.host(fields)
                found = None if host is None else self._ids.of_host(host)
                if found is not None:
                    return found
        if named is None and self._has_topic:
            named = self._ids.in_topic(topic)
        return None if named is None else self._ids.of_name(named)


def _listed(of: MessageFormat) -> str:
    names = {"header": f"header {HEADER}", "field": "a field of the envelope", "topic": "the topic's name"}
    words = [names.get(source, source) for source in of.broker_from if source != "topic" or of.topic_pattern]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def storable_text(line: bytes, limit_bytes: int) -> str | None:
    """The text of an unreadable line that may be stored, cut; None if it might contain a secret.

    SASL, delegation token, SCRAM and AlterConfigs requests are recognised by their API key, or by words if the
    line is cut. ENVELOPE may contain any of them and is treated in the same way. In doubt, nothing is kept.
    """
    if _SENSITIVE.search(line):
        return None
    key = _API_KEY.search(line)
    if key is not None and key[1] in _SENSITIVE_KEYS:
        return None
    return line[:limit_bytes].decode("utf-8", "replace").replace("\x00", "\ufffd")
