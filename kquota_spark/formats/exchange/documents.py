"""Untrusted JSON and YAML as plain values: no key twice, no deep nesting, no aliases, no tags of Python.

YAML is read event by event, so that neither deep nesting nor a tiny file that expands can use up stack or memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Never

import yaml

from kquota_spark.bounded_yaml import MOST_CHARACTERS, BoundedLoader
from kquota_spark.formats.exchange.checks import shown

_MOST_DEPTH = 50


def read_documents(text: str) -> list[Any]:
    """The one value of a text that begins like a JSON object, else the documents of a YAML text.

    Raises:
        ValueError: see `read_json` and `read_yaml`.
    """
    return [read_json(text)] if text.lstrip().startswith("{") else read_yaml(text)


def read_json(text: str) -> Any:
    """The one JSON value of a text; ValueError if it is not JSON (with the line) or has a key twice."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise ValueError("nested too deeply, expected quotas") from None


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {shown(key)} stands twice in one object, expected once")
        found[key] = value
    return found


def _integer(text: str) -> float:
    """A whole number; one beyond all doubles becomes infinite, which is not a quota, instead of Python's error."""
    return int(text) if len(text) <= MOST_CHARACTERS else float(text)


def _no_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON, expected a number")


def read_yaml(text: str) -> list[Any]:
    """The documents of a text without empty ones, scalars as in YAML 1.1; ValueError, with the line, if refused."""
    try:
        return [document for document in _Documents(text) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
        raise ValueError(f"{where}{problem}") from None


class _Documents:
    """Builds the documents of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self._events = yaml.parse(text, Loader=yaml.CSafeLoader)
        self._scalars: Any = BoundedLoader("")

    def __iter__(self) -> Iterator[Any]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                yield self._value(next(self._events), _MOST_DEPTH)

    def _value(self, event: yaml.Event, depth: int) -> Any:
        if depth == 0:
            raise _refusal(event, "nested too deeply, expected quotas")
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._value(item, depth - 1) for item in self._until(yaml.SequenceEndEvent)]
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(depth)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        raise _refusal(event, "an alias, expected it written out")

    def _until(self, end: type[yaml.Event]) -> Iterator[yaml.Event]:
        while not isinstance(event := next(self._events), end):
            yield event

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in self._until(yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _refusal(event, "a key that is no text, expected a name")
            if event.value in found:
                raise _refusal(event, f"key {shown(event.value)} is given twice, expected once")
            found[event.value] = self._value(next(self._events), depth - 1)
        return found

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        tag = event.tag or self._scalars.resolve(yaml.ScalarNode, event.value, event.implicit)
        if not tag.startswith("tag:yaml.org,2002:") or tag.startswith("tag:yaml.org,2002:python"):
            raise _refusal(event, f"the tag {shown(tag)}, expected a plain value")
        try:
            return self._scalars.construct_object(yaml.ScalarNode(tag, event.value))
        except (yaml.YAMLError, ValueError):
            return event.value  # such as an impossible date; as a text it matches no expected type


def _refusal(event: yaml.Event, problem: str) -> ValueError:
    where = f"line {event.start_mark.line + 1}: " if event.start_mark else ""
    return ValueError(f"{where}{problem}")
