"""Rules for the values of a settings file. A field declares its rule beside its type: `Annotated[int, AtLeast(1)]`.

A rule is called with the value and with its text for messages. It returns the value that counts. For a wrong value it
raises a ValueError with what follows the key in the message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NewType
from zoneinfo import ZoneInfo

from kquota_spark.config.roots import canonical_root
from kquota_spark.model.measure.broker_version import major_minor

Duration = NewType("Duration", int)
"""A length of time in milliseconds; in YAML a number and a unit: ms, s, min, h, d."""

LEAST_SECRET = 16
"""Minimum length of a token or of a key for signatures, characters."""
SHORT_SECRET = f"shorter than {LEAST_SECRET} characters: make one with openssl rand -hex 32"
"""The problem with a shorter secret, for a message after its key."""
_TOPIC_CHOICES = ("topic", "topics", "topic_pattern")
_MOST_ID = 2**31 - 1

Rule = Callable[[Any, str], Any]
"""The value and its text for messages, to the value that counts."""


class Refused(str):
    """A problem of a value that has the right type, and that a rule refuses."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A minimum, in the unit of the value; `text` is how a person writes it, e.g. `1 min`."""

    least: float
    text: str = ""

    def __call__(self, value: float, shown: str) -> float:
        """The value itself.

        Raises:
            ValueError: it is below the minimum.
        """
        if value < self.least:
            raise ValueError(f"{shown}, expected {self.text or f'{self.least:g}'} or more")
        return value


@dataclass(frozen=True, slots=True)
class Within:
    """A range that includes both ends."""

    low: float
    high: float

    def __call__(self, value: float, shown: str) -> float:
        """The value itself.

        Raises:
            ValueError: it is outside the range.
        """
        if not self.low <= value <= self.high:
            raise ValueError(f"{shown}, expected {self.low:.10g} to {self.high:.10g}")
        return value


@dataclass(frozen=True, slots=True)
class Above:
    """More than a number; with `most`, up to that one."""

    bound: float
    most: float | None = None

    def __call__(self, value: float, shown: str) -> float:
        """The value itself.

        Raises:
            ValueError: it is not above the bound, or too large.
        """
        if value <= self.bound or (self.most is not None and value > self.most):
            up_to = "" if self.most is None else f", up to {self.most:g}"
            raise ValueError(f"{shown}, expected above {self.bound:g}{up_to}")
        return value


def _time_zone(value: str, shown: str) -> str:
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        expected = "expected a name such as UTC or Europe/Berlin"
        raise ValueError(f"{shown} is no time zone, {expected}") from None
    return value


def _version(value: str, shown: str) -> str:
    try:
        major_minor(value)
    except ValueError:
        raise ValueError(f"{shown} is no version, expected e.g. 3.9 or 3.7.2") from None
    return value


def _broker_id(value: str, shown: str) -> str:
    if not (value.isascii() and value.isdecimal()):
        raise ValueError(f"{shown} is no broker id, expected a number")
    return value


def _root(value: str, _: str) -> str:
    return canonical_root(value)


Positive = Annotated[int, AtLeast(1)]
NotNegative = Annotated[int, AtLeast(0)]
PositiveDuration = Annotated[Duration, AtLeast(1, "1 ms")]
Percent = Annotated[float, Above(0, most=100)]
"""A part of something, percent: above 0, up to 100."""
PerSecond = Annotated[float, Above(0)]
"""A rate in the unit of its key, per second."""
Port = Annotated[int, Within(0, 65_535)]
TimeZone = Annotated[str, _time_zone]
BrokerVersion = Annotated[str, _version]
BrokerId = Annotated[str, _broker_id]
"""The id of a broker as the key of a mapping."""
Root = Annotated[str, _root]
"""A path or URI that Spark, deltalake and Arrow open alike, in its canonical form."""


def topic_problems(given: Mapping[str, Any]) -> Iterator[str]:
    """Problems in the section `kafka` of a file, each beginning with its key."""
    chosen = [key for key in _TOPIC_CHOICES if given.get(key)]
    if len(chosen) > 1:
        yield f"{chosen[1]}: stands beside {chosen[0]}, expected one of {', '.join(_TOPIC_CHOICES)}: delete the others"
    if not chosen and given.get("topic") == "" and not given.get("jmx_topic"):
        yield f"topic: no topic, expected one of {', '.join(_TOPIC_CHOICES)}, or jmx_topic"
    yield from _pattern_problems(given, "topic_pattern", None)
    yield from _pattern_problems(given, "broker_in_topic", 1)
    if given.get("broker_from") == ():
        yield "broker_from: empty, expected one or more of header, key, field, topic"
    for name, broker_id in (given.get("broker_ids") or {}).items():
        if broker_id is not None and not 0 <= broker_id <= _MOST_ID:
            yield f"broker_ids.{name}: {broker_id}, expected the id of a broker, 0 or more"


def _pattern_problems(given: Mapping[str, Any], key: str, groups: int | None) -> Iterator[str]:
    text = given.get(key) or ""
    try:
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        yield f"{key}: {text[:60]!r} is no regular expression ({error})"
        return
    if text and groups is not None and pattern.groups != groups:
        yield f"{key}: {text[:60]!r} has {pattern.groups} groups, expected one in brackets for the broker's id or name"


def is_short(secret: str) -> bool:
    """Whether a secret could be guessed: it is empty, or shorter than `LEAST_SECRET` characters."""
    return len(secret) < LEAST_SECRET
