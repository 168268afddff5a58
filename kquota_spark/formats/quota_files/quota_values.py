"""Which values a quota may have in a file: what brokers can hold, in Kafka's units."""

from __future__ import annotations

import math
from typing import Any

from kquota_spark.model.quotas.quota_types import IP_QUOTA_KEY, QuotaKey

WHOLE_TYPES = {
    QuotaKey.PRODUCER_BYTE_RATE.value: "bytes per second",
    QuotaKey.CONSUMER_BYTE_RATE.value: "bytes per second",
    IP_QUOTA_KEY: "connections per second",
}
"""Types whose values are whole numbers, with their units."""
LARGEST = {
    QuotaKey.PRODUCER_BYTE_RATE.value: 2**63,
    QuotaKey.CONSUMER_BYTE_RATE.value: 2**63,
    IP_QUOTA_KEY: 2**31 - 1,
}
"""Largest values of those types: brokers hold a long, whose largest is 2^63 as a double, and an int."""


def finite_number(value: Any) -> float | None:
    """A finite number, or a text of one: `1e6` is a text in YAML 1.1, and ZooKeeper's values are texts anyway."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def expected_value(kind: str | None, value: float | None) -> str | None:
    """What a value of this type should have been, `a number, 0 or more`; None if it is right.

    Args:
        kind: Kafka's key; None if it is not known.
        value: None for what is no finite number.
    """
    what = f"a whole number of {WHOLE_TYPES[kind]}" if kind in WHOLE_TYPES else "a number"
    if (
        value is None
        or not math.isfinite(value)
        or value < 0
        or (kind in WHOLE_TYPES and value != int(value))
    ):
        return f"{what}, 0 or more"
    if kind in LARGEST and value > LARGEST[kind]:
        return f"{what}, {LARGEST[kind]} or less"
    return None
