"""The sender of a request, as brokers write it: `User:alice`.

Source: Kafka's `KafkaPrincipal`, `SecurityUtils.parseKafkaPrincipal`. Quotas use only the name: `User:a` and `Group:a`
share a bucket.
"""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """Type and name of a principal; the type is `User` unless a broker has its own builder, and both may be empty."""

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
