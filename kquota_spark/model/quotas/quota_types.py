"""The keys that operators set, and the four quota managers that enforce them.

Source: Kafka's `QuotaConfig`, `ClientQuotaType`, `QuotaFactory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from types import MappingProxyType

IP_QUOTA_KEY = "connection_creation_rate"
"""The only key of ip entities, in connections per second (KIP-612)."""

CONNECTION = "connection"
"""Name in tables for the type of quota that ip entities set; it has no manager and no requests."""


class QuotaKey(StrEnum):
    """Configuration keys of user and client-id entities; the value is Kafka's spelling."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"


class IpQuotaKey(StrEnum):
    """Configuration keys of ip entities; the value is Kafka's spelling."""

    CONNECTION_CREATION_RATE = IP_QUOTA_KEY


AnyKey = QuotaKey | IpQuotaKey


def parse_key(text: str) -> AnyKey:
    """The key with this spelling, as Kafka spells it.

    Raises:
        ValueError: there is no such key.
    """
    return IpQuotaKey(text) if text == IP_QUOTA_KEY else QuotaKey(text)


def not_above_zero(key: AnyKey, value: float | None) -> str | None:
    """Kafka's error text for a value that KRaft refuses; None if KRaft accepts it.

    Brokers in ZooKeeper mode accept 0, and a byte rate of 0 then throttles nobody. So every caller refuses it.
    """
    return None if value is None or value > 0 else f"Quota {key.value} must be greater than 0"


class QuotaType(StrEnum):
    """The broker's four quota managers; tables and options use the value."""

    PRODUCE = "produce"
    FETCH = "fetch"
    REQUEST = "request"
    CONTROLLER_MUTATION = "controller_mutation"

    @property
    def key(self) -> QuotaKey:
        """The configuration key that limits this type."""
        return _KEYS[self]


_KEYS = dict(zip(QuotaType, QuotaKey, strict=True))


class Counted(Enum):
    """What a quota type counts; it decides the unit of limits, rates and amounts."""

    BYTES = "bytes"
    THREAD_TIME = "time of handler threads"
    PARTITIONS = "partitions"
    CONNECTIONS = "connections"


COUNTED: Mapping[str, Counted] = MappingProxyType({
    QuotaType.PRODUCE: Counted.BYTES,
    QuotaType.FETCH: Counted.BYTES,
    QuotaType.REQUEST: Counted.THREAD_TIME,
    QuotaType.CONTROLLER_MUTATION: Counted.PARTITIONS,
    CONNECTION: Counted.CONNECTIONS,
})  # fmt: skip
"""What each quota type counts, by its name in tables."""
TYPES = tuple(map(str, COUNTED))
"""The names of all quota types in tables and options."""
BANDWIDTH = tuple(quota_type for quota_type in QuotaType if COUNTED[quota_type] is Counted.BYTES)
"""Types with exact amounts in the request log: the replay judges these."""
BYTE_RATES = tuple(quota_type.key for quota_type in BANDWIDTH)
"""The keys of these types; their values are whole numbers."""
