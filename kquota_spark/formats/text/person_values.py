"""Values of quotas as people write them: `2MB/s`, `1.5MiB/s`, `200%`, `10/s`.

The inverse of what `person_units` prints: a printed value that is exact is read as the same number.
"""

from __future__ import annotations

import re
from fractions import Fraction

from kquota_spark.model.quotas.quota_types import BYTE_RATES, AnyKey, IpQuotaKey, QuotaKey

_BYTES = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
"""Bytes of each unit. `kB` is 1,000 and `KiB` is 1,024; `KB` could mean both, so it is refused."""
_MOST_CHARACTERS = 60
"""Maximum length of a value, characters: a longer one is a mistake, and slow to convert."""
# The exponent has two digits at most: it bounds the integers that `Fraction` makes.
_NUMBER = r"(?P<number>(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,2})?) ?"
_OF_BYTES = re.compile(rf"{_NUMBER}(?P<unit>{'|'.join(_BYTES)})(?:/s)?")
_OF_PERCENT = re.compile(rf"{_NUMBER}(?P<unit>%)")
_OF_COUNTS = re.compile(rf"{_NUMBER}(?P<unit>/s)")
_EXAMPLES: dict[AnyKey, str] = {
    **dict.fromkeys(BYTE_RATES, "2000000 or 2MB/s"),
    QuotaKey.REQUEST_PERCENTAGE: "200 or 200%",
    QuotaKey.CONTROLLER_MUTATION_RATE: "10 or 10/s",
    IpQuotaKey.CONNECTION_CREATION_RATE: "10 or 10/s",
}


def number_with_unit(key: AnyKey, text: str) -> float | None:
    """The number of a value with a unit, in Kafka's unit: bytes/s, percent of a thread, or 1/s.

    Args:
        key: what the value is for; it decides which units fit.
        text: the value, e.g. `2MB/s`, `2 MB`, `1,024 B/s`, `200%` or `10/s`.

    Returns:
        The number; None if the text is no number with a unit of this key.

    Raises:
        ValueError: decimals that give no whole number of bytes per second. The text names what was expected.
    """
    is_of_bytes = key in BYTE_RATES
    grammar = _OF_BYTES if is_of_bytes else _OF_PERCENT if key is QuotaKey.REQUEST_PERCENTAGE else _OF_COUNTS
    found = grammar.fullmatch(text) if len(text) <= _MOST_CHARACTERS else None
    if found is None:
        return None
    number = Fraction(found["number"].replace(",", ""))
    if not is_of_bytes:
        return float(number)
    number *= _BYTES[found["unit"]]
    if number.denominator != 1:
        raise ValueError(f"whole bytes per second, and this is {float(number):,.15g}")
    return float(number)


def example_of(key: AnyKey) -> str:
    """How a value of this key can be written, for errors and help: `2000000 or 2MB/s`."""
    return _EXAMPLES[key]
