"""Who sent a request, as brokers write it: `User:alice`.

Source: Kafka's `KafkaPrincipal`, `SecurityUtils.parseKafkaPrincipal`. Quotas look at the name alone: `User:a`
and `Group:a` share a bucket.
"""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """A principal's type, `User` unless a broker has a builder of its own, and its name; either may be empty."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


def parse_principal(text: str) -> Principal:
    """The principal of a text; the first colon ends the type, further ones belong to the name.

    Raises:
        ValueError: the text has no colon.
    """
    kind, colon, name = text.partition(":")
    if not colon:
        raise ValueError(f"{text!r} is no principal, expected type:name")
    return Principal(kind, name)
