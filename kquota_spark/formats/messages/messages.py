"""A message of the log topic: the line in it, and the broker it is from. One place for the job and the doctor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kquota_spark.formats.messages.broker_ids import HEADER, SOURCES, BrokerIds, Source
from kquota_spark.formats.messages.envelopes import AUTO, Envelopes, Fields

HEARTBEAT = b'{"kquota_heartbeat":'
GAP = b'{"kquota_gap":'
"""How a shipper's heartbeat begins."""


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """How messages are written; plain values, so that it travels to the workers. See `kafka.*` of the settings."""

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
        """Whether a value that begins with `[` is a line of the log; it is then not looked at further."""
        self.opened = self._envelopes.opened
        self.read_ms = self._envelopes.read_ms
        self.no_broker = f"no broker id in {_listed(of)} (expected a number, or a name in kafka.broker_ids)"
        """Reason for a line whose broker is not known."""

    def broker_id(self, named: bytes | None, fields: Fields, topic: str) -> int | None:
        """The broker that a message is from; None where nothing says it, or what says it is no id.

        Args:
            named: the message's header or key, as far as `broker_from` has them.
            fields: of the envelope.
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
