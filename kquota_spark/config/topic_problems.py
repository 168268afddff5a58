"""Checks of the topics in a settings file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_TOPIC_CHOICES = ("topic", "topics", "topic_pattern")
_MOST_ID = 2**31 - 1


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
