"""Who a client has logged in as. Source: Kafka's `KafkaPrincipal`."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """Type and name, e.g. `User` and `alice`; Kafka's own quotas look at the name alone."""

    type: str
    name: str

    def __str__(self) -> str:
        """`User:alice`."""
        return f"{self.type}:{self.name}"
