"""Finds client properties that none of our libraries accepts: such a property would silently do nothing.

`client_properties.txt` lists the names of the Java client (consumer, producer and Admin of 3.9 and 4.3) and of
librdkafka 2.16. kafka-python's names are derived from some of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path

_MOST_NAMED = 20
"""Maximum number of unknown properties that are named in messages."""
_FREE = "config.providers."
"""Prefix of properties of the Java client with free names, which the property config.providers lists."""


@cache
def client_properties() -> frozenset[str]:
    """The names of all client properties."""
    return frozenset(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split())


def unknown_properties(given: Iterable[str]) -> Iterator[str]:
    """A problem for each name that no library accepts; each text begins with the name."""
    known = client_properties()
    unknown = [name for name in given if name not in known and not name.startswith(_FREE)]
    for name in unknown[:_MOST_NAMED]:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "expected one of Kafka's Java client or of librdkafka"
        yield f"{name}: unknown client property, {hint}"
    if len(unknown) > _MOST_NAMED:
        yield f"{len(unknown) - _MOST_NAMED} more unknown client properties"
