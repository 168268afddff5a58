"""Which broker a line of the log is from: the line does not say, its message does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

Source = Literal["header", "key", "field", "topic"]
"""Where a message says it, in the order in which they are asked; the first that is there decides."""

SOURCES: tuple[Source, ...] = ("header", "key", "field", "topic")
HEADER = "broker_id"
_NUMBER = re.compile(rb"[0-9]{1,9}")
_MOST_KEPT = 10_000


class BrokerIds:
    """Ids from what messages say: a number, or a name that the settings know.

    A number inside of a host's name is never taken for an id: `kafka-0` is broker 1 as often as 0.

    Args:
        ids: names and their ids, e.g. `{"kafka-1.example": 1}`.
        topic_pattern: regular expression for a whole topic name; its group is the number or name. Empty: none.
    """

    def __init__(self, ids: Mapping[str, int], topic_pattern: str = "") -> None:
        self._ids = {name.encode(): broker_id for name, broker_id in ids.items()}
        self._pattern = re.compile(topic_pattern) if topic_pattern else None
        self._known: dict[bytes, int | None] = {}
        self._topics: dict[str, bytes | None] = {}

    def of_name(self, name: bytes) -> int | None:
        """The id, or None: neither a name that the settings know, nor a number of up to nine digits."""
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
        """The id of a host, which has to be among the names of the settings."""
        return self._ids.get(host)

    def in_topic(self, topic: str) -> bytes | None:
        """The part of a topic's name that says the broker."""
        if self._pattern is None:
            return None
        if topic not in self._topics:
            match = self._pattern.fullmatch(topic)
            self._topics[topic] = match[1].encode() if match and match[1] is not None else None
        return self._topics[topic]
